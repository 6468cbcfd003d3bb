"""The pages: templates that share one frame, each written as one file that needs no network."""

from __future__ import annotations

from pathlib import Path


def render(template: str, **values: object) -> str:
    """template: a file of this folder. What it is given is escaped, but for markup (plots)."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).resolve().parent)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True).get_template(template).render(**values)

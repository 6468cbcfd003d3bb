"""Plots as SVG, for pages without network."""

from __future__ import annotations

import io

import matplotlib
from markupsafe import Markup

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402

plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})


def svg(figure) -> Markup:
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    plt.close(figure)
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])


def plot(draw, height: float) -> Markup:
    """What draw(axes) makes of an empty plot, as SVG."""
    figure, axes = plt.subplots(figsize=(9, height))
    draw(axes)
    return svg(figure)

"""Help that opens with a line one can run."""

import click


class _OpensWithExample:
    def __init__(self, *args, example: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(click.style(self.example, bold=True) + "\n\n")
        super().format_help(ctx, formatter)


class Command(_OpensWithExample, click.Command):
    pass


class Group(_OpensWithExample, click.Group):
    pass

"""masu purge"""

import click

from masu.help import Command
from masu.messages import MASU_FAILED, fail, say


@click.command(cls=Command, example="masu purge $(pidof redis-server)")
@click.argument("pid", type=int)
def purge(pid: int) -> None:
    """Makes process PID give back what it keeps for reuse, now, also what it prepared by masu_prewarm. What its
    threads themselves keep ready stays. The process runs on masu with the option live."""
    from masu import live
    from masu.shown import size

    try:
        with live.Page(pid) as page:
            before = page.read().process["resident"]
            given = page.request(live.PURGE)
            after = page.read().process["resident"]
    except live.NotLive as why:
        fail(f"purge: {why}", MASU_FAILED)
    say(f"{page.program}, process {pid}: {size(given)} given back; resident {size(before)} before, {size(after)} after")

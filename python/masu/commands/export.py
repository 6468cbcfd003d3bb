"""masu export"""

from __future__ import annotations

import threading

import click

from masu.help import Command
from masu.messages import MASU_FAILED, fail, say


@click.command(cls=Command, example="masu export --listen 127.0.0.1:9109")
@click.option("--listen", metavar="ADDRESS:PORT", help="Serve the figures there, until interrupted; else print them once.")
@click.argument("pids", metavar="[PID...]", type=int, nargs=-1)
def export(listen: str | None, pids: tuple[int, ...]) -> None:
    """Gives the figures of the processes PID, of all that show theirs if none is named, in the
    text format of Prometheus. The processes run on masu with the option live."""
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server

    from masu.metrics import Collector

    registry = CollectorRegistry(auto_describe=False)
    collector = Collector(pids)
    registry.register(collector)
    if not listen:
        text = generate_latest(registry).decode()
        click.echo(text, nl=False)
        for why in collector.failed:
            fail(f"export: {why}", MASU_FAILED)
        if not text:
            fail("export: no process of this user shows its figures: masu run --live -- PROGRAM", MASU_FAILED)
        return
    address, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        fail(f"export: {listen}: not ADDRESS:PORT", MASU_FAILED)
    try:
        server = start_http_server(int(port), addr=address.strip("[]") or "0.0.0.0", registry=registry)
    except OSError as error:
        fail(f"export: {listen}: {error.strerror}", MASU_FAILED)
    if server:  # which port it was, if any would do; older versions of the library don't say
        port = server[0].server_port
    say(f"serving http://{address or '0.0.0.0'}:{port}/metrics")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        raise SystemExit(130) from None

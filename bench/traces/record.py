"""Records the bundled traces anew, and writes the table of README.md from what is in them.

script/traces calls it. Everything that a trace could name lies in /tmp/masu-traces meanwhile, and the
programs get an environment of their own: no trace says where or by whom it was recorded.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from masu import replay, trace
from masu.messages import Problem
from masu.bench.programs import pigeons

HERE = Path(__file__).resolve().parent
INPUTS = HERE / "inputs"
FOLDER = Path("/tmp/masu-traces")
MASU = Path(sys.executable).parent / "masu"
LEVEL = 19
"""Of zstd: written once, read often."""
LICENCES = Path("/usr/share/common-licenses")

Drive = Callable[[Path], None]


def nothing(_: Path) -> None:
    """No more than the command."""


@dataclass(frozen=True)
class Program:
    name: str
    kind: str
    package: str
    command: tuple[str, ...]
    about: str
    """What it works on, and what it stands for."""
    inputs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    prepare: Drive = nothing
    """Fills the folder."""
    drive: Drive = nothing
    """Asks a server, and ends it."""


# ---- Inputs that are made, and clients of the servers ----


def wait_for(ready: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 30
    while not ready():
        if time.monotonic() > until:
            raise Problem(f"waited in vain for {what}")
        time.sleep(0.05)


def run(*words: str, folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"{' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def works(*words: str, folder: Path) -> bool:
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0


def ask_redis(folder: Path) -> None:
    """Strings, lists, hashes and sorted sets set and read, then freed by redis's own thread for that."""
    client = ("redis-cli", "-s", "redis.sock")
    wait_for(lambda: works(*client, "ping", folder=folder), "redis-server")
    for test in ("set", "get", "lpush", "lrange_100", "hset", "zadd", "mset"):
        run(
            "redis-benchmark",
            "-s",
            "redis.sock",
            "-q",
            "-n",
            "1000",
            "-c",
            "10",
            "-r",
            "800",
            "-d",
            "150",
            "-t",
            test,
            folder=folder,
        )
    run(*client, "unlink", "mylist", "myhash", "myzset", folder=folder)
    run(*client, "flushall", "async", folder=folder)
    run(*client, "shutdown", "nosave", folder=folder)


def pages(folder: Path) -> None:
    for name, count in (("small.txt", 20), ("large.txt", 3000)):
        (folder / name).write_text("".join(f"line {i} of {count}, {i * 7919 % 10007}\n" for i in range(count)))


def ask_nginx(folder: Path) -> None:
    at = "http://127.0.0.1:8094/"
    wait_for(lambda: listens(8094), "nginx")
    for path in ("small.txt", "large.txt", "proxied/small.txt", "proxied/large.txt"):
        for more in ((), ("-H", "Accept-Encoding: gzip", "-k")):
            run("ab", "-q", "-n", "700", "-c", "8", *more, f"{at}{path}", folder=folder)
    os.kill(int((folder / "nginx.pid").read_text()), signal.SIGQUIT)


def holes(folder: Path) -> None:
    (folder / "pigeons.smt2").write_text("\n".join(pigeons(7)) + "\n(check-sat)\n")


def texts(folder: Path) -> None:
    """The licences that Debian has, cut into documents."""
    (folder / "recoll.conf").write_text(
        f"topdirs = {folder}/texts\nloglevel = 2\nthrQSizes = 2 2 2\nthrTCounts = 2 2 1\nindexstemminglanguages = english\n"
    )
    (folder / "texts").mkdir()
    for name in ("GPL-3", "Apache-2.0"):
        lines = (LICENCES / name).read_text().splitlines()
        for part in range(0, len(lines), 40):
            (folder / "texts" / f"{name}-{part}.txt").write_text("\n".join(lines[part : part + 40]) + "\n")


def world(folder: Path) -> None:
    mod = folder / ".minetest/games/walk/mods/walk"
    mod.mkdir(parents=True)
    shutil.copy(INPUTS / "world.lua", mod / "init.lua")
    (mod / "mod.conf").write_text("name = walk\n")
    (mod.parent.parent / "game.conf").write_text("title = walk\n")
    (folder / "world.mt").write_text(
        "gameid = walk\nbackend = sqlite3\nauth_backend = sqlite3\nplayer_backend = sqlite3\n"
    )
    (folder / "minetest.conf").write_text(
        "fixed_map_seed = 7\nnum_emerge_threads = 2\nserver_announce = false\nport = 30094\n"
    )


def configured(folder: Path) -> None:
    """Once before: the compiler is known."""
    run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", folder=folder)


def picture(folder: Path) -> None:
    """Noise and gradients, as the portable pixmap that any program reads."""
    width, height = 3000, 2000
    line = bytes((x * 7919 % 251) ^ (x >> 3) & 255 for x in range(3 * width))
    (folder / "picture.ppm").write_bytes(
        b"P6 %d %d 255\n" % (width, height) + b"".join(line[y % 97 :] + line[: y % 97] for y in range(height))
    )


# ---- What is recorded ----

PROGRAMS = (
    Program("python", "interpreter", "python3.11", ("/usr/bin/python3", "-S", "-B", "index.py"),
            "a word index as dictionaries, to JSON and back; with `PYTHONMALLOC=malloc`: each object is a block",
            inputs=("index.py",), environment={"PYTHONMALLOC": "malloc"}),
    Program("lua", "interpreter", "lua5.4", ("lua5.4", "ledger.lua"),
            "text lines to tables, sums, a sorted report: strings and small tables, `realloc` for all", inputs=("ledger.lua",)),
    Program("perl", "interpreter", "perl", ("perl", "log.pl"),
            "a log read by three interpreter threads, each of which is a copy of the first", inputs=("log.pl",)),
    Program("javascript", "script engine of a browser", "libmozjs-102-dev", ("js102", "page.js"),
            "Firefox's engine: JSON, HTML as text, sorting, pixels; its helper threads compile and free", inputs=("page.js",)),
    Program("cc1plus", "compiler", "g++-12", ("g++-12", "-O1", "-S", "-o", "/dev/null", "shapes.cc"),
            "templates and inlining at `-O1`; most of it is a header of the standard library", inputs=("shapes.cc",)),
    Program("sqlite", "database", "sqlite3", ("sqlite3", ":memory:", ".read shop.sql"),
            "6,000 orders: inserts, an index, joins, window functions, full text, JSON", inputs=("shop.sql",)),
    Program("redis", "cache server", "redis-server",
            ("redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--lazyfree-lazy-user-del", "yes"),
            "redis-benchmark with 10 clients: strings, lists, hashes, sorted sets; large values are freed by a thread of their own",
            drive=ask_redis),
    Program("nginx", "web server", "nginx", ("nginx", "-p", ".", "-c", "nginx.conf", "-e", "stderr"),
            "5,600 requests of ab with 8 clients: files and its own proxy, half of them compressed", inputs=("nginx.conf",),
            prepare=pages, drive=ask_nginx),
    Program("minetest", "game server", "minetest-server",
            ("minetestserver", "--world", ".", "--config", "minetest.conf", "--logfile", ""),
            "a part of a world is made by threads of its own; then 40 creatures look for their way in it, and grass spreads", prepare=world),
    Program("recoll", "indexer", "recollcmd", ("recollindex", "-c", ".", "-z"),
            "two licences cut into short documents, through a pipeline of threads: text, words, index", prepare=texts),
    Program("vips", "image pipeline", "libvips-tools",
            ("vips", "sharpen", "picture.ppm", "sharp.png", "--vips-concurrency=4"),
            "an image sharpened by four threads in small tiles", prepare=picture),
    Program("z3", "solver", "z3", ("z3", "pigeons.smt2"), "eight pigeons do not fit into seven holes", prepare=holes),
    Program("cmake", "build tool", "cmake", ("cmake", "-G", "Ninja", "-S", ".", "-B", "build"),
            "a project of 60 programs configured once more", inputs=("CMakeLists.txt",), prepare=configured),
)  # fmt: skip


def version_of(package: str) -> str:
    said = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=False)
    if said.returncode:
        raise Problem(f"{package} is not installed: script/bootstrap traces")
    return said.stdout


def release() -> str:
    return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.machine()}"


def record(program: Program) -> None:
    """Runs it, and keeps the process with most calls."""
    folder = FOLDER / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in program.inputs:
        shutil.copy(INPUTS / name, folder)
    program.prepare(folder)
    provenance = {"package": f"{program.package} {version_of(program.package)}", "release": release()}
    raw = FOLDER / f"{program.name}.trace"
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/games",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        **program.environment,
    }
    with (FOLDER / f"{program.name}.log").open("w+") as log:
        recording = subprocess.Popen(
            [MASU, "record", "-o", raw, "--", *program.command],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            program.drive(folder)
            status = recording.wait(300)
        finally:
            recording.terminate()  # reaches the program
            log.seek(0)
            said = log.read().strip()[-400:]
    if status:
        raise Problem(f"{program.name} ended with {status}: {said}")
    pack(raw, HERE / f"{program.name}.trace", provenance)


def pack(raw: Path, to: Path, provenance: dict[str, str]) -> None:
    whole = trace.read(raw)
    process = whole.main()
    head = process.head
    if not whole.complete or head.stopped or head.dropped or not head.ended:
        raise Problem(f"{raw} is not whole")
    writer = trace.Writer(to, LEVEL)
    writer.frame(trace.PROCESS, 0, process.page)
    blocks = b"".join(whole.blocks(process))
    for at in range(0, len(blocks), trace.MOST_RAW):  # blocks are pages, and so is this
        writer.frame(trace.BLOCKS, 0, blocks[at : at + trace.MOST_RAW])
    writer.end({**whole.summary, "processes": 1, **provenance})


# ---- The table ----

COLUMNS = ("trace", "kind", "package", "command", "calls", "threads", "handed over", "live at most", "file", "")


def row(program: Program) -> str:
    path = HERE / f"{program.name}.trace"
    found = trace.read(path)
    process = found.main()
    with tempfile.TemporaryDirectory() as folder:
        s = replay.plan(found, process, Path(folder)).summary
    cells = (
        f"`{program.name}`", program.kind, found.summary["package"], f"`{shlex.join(program.command)}`", f"{s['calls']:,}",
        f"{s['threads']:,}", f"{s['handed_over']:,}", f"{s['live_peak_bytes'] / 2**20:.1f} MiB", f"{path.stat().st_size / 1024:.0f} KiB",
        program.about,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def write_table() -> None:
    there = [p for p in PROGRAMS if (HERE / f"{p.name}.trace").exists()]
    releases = {trace.read(HERE / f"{p.name}.trace").summary["release"] for p in there}
    total = sum((HERE / f"{p.name}.trace").stat().st_size for p in there)
    said = f"Recorded on {'; '.join(sorted(releases))}. {len(there)} traces, {total / 2**20:.1f} MiB.\n\n"
    said += f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n" + "\n".join(map(row, there))
    readme = HERE / "README.md"
    text = re.sub(
        r"(<!-- script/traces -->\n).*?(\n<!-- end -->)",
        lambda m: m[1] + said + m[2],
        readme.read_text(),
        flags=re.DOTALL,
    )
    readme.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="script/traces", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help="these only; else all")
    names = parser.parse_args().name
    unknown = set(names) - {p.name for p in PROGRAMS}
    if unknown:
        parser.error(f"no trace '{min(unknown)}'; there are {', '.join(p.name for p in PROGRAMS)}")
    try:
        for program in PROGRAMS:
            if not names or program.name in names:
                print(program.name, flush=True)
                record(program)
        write_table()
    except Problem as problem:
        raise SystemExit(f"script/traces: {problem}") from None


if __name__ == "__main__":
    main()

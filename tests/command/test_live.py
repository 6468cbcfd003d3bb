"""masu stat, purge, doctor and export, on real processes."""

import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import MASU
from living import PROGRAM, eventually, named, one_error, pages_of, program, start  # noqa: F401, fixtures

from masu import doctor, live
from masu.commands.export import export

MIB = 1 << 20
UID = os.geteuid()


# ---- stat ------------------------------------------------------------------------


def stat(masu, pid):
    result = masu("stat", "--json", str(pid))
    assert result.stderr == ""
    return json.loads(result.stdout)


def resident(pid):
    return int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


def test_the_figures_are_true(masu, start):
    running = start("--live")
    figures = stat(masu, running.pid)
    p = figures["process"]
    assert figures["pid"] == running.pid and figures["program"] == "program"
    assert 32 * MIB <= p["live"] <= 33 * MIB + p["ready_most"]
    assert abs(p["resident"] - resident(running.pid)) < MIB
    (class_,) = [c for c in figures["class"] if c["size"] == 4096]
    assert 8192 <= class_["blocks"] <= 8192 + class_["room"] // class_["slabs"]
    assert sum(c["live"] for c in figures["class"]) + p["large"] == p["live"]
    running.tell("half")
    p = stat(masu, running.pid)["process"]
    assert 16 * MIB <= p["live"] <= 17 * MIB + p["ready_most"]
    assert p["slab_free"] + p["slab_unused"] >= 15 * MIB


def test_500_threads(masu, start):
    """More than a table has rows for: the last row has the rest."""
    running = start("--live")
    running.tell("500")
    figures = stat(masu, running.pid)
    p, heaps = figures["process"], figures["heap"]
    assert 501 <= p["heaps"] == len(heaps) - 1 + figures["heap_more"]
    for name in ("live", "blocks", "slabs"):
        large = {"live": p["large"], "blocks": p["large_blocks"], "slabs": 0}[name]
        assert sum(heap[name] for heap in heaps) + large == p[name], name
    assert p["live"] >= 32 * MIB + 500 * 100 * 1000
    assert f"and {figures['heap_more']} more\n" in masu("stat", str(running.pid)).stdout
    assert masu("export", str(running.pid)).stdout.count("masu_heap_live_bytes{") == len(heaps)


def test_stat_as_text(masu, start):
    result = masu("stat", str(start("--live").pid))
    assert result.stderr == ""
    assert re.search(r"^live +3\d\.\d MiB", result.stdout, re.MULTILINE)
    assert re.search(r"^ +4,096 +\d", result.stdout, re.MULTILINE)


def test_fragmentation_is_what_is_free_between_blocks(masu, start):
    running = start("--live")
    running.tell("half")
    p = stat(masu, running.pid)["process"]
    part = p["slab_free"] / (p["live"] + p["slab_free"])
    assert 0.4 < part < 0.55
    shown = re.search(r"^fragmentation +([\d.]+)%", masu("stat", str(running.pid)).stdout, re.MULTILINE)
    assert float(shown[1]) / 100 == pytest.approx(part, abs=0.001)
    exported = samples(masu("export", str(running.pid)).stdout)
    labels = (("pid", str(running.pid)), ("program", "program"))
    assert exported["masu_external_fragmentation_ratio", labels] == pytest.approx(part, abs=0.001)


def test_names_are_shown_as_they_are(masu, start, named):
    running = start("--live", command=[named])
    figures = stat(masu, running.pid)
    heaps = {row["name"]: row for row in figures["named_heap"]}
    assert set(heaps) == {"[b]x[/b]", "caf\u00e9 \"\\\n\ufffd"}
    forms = {(row["form"], row["name"], row["heap"]): row for row in figures["form"]}
    pool, arena = forms["pool", "[red]pool", "[b]x[/b]"], forms["arena", "a[/]rena", ""]
    assert pool["used"] == 100 << 10 and arena["used"] == 300 << 10
    text = masu("stat", str(running.pid)).stdout
    for name in ("[b]x[/b]", "[red]pool", "a[/]rena"):
        assert re.search(rf"(^| ){re.escape(name)}( |$)", text, re.MULTILINE), text
    exported = samples(masu("export", str(running.pid)).stdout)
    of = (("pid", str(running.pid)), ("program", "program"))
    assert exported["masu_form_used_bytes", tuple(sorted((*of, ("form", "pool"), ("name", "[red]pool"), ("heap", "[b]x[/b]"))))] == 100 << 10
    for name, row in heaps.items():
        assert exported["masu_named_heap_used_bytes", tuple(sorted((*of, ("name", name))))] == row["used"]


def test_the_librarys_json_is_json(masu, named):
    figures = json.loads(masu("run", "--", named, "print them", check=True).stdout)
    assert figures["program"] == "program" and figures["process"]["live"] > 300 << 10
    assert {row["name"] for row in figures["named_heap"]} == {"[b]x[/b]", "caf\u00e9 \"\\\n\ufffd"}
    assert sum(row["live"] for row in figures["class"]) + figures["process"]["large"] == figures["process"]["live"]


def test_threads_have_their_numbers(masu, start):
    running = start("--live")
    running.tell("thread")
    tids = {int(t) for t in os.listdir(f"/proc/{running.pid}/task")}

    def both():
        return len({h["thread"] for h in stat(masu, running.pid)["heap"]} & tids) == 2

    assert eventually(both)


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-c", "print('ready', flush=True); x = [bytes(1000) for i in range(10**5)]; input()"],
        ["redis"],
    ],
    ids=["python", "redis"],
)
def test_real_programs(masu, start, command, tmp_path):
    if command == ["redis"]:
        if not shutil.which("redis-server"):
            pytest.skip("no redis-server")
        command = ["sh", "-c", f"echo ready; exec redis-server --port 0 --unixsocket {tmp_path}/s --save '' >&2"]
    running = start("--live", command=command)
    assert eventually(lambda: running.pid in live.processes())
    assert eventually(lambda: stat(masu, running.pid)["process"]["live"] > MIB // 2)
    figures = stat(masu, running.pid)
    assert figures["process"]["live"] < figures["process"]["resident"]


# ---- The page --------------------------------------------------------------------


def test_the_page_is_the_users_alone_and_goes_at_the_end(start):
    running = start("--live")
    (page,) = pages_of(running.pid)
    assert page.stat().st_mode & 0o7777 == 0o600
    assert page.stat().st_uid == UID
    running.process.stdin.close()
    running.process.wait()
    assert not pages_of(running.pid)


def test_also_by__exit(start):
    running = start("--live")
    running.tell("quick")
    running.process.wait()
    assert not pages_of(running.pid)


def test_a_killed_process_leaves_a_page_that_the_tools_remove(masu, start):
    running = start("--live")
    running.process.kill()
    running.process.wait()
    assert pages_of(running.pid)
    one_error(masu("stat", str(running.pid)), "there is no process")
    masu("export")
    assert not pages_of(running.pid)


def test_no_signal_is_blocked(start):
    running = start("--live")
    status = Path(f"/proc/{running.pid}/status").read_text()
    assert int(re.search(r"SigBlk:\s*(\w+)", status).group(1), 16) == 0
    running.process.terminate()
    assert running.process.wait(timeout=30) == -signal.SIGTERM


def test_no_page_without_the_option(start):
    assert not pages_of(start().pid)


def test_a_link_in_its_place_is_not_followed(start, tmp_path, program):
    """Who knows number and start time in advance can put one there: it is replaced."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    code = (
        "import os, sys; fields = open('/proc/self/stat').read().rpartition(')')[2].split();"
        f"name = f'/dev/shm/masu-{UID}-{{os.getpid()}}-{{fields[19]}}'; os.unlink(name); os.symlink('{victim}', name);"
        f"os.execv('{program}', ['program'])"
    )
    running = start("--live", command=[sys.executable, "-c", code])
    (page,) = pages_of(running.pid)
    assert not page.is_symlink() and victim.read_text() == "untouched"


def test_a_full_disk_is_said_and_the_program_goes_on(compile_program):
    """In a namespace that has a small /dev/shm of its own, with a page that lacks room."""
    program = compile_program("#include <stdlib.h>\nint main(void) { return malloc(1000) ? 3 : 4; }")
    full = "mount -t tmpfs -o size=8k none /dev/shm && echo full > /dev/shm/it || exit 77; "
    run = ["unshare", "-rm", "sh", "-c", full + '"$@"; echo $? $(ls /dev/shm)', "sh", MASU, "run", "--live", "--", program]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode or result.stdout == "":
        pytest.skip("no right to mount")
    assert result.stdout == "3 it\n"
    assert result.stderr.count("\n") == 1 and "No space left on device" in result.stderr


def threads(pid):
    """The folders of a process's threads in /proc, by their names."""
    return {(t / "comm").read_text().rstrip(): t for t in Path(f"/proc/{pid}/task").iterdir()}


def test_a_program_without_threads_gets_one_thread_and_no_helper(masu, start):
    """A page must not change what the program's memory does."""
    running = start("--live")
    stat(masu, running.pid)  # by then masu-live has its name
    assert set(threads(running.pid)) == {"program", "masu-live"}


def test_nobody_looks_nothing_runs(start):
    """The thread sleeps: its number of switches stands still while nobody asks."""
    running = start("--live")
    thread = threads(running.pid)["masu-live"]

    def switches():
        return re.findall(r"ctxt_switches:\s*(\d+)", (thread / "status").read_text())

    with live.Page(running.pid) as page:
        page.read()
    before = None
    while before != switches():  # it goes to sleep
        before = switches()
        time.sleep(0.1)
    time.sleep(1)
    assert switches() == before


def test_a_forked_child_has_its_own(masu, start):
    running = start("--live")
    child = int(running.tell("fork"))
    try:
        assert eventually(lambda: pages_of(child))
        assert stat(masu, child)["pid"] == child
        assert 32 * MIB <= stat(masu, child)["process"]["live"] <= 40 * MIB
    finally:
        os.kill(child, signal.SIGKILL)
    assert stat(masu, running.pid)["process"]["live"] >= 32 * MIB


def test_so_has_a_program_that_it_executes(masu, start):
    running = start("--live")
    before = pages_of(running.pid)
    running.process.stdin.write("exec\n")
    running.process.stdin.flush()
    assert eventually(lambda: Path(f"/proc/{running.pid}/comm").read_text() == "sleep\n")
    assert eventually(lambda: masu("stat", "--json", str(running.pid)).returncode == 0)
    assert stat(masu, running.pid)["program"] == "sleep"
    assert pages_of(running.pid) == before, "one page, of the same name"


def test_a_process_ends_with_its_last_thread_all_the_same(start):
    running = start("--live")
    running.tell("lonely")
    assert running.process.wait(timeout=30) == 0
    assert not pages_of(running.pid)


# ---- Readers ---------------------------------------------------------------------


def test_two_readers_at_once(start):
    running = start("--live")
    code = (
        "import sys; from masu import live\n"
        "with live.Page(int(sys.argv[1])) as page:\n"
        "  for i in range(200):\n"
        "    f = page.read()\n"
        "    assert sum(c['live'] for c in f.rows['class']) + f.process['large'] == f.process['live']\n"
        "    if i % 20 == 0: page.request(live.MEASURE)\n"
    )
    readers = [subprocess.Popen([sys.executable, "-c", code, str(running.pid)]) for _ in range(2)]
    assert [r.wait(timeout=60) for r in readers] == [0, 0]


def stop(running):
    os.kill(running.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{running.pid}/task")
    assert eventually(lambda: all(") T " in t.read_text() for t in tasks.glob("*/stat")))


def test_one_that_is_stopped(start, monkeypatch):
    monkeypatch.setattr(live, "PATIENCE_S", 0.3)
    running = start("--live")
    with live.Page(running.pid) as page:
        stop(running)
        with pytest.raises(live.NotLive, match="does not answer"):
            page.read()
        os.kill(running.pid, signal.SIGCONT)
        page.read()


def test_one_that_is_killed_while_looked_at(start):
    running = start("--live")
    with live.Page(running.pid) as page:
        page.read()
        running.process.kill()
        with pytest.raises(live.NotLive, match="has ended"):
            for _ in range(1000):
                page.read()


ASKS = "import sys; from masu import live\nwith live.Page(int(sys.argv[1])) as page: page.request(live.PURGE, patience_s=60)"


def test_a_reader_that_is_stopped_while_it_asks(masu, start):
    """As by Ctrl-Z. Others say so, and go on after it."""
    running = start("--live")
    stop(running)
    other = subprocess.Popen([sys.executable, "-c", ASKS, str(running.pid)])
    (page,) = pages_of(running.pid)
    try:
        with open(page, "rb") as file:
            assert eventually(lambda: is_locked(file))
        stop(other)
        os.kill(running.pid, signal.SIGCONT)
        result = masu("purge", str(running.pid))
        one_error(result, f"process {running.pid}: another reader is asking")
        os.kill(other.pid, signal.SIGCONT)
        assert other.wait(timeout=60) == 0
        assert masu("purge", str(running.pid)).returncode == 0
    finally:
        other.kill()
        other.wait()


def is_locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def test_unknown_requests_are_answered(start):
    with live.Page(start("--live").pid) as page:
        with pytest.raises(live.NotLive, match="[Nn]ot implemented"):
            page.request(99)
        page.read()


@pytest.mark.parametrize("command", ["stat", "top", "doctor", "purge", "export"])
def test_why_there_is_nothing_to_see(masu, start, command):
    one_error(masu(command, "4194304"), "there is no process 4194304")
    one_error(masu(command, str(os.getpid())), "does not run on masu")
    one_error(masu(command, str(start().pid)), "without the option live")


@pytest.mark.skipif(UID != 0, reason="needs root to be two users")
@pytest.mark.parametrize("command", ["stat", "top", "doctor", "purge", "export"])
def test_another_users_process(start, command):
    mine = start("--live")
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    if subprocess.run([*other, MASU, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("the other user cannot reach masu")
    result = subprocess.run([*other, MASU, command, str(mine.pid)], capture_output=True, text=True, check=False)
    one_error(result, f"process {mine.pid} belongs to another user")
    assert mine.tell("half") == "done"


def damaged_page(start):
    running = start("--live")
    with live.Page(running.pid):
        (page,) = pages_of(running.pid)
    return running, page


@pytest.mark.parametrize("at, bytes_, text", [(0, b"x", "damaged"), (8, b"\x63", "version 99"), (72, b"\xff\xff\xff\xff", "damaged"), (live.TABLES + 28, bytes(4), "damaged")])
def test_a_page_that_is_not_as_it_should_be(masu, start, at, bytes_, text):
    running, page = damaged_page(start)
    with open(page, "r+b") as file:
        file.seek(at)
        file.write(bytes_)
    one_error(masu("stat", str(running.pid)), text)


def test_a_page_that_is_cut_off_while_it_is_read(start):
    """By who would have root's reader end by SIGBUS."""
    running, page = damaged_page(start)
    code = (
        "import os, signal, sys; from masu import live\n"
        "with live.Page(int(sys.argv[1])) as page:\n"
        "  page.read()\n"
        "  os.kill(page.pid, signal.SIGSTOP)\n"
        "  os.truncate(sys.argv[2], 0)\n"
        "  try: page.read()\n"
        "  except live.NotLive as why: print(why)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(running.pid), page], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "") and "damaged" in result.stdout


def test_a_page_that_is_in_use_stays():
    """Of a process that is not to be seen from here, as that of a container beside this one."""
    path = live.SHM / f"masu-{UID}-4194304-1"
    with open(path, "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    try:
        live.sweep()
        assert path.exists()
        mapped.close()
        live.sweep()
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


# ---- purge -----------------------------------------------------------------------


def test_purge_gives_memory_back(masu, start):
    running = start("--live", "--options", "purge_delay:3600000")
    running.tell("free")
    before = resident(running.pid)
    result = masu("purge", str(running.pid))
    assert result.returncode == 0
    assert "given back" in result.stderr
    assert resident(running.pid) < before - 10 * MIB  # masu itself keeps 16 MiB at most
    said = float(re.search(r"([0-9.]+) MiB after", result.stderr)[1])
    assert said == pytest.approx(resident(running.pid) / MIB, abs=0.2)


# ---- doctor ----------------------------------------------------------------------


@pytest.mark.parametrize("state", ["full", "half", "free"])
def test_the_parts_are_the_resident_memory(start, state):
    running = start("--live", "--options", "purge_delay:3600000")
    if state != "full":
        running.tell(state)
    with live.Page(running.pid) as page:
        d = doctor.diagnose(page)
    assert sum(p.bytes for p in d.parts) == d.kernel.total
    assert abs(d.kernel.total - resident(running.pid)) < MIB
    live_, lost, kept = (d.part(n) for n in ("live", "half-empty slabs", "kept for reuse"))
    if state == "full":
        assert abs(live_ - 32 * MIB) < 2 * MIB and lost < MIB and kept < 2 * MIB
    elif state == "half":
        assert abs(live_ - 16 * MIB) < 2 * MIB
        assert "blocks of 4,096" in " ".join(doctor.advice(d)) or lost + kept < 4 * MIB
    else:
        assert live_ < 2 * MIB and kept > 10 * MIB
        assert f"masu purge {running.pid}" in " ".join(doctor.advice(d))


def test_what_was_measured_is_not_shown_as_of_now(masu, start):
    running = start("--live")
    masu("doctor", str(running.pid), check=True)
    assert "resident" not in stat(masu, running.pid)
    assert "masu_resident_own_bytes{" not in masu("export", str(running.pid)).stdout
    with live.Page(running.pid) as page:
        assert page.read(measured=True).rows["resident"]
    child = int(running.tell("fork"))
    try:
        assert eventually(lambda: pages_of(child))
        with live.Page(child) as page:
            assert not page.read(measured=True).rows["resident"], "it is the parent's"
    finally:
        os.kill(child, signal.SIGKILL)


SMAPS = """\
7f0000000000-7f0008000000 rw-p 00000000 00:00 0
Rss:              131072 kB
AnonHugePages:    {of_masu} kB
VmFlags: rd wr mr mw me ac {flags}sd
7f1000000000-7f1008000000 rw-p 00000000 00:00 0
Rss:               40960 kB
AnonHugePages:     {of_others} kB
VmFlags: rd wr mr mw me ac sd
55d000000000-55d000800000 r-xp 00000000 fe:01 77                         /usr/bin/program
Rss:                4096 kB
AnonHugePages:         0 kB
VmFlags: rd ex mr mw me sd
"""


def advised(*, of_masu=0, of_others=0, asked=False, live_=20, heaps=3, slack=None):
    """MiB. What the doctor says of such a process."""
    text = SMAPS.format(of_masu=of_masu << 10, of_others=of_others << 10, flags="hg " * asked)
    kernel = doctor.parse_smaps(text.splitlines(True))
    assert (kernel.total, kernel.files) == (172 * MIB, 4 * MIB)
    sizes = [("live", live_), ("half-empty slabs", 1), ("kept for reuse", 1), ("masu itself", 1), ("other mappings", 169 - live_)]
    parts = [doctor.Part(name, mib * MIB, "") for name, mib in sizes]
    rows = {"process": [{"heaps": heaps}], "class": [], "sampled": [{"slack": slack * MIB}] if slack else []}
    return doctor.advice(doctor.Diagnosis(live.Figures(7, "program", "", 0, {}, rows), kernel, parts))


def test_huge_pages_are_whose_wish_they_were():
    assert not [said for said in advised(of_masu=4) if "huge pages" in said]
    (asked,) = [said for said in advised(of_masu=100, asked=True) if "huge pages" in said]
    assert "100.0 MiB are huge pages" in asked and "option huge_pages" in asked
    for unasked in (advised(of_masu=100), advised(of_masu=10, of_others=38, asked=True)):
        (said,) = [one for one in unasked if "huge pages" in one]
        assert "the system gives them unasked" in said and "huge_pages" not in said.replace("transparent_hugepage", "")
    assert not [said for said in advised(of_masu=100, live_=120) if "huge pages" in said], "they are used"


def test_what_else_the_doctor_says():
    assert ["149.0 MiB are not from malloc: no allocator changes them"] == advised()
    assert any(said.startswith("65 heaps, one for each thread") for said in advised(heaps=65))
    assert advised(live_=150) == ["nothing stands out: most of it is in use"]


def test_the_doctor_proposes_classes_of_its_own():
    (said,) = advised(live_=150, slack=25)
    assert "25.0 MiB are lost to size classes" in said and "masu record -- program and masu tune program.trace" in said
    for less in (None, 24):
        assert advised(live_=150, slack=less) == ["nothing stands out: most of it is in use"]


def test_the_doctors_screen(masu, start):
    running = start("--live")
    result = masu("doctor", str(running.pid))
    assert result.returncode == 0 and result.stderr == ""
    assert re.search(r"live +3\d\.\d MiB", result.stdout)
    assert re.search(r"size classes unknown .*--start held ready", " ".join(result.stdout.split()))
    assert "•" in result.stdout


def test_the_doctor_says_what_size_classes_cost(masu, start, compile_program):
    source = PROGRAM.replace("SIZE = 4096", "SIZE = 4097")
    running = start("--live", "--options", "profile:2", command=[compile_program(source, "-pthread", "-fno-builtin")])
    (class_,) = [c for c in stat(masu, running.pid)["class"] if c["blocks"] > 8000]
    lost = 8192 * (class_["size"] - 4097) / MIB
    screen = " ".join(masu("doctor", str(running.pid)).stdout.split())
    said = re.search(r"size classes ([\d.]+) MiB of live: .*; ([\d.]+) MiB to ([\d.]+) MiB of the [\d.]+ MiB", screen)
    assert float(said[1]) == pytest.approx(lost, abs=0.2)
    assert float(said[2]) <= lost + 0.1 and lost - 0.1 <= float(said[3])
    assert "masu tune program.trace" in screen


# ---- export ----------------------------------------------------------------------


def samples(text):
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_export_is_what_prometheus_reads(masu, start):
    running, other = start("--live"), start("--live")
    result = masu("export", str(running.pid), str(other.pid))
    assert result.stderr == ""
    found = samples(result.stdout)
    for pid in (running.pid, other.pid):
        labels = (("pid", str(pid)), ("program", "program"))
        assert 32 * MIB <= found["masu_live_bytes", labels] <= 40 * MIB
        assert found["masu_class_blocks", (("pid", str(pid)), ("program", "program"), ("size", "4096"))] >= 8192
        assert ("masu_returned_bytes_total", labels) in found
    assert samples(masu("export").stdout).keys() >= found.keys()


def test_one_that_has_ended_does_not_hide_the_others(masu, start, monkeypatch, capsys):
    running = start("--live")
    result = masu("export", str(running.pid), "4194304")
    assert result.returncode == 125 and "there is no process 4194304" in result.stderr
    assert "masu_live_bytes" in result.stdout
    monkeypatch.setattr(live, "processes", lambda: [4194304, running.pid])  # it ended just after
    export.callback(listen=None, pids=())
    assert "masu_live_bytes" in capsys.readouterr().out


def test_those_that_are_stopped_do_not_hold_up_the_others(start, capsys):
    stopped, running = [start("--live"), start("--live")], start("--live")
    for one in stopped:
        stop(one)
    before = time.monotonic()
    with pytest.raises(SystemExit):
        export.callback(listen=None, pids=(*(one.pid for one in stopped), running.pid))
    assert time.monotonic() - before < 4
    out, error = capsys.readouterr()
    assert f'masu_live_bytes{{pid="{running.pid}"' in out
    assert "does not answer" in error


def test_export_serves(start):
    running = start("--live")
    server = subprocess.Popen([MASU, "export", "--listen", "127.0.0.1:0", str(running.pid)], stderr=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://\S+", server.stderr.readline()).group()
        for _ in range(2):
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert "masu_live_bytes" in answer.read().decode()
        running.process.kill()
        running.process.wait()
        with urllib.request.urlopen(address, timeout=20) as answer:  # goes on without it
            assert "masu_live_bytes{" not in answer.read().decode()
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("where", ["nonsense", "127.0.0.1:", "127.0.0.1:99999"])
def test_a_bad_address(masu, where):
    one_error(masu("export", "--listen", where), "not ADDRESS:PORT")


def test_a_taken_port(masu):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        one_error(masu("export", "--listen", "127.0.0.1:{}".format(taken.getsockname()[1])), "in use")

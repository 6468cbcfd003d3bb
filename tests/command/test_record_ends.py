"""masu record, however programs and it end: killed, interrupted, on a full disk, with what they leave behind."""

import contextlib
import errno
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import MASU, as_in_a_terminal, gone
from recording import HEADER, frames, recorded, summary

from masu import record, replay, report
from masu import trace as traces
from masu.library import recorder_path
from masu.messages import Problem

pytestmark = pytest.mark.usefixtures("python_uses_malloc")

PYTHON = os.path.realpath(sys.executable)


FOUR_THREADS = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
enum { THREADS = 4, N = 200000, LARGER = 7000 }; /* so many that threads claim several blocks at once */
static pthread_barrier_t all;
static void *body(void *number) {
  for (size_t i = 0; i < N; i++) {
    void *volatile p = malloc(LARGER + (size_t)number);
    if (i % 8) free(p);
  }
  pthread_barrier_wait(&all);
  if (number) pause();
  return NULL;
}
int main(void) {
  pthread_t thread, first;
  pthread_barrier_init(&all, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; i++)
    if (pthread_create(i ? &thread : &first, NULL, body, (void *)i)) return 9;
  pthread_barrier_wait(&all);
  pthread_join(first, NULL);
  ENDING;
  return 9;
}
"""


@pytest.mark.parametrize(("ending", "status"), [("_exit(3)", 3), ("abort()", 128 + signal.SIGABRT), ("raise(SIGSEGV)", 128 + signal.SIGSEGV),
                                                ("kill(getpid(), SIGKILL)", 128 + signal.SIGKILL)])  # fmt: skip
def test_every_call_of_a_program_that_died_is_there(masu, compile_program, tmp_path, ending, status):
    program = compile_program(FOUR_THREADS, "-fno-builtin", "-pthread", f"-DENDING={ending}")
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == status
    found = traces.read(trace)
    s = summary(trace)
    assert s["by_kind"]["free"] == 4 * 175_000
    assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
    assert s["ended"] == ending.startswith("_exit")
    taken = {size: n for size, n, *_ in report.analyse(found, found.main(), tmp_path).data["sizes"]}
    assert [taken[7000 + thread] for thread in range(4)] == [200_000] * 4


COUNTED = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
enum { THREADS = 4 };
static volatile uint64_t (*returned)[8]; /* calls, of each thread */
static void *body(void *number) {
  for (;;) {
    void *p = aligned_alloc(64, 6400);
    returned[(size_t)number][0]++;
    free(p);
  }
}
int main(int argc, char **argv) {
  pthread_t thread;
  returned = mmap(NULL, THREADS * sizeof *returned, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
  for (size_t i = 0; i < THREADS; i++)
    if (returned == MAP_FAILED || pthread_create(&thread, NULL, body, (void *)i)) return 9;
  pthread_join(thread, NULL);
}
"""


def is_copy_under_way(spool):
    """A copy that doesn't count yet, or a block whose copy does."""
    data = spool.read_bytes()
    heads = {head.page: head for _, head in traces._blocks_in(data, traces.PAGE)}
    return any(not head.counts(heads.get) for head in heads.values())


def test_a_program_that_is_killed_at_any_moment_has_each_call_once(compile_program, tmp_path):
    """Also where a thread was copying its blocks, which is what it does in a quarter of the time."""
    program, counts = compile_program(COUNTED, "-fno-builtin", "-pthread"), tmp_path / "counts"
    under_way = 0
    for n in range(40):
        counts.write_bytes(bytes(4096))
        folder = tmp_path / f"{n}.spool"
        folder.mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(recorder_path()), "MASU_RECORD": str(folder)}
        with subprocess.Popen([program, counts], env=environment) as process:
            while (returned := sum(struct.unpack("<32Q", counts.read_bytes()[:256]))) < 1_000_000 and process.poll() is None:
                time.sleep(0.001 * (1 + n % 7))
            process.kill()
        returned = sum(struct.unpack("<32Q", counts.read_bytes()[:256]))
        (spool,) = folder.glob("*.spool")
        under_way += is_copy_under_way(spool)
        s = summary(folder)
        assert returned <= s["by_kind"]["aligned_alloc"] <= returned + 4
        assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
        shutil.rmtree(folder)
        if under_way >= 3 and n >= 7:
            break
    assert under_way


def test_pages_that_are_claimed_are_blocks_at_once_and_full_when_their_thread_has_ended(compile_program, tmp_path):
    """What else is claimed after them would have to wait."""
    program = compile_program(FOUR_THREADS, "-fno-builtin", "-pthread", "-DENDING=_exit(0)")
    environment = {**os.environ, "LD_PRELOAD": str(recorder_path()), "MASU_RECORD": str(tmp_path)}
    subprocess.run([program], env=environment, check=True, timeout=60)
    data = next(tmp_path.glob("*.spool")).read_bytes()
    claimed = traces.ProcessHead.parse(data[: traces.PAGE], tmp_path).pages
    at, threads = 1, {}
    while at < claimed:
        block = traces.BlockHead.parse(data, at * traces.PAGE)
        assert block and block.page == at
        thread = struct.unpack_from("<I", data, at * traces.PAGE + 16)[0]
        threads.setdefault(thread, []).append(block)
        at += block.pages
    assert at == claimed and sorted(threads) == [0, 1, 2, 3, 4]
    assert all(block.state == traces.FULL for block in threads[1])
    for thread in (2, 3, 4):
        still_open = [block for block in threads[thread] if block.state == traces.OPEN]
        assert 1 <= len(still_open) <= 8 and len(threads[thread]) > 8


def test_ctrl_c_ends_the_program_and_the_trace_is_whole(tmp_path):
    trace = tmp_path / "it.trace"
    program = "import time; x = [str(i) for i in range(100000)]; print('ready', flush=True)\nwhile True: time.sleep(0.1)"
    process = subprocess.Popen(
        [MASU, "record", "-o", trace, "--", PYTHON, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=as_in_a_terminal,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (1, 130)  # python's own way with Ctrl-C
    assert "it.trace" in errors.replace("\n", "")
    assert not Path(f"{trace}.spool").exists()


def test_ctrl_c_before_the_program_leaves_no_folder(monkeypatch, tmp_path):
    """When the folder is made, it is the program's already."""
    handlers = []

    def mkdir(*_, **__):
        handlers.append(signal.getsignal(signal.SIGINT))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(record, "_adopt", lambda: None)
    with pytest.raises(Problem, match="No space left"):
        record.record("/bin/true", ["true"], tmp_path / "it.trace", tmp_path, environment={})
    assert handlers == [signal.SIG_IGN]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_are_the_programs(tmp_path, name):
    program = (
        "import signal, sys\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = subprocess.Popen([MASU, "record", "-o", tmp_path / "it.trace", "--", PYTHON, "-c", program],
                               stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=as_in_a_terminal)  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 5
    assert (tmp_path / "it.trace").exists() and not (tmp_path / "it.trace.spool").exists()


def test_when_both_are_killed_the_spool_files_are_replayed(masu, tmp_path):
    trace = tmp_path / "it.trace"
    program = "import time; x = [str(i) for i in range(100000)]; print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [MASU, "record", "-o", trace, "--", PYTHON, "-c", program],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 60
    while trace.stat().st_size <= traces.HEADER.size and time.monotonic() < deadline:
        time.sleep(0.01)  # until masu record has taken up something
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert Path(f"{trace}.spool").is_dir()
    for given in (trace, f"{trace}.spool"):
        result = masu("replay", "-n", "1", "--settle", "0", given)
        assert result.returncode == 0, result.stderr
        assert "masu record did not end" in " ".join(result.stderr.split())
    s = summary(trace)
    assert s["calls"] > 200000
    assert s["unknown_frees"] < 100 and s["vanished"] == 0
    for file in Path(f"{trace}.spool").iterdir():  # as where all processes had been taken up whole
        file.unlink()
    assert "masu record did not end" in traces.read(trace).damage
    again = masu("record", "-o", trace, "--", "true")
    assert again.returncode == 125
    assert "is there already" in " ".join(again.stderr.split())


def test_a_full_disk_ends_the_recording_and_not_the_program(masu, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount")
    try:
        program = "x = [str(i) for i in range(3000000)]; print(len(x))"
        result = masu("record", "-o", disk / "it.trace", "--", PYTHON, "-c", program)
        assert result.stdout == "3000000\n"
        (line,) = [line for line in result.stderr.splitlines() if "masu:" in line and "try: masu replay" not in line]
        assert "No space left on device" in line
        found = traces.read(disk / "it.trace")
        s = replay.plan(found, found.main(), tmp_path).summary
        assert s["calls"] > 10_000 and not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
        result = masu("replay", "-n", "1", "--settle", "0", disk / "it.trace")
        assert result.returncode == 0, result.stderr
        assert "recording ended before the program: No space left" in " ".join(result.stderr.split())
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


WITHOUT_ROOM = """
import errno, os, sys
from masu import record
from masu.cli import main
room, part = int(sys.argv.pop(1)), float(sys.argv.pop(1))

class Full(record.Writer):
    written = 0

    def _write(self, data):
        if self.written == room:
            self.file.write(data[: int(part * len(data))])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written += 1
        super()._write(data)

record.Writer = Full
main()
"""


def recorded_without_room(trace, program, room, part):
    """The trace's disk is full when so much is written: its header, frames, and a part of the next one."""
    command = [sys.executable, "-c", WITHOUT_ROOM, str(room), str(part), "record", "-o", trace, "--", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 125
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("masu: ")]
    assert line == f"masu: error: record: {trace}: No space left on device; what was recorded since is in {trace}.spool"


def has_every_call(trace):
    s = summary(trace)
    assert 1000 <= s["by_kind"]["malloc"] <= 1010 and 4000 <= s["by_kind"]["free"] <= 4010
    assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]


@pytest.mark.parametrize("room", range(5))
def test_where_the_trace_has_no_room_it_is_read_with_what_is_left(masu, calls, tmp_path, room):
    trace = tmp_path / "it.trace"
    recorded_without_room(trace, calls, room, 0.5)
    has_every_call(trace)
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert result.returncode == 0, result.stderr
    assert "masu record did not end" in " ".join(result.stderr.split())


def pages_of(data):
    """The places of its blocks."""
    return [head.page for _, head in traces._blocks_in(data)]


def test_a_block_in_the_trace_and_in_its_spool_file_counts_once(calls, tmp_path):
    """Taken up whole, and not yet removed there."""
    trace = tmp_path / "it.trace"
    recorded_without_room(trace, calls, 2, 1.0)  # after the header and the process come blocks
    process = traces.read(trace).main()
    taken_up, spooled = b"".join(traces.read(trace)._taken_up(process)), process.spool.read_bytes()[traces.PAGE :]
    assert set(pages_of(taken_up)) & set(pages_of(spooled))
    both = pages_of(b"".join(traces.read(trace).blocks(process)))
    assert set(both) == {*pages_of(taken_up), *pages_of(spooled)} and len(both) == len(set(both))
    has_every_call(trace)


GOES_ON = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void some(size_t size) {
  for (int i = 0; i < 20000; i++) { void *volatile p = malloc(size); free(p); }
}
int main(void) {
  some(6666);
  dprintf(1, "%d\n", (int)getpid());
  getchar();
  some(7777);
  return 0;
}
"""


def test_when_masu_record_is_killed_the_program_goes_on_and_is_there_to_its_end(compile_program, tmp_path):
    trace, program = tmp_path / "it.trace", compile_program(GOES_ON, "-fno-builtin")
    process = subprocess.Popen([MASU, "record", "-o", trace, "--", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=30)
    process.communicate("go\n", timeout=30)
    assert gone(pid)
    found = traces.read(trace)
    assert "masu record did not end" in found.damage and found.main().head.ended
    s = summary(trace)
    assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
    taken = {size: n for size, n, *_ in report.analyse(found, found.main(), tmp_path).data["sizes"]}
    assert (taken[6666], taken[7777]) == (20_000, 20_000)


def test_a_program_without_a_file_descriptor_left_is_told_that_its_recording_ends(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <fcntl.h>\n#include <stdlib.h>\n#include <sys/resource.h>\nint main(void) {\n"
        "struct rlimit few = {20, 20}; setrlimit(RLIMIT_NOFILE, &few); while (open(\"/dev/null\", O_RDONLY) >= 0) ;\n"
        "for (int i = 0; i < 50000; i++) { void *volatile p = malloc(100); free(p); } return 3; }\n",
        "-fno-builtin",
    )
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 3
    assert result.stderr.count("ends here: Too many open files") == 1
    result = masu("replay", "-n", "1", "--settle", "0", trace)
    assert "recording ended before the program: Too many open files" in " ".join(result.stderr.split())


def test_processes_that_have_ended_are_taken_up_meanwhile(masu, tmp_path):
    """Else a build of thousands would have them looked at, all of them, again and again."""
    program = "for i in $(seq 100); do /bin/true; done; sleep 0.5; ls $MASU_RECORD/*.spool | wc -l"
    trace, result = recorded(masu, tmp_path, "sh", "-c", program)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 20
    found = traces.read(trace)
    assert not found.damage and len(found.processes) == found.summary["processes"] >= 101
    assert sum(p.name == "true" and p.head.ended and p.size > 0 for p in found.processes) == 100


def test_a_processor_is_spare_that_has_little_to_do_but_for_us(monkeypatch, tmp_path):
    now, own, counts = [100.0], [0.0], tmp_path / "stat"
    monkeypatch.setattr(record.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(record.time, "thread_time", lambda: own[0])

    def passes(seconds, idle, waits, ours):
        passes.idle, passes.waits = passes.idle + idle, passes.waits + waits
        ticks = os.sysconf("SC_CLK_TCK")
        counts.write_text(f"cpu  10 20 30 {round(passes.idle * ticks)} {round(passes.waits * ticks)} 0 0 0 0 0\ncpu0 1 2 3\n")
        now[0], own[0] = now[0] + seconds, own[0] + ours

    passes.idle = passes.waits = 50
    passes(0, 0, 0, 0)
    spare = record.Spare(counts)
    passes(1, 0.6, 0.2, 0)
    assert spare.look()
    passes(record.POLL_S / 2, 0, 0, 0)
    assert spare.look()  # too soon to say
    passes(1, 0.6, 0, 0)
    assert not spare.look()
    passes(1, 0.3, 0, 0.5)
    assert spare.look()
    counts.unlink()
    now[0] += 1
    assert spare.look()  # nobody knows better


def test_while_processors_are_busy_the_blocks_of_a_running_process_wait(compile_program, tmp_path):
    program = compile_program(GOES_ON.replace("20000", "2000000"), "-fno-builtin")
    spool = tmp_path / "it.spool"
    spool.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(recorder_path()), "MASU_RECORD": str(spool)}
    process = subprocess.Popen([program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    trace = tmp_path / "it.trace"
    collector = record.Collector(spool, record.Writer(trace), lambda *_: None)
    asked = []
    size = lambda: collector.writer.file.tell()  # noqa: E731
    collector.idle(lambda: True)
    collector.idle(lambda: True)
    nothing = size()
    assert nothing < traces.PAGE  # what process it is
    collector.idle(lambda: asked.append(1) or len(asked) > 3)  # before the first block, and each frame of them
    some = size()
    assert some > nothing and len(asked) > 4
    collector.idle(lambda: False)
    assert size() > some
    process.communicate("go\n", timeout=30)
    collector.idle(lambda: True)  # it has ended
    assert not list(spool.iterdir())
    collector.writer.end({"processes": 1, "status": 0, "seconds": 1.0})
    found = traces.read(trace)
    assert not found.damage
    s = summary(trace)
    assert not s["unknown_frees"] and not s["vanished"] and not s["bad_blocks"]
    taken = {size: n for size, n, *_ in report.analyse(found, found.main(), tmp_path).data["sizes"]}
    assert (taken[6666], taken[7777]) == (2_000_000, 2_000_000)


def test_a_process_of_a_namespace_is_recorded_to_its_end(masu, compile_program, tmp_path):
    """Outside it has another number; by the one that it knows nothing may run there."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to make a namespace")
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n"
        "for (int i = 0; i < 2000; i++) { void *volatile p = malloc(77); free(p); if (i % 400 == 0) usleep(100000); } return 0; }\n",
        "-fno-builtin",
    )
    unused = next(n for n in range(30_000, 300, -10) if not any(Path(f"/proc/{n + k}").exists() for k in range(10)))
    start = f"echo {unused} >/proc/sys/kernel/ns_last_pid; {program} & wait"
    trace, result = recorded(masu, tmp_path, "unshare", "--pid", "--fork", "sh", "-c", start)
    assert result.returncode == 0, result.stderr
    found = traces.read(trace)
    ours = next(p for p in found.processes if p.name == program.name)
    assert unused < ours.head.process < unused + 10
    assert replay.plan(found, ours, tmp_path).summary["by_kind"]["malloc"] >= 2000


def test_what_a_program_leaves_behind_is_recorded_to_its_end(masu, compile_program, tmp_path):
    program = compile_program(
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { if (fork()) _exit(0); setsid(); usleep(300000);\n"
        "for (int i = 0; i < 5000; i++) { void *volatile p = malloc(100); free(p); } return 0; }\n",
        "-fno-builtin",
    )
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 0
    assert summary(trace)["by_kind"]["malloc"] >= 5000


def test_ctrl_c_ends_the_wait_for_what_is_left(tmp_path):
    trace, file = tmp_path / "it.trace", tmp_path / "pid"
    process = subprocess.Popen([MASU, "record", "-o", trace, "--", "sh", "-c", f"setsid sleep 1000 >/dev/null 2>&1 & echo $! >{file}; exit 5"],
                               stderr=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal)  # fmt: skip
    try:
        while "waiting for 1 process that it left" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        os.kill(int(file.read_text()), 0)  # it goes on
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)
    assert process.returncode == 5, errors
    assert not Path(f"{trace}.spool").exists()
    found = traces.read(trace)
    assert not found.damage and {"sh", "sleep"} <= {p.name for p in found.processes}


def test_a_program_sees_what_it_left_end(masu, tmp_path):
    """It gives up after a while: nothing else would end it."""
    daemon = f"(true & echo $! >{tmp_path}/pid); i=0; while kill -0 $(cat {tmp_path}/pid) 2>/dev/null; do"
    trace, result = recorded(masu, tmp_path, "sh", "-c", f"{daemon} i=$((i + 1)); [ $i -lt 200 ] || exit 9; sleep 0.05; done; exit 3")
    assert result.returncode == 3


def test_a_program_that_cannot_be_executed_leaves_nothing(masu, script, tmp_path):
    program = script("#!/no/such/interpreter\n")
    trace, result = recorded(masu, tmp_path, program)
    assert result.returncode == 126
    assert "No such file" in result.stderr and result.stderr.count("\n") == 1
    assert not trace.exists()
    trace.write_bytes(b"of another run")
    recorded(masu, tmp_path, program)
    assert trace.read_bytes() == b"of another run"


def test_a_script_without_interpreter_is_the_shells(masu, script, tmp_path):
    trace, result = recorded(masu, tmp_path, script("echo $1\nexit 4\n"), "through")
    assert (result.returncode, result.stdout) == (4, "through\n")
    assert trace.exists()




COUNTS_CHILDREN = """
import subprocess, sys, threading, time
from masu import record
over = threading.Event()

def start_others():
    while not over.is_set():
        one = threading.Thread(target=lambda: None)
        one.start()
        one.join()

child = subprocess.Popen(["sleep", "60"])
others = [threading.Thread(target=start_others) for _ in range(3)]
[one.start() for one in others]
try:
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert record._children() == 1
finally:
    over.set()
    child.kill()
"""


def test_children_are_counted_while_threads_of_ours_end():
    done = subprocess.run([sys.executable, "-c", COUNTS_CHILDREN], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr

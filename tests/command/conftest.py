"""Real runs of the installed command: the tests run in the environment that masu
was installed into (script/test: build/venv)."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from profiling import APART, EXACT, HOT_AND_LOST, PLANTED
from recording import CALLS

MASU = Path(sys.executable).parent / "masu"


def as_in_a_terminal():
    """For Popen's preexec_fn: Ctrl-C and a closed terminal do what they do there, wherever the tests were started."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def gone(pid):
    """Has the process ended? Waits for it, if need be: to be killed takes a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":  # nobody asks for its status
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def is_shown_though(result, file, shown):
    """The disk was full at the end."""
    assert result.returncode == 125
    assert [line for line in result.stderr.splitlines() if "masu: error" in line] == [f"masu: error: {file}: No space left on device"]
    assert "Traceback" not in result.stderr
    assert shown in result.stdout


def missing(what):
    """Skips the test. script/test has run script/bootstrap test: there it fails, or it would be gone without a word."""
    (pytest.fail if os.environ.get("MASU_TESTS_HAVE_TOOLS") else pytest.skip)(f"no {what}")


def tool(name):
    """The path of a program or file that script/bootstrap test installs."""
    found = shutil.which(name) or (name if Path(name).is_absolute() and Path(name).exists() else None)
    return found or missing(os.path.basename(name))


def compiled(folder, name, text):
    """A shared object of this C source."""
    library = folder / f"{name}.so"
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([shutil.which("cc"), "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def masu():
    """masu("run", ...) gives the finished process, its output as text."""

    def run(*arguments, env=(), **options):
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MASU_OPTIONS", "MASU_OPTIONS_FILE")}
        environment.update(env)
        options = {"check": False, "capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run([MASU, *arguments], env=environment, **options)

    return run


@pytest.fixture
def library(masu):
    return masu("path", check=True).stdout.strip()


@pytest.fixture(scope="session")
def compile_program(tmp_path_factory):
    """compile_program(C source, *flags) gives the path of the program."""

    def compile_(source, *flags):
        directory = tmp_path_factory.mktemp("program")
        (directory / "program.c").write_text(source)
        command = ["cc", "-O1", "program.c", "-o", "program", *flags]
        subprocess.run(command, cwd=directory, check=True)
        return directory / "program"

    return compile_


@pytest.fixture(scope="session")
def own_malloc(compile_program):
    """A program that has a malloc of its own and ends with 3, with an argument 0."""
    return compile_program(
        "#include <stddef.h>\nstatic char pool[1 << 20]; static size_t used;\n"
        "void *malloc(size_t n) { void *p = pool + used; used += (n + 15) & ~15ul; return p; }\n"
        "void free(void *p) { (void)p; }\n"
        "int main(int count, char **arguments) { for (int i = 0; i < 100; i++) free(malloc(100)); return arguments[1] ? 0 : 3; }\n",
        "-fno-builtin",
    )


@pytest.fixture(scope="session")
def planted(compile_program):
    """With `grows N` MiB that stay; `peaks` and `churns` leave nothing."""
    return compile_program(PLANTED, *APART)


@pytest.fixture(scope="session")
def profiles(planted, tmp_path_factory):
    """Heap profiles of `planted`, by the MiB that stay."""
    folder = tmp_path_factory.mktemp("profiles")
    for mib in (1, 4, 12):
        run = [MASU, "run", "--profile", "heap", *EXACT, "-o", folder / f"{mib}.gz", "--", planted, str(mib)]
        subprocess.run(run, capture_output=True, check=False)
    return {mib: folder / f"{mib}.gz" for mib in (1, 4, 12)}


@pytest.fixture(scope="session")
def of_each_kind(profiles, compile_program, tmp_path_factory):
    """A profile of each kind, as profiling.OF_EACH_KIND says what is in it."""
    folder, program = tmp_path_factory.mktemp("kinds"), compile_program(HOT_AND_LOST, *APART)
    for kind, options, words in (("cpu", ["--profile", "cpu", "--hz", "1000"], []), ("leaks", ["--leaks"], ["only loses"])):
        subprocess.run([MASU, "run", *options, "-o", folder / kind, "--", program, *words], capture_output=True, check=False)
    return {"heap": profiles[4], "cpu": folder / "cpu", "leaks": folder / "leaks"}


@pytest.fixture
def python_uses_malloc(monkeypatch):
    """Else it has a pool of its own for what is small."""
    monkeypatch.setenv("PYTHONMALLOC", "malloc")


@pytest.fixture(scope="session")
def calls(compile_program):
    return compile_program(CALLS, "-fno-builtin", "-pthread")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A trace of some 100 KiB, of a Python program."""
    folder = tmp_path_factory.mktemp("trace")
    trace = folder / "it.trace"
    program = "x = [str(i) * (i % 50) for i in range(100000)]"
    subprocess.run(
        [MASU, "record", "-o", trace, "--", os.path.realpath(sys.executable), "-c", program],
        check=True, capture_output=True, env={**os.environ, "PYTHONMALLOC": "malloc"},
    )  # fmt: skip
    return trace


@pytest.fixture
def of_another_user(compile_program):
    """A program that gains rights as it starts."""
    program = compile_program("int main(void) { return 4; }")
    try:
        shutil.chown(program, user="nobody")
    except PermissionError:
        pytest.skip("only root can make a program of someone else")
    program.chmod(0o4755)
    return program


@pytest.fixture
def script(tmp_path):
    """script(text) gives the path of an executable file with this text."""

    def write(text, name="script", mode=0o755):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


@pytest.fixture(scope="session")
def browser():
    """Chromium without a screen, with what it logs."""
    try:
        from selenium import webdriver
    except ImportError:
        missing("selenium")
    programs = {name: tool(name) for name in ("chromium", "chromedriver")}
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs["chromedriver"]))
    yield driver
    driver.quit()

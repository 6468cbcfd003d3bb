"""masu run --leaks: finds what LeakSanitizer finds, in the same programs, and nothing else; and bears programs of all kinds."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import tool
from leaking import FLAGS, KEPT, LOST, PLANTED, filed, library, listed, planted, run_for_leaks, sanitized, totals  # noqa: F401
from masu import pprof


# ---- Beside LeakSanitizer ---------------------------------------------------------------


@pytest.fixture
def judged_alike(masu, tmp_path):
    """Runs both; gives what masu said. A large block may be led to by a word on the stack that is half an old pointer
    and half a number, which depends on where the system put things: who finds less is run again."""

    def judge(program, reference, *words, alike=lambda entries: entries):
        def by_reference():
            return subprocess.run([reference, *words], capture_output=True, text=True, timeout=60, check=False)

        def by_masu():
            return run_for_leaks(masu, program, *words, options=("-o", tmp_path / "it"))

        expected, result = by_reference(), by_masu()
        for _ in range(4):
            theirs, ours = totals(listed(expected.stderr)), totals(listed(result.stderr))
            if ours < theirs:
                result = by_masu()
            elif theirs < ours:
                expected = by_reference()
        assert alike(filed(tmp_path / "it")) == alike(listed(expected.stderr)), result.stderr + expected.stderr
        assert totals(listed(result.stderr)) == totals(listed(expected.stderr))
        assert result.returncode == expected.returncode
        return result.stderr

    return judge


@pytest.mark.parametrize("case", (*LOST, *KEPT))
def test_each_case_is_judged_as_leaksanitizer_does(judged_alike, planted, sanitized, library, case):
    # Of a ring LeakSanitizer says that all are indirect.
    told = judged_alike(planted, sanitized, library, case, alike=totals if case == "ring" else lambda entries: entries)
    assert ("leak of" in told) == (case in LOST)


def test_all_cases_at_once_as_well(judged_alike, planted, sanitized, library):
    cases = [case for case in (*KEPT, *LOST) if case not in ("kept_by_register_of_thread", "behind")]
    judged_alike(planted, sanitized, library, *cases, alike=totals)


CPP = r"""
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>
struct Node { int n = 0; std::string text = std::string(100, 'x'); ~Node() { n = 1; } };
static Node *volatile array;
static std::map<int, std::unique_ptr<Node>> *kept;
static std::shared_ptr<std::vector<std::string>> shared;
static __attribute__((noinline)) void loses() { Node *volatile lost = new Node[3]; lost = nullptr; new std::map<int, int>{{1, 2}, {3, 4}}; }
static __attribute__((noinline)) void scrub() {
  char bytes[1 << 16] = {};
  __asm__ volatile("" : : "r"(bytes) : "memory");
}
int main() {
  volatile std::size_t none = 0;
  array = new Node[5];
  static Node *volatile empty = new Node[none];
  kept = new std::map<int, std::unique_ptr<Node>>;
  for (int i = 0; i < 100; i++) (*kept)[i] = std::make_unique<Node>();
  shared = std::make_shared<std::vector<std::string>>(10, std::string(50, 'y'));
  loses();
  scrub();
  std::exit(empty == nullptr);
}
"""


def test_cpp_is_judged_alike(judged_alike, sanitized, tmp_path):
    (tmp_path / "it.cc").write_text(CPP)
    for name, flags in (("plain", []), ("sanitized", ["-fsanitize=leak"])):
        subprocess.run([tool("g++"), "-O1", "it.cc", "-o", name, *flags], cwd=tmp_path, check=True)
    # The nodes of a map lead back to it: a ring.
    assert "loses()" in judged_alike(tmp_path / "plain", tmp_path / "sanitized", alike=totals)


# ---- What is said -----------------------------------------------------------------------


def test_a_leak_and_its_calls(masu, planted, library):
    result = run_for_leaks(masu, planted, library, "thrice", "chain")
    assert result.returncode == 23
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "Direct leak of 907 bytes in 1 block allocated from"
    at = lines.index("Direct leak of 609 bytes in 3 blocks allocated from")
    called = [(f, line_of(text)) for f, text in (("block", "return memset(malloc"), ("thrice", "APART thrice"), ("main", "cases[i].plant();"))]
    assert lines[at + 1 : at + 4] == [f"    #{n} {f}  program.c:{line}  (program)" for n, (f, line) in enumerate(called)]
    assert "Indirect leak of 3,628 bytes in 4 blocks allocated from" in lines
    assert re.fullmatch(
        r"masu: program\.\d+: 5,144 bytes in 8 blocks leaked: 1,516 bytes in 4 blocks directly, "
        r"3,628 bytes in 4 blocks that only lost blocks lead to",
        lines[-1],
    )


def line_of(text):
    (line,) = [n for n, line in enumerate(PLANTED.splitlines(), 1) if text in line]
    return line


@pytest.mark.parametrize("flags", [["-gdwarf-4"], ["-g", "-ffunction-sections"], ["-g0"]])
def test_lines_where_the_compiler_kept_them(masu, compile_program, library, flags):
    program = compile_program(PLANTED, *FLAGS, *flags)
    told = run_for_leaks(masu, program, library, "simple").stderr
    line = f"  program.c:{line_of('APART simple')}" if flags != ["-g0"] else ""
    assert f" simple{line}  (program)\n" in told


def test_lines_without_an_index(masu, planted, library, tmp_path):
    """As other compilers leave it, and in a file of its own."""
    bare = tmp_path / "bare"
    subprocess.run(["objcopy", "--remove-section", ".debug_aranges", planted, bare], check=True)
    told = run_for_leaks(masu, bare, library, "simple").stderr
    assert f"#1 simple  program.c:{line_of('APART simple')}  (bare)\n" in told


def test_no_leaks(masu, planted, library, tmp_path):
    result = run_for_leaks(masu, planted, library, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "masu: no leaks\n")
    assert os.listdir(tmp_path) == []


def test_the_programs_own_status_wins(masu, planted, library):
    result = run_for_leaks(masu, planted, library, "simple", env={"ENDS_BY__EXIT": "5"})
    assert result.returncode == 5
    assert listed(result.stderr) == {(True, 101, 1): 1}


def test_the_file(masu, planted, library, tmp_path):
    result = run_for_leaks(masu, planted, library, "thrice", "chain", options=("-o", "it"), cwd=tmp_path)
    assert result.returncode == 23
    assert "masu: it: 5,144 bytes" in result.stderr
    assert os.listdir(tmp_path) == ["it"]
    shown = masu("profile", tmp_path / "it")
    assert shown.returncode == 0
    assert re.search(r"leaked:\n", shown.stdout)
    assert re.search(r"1\.5 KiB .* 4 +block", shown.stdout)
    assert "3.5 KiB" in masu("profile", "--view", "indirect", tmp_path / "it").stdout
    assert masu("profile", "--view", "indirect", "--folded", tmp_path / "it").stdout.endswith("main;chain;block 4\n")
    assert masu("profile", "--html", tmp_path / "it").returncode == 0
    assert "thrice" in (tmp_path / "it.html").read_text()
    wrong = masu("profile", "--view", "in-use", tmp_path / "it")
    assert wrong.returncode == 125 and "has no view in-use, but direct, indirect" in wrong.stderr


@pytest.mark.parametrize("by_the_library", [False, True])
def test_go_opens_it(masu, planted, library, tmp_path, by_the_library):
    if by_the_library:
        masu("run", "--options", "leaks", "--", planted, library, "chain", env={"MASU_PROFILE": str(tmp_path)})
        (file,) = tmp_path.glob("*.leaks.pb")
    else:
        file = tmp_path / "it"
        run_for_leaks(masu, planted, library, "chain", options=("-o", file))
    for kind, total in (("direct_space", "907B"), ("direct_objects", "1"), ("indirect_space", "3.54kB"), ("indirect_objects", "4")):
        top = subprocess.run([tool("go"), "tool", "pprof", "-top", f"-sample_index={kind}", file],
                             cwd=tmp_path, capture_output=True, text=True, check=True).stdout  # fmt: skip
        assert f"Type: {kind}" in top
        assert f"of {total} total" in top, top
        # Without binutils go has no names for what the library wrote.
        assert re.search(r"100% +(chain|block)( |$)", top, re.MULTILINE) or (by_the_library and "[program]" in top), top


def test_the_page(browser, masu, planted, library, tmp_path):
    run_for_leaks(masu, planted, library, "thrice", "chain", options=("-o", "it"), cwd=tmp_path)
    masu("profile", "--html", tmp_path / "it", check=True)
    browser.get_log("browser")
    browser.get((tmp_path / "it.html").as_uri())
    assert browser.get_log("browser") == []
    assert browser.title == "it: leaks"
    labels = [e.get_attribute("aria-label") for e in browser.find_elements("css selector", "#graph [data-node]")]
    assert any(re.match(r"thrice: 609 B, [\d.]+ %, 3 blocks", label) for label in labels)
    heads = [e.text for e in browser.find_elements("css selector", "#functions th") if e.is_displayed()]
    assert heads[4:] == ["blocks", "function"], "blocks that are lost have no lives"
    browser.find_element("css selector", "input[value=indirect]").click()
    assert "3.5 KiB" in browser.find_element("css selector", "#detail").text


def test_what_the_check_has_to_say(masu, tmp_path):
    note = "3 threads could not be stopped: all memory that is not malloc's counts as their stacks"
    made = pprof.message("Profile")()
    for text in ("", "direct_objects", "count", "direct_space", "bytes", note):
        made.string_table.append(text.encode())
    made.sample_type.add(type=1, unit=2)
    made.sample_type.add(type=3, unit=4)
    made.comment.append(5)
    pprof.write(tmp_path / "it", made)
    assert note in masu("profile", tmp_path / "it", check=True).stdout
    masu("profile", "--html", tmp_path / "it", check=True)
    assert note.replace("'", "&#39;") in (tmp_path / "it.html").read_text()


def test_the_library_alone(masu, planted, library, tmp_path):
    lost = masu("run", "--options", "leaks", "--", planted, library, "thrice", "chain", cwd=tmp_path)
    assert lost.returncode == 0
    (file,) = tmp_path.glob("program.*.leaks.pb")
    assert lost.stderr == f"masu: leaks: 1516 bytes in 4 blocks, and 3628 bytes in 4 blocks that only they lead to: {file.name}\n"
    assert re.search(r"4 +block", masu("profile", file).stdout)
    none = masu("run", "--options", "leaks", "--", planted, library, cwd=tmp_path)
    assert none.stderr == "masu: no leaks\n"


# ---- Suppressions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "bytes_left"),
    [("thrice", 101), ("simple", 609), ("^simple$", 609), ("^imple", 710), ("si*le", 609), ("program", 0), ("program.c:", 0), ("libno-such.so", 710), ("main", 0)],
)
def test_suppressions(masu, planted, library, tmp_path, pattern, bytes_left):
    (tmp_path / "known").write_text(f"# known\n\nleak:{pattern}\n  # more\n")
    result = run_for_leaks(masu, planted, library, "simple", "thrice", options=("--suppressions", tmp_path / "known"))
    assert result.returncode == (23 if bytes_left else 0)
    assert totals(listed(result.stderr))[0] == bytes_left
    told = f"masu: suppressed by leak:{pattern}: {710 - bytes_left} bytes in "
    assert (told in result.stderr) == (bytes_left < 710)
    assert ("no other leaks" in result.stderr) == (not bytes_left)


@pytest.mark.parametrize("line", ["thrice", "leak", "leak:", "leak:*", "race:thrice", "leak thrice"])
def test_a_bad_suppression_is_said_before_the_program_runs(masu, tmp_path, line):
    (tmp_path / "known").write_text(f"# fine\nleak:fine\n{line}\n")
    result = run_for_leaks(masu, "touch", tmp_path / "ran", options=("--suppressions", tmp_path / "known"))
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1
    assert f"known:3: '{line}' is not 'leak:PATTERN'" in result.stderr
    assert not (tmp_path / "ran").exists()


def test_no_such_suppressions(masu, tmp_path):
    result = run_for_leaks(masu, "true", options=("--suppressions", tmp_path / "none"))
    assert result.returncode == 125 and "No such file" in result.stderr


def test_options_that_do_not_fit(masu):
    for words, text in [
        (("--suppressions", "x"), "--leaks"),
        (("--leaks", "--profile", "heap"), "choose one"),
        (("--leaks", "--every", "1"), "--profile heap"),
    ]:
        result = masu("run", *words, "--", "true")
        assert result.returncode == 2 and text in result.stderr.splitlines()[-1]


# ---- Real programs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [sys.executable, "-c", "import threading, json; t = threading.Thread(target=print); t.start(); t.join()"],
        ["perl", "-e", "print 1"],
        ["git", "--version"],
        ["git", "-C", os.path.dirname(__file__), "log", "-1", "--format=%h"],
        ["ls", "-l", "/usr"],
        ["bash", "-c", "for i in 1 2 3; do (echo $i | cat); done"],
        ["sort", "--parallel=4", "/etc/services"],
        ["cc", "-x", "c", "-fsyntax-only", "/dev/null"],
        ["curl", "--version"],
        ["sqlite3", ":memory:", "create table t(x); insert into t values (1); select * from t"],
    ],
    ids=lambda words: " ".join(os.path.basename(w) for w in words[:2]),
)
def test_real_programs_run_through(masu, words):
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]}")
    plain = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if plain.returncode:
        pytest.skip(f"it does not work here: {plain.stderr[-200:]}")
    result = run_for_leaks(masu, *words, timeout=240)
    assert result.returncode in (0, 23), result.stderr[-2000:]
    assert result.stdout == plain.stdout
    assert "not checked" not in result.stderr
    assert ("no leaks" in result.stderr) == (result.returncode == 0)

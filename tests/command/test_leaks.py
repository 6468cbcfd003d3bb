"""masu run --leaks: finds what LeakSanitizer finds, in the same programs, and nothing else; and bears programs of all kinds."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter

import pytest
from masu import pprof
from masu.pprof import read

# Each case has sizes of its own, so that what is found tells which case it is.
PLANTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline)) void

static void *volatile global;
static __thread void *volatile variable;
static uintptr_t volatile mask = 0x5a5a5a5a5a5a5a5a, hidden;

static APART scrub(void) {
  char bytes[1 << 16];
  memset(bytes, 0, sizeof bytes);
  __asm__ volatile("" : : "r"(bytes) : "memory");
}
static APART lose(void *p) { global = p; global = NULL; }
static void *block(size_t size) { return memset(malloc(size), 0, size); }

/* ---- Lost ---- */

APART simple(void) { lose(block(101)); }
APART thrice(void) { for (int i = 0; i < 3; i++) lose(block(203)); }
APART sizes(void) {
  static const size_t of[] = {1, 9, 305, 4007, 33001, 70003, 200005, 300007, 3000001, 20000003};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) lose(block(of[i]));
}
APART zeroed(void) { lose(calloc(7, 59)); }
APART resized(void) { lose(realloc(block(11), 507)); lose(realloc(block(600), 611)); lose(realloc(block(800), 713)); }
APART aligned(void) {
  void *p;
  lose(aligned_alloc(64, 64 * 13));
  if (!posix_memalign(&p, 4096, 5009)) lose(p);
  p = NULL;
}
APART chain(void) {
  void *head = NULL;
  for (int i = 0; i < 5; i++) { void **link = block(907); link[3] = head; head = link; }
  lose(head);
}
APART ring(void) {
  void **first = block(1013), **last = first;
  for (int i = 0; i < 3; i++) { void **next = block(1013); last[0] = next; last = next; }
  last[0] = first;
}
APART disguised(void) { hidden = (uintptr_t)block(1103) ^ mask; }
APART behind(void) { global = (char *)block(1201) + 1201; }
static void *in_thread(void *nothing) { variable = block(1301); return nothing; }
APART in_ended_thread(void) { pthread_t t; if (!pthread_create(&t, NULL, in_thread, NULL)) pthread_join(t, NULL); }
APART part_of_a_list(void) {
  void **first = block(1409), **second = block(1409), **third = block(1409);
  first[0] = second; second[0] = third; third[0] = NULL;
  global = first;
  first[0] = NULL;
}

/* ---- Kept ---- */

APART kept_by_global(void) { global = block(2003); }
APART kept_by_chain(void) {
  void *head = NULL;
  for (int i = 0; i < 100; i++) { void **link = block(2111); link[2] = head; head = link; }
  global = head;
}
APART kept_inside(void) { global = (char *)block(2203) + 2202; }
APART kept_by_large(void) { void **p = block(5000011); p[600000] = block(2309); global = (char *)p + 4900000; }
APART kept_by_thread_local(void) { variable = block(2411); }
APART kept_by_specific(void) {
  pthread_key_t key;
  for (int i = 0; i < 40; i++) {
    pthread_key_create(&key, NULL);
    if (i == 3 || i == 39) pthread_setspecific(key, block(2503));
  }
}
static const char *library;
APART kept_by_dynamic_thread_local(void) {
  void **(*variables)(void);
  *(void **)&variables = dlsym(dlopen(library, RTLD_NOW), "dynamic_tls");
  variables()[63] = block(2609);
}

/* Waits for ever, with a block in some place. */
static volatile int waiting;
static int never[2];
static APART wait_for_ever(void) { char c; waiting = 1; while (read(never[0], &c, 1) < 0); }
static void *on_stack(void *nothing) { void *volatile here = block(2707); wait_for_ever(); free(here); return nothing; }
static void *in_variable(void *nothing) { variable = block(2801); scrub(); wait_for_ever(); return nothing; }
static void *in_specific(void *nothing) {
  pthread_key_t key;
  pthread_key_create(&key, free);
  pthread_setspecific(key, block(2903));
  scrub();
  wait_for_ever();
  return nothing;
}
static void *in_dynamic(void *nothing) {
  void **(*variables)(void);
  *(void **)&variables = dlsym(dlopen(library, RTLD_NOW), "dynamic_tls");
  variables()[5] = block(3001);
  scrub();
  wait_for_ever();
  return nothing;
}
static void *in_register(void *nothing) {
  hidden = (uintptr_t)block(3109) ^ mask;
  scrub();
  __asm__ volatile("mov %1, %%r12\n xor %2, %%r12\n movl $1, %0\n 1: pause\n cmpl $1, %0\n je 1b\n"
                   : "+m"(waiting) : "m"(hidden), "m"(mask) : "r12", "memory", "cc");
  return nothing;
}
static APART by_thread(void *(*body)(void *)) {
  pthread_t t;
  waiting = 0;
  if (pthread_create(&t, NULL, body, NULL)) abort();
  while (!waiting) usleep(1000);
}
APART kept_on_stack_of_thread(void) { by_thread(on_stack); }
APART kept_by_variable_of_thread(void) { by_thread(in_variable); }
APART kept_by_specific_of_thread(void) { by_thread(in_specific); }
APART kept_by_dynamic_of_thread(void) { by_thread(in_dynamic); }
APART kept_by_register_of_thread(void) { by_thread(in_register); }

#define CASE(name) {#name, name}
static const struct { const char *name; void (*plant)(void); } cases[] = {
  CASE(simple), CASE(thrice), CASE(sizes), CASE(zeroed), CASE(resized), CASE(aligned), CASE(chain), CASE(ring), CASE(disguised),
  CASE(behind), CASE(in_ended_thread), CASE(part_of_a_list), CASE(kept_by_global), CASE(kept_by_chain), CASE(kept_inside),
  CASE(kept_by_large), CASE(kept_by_thread_local), CASE(kept_by_specific), CASE(kept_by_dynamic_thread_local),
  CASE(kept_on_stack_of_thread), CASE(kept_by_variable_of_thread), CASE(kept_by_specific_of_thread),
  CASE(kept_by_dynamic_of_thread), CASE(kept_by_register_of_thread),
};

int main(int count, char **arguments) {
  void *volatile here = block(3203);
  if (pipe(never)) return 9;
  library = arguments[1];
  for (int k = 2; k < count; k++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      if (!strcmp(cases[i].name, arguments[k])) { cases[i].plant(); scrub(); }
  if (getenv("ENDS_BY__EXIT")) { scrub(); _exit(atoi(getenv("ENDS_BY__EXIT"))); }
  exit(here == NULL);
}
"""
LOST = ("simple", "thrice", "sizes", "zeroed", "resized", "aligned", "chain", "ring", "disguised", "behind", "in_ended_thread", "part_of_a_list")
KEPT = (
    "kept_by_global", "kept_by_chain", "kept_inside", "kept_by_large", "kept_by_thread_local", "kept_by_specific",
    "kept_by_dynamic_thread_local", "kept_on_stack_of_thread", "kept_by_variable_of_thread", "kept_by_specific_of_thread",
    "kept_by_dynamic_of_thread", "kept_by_register_of_thread",
)  # fmt: skip
DYNAMIC = r"""
static __thread void *variables[64];
void **dynamic_tls(void) { return variables; }
"""
FLAGS = ("-g", "-fno-builtin", "-fno-ipa-icf", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer", "-pthread", "-Wl,--build-id")
LEAK = re.compile(r"^(Direct|Indirect) leak of ([\d,]+) byte(?:s|\(s\)) in ([\d,]+) (?:blocks?|object\(s\))")


@pytest.fixture(scope="session")
def library(compile_program):
    return compile_program(DYNAMIC, "-fPIC", "-shared", "-ftls-model=global-dynamic")


@pytest.fixture(scope="session")
def planted(compile_program):
    return compile_program(PLANTED, *FLAGS)


@pytest.fixture(scope="session")
def sanitized(compile_program, library):
    """The same program with LeakSanitizer in it."""
    try:
        program = compile_program(PLANTED, *FLAGS, "-fsanitize=leak")
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no LeakSanitizer")
    run = subprocess.run([program, library, "simple"], capture_output=True, text=True, timeout=60, check=False)
    if run.returncode != 23 or "Direct leak of 101 byte" not in run.stderr:
        pytest.skip(f"LeakSanitizer does not work here: {run.stderr[-200:]}")
    return program


def listed(text):
    """(direct, bytes, blocks) of each entry."""
    found = [LEAK.match(line) for line in text.splitlines()]
    return Counter((m[1] == "Direct", *(int(m[n].replace(",", "")) for n in (2, 3))) for m in found if m)


def filed(path):
    """The same of a file, in which calls from different places of one function are apart, as LeakSanitizer has them."""
    profile = read(path)
    sums = Counter()
    for sample in profile.sample:
        for direct, (blocks, size) in ((True, sample.value[:2]), (False, sample.value[2:])):
            sums[direct, tuple(sample.location_id), "bytes"] += size
            sums[direct, tuple(sample.location_id), "blocks"] += blocks
    return Counter((direct, n, sums[direct, stack, "blocks"]) for (direct, stack, what), n in sums.items() if what == "bytes" and n)


def totals(entries):
    return tuple(sum(entry[n] * count for entry, count in entries.items()) for n in (1, 2))


def run_for_leaks(masu, *words, options=(), **how):
    return masu("run", "--leaks", *options, "--", *words, **how)


# ---- Beside LeakSanitizer ---------------------------------------------------------------


@pytest.fixture
def judged_alike(masu, tmp_path):
    """Runs both; gives what masu said. A large block may be led to by a word on the stack that is half an old pointer
    and half a number, which depends on where the system put things: a run that has missed some is repeated."""

    def judge(program, reference, *words, alike=lambda entries: entries):
        expected = subprocess.run([reference, *words], capture_output=True, text=True, timeout=60, check=False)
        for _ in range(4):
            result = run_for_leaks(masu, program, *words, options=("-o", tmp_path / "it"))
            if totals(listed(result.stderr)) >= totals(listed(expected.stderr)):
                break
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
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    (tmp_path / "it.cc").write_text(CPP)
    for name, flags in (("plain", []), ("sanitized", ["-fsanitize=leak"])):
        subprocess.run(["g++", "-O1", "it.cc", "-o", name, *flags], cwd=tmp_path, check=True)
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
    if not shutil.which("go"):
        pytest.skip("no go")
    if by_the_library:
        masu("run", "--options", "leaks", "--", planted, library, "chain", env={"MASU_PROFILE": str(tmp_path)})
        (file,) = tmp_path.glob("*.leaks.pb")
    else:
        file = tmp_path / "it"
        run_for_leaks(masu, planted, library, "chain", options=("-o", file))
    for kind, total in (("direct_space", "907B"), ("direct_objects", "1"), ("indirect_space", "3.54kB"), ("indirect_objects", "4")):
        top = subprocess.run(["go", "tool", "pprof", "-top", f"-sample_index={kind}", file],
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


# ---- How programs end, and others that they start ---------------------------------------------


def test_an_end_by__exit(masu, planted, library):
    result = run_for_leaks(masu, planted, library, "simple", env={"ENDS_BY__EXIT": "0"})
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 101, 1): 1}


@pytest.mark.parametrize(
    ("ends", "number"),
    [
        ("abort()", signal.SIGABRT),
        ("kill(getpid(), SIGKILL)", signal.SIGKILL),
        ("kill(getpid(), SIGTERM)", signal.SIGTERM),
        ("*(volatile int *)16 = 1", signal.SIGSEGV),
    ],
)
@pytest.mark.parametrize("threads", [0, 3])
def test_an_end_by_a_signal_is_no_check(masu, compile_program, tmp_path, ends, number, threads):
    source = f"""
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <unistd.h>
    static void *allocates(void *unused) {{ for (;;) free(malloc(100)); return unused; }}
    int main(void) {{
      pthread_t t;
      setrlimit(RLIMIT_CORE, &(struct rlimit){{0, 0}});
      malloc(7);
      for (int i = 0; i < {threads}; i++) if (pthread_create(&t, NULL, allocates, NULL)) return 1;
      {ends};
      pause();
    }}
    """
    result = run_for_leaks(masu, compile_program(source, *FLAGS, "-pthread"), options=("-o", "it"), cwd=tmp_path)
    assert result.returncode == 128 + number
    assert result.stderr.count("\n") == 1
    assert f"was not checked for leaks: signal {number.name} ended it" in result.stderr
    assert list(tmp_path.iterdir()) == []


FORKS = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile keeps;
__attribute__((noinline)) void of_parent(void) { memset(malloc(100), 0, 100); }
__attribute__((noinline)) void of_child(void) { memset(malloc(200), 0, 200); }
static void scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
int main(int count, char **arguments) {
  of_parent();
  keeps = malloc(300);
  scrub();
  pid_t child = !strcmp(arguments[1], "vfork") ? vfork() : fork();
  if (child == 0) {
    if (!strcmp(arguments[1], "vfork")) _exit(0);
    keeps = NULL; /* still the parent's */
    of_child();
    scrub();
    if (!strcmp(arguments[1], "exec")) { execlp("true", "true", NULL); _exit(1); }
    if (!strcmp(arguments[1], "exit")) exit(0);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  exit(status);
}
"""


@pytest.fixture(scope="session")
def forks(compile_program):
    return compile_program(FORKS, *FLAGS)


@pytest.mark.parametrize("how", ["exit", "_exit", "exec", "vfork"])
def test_children_have_their_own(masu, forks, how, tmp_path):
    result = run_for_leaks(masu, forks, how, options=("-o", "it"), cwd=tmp_path)
    assert result.returncode == 23
    expected = {(True, 100, 1): 1, (True, 200, 1): 1} if "exit" in how else {(True, 100, 1): 1}
    assert listed(result.stderr) == expected, result.stderr
    assert ("of_child" in result.stderr) == ("exit" in how)
    assert len(os.listdir(tmp_path)) == (2 if "exit" in how else 1)


def test_leaks_of_a_child_are_leaks(masu, planted, library):
    result = run_for_leaks(masu, "sh", "-c", f"{planted} {library} simple; exit 0")
    assert result.returncode == 23
    assert (True, 101, 1) in listed(result.stderr)


THREADS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int never[2];
static volatile int waiting;
static void *blocked(void *deaf) {
  sigset_t all;
  char c;
  void *volatile here = memset(malloc(500), 0, 500);
  sigfillset(&all);
  if (deaf) pthread_sigmask(SIG_SETMASK, &all, NULL);
  __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
  while (read(never[0], &c, 1) < 0);
  free(here);
  return NULL;
}
static void *waits_for_signals(void *unused) {
  sigset_t all;
  int number;
  void *volatile here = memset(malloc(600), 0, 600);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
  if (sigwait(&all, &number) == 0) _exit(99); /* nobody but the checker would send one */
  free(here);
  return unused;
}
static __attribute__((noinline)) void loses(void) { memset(malloc(700), 0, 700); }
static void scrub(void) { char bytes[1 << 14]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
static void *ends(void *initial) { pthread_join(*(pthread_t *)initial, NULL); loses(); scrub(); exit(0); }
int main(int count, char **arguments) {
  pthread_t t;
  static pthread_t self;
  int n = atoi(arguments[2]);
  if (pipe(never)) return 9;
  for (int i = 0; i < n; i++)
    if (pthread_create(&t, NULL, *arguments[1] == 's' ? waits_for_signals : blocked, *arguments[1] == 'd' ? &t : NULL)) return 9;
  while (waiting < n) usleep(1000);
  if (*arguments[1] == 'i') {
    self = pthread_self();
    if (pthread_create(&t, NULL, ends, &self)) return 9;
    pthread_exit(NULL);
  }
  exit(0);
}
"""


@pytest.fixture(scope="session")
def threads(compile_program):
    return compile_program(THREADS, *FLAGS)


@pytest.mark.parametrize("count", [1, 500])
def test_threads_blocked_in_read(masu, threads, count):
    result = run_for_leaks(masu, threads, "blocked", str(count))
    assert (result.returncode, result.stderr) == (0, "masu: no leaks\n")


@pytest.mark.parametrize("how", ["deaf", "sigwait"])
def test_threads_that_take_no_signals(masu, threads, how):
    result = run_for_leaks(masu, threads, how, "3")
    assert result.returncode == 0, result.stderr
    assert "3 threads could not be stopped" in result.stderr
    assert "masu: no leaks\n" in result.stderr


def test_an_initial_thread_that_has_ended(masu, threads):
    result = run_for_leaks(masu, threads, "initial", "2")
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 700, 1): 1}


# ---- Code without names ---------------------------------------------------------------------


def test_a_stripped_program(masu, planted, library, tmp_path):
    subprocess.run(["strip", "-s", "-o", tmp_path / "bare", planted], check=True)
    result = run_for_leaks(masu, tmp_path / "bare", library, "thrice", "chain")
    assert result.returncode == 23
    assert listed(result.stderr) == {(True, 609, 3): 1, (True, 907, 1): 1, (False, 3628, 4): 1}
    assert re.search(r"Direct leak of 609 bytes in 3 blocks allocated from\n(    #\d bare\+0x[0-9a-f]+\n){3}", result.stderr)


UNLOADS = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static __attribute__((noinline)) void scrub(void) { char bytes[1 << 16]; memset(bytes, 0, sizeof bytes); __asm__ volatile("" : : "r"(bytes) : "memory"); }
int main(int count, char **arguments) {
  void *library = dlopen(arguments[1], RTLD_NOW);
  ((void (*)(void))dlsym(library, "loses"))();
  if (count > 2 && (dlclose(library) || dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD))) return 1;
  scrub();
  exit(0);
}
"""
LOSES = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void loses(void) { memset(malloc(303), 0, 303); }
"""


def test_code_that_is_gone(masu, compile_program):
    lost = {(True, 303, 1): 1}
    plugin, program = compile_program(LOSES, *FLAGS, "-shared", "-fPIC"), compile_program(UNLOADS, *FLAGS)
    there = run_for_leaks(masu, program, plugin)
    assert there.returncode == 23 and listed(there.stderr) == lost and "#0 loses  program.c:4  (program)" in there.stderr
    gone = run_for_leaks(masu, program, plugin, "unload")
    assert gone.returncode == 23 and listed(gone.stderr) == lost
    assert re.search(r"#0 0x[0-9a-f]+\n    #1 main ", gone.stderr), "no name, and no wrong one"


# ---- What was not checked has not succeeded -------------------------------------------------

NOT_CHECKED = "was not checked for leaks"


def not_checked(result, status=125):
    assert result.returncode == status, result.stderr
    assert result.stderr.count(NOT_CHECKED) == 1
    assert "no leaks" not in result.stderr


@pytest.mark.parametrize("status", [0, 4])
def test_a_program_for_which_preloading_fails(masu, compile_program, status):
    result = run_for_leaks(masu, compile_program(f"int main(void) {{ return {status}; }}", "-static"))
    not_checked(result, status or 125)
    assert "statically linked" in result.stderr and result.stderr.count("\n") == 2


def test_a_program_with_an_allocator_of_its_own(masu, own_malloc):
    not_checked(run_for_leaks(masu, own_malloc), 3)
    not_checked(run_for_leaks(masu, own_malloc, "succeeds"))


def test_a_program_with_a_cleared_environment(masu, planted, library):
    not_checked(run_for_leaks(masu, "env", "-i", planted, library, "simple"))


def test_a_program_that_may_not_write(masu, planted, library):
    """There is no room for its file, as on a full disk."""
    limited = ["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", planted, library, "simple"]
    not_checked(run_for_leaks(masu, *limited))


def test_what_can_not_be_kept(masu, planted, library, tmp_path):
    """Nobody was told of its leaks."""
    result = run_for_leaks(masu, planted, library, "simple", options=("-o", tmp_path))
    assert result.returncode == 125 and "Is a directory" in result.stderr and "no leaks" not in result.stderr


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

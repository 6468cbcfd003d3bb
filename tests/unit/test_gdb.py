#!/usr/bin/env python3
"""tools/gdb/masu_gdb.py on a live program and on its core file.

    test_gdb.py PROGRAM SCRIPT

PROGRAM is gdb_program.c on masu. Exits with 77 where there is no gdb, or none that may
trace a program.
"""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, SCRIPT = "", ""
SKIPPED = 77
MARK = "==== "


def gdb(*commands, target=()):
    arguments = ["gdb", "-q", "-batch", "-nx", "-ex", "set confirm off", "-ex", "set width 0"]
    # Whatever the program freed stays where it is, however long gdb takes.
    arguments += ["-ex", "set environment MASU_OPTIONS=purge_delay:3600000"]
    for command in commands:
        arguments += ["-ex", command]
    done = subprocess.run(
        [*arguments, PROGRAM, *target],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout


def answers(commands, before=(), after=(), target=()):
    """What gdb prints for each command."""
    marked = []
    for command in commands:
        marked += [f"echo \\n{MARK}{command}\\n", command]
    text = gdb(*before, f"source {SCRIPT}", *marked, f"echo \\n{MARK}end\\n", *after, target=target)
    parts = re.split(rf"^{MARK}(.*)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2])), text


VARIABLES = """used used+7 freed at_hand unthreaded waiting mailed parked seen run run+100000
mapping mapping+4000000 front reused+8000000 on_no_heap 0 -1""".split()
COMMANDS = [
    "masu heaps",
    "masu supply",
    *(f"masu address {v}" for v in VARIABLES),
    "masu address",
    "masu address no_such_variable",
    "masu heaps 60000",
    "print $masu_mail(0x60010010a)",
    "help masu",
]


class Answers(unittest.TestCase):
    """The same questions, live and from the core."""

    live = core = text = None

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            core = str(Path(folder, "core"))
            cls.live, cls.text = answers(
                COMMANDS,
                before=("break stop_here", "run"),
                after=(f"generate-core-file {core}", "kill"),
            )
            cls.core, _ = answers(COMMANDS, target=(core,)) if Path(core).exists() else ({}, "")

    def ask(self, command):
        self.assertIn(command, self.live, self.text)
        return self.live[command]

    def address(self, variable):
        return self.ask(f"masu address {variable}")

    def test_blocks_in_use(self):
        self.assertRegex(self.address("used"), r"start of a block, 64 bytes, number \d+ of 1024")
        self.assertIn("block: in use", self.address("used"))
        self.assertRegex(self.address("used"), r"heap \d+ at 0x[0-9a-f]+: in use by thread 1\n")
        slab = r"1024 blocks of 64 bytes, \d+ threaded, need \d+ \+ 0, OPEN"
        self.assertRegex(self.address("used"), slab)

    def test_inside_a_block(self):
        self.assertIn("7 bytes into the block at", self.address("used+7"))
        self.assertIn("block: in use", self.address("used+7"))

    def test_free_blocks(self):
        self.assertIn("block: free, on the slab's list", self.address("freed"))
        self.assertRegex(self.address("at_hand"), r"block: free, in the hand of heap \d+")
        self.assertIn("block: never handed out", self.address("unthreaded"))
        self.assertRegex(self.address("waiting"), r"block: free, waiting to be sent by heap \d+")
        self.assertIn("block: free, in the slab's mail", self.address("mailed"))

    def test_states(self):
        self.assertRegex(self.address("mailed"), r"QUEUED, 1 in the mail from \+0x0, version \d+")
        self.assertRegex(self.address("parked"), r"25 threaded, need 3 \+ 22, PARKED, no mail")

    def test_blocks_that_are_looked_at(self):
        self.assertIn("start of a block", self.address("seen"))
        self.assertIn("block: in use", self.address("seen"))
        self.assertRegex(self.address("seen"), r"watched: an observer looks at some of its blocks; the pagemap says tag \d+\n")
        for variable in ("used", "parked"):
            self.assertNotIn("pagemap says", self.address(variable))

    def test_large_blocks(self):
        self.assertIn("start of a block, 524288 bytes\n  block: in use", self.address("run"))
        self.assertIn("(run)", self.address("run"))
        self.assertIn("100000 bytes into the block", self.address("run+100000"))
        self.assertIn("5046272 bytes\n  block: in use", self.address("mapping"))
        self.assertIn("4000000 bytes into the block", self.address("mapping+4000000"))
        self.assertIn("(direct)", self.address("mapping+4000000"))
        self.assertRegex(self.address("front"), r"block: free, in front of heap \d+")
        self.assertRegex(self.address("reused+8000000"), r"in a freed mapping of \d{8} bytes")

    def test_what_is_not_of_masu(self):
        for variable in ("on_no_heap", "0", "-1"):
            self.assertIn("not of masu", self.address(variable))

    def test_heaps(self):
        heaps = self.ask("masu heaps")
        used = re.findall(r"(?m)^heap \d+ at 0x[0-9a-f]+: in use by thread \d", heaps)
        self.assertEqual(len(used), 2)
        self.assertIn("1 block of 1 slab waiting to be sent", heaps)
        self.assertIn("1 slab with mail on the queue", heaps)
        self.assertRegex(heaps, r"(?m)^ *in front: 327680 bytes at 0x[0-9a-f]+0000$")
        # Class, size, in hand, slabs open, free there.
        self.assertRegex(heaps, r"(?m)^ +4 +64 +[1-9]\d* +1 +[1-9]\d*$")

    def test_supply(self):
        supply = self.ask("masu supply")
        self.assertRegex(supply, r"region at 0x[0-9a-f]+: \d+ huge pages, \d+ touched, \d+ in use")
        self.assertRegex(supply, r"(?m)^  0x[0-9a-f]+ [#o.]{32} longest free run \d+")
        figures = dict(re.findall(r"^ +(\w+) +(\d+)$", supply, re.M))
        page = re.findall(r"^  0x[0-9a-f]+ ([#o.]{32}) longest", supply, re.M)
        self.assertEqual(int(figures["used"]), "".join(page).count("#") * 65536)
        self.assertEqual(int(figures["idle"]), "".join(page).count("o") * 65536)
        self.assertEqual(int(figures["direct"]), 5046272)
        self.assertRegex(supply, r"freed mappings kept for reuse: \d{8} bytes")

    def test_mail_words(self):
        self.assertIn('"QUEUED, 2 in the mail from +0x208, version 3"', self.ask(COMMANDS[-2]))

    def test_mistakes_are_answered(self):
        self.assertIn("which address?", self.ask("masu address"))
        self.assertIn("no_such_variable", self.ask("masu address no_such_variable"))
        self.assertIn("no such heap", self.ask("masu heaps 60000"))
        self.assertIn("masu supply", self.ask("help masu"))
        self.assertNotIn("Python Exception", self.text)
        self.assertNotIn("Traceback", self.text)

    def test_the_core_tells_the_same(self):
        for command in COMMANDS:
            with self.subTest(command):
                self.assertEqual(self.core.get(command), self.live[command])


class Printers(unittest.TestCase):
    """print on the structs themselves; in the separate build they are in other files."""

    def test_slabs_and_heaps(self):
        python = (
            "python import gdb; masu = Masu(); "
            "gdb.set_convenience_variable('heap', masu.heaps[-1].value); "
            "gdb.set_convenience_variable('slab', find_slab(masu, "
            "address_of(gdb.parse_and_eval('mailed')))[0].value)"
        )
        found, text = answers(
            [python, "print $heap", "print $slab", "print $slab.mail"],
            before=("break stop_here", "run"),
            after=("kill",),
        )
        self.assertRegex(found["print $heap"], r"= heap \d+ = \{busy = ", text)
        self.assertRegex(found["print $heap"], r"hand\[4\] = 0x")
        self.assertNotIn("hand[3]", found["print $heap"])
        slab = found["print $slab"]
        self.assertIn("= small slab = {free = 0x0, need = 2, threaded = 16", slab)
        self.assertRegex(slab, r"mail.count = 1, mail.head = 0x[0-9a-f]+, mail.state = QUEUED")
        self.assertIn("kind = small", slab)
        self.assertIn("reserve = 14", slab)

    def test_without_masu(self):
        text = gdb(f"source {SCRIPT}", "masu heaps")
        self.assertRegex(text, "no symbols of masu here|no heap yet")


def may_trace():
    done = subprocess.run(
        ["gdb", "-q", "-batch", "-nx", "-ex", "run", "/bin/true"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return "exited normally" in done.stdout


def main():
    global PROGRAM, SCRIPT
    PROGRAM, SCRIPT = sys.argv[1:3]
    if not shutil.which("gdb") or not may_trace():
        print("no gdb here, or none that may trace a program")
        return SKIPPED
    return not unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())

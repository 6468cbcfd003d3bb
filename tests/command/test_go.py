"""The profilers, the leak checker and the live view on a program in Go that calls C: its runtime has signals, stacks and an end of its own."""

import os
import subprocess

import pytest
from conftest import MASU, tool
from living import eventually
from profiling import folded, inside, profiled

from masu import live

# Goroutines whose C keeps 32 MiB; with an argument it goes on until a file of the profile is there.
PROGRAM = r"""
package main

/*
#include <stdlib.h>
#include <string.h>
static void *volatile kept[64];
__attribute__((noinline)) void keeps(int n) { kept[n] = memset(malloc(1 << 20), 1, 1 << 20); }
__attribute__((noinline)) void churns(void) { for (int i = 0; i < 1000; i++) { void *volatile p = malloc(1000); free(p); } }
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

func main() {
	var all sync.WaitGroup
	sums := make([]int, 8)
	for i := range sums {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < 4; n++ {
				C.keeps(C.int(4*i + n))
			}
			for n := 0; n < 20000000; n++ {
				sums[i] += n % (i + 2)
			}
		}()
	}
	all.Wait()
	for len(os.Args) > 1 {
		if found, _ := filepath.Glob(os.Getenv("MASU_PROFILE") + "/*.pb"); len(found) > 0 {
			break
		}
		C.churns()
	}
	fmt.Println(sums)
}
"""


@pytest.fixture(scope="session")
def in_go(tmp_path_factory):
    folder = tmp_path_factory.mktemp("go")
    (folder / "it.go").write_text(PROGRAM)
    environment = {**os.environ, "CGO_ENABLED": "1", "GO111MODULE": "off", "GOCACHE": str(folder / "cache")}
    subprocess.run([tool("go"), "build", "-o", "it", "it.go"], cwd=folder, env=environment, check=True)
    said = subprocess.run([folder / "it"], capture_output=True, text=True, check=True).stdout
    return folder / "it", said


def test_the_heap_profile_has_what_c_allocates(masu, in_go, tmp_path):
    program, said = in_go
    result = profiled(masu, tmp_path, program, "until it is written")
    assert (result.returncode, result.stdout) == (0, said), result.stderr
    assert "its last one before is taken" in result.stderr  # Go ends by the system call
    assert inside(folded(masu, "--view", "in-use", tmp_path / "it"), "keeps") == 32 * 1024


def test_the_cpu_profiler_leaves_the_signal_to_go(masu, in_go, tmp_path):
    program, said = in_go
    result = masu("run", "--profile", "cpu", "--hz", "1000", "-o", "it", "--", program, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, said), result.stderr
    assert "handles SIGURG itself" in result.stderr


def test_it_is_not_checked_for_leaks(masu, in_go):
    program, said = in_go
    result = masu("run", "--leaks", "--", program)
    assert (result.returncode, result.stdout) == (125, said), result.stderr
    assert "was not checked for leaks" in result.stderr and "left without exit" in result.stderr


def test_the_live_view_shows_what_c_keeps(masu, in_go, tmp_path):
    program, said = in_go
    running = subprocess.Popen([MASU, "run", "--live", "--", program, "until it is written"], env={**os.environ, "MASU_PROFILE": str(tmp_path)},
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert eventually(lambda: running.pid in live.processes())
        with live.Page(running.pid) as page:
            assert eventually(lambda: page.read().process["live"] >= 32 << 20)
            assert page.read().process["live"] < 40 << 20
            page.request(live.PURGE)
        (tmp_path / "it.pb").touch()
        assert (running.communicate(timeout=60)[0], running.returncode) == (said, 0)
    finally:
        running.kill()
        running.wait()
        live.sweep()

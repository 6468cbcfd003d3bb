"""bench/predict.py: a short run, of which one program fails."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import predict  # noqa: E402


def test_a_program_that_fails_is_named_and_the_rest_goes_on(monkeypatch, capsys):
    fails, works = ["sh", "-c", "echo no luck >&2; exit 3"], ["perl", "-e", "my @s = map { 'word ' . $_ } 1 .. 1000"]
    monkeypatch.setattr(predict, "PROGRAMS", {"it fails": fails, "it works": works})
    monkeypatch.setattr(sys, "argv", ["predict.py", "--rounds", "1"])
    with pytest.raises(SystemExit) as ended:
        predict.main()
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "predict.py: it fails: no luck" in said.err
    assert said.out.splitlines()[0].startswith(f"{predict.machine()['when'][:8]}") and ", 1 rounds: system glibc" in said.out
    assert "| it works | " in said.out and "| it fails | " not in said.out

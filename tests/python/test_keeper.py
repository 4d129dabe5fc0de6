"""Passes that go on from where the first one had imported ttrace."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG, PROGRAM

SCRIPT = Path(__file__).parent / "programs" / "goes_on.py"
PASSES = ["forced", "forced", "noise", "noise", "reference"]


class Check:
    def __init__(self, folder: Path, deed: str = "nothing", *options: str, divisor: str = "1", noise: int = 2):
        self.folder = folder / "run"
        self.notes = folder / "notes.txt"
        reference = f"{sys.executable} {SCRIPT} {self.notes} {deed}"
        candidate = f"{sys.executable} {SCRIPT} {folder / 'candidate.txt'} nothing {divisor}"
        command = [PROGRAM, "check", "--noise", str(noise), "--reference", reference, "--candidate", candidate, "-o", str(self.folder), *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TTRACE_")}
        environment["TMPDIR"] = str(folder)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def finish(self) -> int:
        self.output, _ = self.process.communicate(timeout=HANG)
        return self.process.returncode

    def noted(self, word: str) -> list[list[str]]:
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(word)]

    @property
    def passes(self) -> list[str]:
        return sorted(words[0] for words in self.noted("pass"))

    @property
    def tensors(self) -> list[dict]:
        return json.loads((self.folder / "report.json").read_text())["tensors"]


def keepers_of(check: Check) -> set[int]:
    """Parents of processes that went on: who did not start them."""
    started = {words[0] for words in check.noted("start")}
    return {int(words[2]) for words in check.noted("pass") if words[1] not in started}


def is_gone(process: int) -> bool:
    """Waits for it."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    return bool(select.select([descriptor], [], [], HANG)[0])


def test_one_process_starts_and_the_other_passes_go_on_from_it(tmp_path):
    check = Check(tmp_path)
    assert check.finish() == 0, check.output
    assert len(check.noted("start")) == 1
    assert check.passes == PASSES
    assert len({words[1] for words in check.noted("pass")}) == len(PASSES), "every pass is a process of its own"
    for name in ("reference", "noise-1", "noise-2", "forced-wide", "forced-native"):
        assert (check.folder / "logs" / f"{name}.log").read_text().startswith(f"this is the log of {name.split('-')[0]}")
    assert is_gone(*keepers_of(check))


def test_verdicts_are_those_of_passes_that_start_anew(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "fresh").mkdir()
    kept, fresh = Check(tmp_path / "kept", divisor="2"), Check(tmp_path / "fresh", "nothing", "--fresh", divisor="2")
    assert (kept.finish(), fresh.finish()) == (1, 1), kept.output + fresh.output
    assert len(fresh.noted("start")) == len(PASSES)
    assert kept.tensors == fresh.tensors


def test_what_the_program_has_done_before_stays_done(tmp_path):
    check = Check(tmp_path, "moves")
    assert check.finish() == 0, check.output
    assert len(check.noted("start")) == 1
    assert {tuple(words[3:]) for words in check.noted("pass")} == {("/", "1")}


@pytest.mark.parametrize("deed", ["thread", "fails"])
def test_passes_start_anew_where_a_process_cannot_be_forked_or_fails_when_it_was(tmp_path, deed):
    check = Check(tmp_path, deed)
    assert check.finish() == 0, check.output
    assert len(check.noted("start")) == len(PASSES), check.output
    assert "failed" not in check.output


def test_nobody_is_left_when_the_check_is_killed(tmp_path):
    check = Check(tmp_path, "nothing", "--jobs", "1", noise=40)
    while not keepers_of(check):
        assert check.process.poll() is None, check.finish()
    check.process.send_signal(signal.SIGKILL)
    check.finish()
    last = max(int(words[1]) for words in check.noted("pass"))
    assert is_gone(*keepers_of(check)) and is_gone(last)
    assert not list(tmp_path.glob("ttrace-keeper-*"))


def test_a_rank_is_not_kept(tmp_path):
    """It has peers, which a process that goes on later would not find."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TTRACE_")}
    environment |= {"TTRACE_KEEPER": f"{os.getpid()}:{tmp_path}", "RANK": "0"}
    command = [sys.executable, SCRIPT, tmp_path / "notes.txt"]
    subprocess.run(command, check=True, env=environment, timeout=HANG, capture_output=True)
    assert not (tmp_path / "keeper").exists()

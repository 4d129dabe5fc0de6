"""Programs that have no line of TTrace, checked with `--auto`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import HANG, expect_equal_bits, python, run_untraced, torchrun
from ttrace.base.calls import Replaced

PROGRAM = Path(__file__).parent / "programs" / "without_lines.py"
CANDIDATE = f"{PROGRAM} --parallel"
TENSOR_PARALLEL = PROGRAM.parent / "own_tensor_parallel.py"


def test_a_program_without_lines_is_checked_operator_by_operator(check):
    outcome = check(python(PROGRAM), torchrun(2, CANDIDATE), "--auto", steps="0:2")
    assert outcome.code == 0, outcome.summary()
    assert outcome.report["counts"]["operators"] > 90, outcome.summary()
    ids = outcome.ids()
    for wanted in ("s0/m0/output/0/0", "s1/main_grad/3.weight/0", "s1/exp_avg/3.weight/0", "s1/param_next/3.weight/0"):
        assert wanted in ids
    assert any("--auto" in part["sentence"] for part in outcome.report["not_seen"]), outcome.report["not_seen"]


def test_its_bits_do_not_change(check):
    outcome = check(python(PROGRAM), torchrun(2, CANDIDATE), "--auto", "--no-forced", steps="0:2")
    assert outcome.code == 0, outcome.summary()
    expect_equal_bits(outcome.log("candidate"), run_untraced(torchrun(2, CANDIDATE)))


@pytest.mark.parametrize(
    ("bug", "first"),
    [("--unequal", "s0/main_grad/0.weight/0"), ("--scaled", "s0/m0/grad_output/3/0")],
)
def test_its_bugs_are_found(check, bug, first):
    outcome = check(python(PROGRAM), torchrun(2, f"{CANDIDATE} {bug}"), "--auto")
    assert outcome.code == 1, outcome.summary()
    assert outcome.report["first_divergence"]["id"] == first


@pytest.mark.parametrize("options", ["--bf16", "--bf16 --buffer", "--made-in-bf16"])
def test_passes_in_f32_reach_a_program_in_bf16(check, options):
    """Symptom: a wrapper kept BF16, and right norms of the second step were wrong on their own inputs."""
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{CANDIDATE} {options}"), "--auto", steps="0:2")
    assert (outcome.code, outcome.broken_off) == (0, []), outcome.summary()
    assert outcome.report["counts"]["operators"] > 90, outcome.summary()


def test_passes_in_f64_reach_a_program_that_shards_its_parameters(check):
    """Symptom: sharded parameters kept their type within, and the optimizer's step failed."""
    reference, candidate = (torchrun(ranks, f"{CANDIDATE} --sharded") for ranks in (1, 2))
    outcome = check(reference, candidate, "--auto", steps="0:2")
    assert (outcome.code, outcome.broken_off) == (0, []), outcome.summary()
    assert outcome.report["counts"]["operators"] > 80, outcome.summary()
    wide = ttrace.open(outcome.folder / "forced-wide")
    assert wide["s0/m0/output/0/0"].merged().dtype == torch.float64


def test_a_pass_that_does_not_reach_its_precision_says_so(check):
    program = f"{PROGRAM} --made-in-bf16 --buffer"
    outcome = check(python(program), torchrun(2, f"{CANDIDATE} --made-in-bf16 --buffer"), "--auto", steps="0:2")
    assert outcome.broken_off == ["forced-wide"], outcome.summary()
    assert "this pass asks for f32, and something has put bf16 back into the model" in outcome.log("forced-wide")


def test_lines_of_its_own_rule(check):
    """The model was attached to twice: by the program, and by what watches it."""
    outcome = check(python(f"{PROGRAM} --lines"), torchrun(2, f"{CANDIDATE} --lines"), "--auto")
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/loss/loss/0" in outcome.ids()
    assert not any("--auto" in part["sentence"] for part in outcome.report["not_seen"])


@pytest.mark.parametrize(("bug", "first"), [("", ""), (" --scaled", "s1/param/0.weight/0")])
def test_calls_of_the_model_are_the_steps_of_a_program_that_trains_nothing(check, bug, first):
    """Symptom: a program without an optimizer ended before its first step, so that nothing could be compared."""
    program = f"{PROGRAM} --inference"
    outcome = check(python(program), python(f"{program}{bug} --again"), "--auto", "--inference", steps="0:2")
    assert outcome.first == first, outcome.summary()
    if not bug:
        assert (outcome.code, outcome.broken_off) == (0, []), outcome.summary()
        assert {"s0/m0/output/3/0", "s1/m0/input/0/0"} <= set(outcome.ids())


def test_a_program_that_trains_nothing_is_told_of_the_option(tmp_path):
    assert "where it trains nothing, add --inference" in ttrace_check(tmp_path, "true")


def test_what_the_start_file_hides_still_runs(tmp_path):
    """Python runs one sitecustomize only, and that of the user's machine did not run."""
    (tmp_path / "sitecustomize.py").write_text("print('of this machine')")
    result = ttrace_check(tmp_path, "true", PYTHONPATH=str(tmp_path))
    assert "of this machine" in result


def test_a_python_without_the_package_says_so(tmp_path):
    assert "has no package ttrace, so --auto finds no model" in ttrace_check(tmp_path, "true", PYTHONPATH="")


@pytest.mark.parametrize(("bug", "first"), [("", ""), (" --unsummed", "s0/m0/output/2.down/0")])
def test_addends_that_a_program_sums_itself_are_put_together(check, bug, first):
    """Symptom: operators behind them were accused, because forced passes took one rank's addend for the value."""
    outcome = check(python(TENSOR_PARALLEL), torchrun(2, f"{TENSOR_PARALLEL} --parallel{bug}"), "--auto")
    assert outcome.first == first, outcome.summary()
    if not bug:
        assert (outcome.code, outcome.broken_off) == (0, []), outcome.summary()
        assert outcome.report["counts"]["operators"] > 90, outcome.summary()


def test_a_patch_over_ours_stays():
    """Symptom: the program had patched a schedule's step, which had become torch's own again once we had attached."""

    class Schedule:
        def step(self) -> str:
            return "own"

    ours = Replaced(Schedule, "step", lambda schedule: "watched")
    Schedule.step = lambda schedule, own=Schedule.step: f"patched, {own(schedule)}"
    ours.remove()
    assert Schedule().step() == "patched, watched"


def ttrace_check(folder: Path, code: str, **variables: str) -> str:
    """The log of a check whose candidate is this interpreter, alone."""
    (folder / "empty.py").write_text("")
    result = subprocess.run(
        [os.environ["TTRACE_PROGRAM"], "check", "--auto", "-o", folder / "run", "--reference", code,
         "--candidate", f"{sys.executable} {folder / 'empty.py'}"],
        capture_output=True, text=True, check=False, timeout=HANG, env={**os.environ, **variables},
    )  # fmt: skip
    assert result.returncode == 2
    return result.stderr

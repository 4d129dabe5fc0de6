"""A run that goes on from a checkpoint, against one that was never interrupted."""

from __future__ import annotations

import pytest
from conftest import HERE, python, run_untraced, torchrun

PROGRAM = f"{HERE / 'programs' / 'resumed.py'}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """What a run leaves after two iterations, by precision and number of ranks."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def stored(precision: str, ranks: int) -> str:
        path = folder / f"{precision}-{ranks}.pt"
        if not path.exists():
            run = f"{PROGRAM} --steps 2 --precision {precision} --save {path}"
            run_untraced(torchrun(ranks, run) if ranks > 1 else python(run))
        return str(path)

    return stored


@pytest.fixture(scope="module")
def resumed(check, checkpoint):
    """A check of a run on two ranks that goes on from the checkpoint of `wrote` ranks."""

    def run(precision: str, options: str = "", *, wrote: int = 1, start: str = "own"):
        candidate = f"{PROGRAM} --precision {precision} --resume {checkpoint(precision, wrote)} {options}"
        reference = python(f"{PROGRAM} --precision {precision}")
        return check(reference, torchrun(2, candidate), "--noise", "3", "--start", start, steps="2:3")

    return run


# Symptom: a right resumed run had parameters that differed "but the reference was equal in all noise passes": noise
# began with the traced step, and what the steps before round had no bound.
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_right_resumed_run_is_clean(resumed, precision):
    for wrote in (1, 2):
        outcome = resumed(precision, wrote=wrote)
        assert outcome.code == 0, outcome.summary()
        before = {id for id in outcome.ids() if id.startswith("s2/state_before/")}
        states = {"main", "exp_avg", "exp_avg_sq", "step"} if precision == "bf16" else {"exp_avg", "exp_avg_sq", "step"}
        assert {f"s2/state_before/up.weight.{name}/0" for name in states} <= before
        assert "s2/state_before/seen/0" in before
        assert not outcome.broken_off


@pytest.mark.parametrize(
    ("precision", "lost", "first"),
    [
        ("f32", "optimizer", "s2/state_before/embed.weight.exp_avg/0"),
        ("bf16", "optimizer", "s2/state_before/embed.weight.exp_avg/0"),
        ("f32", "step", "s2/state_before/embed.weight.step/0"),
        ("f32", "scheduler", "s2/state/embed.weight.lr_next/0"),
        ("bf16", "scheduler", "s2/state/embed.weight.lr/0"),
        ("bf16", "masters", "s2/state_before/embed.weight.main/0"),
        ("f32", "sampler", "s2/m0/data/tokens/0"),
        ("f32", "buffers", "s2/state_before/seen/0"),
    ],
)
def test_what_a_resumed_run_has_lost_is_named(resumed, precision, lost, first):
    outcome = resumed(precision, f"--loses {lost}", wrote=2)
    assert outcome.code == 1 and outcome.first == first, outcome.summary()


# Symptom: a resumed run started from the reference's values before its first iteration, and every tensor diverged.
def test_the_start_of_a_resumed_run_is_not_overwritten_in_silence(resumed):
    outcome = resumed("f32", start="reference")
    assert outcome.code == 2, outcome.summary()
    log = outcome.log("candidate")
    assert "begins with iteration 2" in log and "began with iteration 0" in log and "--start own" in log
    late = resumed("f32", "--load-late --seed 1", start="reference")  # its own values come after ours
    assert late.code == 0, late.summary()
    assert "start" in [part["kind"] for part in late.report["not_seen"]]

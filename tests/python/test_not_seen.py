"""What a verdict does not cover, and that it says so."""

from __future__ import annotations

from pathlib import Path

import ttrace
from conftest import python

PROGRAM = str(Path(__file__).parent / "programs" / "not_seen.py")


def run(check, reference: str, candidate: str, *options: str):
    programs = [python(f"{PROGRAM} {arguments}") for arguments in (reference, candidate)]
    return check(*programs, "--noise", "2", "--no-forced", *options, steps="0:1")


def kinds(outcome) -> set[str]:
    return {part["kind"] for part in outcome.report["not_seen"]}


def test_a_missing_optimizer_is_said_and_may_be_an_error(check):
    """Symptom: without `optimizer=` a run whose gradients were never averaged was within bound, without a word."""
    outcome = run(check, "", "")
    assert outcome.code == 0, outcome.summary()
    assert kinds(outcome) == {"updates", "parallel", "state"}
    assert ("state", "this program keeps a counter of its own") in ttrace.open(outcome.folder / "candidate").not_seen
    strict = run(check, "", "", "--require", "updates")
    assert strict.code == 2 and strict.report["verdict"] == "not_judged"
    assert "--require updates is not met" in strict.report["unmet"][0]


def test_with_an_optimizer_updates_are_compared(check):
    outcome = run(check, "--optimizer", "--optimizer", "--require", "updates,main_grad,param_next")
    assert outcome.code == 0, outcome.summary()
    assert kinds(outcome) == {"parallel", "state"}


def test_nan_everywhere_is_not_judged(check):
    """Symptom: both programs computed NaN, and a loss that was seven times too large was within bound."""
    outcome = run(check, "--nan", "--nan --wrong 7")
    assert outcome.code == 2 and outcome.report["verdict"] == "not_judged", outcome.summary()
    assert "values" in kinds(outcome)
    assert "not finite on both sides" in outcome.report["headline"]
    assert run(check, "", "--wrong 7").code == 1


def test_a_program_that_draws_other_data_in_each_run_is_told_to_seed_them(check):
    """Symptom: noise was as large as the tensors, and every candidate was within bound."""
    outcome = run(check, "--unseeded", "--unseeded --wrong 7")
    assert outcome.code == 2 and outcome.report["verdict"] == "not_judged", outcome.summary()
    assert "the reference does not repeat its own" in outcome.report["headline"]
    assert (outcome.folder / "logs" / "self-check.log").exists()


def test_another_precision_is_one_sentence(check):
    outcome = run(check, "", "--autocast")
    assert outcome.code == 1, outcome.summary()
    first = outcome.report["first_divergence"]
    assert first["probable_cause"].startswith("the candidate computes in bf16, the reference in f32 (")
    assert outcome.report["candidate"]["computes_in"] == "parameters f32, activations bf16"
    assert outcome.report["reference"]["computes_in"] == "f32"

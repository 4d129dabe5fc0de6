"""Loops that are not the program's own, scaled losses, and programs that only go forward."""

from __future__ import annotations

from conftest import HERE, python, torchrun

PROGRAM = str(HERE / "programs" / "loops.py")


def test_another_scale_of_the_loss_is_no_divergence(check):
    """Every gradient of a micro-batch was off by the factor between two GradScalers' scales."""
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --scale 1024"))
    assert outcome.code == 0, outcome.summary()
    assert "s1/m1/param_grad/model.0.weight/0" in outcome.ids()


def test_a_scale_that_nobody_declares_is_a_note_where_it_is_taken_out_again(check):
    """Symptom: every gradient of a right program was a finding. The main gradients show that the factor is undone."""
    outcome = check(python(PROGRAM), python(f"{PROGRAM} --scale 3 --undeclared"))
    assert outcome.code == 0, outcome.summary()
    assert any("are 3 times the reference's" in note for note in outcome.report["notes"])


def test_a_scale_that_stays_in_the_gradients_is_found(check):
    outcome = check(python(PROGRAM), python(f"{PROGRAM} --scale 2 --undeclared --kept"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/grad_output/loss/0", outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == "wrong_factor"


def test_steps_that_follow_the_optimizer_are_those_of_the_loop(check):
    """A loop of accelerate takes several turns per step, so that no `with` can surround a step."""
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --follow"))
    assert outcome.code == 0, outcome.summary()
    assert {"s0/m1/output/model/0", "s1/m1/output/whole_model/0"} <= set(outcome.ids())
    assert not outcome.ids("missing_in_reference") and not outcome.ids("missing_in_candidate")


def test_a_program_that_only_goes_forward_is_compared(check):
    """Nothing was recorded of a forward without gradients."""
    outcome = check(python(f"{PROGRAM} --forward"), torchrun(2, f"{PROGRAM} --forward"))
    assert outcome.code == 0, outcome.summary()
    assert "s1/m1/output/model.2/0" in outcome.ids()

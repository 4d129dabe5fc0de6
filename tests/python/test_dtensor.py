"""DDP, FSDP2, tensor and sequence parallelism, their combinations, and stages, of examples/dtensor."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, asked, python, torchrun

EXAMPLE = ROOT / "examples" / "dtensor"
sys.path.insert(0, str(EXAMPLE))

from planted_bug import BUGS  # noqa: E402

TRAIN = str(EXAMPLE / "train.py")
PATCHED = str(EXAMPLE / "planted_bug.py")

LAYOUTS = {
    "ddp": (2, "--ddp"),
    "fsdp": (2, "--fsdp"),
    "tp": (2, "--tp 2"),
    "tp sp": (2, "--tp 2 --sp"),
    "fsdp tp": (4, "--fsdp --tp 2"),
    "hsdp": (4, "--hsdp"),
    "fsdp tp sp": (4, "--fsdp --tp 2 --sp"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_clean_layouts_raise_no_alarm(check, name):
    ranks, options = LAYOUTS[name]
    outcome = check(python(TRAIN), torchrun(ranks, f"{TRAIN} {options}"))
    assert outcome.code == 0, outcome.summary()
    assert outcome.report["counts"]["missing_in_reference"] == 0
    assert "s0/m0/output/layers.3.feed_forward.w2/0" in outcome.ids()


def test_stages_are_one_model(check):
    outcome = check(python(f"{TRAIN} --microbatches 4"), torchrun(2, f"{TRAIN} --pp"))
    assert outcome.code == 0, outcome.summary()
    assert "s0/m3/output/layers.3/0" in outcome.ids() and "s0/m0/output/layers.0/0" in outcome.ids()


# Symptom: averages, maxima and norms that DTensor had not reduced yet, and masked lookups of a cut embedding, were compared as sums
# of what the ranks hold.
def test_what_is_not_reduced_yet_need_not_be_a_sum(check):
    program = str(ROOT / "tests" / "python" / "programs" / "pending.py")
    outcome = check(python(program), torchrun(2, program), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    outputs = {f"s0/m0/output/{name}/0" for name in ("words", "mean", "largest", "norm", "total")}
    assert outputs <= set(outcome.ids())


# Symptom: a traced run ended in "Tensor cached during selective activation checkpoint has been mutated". Reading the result of a
# reduce-scatter waits for it, which made it a later version of the tensor.
def test_selective_checkpointing_may_keep_the_result_of_a_collective(check):
    program = str(ROOT / "tests" / "python" / "programs" / "saved_collective.py")
    outcome = check(python(program), torchrun(2, program), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    assert {"s0/m0/output/row/0", "s0/m0/grad_output/row/0"} <= set(outcome.ids())


EVERYWHERE = str(ROOT / "tests" / "python" / "programs" / "dtensor_everywhere.py")


# Symptom: forced passes of a reference that computes with DTensors itself (torchtitan's full_dtensor) replaced nothing, so that all
# that came behind a wrong operator counted as wrong on its own.
def test_operators_of_dtensors_are_checked_on_their_own_where_the_reference_has_dtensors_too(check):
    outcome = check(python(EVERYWHERE), torchrun(2, f"{EVERYWHERE} --bug"), steps="0:1")
    wrong = [t["id"] for t in outcome.report["tensors"] if t["tier"] == "T1" and t["finding"]]
    assert wrong == ["s0/m0/output/1/0", "s0/m0/grad_output/1.fc/0"], outcome.summary()
    inherited = outcome.ids("inherited")
    assert {"s0/m0/output/2.norm/0", "s0/m0/output/2/0", "s0/m0/grad_output/1.norm/0", "s0/m0/grad_output/0/0"} <= set(inherited)


def test_dtensors_on_both_sides_raise_no_alarm(check):
    outcome = check(python(EVERYWHERE), torchrun(2, EVERYWHERE), steps="0:1")
    assert outcome.code == 0, outcome.summary()


HANDED_ON = str(ROOT / "tests" / "python" / "programs" / "handed_on.py")


# Symptom: a gather that hands on its own input on one device was a false alarm where its input has another consumer, too: "its
# operators are wrong", because the reference has one gradient for both, and forced passes gave it the second one's.
def test_a_module_that_changes_nothing_on_one_device_may_have_a_gradient_of_its_own_in_parallel(check):
    outcome = check(python(HANDED_ON), torchrun(2, HANDED_ON), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    operators = {t["id"] for t in outcome.report["tensors"] if asked(t, "operator")}
    assert "s0/m0/grad_output/first/0" in operators


def test_a_wrong_gradient_behind_such_a_module_is_found_where_the_reference_has_it(check):
    outcome = check(python(HANDED_ON), torchrun(2, f"{HANDED_ON} --bug"), steps="0:1")
    assert outcome.code == 1
    assert outcome.first == "s0/m0/grad_output/first/0", outcome.summary()


USUAL = ("row-output-not-summed", "norm-gradients-not-summed", "stage-gradients-not-scaled")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in USUAL else pytest.mark.full) for n in BUGS]
)
def test_planted_bugs_are_found_where_they_are(check, name):
    bug = BUGS[name]
    candidate = torchrun(bug.ranks, f"{PATCHED} {name} {bug.options}")
    outcome = check(python(f"{TRAIN} {bug.reference}"), candidate)
    assert outcome.code == 1, outcome.summary()
    assert re.search(bug.expected, outcome.first), outcome.summary()

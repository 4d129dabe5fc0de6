"""Programs that read the reference's samples in another order, on other ranks, or in other micro-batches."""

from __future__ import annotations

import pytest
from conftest import HERE, asked, python, torchrun

PROGRAM = str(HERE / "programs" / "samples.py")
DEALT = "dealt as torch's DistributedSampler deals them"


def remarks(outcome) -> str:
    return " | ".join(outcome.report["remarks"])


def operators(outcome, kind: str) -> list[str]:
    return [t["id"] for t in outcome.report["tensors"] if asked(t, "operator") and f"/{kind}/" in t["id"]]


@pytest.mark.parametrize("data", ["", "--tokens"])
def test_samples_that_a_distributed_sampler_deals_are_put_in_order(check, data):
    """Symptom: the standard program of DDP diverged at its data, or at the model's input."""
    outcome = check(python(f"{PROGRAM} {data}"), torchrun(2, f"{PROGRAM} {data} --deal distributed"))
    assert outcome.code == 0, outcome.summary()
    assert DEALT in remarks(outcome) and "rank 1 has 1, 3, 5, 7" in remarks(outcome)
    assert not outcome.ids("not_judged")
    assert "s0/m0/grad_output/3/0" in outcome.ids()
    assert operators(outcome, "param_grad") and operators(outcome, "main_grad")


def test_shuffled_samples_are_put_in_order(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --deal shuffled"))
    assert outcome.code == 0, outcome.summary()
    assert "lie in another order in the candidate" in remarks(outcome)
    assert not outcome.ids("not_judged")


def test_samples_in_their_own_order_cost_no_word(check):
    outcome = check(python(PROGRAM), torchrun(2, PROGRAM))
    assert outcome.code == 0, outcome.summary()
    assert "sample" not in remarks(outcome)


def test_equal_samples_are_dealt_in_order(check):
    outcome = check(python(f"{PROGRAM} --equal"), torchrun(2, f"{PROGRAM} --equal --deal distributed"))
    assert outcome.code == 0, outcome.summary()
    assert not outcome.ids("not_judged")


def test_ranks_may_have_different_numbers_of_samples(check):
    """Symptom: placements claimed twice as many samples as each rank has."""
    of_seven = f"{PROGRAM} --samples 7"
    outcome = check(python(of_seven), torchrun(2, f"{of_seven} --deal distributed"))
    assert outcome.code == 0, outcome.summary()
    assert "rank 0 has 0, 2, 4, 6; rank 1 has 1, 3, 5" in remarks(outcome)
    assert check(python(of_seven), torchrun(2, of_seven)).code == 0


@pytest.mark.parametrize(("reference", "candidate"), [(1, 4), (4, 1), (4, 2)])
def test_accumulated_micro_batches_are_one_large_batch(check, reference, candidate):
    """Symptom: a right program diverged in 78 tensors, and main gradients that agree were called wrong on their
    own."""
    outcome = check(python(f"{PROGRAM} --accumulate {reference}"), python(f"{PROGRAM} --accumulate {candidate}"))
    assert outcome.code == 0, outcome.summary()
    assert "the candidate's micro-batch" in remarks(outcome)
    assert "s0/m0/output/3/0" in outcome.ids() and "s0/m0/grad_output/3/0" in outcome.ids()
    assert "s0/main_grad/0.weight/0" in operators(outcome, "main_grad")
    if reference == 1:
        assert "s0/m0/param_grad/0.weight/0" in outcome.ids()


def test_accumulation_and_data_parallelism_and_another_order_go_together(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --accumulate 2 --deal distributed"))
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/param_grad/0.weight/0" in outcome.ids()


def test_accumulated_gradients_that_are_not_divided_are_found(check):
    outcome = check(python(PROGRAM), python(f"{PROGRAM} --accumulate 4 --wrong undivided"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/grad_output/3/0", outcome.summary()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_missing_reduction_is_found_among_dealt_samples(check, accumulate):
    candidate = f"{PROGRAM} --deal distributed --accumulate {accumulate} --wrong unreduced"
    outcome = check(python(PROGRAM), torchrun(2, candidate))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first.startswith("s0/main_grad/"), outcome.summary()


def test_a_wrong_operator_is_found_among_dealt_samples(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --deal shuffled --wrong scaled"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/output/1/0", outcome.summary()


@pytest.mark.parametrize(("data", "first"), [("", "s0/m0/input/model/0"), ("--tokens", "s0/m0/data/input/0")])
def test_samples_that_two_ranks_read_are_named(check, data, first):
    outcome = check(python(f"{PROGRAM} {data}"), torchrun(2, f"{PROGRAM} {data} --deal repeated"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == first, outcome.summary()
    cause = next(t["cause"] for t in outcome.report["tensors"] if t["id"] == first)
    assert "rank 1 reads samples 0-3, which rank 0 reads as well; samples 4-7 are read by no rank" in cause
    assert len(outcome.report["diagnoses"]) == 1, outcome.summary()


def test_samples_of_another_step_are_named(check):
    """Symptom: after differing tokens the embedding was called wrong on its own."""
    outcome = check(python(f"{PROGRAM} --tokens"), torchrun(2, f"{PROGRAM} --tokens --deal foreign"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/data/input/0", outcome.summary()
    assert len(outcome.report["diagnoses"]) == 1, outcome.summary()


def test_other_samples_are_no_error_of_the_model(check):
    """Symptom: of the model's input, "its operators are wrong", and so of the first module's."""
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --deal others"))
    first = outcome.report["first_divergence"]
    assert first["id"] == "s0/m0/input/model/0" and first["signature"] == "source", outcome.summary()
    assert not operators(outcome, "input/model")
    assert "s0/m0/input/0/0" not in [tensor["id"] for tensor in outcome.report["tensors"] if tensor["finding"]]

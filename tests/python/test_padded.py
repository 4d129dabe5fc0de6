"""Programs that pad each batch to its own longest sample, so that batches of other sizes have other lengths."""

from __future__ import annotations

import pytest
from conftest import HERE, asked, python, torchrun

PROGRAM = str(HERE / "programs" / "padded.py")
TOKENS = "s0/m0/data/ids/0"


def remarks(outcome) -> str:
    return " | ".join(outcome.report["remarks"])


@pytest.mark.parametrize("options", ["", "--side left", "--labels", "--flat"])
def test_ranks_that_pad_to_their_own_longest_sample_are_right(check, options):
    """Symptom: "no rank holds [0:4, 0:6]"; samples 0, 2, 4, 6 "are read by no rank", of a right program."""
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options}"))
    assert outcome.code == 0, outcome.summary()
    assert "micro-batch 0 to 6 positions, the candidate's rank 0 to 5;" in remarks(outcome)
    assert {TOKENS, "s0/m0/output/head/0", "s0/m0/grad_output/layer/0"} <= set(outcome.ids())
    assert {"s0/m0/param_grad/head.weight/0", "s0/main_grad/head.weight/0"} <= set(outcome.ids())
    operators = [tensor["id"] for tensor in outcome.report["tensors"] if asked(tensor, "operator")]
    assert "s0/m0/output/head/0" in operators


@pytest.mark.parametrize(("reference", "candidate"), [(1, 4), (4, 1), (2, 4)])
def test_micro_batches_that_pad_to_their_own_longest_sample_are_right(check, reference, candidate):
    outcome = check(python(f"{PROGRAM} --accumulate {reference}"), python(f"{PROGRAM} --accumulate {candidate}"))
    assert outcome.code == 0, outcome.summary()
    assert {TOKENS, "s0/m0/output/head/0", "s0/main_grad/head.weight/0"} <= set(outcome.ids())


def test_padding_that_only_one_program_has_is_right(check):
    wide = check(python(PROGRAM), python(f"{PROGRAM} --multiple 8"))
    assert wide.code == 0, wide.summary()
    assert "micro-batch 0 to 6 positions, the candidate's rank 0 to 8;" in remarks(wide)
    assert "s0/m0/output/layer/0" in wide.ids()
    narrow = check(python(f"{PROGRAM} --multiple 8"), torchrun(2, PROGRAM))
    assert narrow.code == 0, narrow.summary()
    assert "s0/m0/output/layer/0" in narrow.ids()


@pytest.mark.parametrize("options", ["", "--side left"])
def test_a_token_within_a_padded_sample_is_found(check, options):
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options} --wrong token"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == TOKENS, outcome.summary()
    cause = next(tensor["cause"] for tensor in outcome.report["tensors"] if tensor["id"] == TOKENS)
    assert "sample 4 is read by no rank" in cause


def test_truncated_samples_are_no_padding(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --wrong truncated"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == TOKENS, outcome.summary()


@pytest.mark.parametrize(
    ("wrong", "first"),
    [("scaled", "s0/m0/output/scaled/0"), ("uncounted", "s0/m0/grad_output/model/0"), ("unreduced", "s0/main_grad/")],
)
def test_an_error_beside_padding_is_found(check, wrong, first):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --wrong {wrong}"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first.startswith(first), outcome.summary()


def test_padding_blames_no_operator_for_an_earlier_error(check):
    """Attention carries the error to padding as well, of which the candidate has no value."""
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --wrong scaled"))
    wrong = [entry["id"] for entry in outcome.report["diagnoses"]]
    assert wrong == ["s0/m0/output/scaled/0", "s0/m0/grad_output/embedding/0"], outcome.summary()

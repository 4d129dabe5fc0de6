"""Silent bugs in Megatron-core 0.16.1: two of its own, and those of megatron_bugs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT, python, torchrun

pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1 einops")
from megatron_bugs import BUGS

TRAIN = str(ROOT / "examples" / "megatron_core" / "train.py")
PATCHED = str(Path(__file__).parent / "megatron_bugs.py")
OWN_GROUPS = str(Path(__file__).parent / "megatron_own_groups.py")
USUAL = ("norm-gradients-not-summed", "softmax-sum-of-one-rank", "gradients-kept-between-steps")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in USUAL else pytest.mark.full) for n in BUGS]
)
def test_planted_bugs_are_found_where_they_are(check, name):
    bug = BUGS[name]
    candidate = torchrun(bug.ranks, f"{PATCHED} {name} {bug.common} {bug.options}")
    outcome = check(python(f"{TRAIN} {bug.common}"), candidate)
    assert outcome.code == 1, outcome.summary()
    assert re.search(bug.expected, outcome.first), outcome.summary()


def test_reduction_of_a_tensor_that_is_not_contiguous_is_found_in_the_package(check):
    """Tensor parallel, tokens a transposed view, deterministic: the embedding is summed over ranks in
    place of a copy, and stays one rank's addend."""
    options = "--deterministic --transposed-batch"
    outcome = check(python(f"{TRAIN} {options}"), torchrun(2, f"{TRAIN} {options} --tp 2"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/output/embedding.word_embeddings/0", outcome.summary()


@pytest.mark.full
def test_auxiliary_loss_with_a_loss_per_token_is_found_in_the_package(check):
    """Experts, tensor and sequence parallel, loss per token: the auxiliary loss has the wrong scale."""
    options = "--experts 4 --aux-loss 0.01 --per-token-loss"
    outcome = check(python(f"{TRAIN} {options}"), torchrun(2, f"{TRAIN} {options} --tp 2 --sp"))
    assert outcome.code == 1, outcome.summary()
    assert "router" in outcome.first, outcome.summary()


def test_a_model_with_process_groups_of_its_own_lies_as_these_say(check):
    """The layout was parallel_state's, which knew data-parallel ranks alone: the tensor-parallel shards did not fit."""
    outcome = check(python(TRAIN), torchrun(4, f"{OWN_GROUPS} --tp 2 --sp"))
    assert outcome.code == 0, outcome.summary()
    assert {"dp": "2", "tp": "2"}.items() <= outcome.report["candidate"]["layout"].items()


@pytest.mark.full
def test_a_loss_over_the_groups_of_parallel_state_is_found_in_the_package(check):
    """The model has groups of its own, and its cross-entropy sums over others: the loss of one half of the vocabulary."""
    outcome = check(python(TRAIN), torchrun(4, f"{OWN_GROUPS} as-installed --tp 2 --sp"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/loss/loss/0", outcome.summary()

"""Programs with dropout: the reference follows the candidate's masks, and masks that contradict each other are named."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from conftest import ROOT, python, torchrun

PROGRAM = str(Path(__file__).parent / "programs" / "dropout.py")
TRAIN = str(ROOT / "examples" / "megatron_core" / "train.py")
RECOMPUTED = ["f32", pytest.param("bf16", marks=pytest.mark.full)]


@pytest.fixture
def compare(check):
    """Of one step."""
    return functools.partial(check, steps="0:1")


def draws(outcome) -> list[str]:
    return [identity for identity in outcome.ids() if "/draw/" in identity]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_ranks_of_ddp_may_draw_their_own_masks(compare, precision):
    """Symptom: "only 16 of 32 rows carry the error" at a dropout, in a right program."""
    options = f"--precision {precision}"
    outcome = compare(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options} --layout ddp"))
    assert outcome.code == 0, outcome.summary()
    # In a module, by a function, and in attention.
    assert {"s0/m0/draw/blocks.1.inner/0", "s0/m0/draw/blocks.1/0", "s0/m0/draw/blocks.1/1"} <= set(draws(outcome))
    manifest = json.loads((outcome.folder / "rerouted" / "manifest.json").read_text())
    assert len(manifest["forced_routing"]) == 16
    assert outcome.broken_off == []


def test_masks_follow_their_samples(compare):
    """Symptom: samples that DistributedSampler deals were put in order, and the masks of attention were not."""
    outcome = compare(python(PROGRAM), torchrun(2, f"{PROGRAM} --layout ddp --dealt"))
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/output/blocks.1/0" in outcome.ids(), outcome.summary()


def test_equal_masks_cost_no_further_pass(compare):
    outcome = compare(python(PROGRAM), python(f"{PROGRAM} --recompute kept"))
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/draw/blocks.0/0~" in draws(outcome)
    assert not (outcome.folder / "rerouted").exists()


@pytest.mark.parametrize("precision", RECOMPUTED)
def test_a_recomputation_with_other_random_numbers_is_named(compare, precision):
    """Symptom: the finding stood next to the dropout, without a cause, although elements were zero on one side alone."""
    options = f"--precision {precision}"
    outcome = compare(python(f"{PROGRAM} {options}"), python(f"{PROGRAM} {options} --recompute lost"))
    assert outcome.first == "s0/m0/draw/blocks.1/0~", outcome.summary()
    found = outcome.report["first_divergence"]
    assert (found["symptom"], found["signature"]) == ("recompute_differs", "recompute")


@pytest.mark.parametrize(
    ("layout", "seeds", "symptom"),
    [("sp", "right", None), ("tp", "right", None), ("sp", "same", "same_draws"), ("tp", "other", "replicas_disagree")],
)
def test_seeds_of_ranks_of_one_tensor(compare, layout, seeds, symptom):
    """Ranks that hold parts of one tensor draw their own masks, and those that hold the same one draw one mask."""
    candidate = torchrun(2, f"{PROGRAM} --seeded --layout {layout} --seeds {seeds}")
    outcome = compare(python(f"{PROGRAM} --seeded"), candidate)
    if symptom is None:
        assert outcome.code == 0, outcome.summary()
        return
    # The wrong seed of tensor parallelism is that behind `down`, what `inner` is given is cut over the ranks.
    assert outcome.first == f"s0/m0/draw/blocks.0.{'inner' if layout == 'sp' else 'drop'}/0", outcome.summary()
    found = outcome.report["first_divergence"]
    assert (found["symptom"], found["signature"]) == (symptom, "random_numbers")


def test_a_program_that_does_not_train_is_named(compare):
    outcome = compare(python(PROGRAM), python(f"{PROGRAM} --eval"))
    assert outcome.first == "s0/m0/draw/blocks.0/0", outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == "random_numbers"


@pytest.mark.parametrize("precision", ["f32", pytest.param("bf16", marks=pytest.mark.full)])
@pytest.mark.parametrize("options", ["--tp 2 --sp", pytest.param("--tp 2 --recompute full", marks=pytest.mark.full)])
def test_megatron_core_draws_by_its_own_generators(compare, options, precision):
    pytest.importorskip("megatron.core", reason="pip install --no-deps megatron-core==0.16.1 einops")
    both = f"{TRAIN} --dropout 0.1 --layers 2 --precision {precision} --steps 1"
    outcome = compare(python(both), torchrun(2, f"{both} {options}"))
    assert outcome.code == 0, outcome.summary()
    assert any(".attention_dropout/" in identity for identity in draws(outcome))

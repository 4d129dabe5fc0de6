"""What training keeps from step to step: states of optimizers, learning rates, buffers, averages, start values."""

from __future__ import annotations

import pytest
import torch
from conftest import HERE, python, torchrun
from torch import nn
from ttrace.base.copies import Copies
from ttrace.base.scalers import Scalers
from ttrace.base.states import further_states
from ttrace.base.values import Parameter

PROGRAM = f"{HERE / 'programs' / 'kept.py'}"
FEW = ("--noise", "2")


def kept(check, reference: str, candidate: str, ranks: int = 2):
    run = f"{PROGRAM} {candidate}"
    return check(
        python(f"{PROGRAM} {reference}"), torchrun(ranks, run) if ranks > 1 else python(run), *FEW, steps="0:1"
    )


def wrong(outcome) -> set[str]:
    return {tensor["id"] for tensor in outcome.report["tensors"] if tensor["finding"]}


def test_states_of_any_form_have_names():
    state = {
        "step": 3,
        "exp_avg": torch.zeros(2),
        "momentum_buffer": torch.ones(2),
        "factors": [torch.ones(2), {"col": torch.ones(3)}],
        "codes": torch.zeros(4, dtype=torch.uint8),
        "nothing": None,
        "rule": "cosine",
    }
    found, left_out = further_states(state)
    assert list(found) == ["step", "momentum_buffer", "factors_0", "factors_1_col"]
    assert found["step"].dim() == 0 and found["step"].dtype == torch.int64
    assert left_out == ("codes", "rule")


def test_a_copy_has_the_parameters_names():
    model = nn.Sequential(nn.Linear(2, 2))
    parameters = [Parameter(name, tensor, None, tensor) for name, tensor in model.named_parameters()]
    average = torch.optim.swa_utils.AveragedModel(model)
    assert [(path, name) for path, name, _ in Copies({"swa": average}, parameters).parts()] == [
        ("0.weight", "swa"),
        ("0.bias", "swa"),
    ]
    with pytest.raises(ValueError, match="has no tensor with the name of a parameter"):
        Copies({"ema": {"other": torch.zeros(1)}}, parameters)


# Symptom: half of SGD's momentum on one rank got "within bound", because only three names of states were recorded.
@pytest.mark.parametrize(
    ("optimizer", "state", "first"),
    [
        ("sgd", "momentum_buffer", "s0/state/stem.weight.momentum_buffer/0"),
        ("adafactor", "row_var", "s0/state/stem.weight.row_var/0"),
    ],
)
def test_every_state_of_an_optimizer_is_compared(check, optimizer, state, first):
    options = f"--eval --optimizer {optimizer}"
    clean = kept(check, options, options)
    assert clean.code == 0, clean.summary()
    assert first in clean.ids()
    broken = kept(check, options, f"{options} --halve {state}")
    assert broken.code == 1 and broken.first == first, broken.summary()


def test_counters_and_learning_rates_are_compared(check):
    options = "--eval --optimizer adamw"
    clean = kept(check, options, options)
    assert clean.code == 0, clean.summary()
    assert {"s0/state/head.bias.step/0", "s0/state/head.bias.lr/0", "s0/state/head.bias.lr_next/0"} <= set(clean.ids())
    counted = kept(check, options, f"{options} --halve step")
    assert counted.first == "s0/state/stem.weight.step/0", counted.summary()


# Symptom: of a learning rate under SGD no cause was named.
def test_a_wrong_learning_rate_is_named(check):
    halved = kept(check, "--eval", "--eval --rate 0.05")
    assert halved.first == "s0/state/stem.weight.lr/0", halved.summary()
    found = halved.report["first_divergence"]
    assert found["signature"] == "optimizer" and "0.5000" in found["probable_cause"]
    later = kept(check, "--eval", "--eval --next-rate 0.1")
    assert later.first == "s0/state/stem.weight.lr_next/0", later.summary()


def test_copies_are_compared_as_the_step_leaves_them(check):
    other = kept(check, "--eval", "--eval --decay 0.8")
    assert other.first == "s0/copy/stem.weight.ema/0", other.summary()
    assert {id.split("/")[1] for id in wrong(other)} == {"copy"}


# Symptom: running statistics that moved twice in a checkpointed step got "within bound".
def test_buffers_are_compared(check):
    clean = kept(check, "", "", ranks=1)
    assert clean.code == 0, clean.summary()
    assert {"s0/buffer/bn.running_var/0", "s0/buffer/table/0"} <= set(clean.ids())
    twice = kept(check, "", "--checkpoint", ranks=1)
    assert twice.first == "s0/buffer/bn.running_mean/0", twice.summary()
    assert wrong(twice) == {f"s0/buffer/bn.{name}/0" for name in ("running_mean", "running_var")}


# Symptom: a norm that leaves its statistics alone when it is recomputed diverged in its number of batches, which nothing
# reads.
def test_recomputation_may_count_a_batch_twice(check):
    still = kept(check, "", "--checkpoint --still", ranks=1)
    assert still.code == 0, still.summary()


# Symptom: BatchNorm under DistributedDataParallel diverged without a word of why.
def test_statistics_of_each_ranks_own_samples_are_named(check):
    outcome = kept(check, "", "")
    assert outcome.first == "s0/m0/output/bn/0", outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == "local_statistics"


# Symptom: ranks that drew their own start values got "within bound", because TTrace had replaced them.
def test_ranks_that_begin_with_different_values_are_found(check):
    outcome = kept(check, "--eval", "--eval --own-start")
    assert outcome.first == "s0/start/head.weight/0", outcome.summary()
    assert [part["kind"] for part in outcome.report["not_seen"]].count("start") == 1
    alike = kept(check, "--eval", "--eval")
    assert alike.code == 0 and "start" not in [part["kind"] for part in alike.report["not_seen"]]


# Symptom: nobody compared what a GradScaler keeps: that one rank counted a step twice showed in no record.
def test_what_a_scaler_keeps_is_compared(check):
    program = f"{HERE / 'programs' / 'scaled.py'}"

    def scaled(options: str):
        return check(python(program), torchrun(2, f"{program} {options}"), *FEW, steps="0:2")

    clean = scaled("--scale 256")  # two runs may have different ones
    assert clean.code == 0, clean.summary()
    assert {f"s1/state/scaler.{name}/0" for name in ("growth_tracker", "growth_interval", "scale_change")} <= set(
        clean.ids()
    )
    assert scaled("--interval 1").first == "s0/state/scaler.growth_tracker/0"
    twice = scaled("--twice")
    assert twice.first == "s0/state/scaler.growth_tracker/0", twice.summary()
    assert twice.report["first_divergence"]["symptom"] == "replicas_disagree"


# Symptom: Megatron-core with parallel experts has two parts of an optimizer, and a scaler for each: the second one's state
# "was recorded by no rank" of the reference.
def test_scalers_that_hold_the_same_are_one():
    scalers = Scalers()
    alike = [torch.amp.GradScaler("cpu") for _ in range(2)]
    for scaler in alike:
        scaler.scale(torch.zeros(()))  # which makes its scale
        scalers.note(scaler)
    assert [state.path for state in scalers.states()] == ["scaler"]
    alike[1]._growth_tracker += 1
    assert [state.path for state in scalers.states()] == ["scaler", "scaler_1"]

"""Engines of DeepSpeed, FullyShardedDataParallel and Megatron-FSDP: what `attach` refuses, and that tracing changes no bit.

Layouts and bugs are those of tests/frameworks/zero, tests/frameworks/fsdp1 and tests/frameworks/mfsdp."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, expect_equal_bits, python, run_untraced, torchrun

FRAMEWORKS = ROOT / "tests" / "frameworks"
ZERO, FSDP1, MFSDP = (FRAMEWORKS / name / "train.py" for name in ("zero", "fsdp1", "mfsdp"))
# What the optimizer keeps of every parameter beside its moments.
COUNTED = ("step", "lr")
DEEPSPEED = ("deepspeed",)  # imported once, for all runs
MEGATRON_FSDP = ("megatron.core.distributed.fsdp.src.megatron_fsdp",)
needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="deepspeed cannot be imported; ./dev test installs it"
)


def expect_counted(outcome, parameter: str) -> None:
    assert {f"s0/state/{parameter}.{name}/0" for name in COUNTED} <= set(outcome.ids()), outcome.ids()


@needs_deepspeed
@pytest.mark.parametrize(("engine", "loop"), [("--stage 2", "--accumulate 2 --clip 0.3"), ("--stage 3 --persist 100", "")])
def test_an_engine_computes_the_same_bits_when_it_is_traced(check, engine, loop):
    """ZeRO-3 ended with "LinearFunctionForZeroStage3Backward returned an invalid gradient", because the traced run held
    on to parameters while they were empty."""
    candidate = f"{ZERO} {engine} {loop}"
    outcome = check(python(f"{ZERO} --plain {loop}"), torchrun(2, candidate, DEEPSPEED), "--no-forced")
    assert outcome.code == 0, outcome.summary()
    expect_equal_bits(outcome.log("candidate"), run_untraced(torchrun(2, candidate, DEEPSPEED)))
    expect_counted(outcome, "blocks.0.down.weight")


@needs_deepspeed
def test_a_step_that_an_engine_counts_too_much_is_found(check):
    """Symptom: DeepSpeed's BF16 engine without ZeRO takes a step of zeros when it is made, so that its first update is
    0.744 of Adam's; the roundings of BF16 hid that, and the counter was not read."""
    reference, candidate = f"{ZERO} --plain --precision bf16", f"{ZERO} --stage 0 --precision bf16"
    outcome = check(python(reference), torchrun(2, candidate, DEEPSPEED), steps="0:1")
    assert outcome.code == 1, outcome.summary()
    assert "s0/state/blocks.0.down.weight.step/0" in outcome.ids("diverged"), outcome.summary()


def test_fsdp1_computes_the_same_bits_when_it_is_traced(check):
    candidate = f"{FSDP1} --strategy FULL_SHARD --accumulate 2 --clip 0.3"
    outcome = check(python(f"{FSDP1} --accumulate 2 --clip 0.3"), torchrun(2, candidate), "--no-forced")
    assert outcome.code == 0, outcome.summary()
    expect_equal_bits(outcome.log("candidate"), run_untraced(torchrun(2, candidate)))
    expect_counted(outcome, "blocks.0.down.weight")


REFUSED = """
import deepspeed, torch, ttrace
from torch import nn
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
model = nn.Sequential(MODULE)
config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, CONFIG}
engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)[0]
ttrace.attach(ATTACHED)
"""


@needs_deepspeed
@pytest.mark.parametrize(
    ("module", "config", "attached", "sentence"),
    [
        (
            "nn.Linear(2, 2)", '"zero_optimization": {"stage": 1}', "engine.module",
            "the Sequential within a DeepSpeed engine, .*pass the engine",
        ),
        (
            "deepspeed.moe.layer.MoE(2, nn.Linear(2, 2))", "", "engine",
            r"an engine with DeepSpeed's experts \(MoE\); trace the model without them",
        ),
    ],
)  # fmt: skip
def test_what_of_deepspeed_is_not_supported_is_refused_by_name(tmp_path, module, config, attached, sentence):
    """Gradients and states were "recorded by no rank", and the report called the weights stale."""
    environment = {
        **os.environ, "TTRACE_PASS": "reference", "TTRACE_DIR": str(tmp_path), "DS_ACCELERATOR": "cpu",
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500",
    }  # fmt: skip
    code = REFUSED.replace("MODULE", module).replace("CONFIG", config).replace("ATTACHED", attached)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False, env=environment
    )
    assert re.search(f"TypeError: ttrace.attach got {sentence}", result.stderr), result.stderr[-2000:]


@pytest.mark.parametrize(
    ("engine", "loop"),
    [
        ("--strategy optim_grads_params --sync after", "--accumulate 2 --clip 0.3"),
        ("--strategy optim --sync after", "--decay"),  # the rate of the step was taken for that of the next one
        ("--strategy optim_grads", "--follow"),
    ],
)
def test_megatron_fsdp_computes_the_same_bits_when_it_is_traced(check, engine, loop):
    """`attach` refused the model. Rows that a rank does not update are there only once they are gathered again, and what
    the optimizer updates is copied to what the model computes with after the optimizer's hooks."""
    candidate = f"{MFSDP} {engine} {loop}"
    reference = python(f"{MFSDP} {loop}", MEGATRON_FSDP)
    outcome = check(reference, torchrun(2, candidate, MEGATRON_FSDP), "--no-forced")
    assert outcome.code == 0, outcome.summary()
    updated = [name for name in outcome.ids() if name.startswith(("s0/main_grad/", "s0/param_next/"))]
    assert len(updated) > 21, updated  # each of 21 parameters has one of either
    expect_equal_bits(outcome.log("candidate"), run_untraced(torchrun(2, candidate, MEGATRON_FSDP)))
    expect_counted(outcome, "blocks.0.down.weight")


REFUSED_MEGATRON_FSDP = """
import sys
sys.path.insert(0, FOLDER)
import torch, train, ttrace
args = train.arguments()
train.stand_in()
train.start()
from megatron.core.transformer.module import MegatronModule
model = train.Model(tied=False, head_first=False)
ADDED
model, optimizer = train.sharded(args, model, torch.optim.AdamW(model.parameters()))
ttrace.attach(ATTACHED, optimizer=optimizer)
"""


@pytest.mark.parametrize(
    ("added", "attached", "sentence"),
    [
        ("", "torch.nn.Sequential(model)", "within a Sequential; pass the MegatronFSDP that"),
        ("model.core = MegatronModule(None)", "model", "over a model of Megatron-core, which TTrace cannot follow; wrap"),
    ],
)
def test_what_of_megatron_fsdp_is_not_supported_is_refused_by_name(tmp_path, added, attached, sentence):
    """The error named an attribute that its wrapper does not have."""
    code = REFUSED_MEGATRON_FSDP.replace("FOLDER", repr(str(MFSDP.parent)))
    code = code.replace("ADDED", added).replace("ATTACHED", attached)
    environment = {**os.environ, "TTRACE_PASS": "reference", "TTRACE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", code, "--strategy", "optim_grads"],
        capture_output=True, text=True, timeout=280, check=False, env=environment,
    )  # fmt: skip
    assert re.search(f"TypeError: ttrace.attach got a model in Megatron-FSDP {sentence}", result.stderr), result.stderr

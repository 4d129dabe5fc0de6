"""The examples with --device cuda, as far as it can be seen without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import HANG, HERE, ROOT, python

DTENSOR = ROOT / "examples" / "dtensor" / "train.py"
MEGATRON = ROOT / "examples" / "megatron_core" / "train.py"
RECORDED = HERE / "programs" / "recorded_cuda.py"


def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TTRACE_", "TORCHDYNAMO"))}
    return subprocess.run(
        python(command).split(), capture_output=True, text=True, timeout=HANG, check=False,
        env={**kept, **variables},
    )  # fmt: skip


def calls_of(script, options: str) -> list[str]:
    """Of a single rank that has number 3 on its machine."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    result = run(f"{RECORDED} {script} --device cuda {options}", LOCAL_RANK="3", **alone)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.splitlines()


@pytest.mark.parametrize("script", [DTENSOR, MEGATRON], ids=["dtensor", "megatron"])
def test_without_a_gpu_an_example_says_what_is_missing_and_what_helps(script):
    result = run(f"{script} --device cuda", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2
    assert result.stdout == ""
    sentences = result.stderr.splitlines()
    assert len(sentences) == 1
    assert sentences[0].startswith(
        ("train.py: --device cuda needs a CUDA build of torch", "train.py: --device cuda finds no GPU")
    )
    assert sentences[0].endswith("or use --device cpu")


def test_a_rank_of_torchs_parallelism_takes_its_gpu_before_it_makes_anything():
    """All ranks sat on GPU 0, because the model moved before anything chose another one."""
    assert calls_of(DTENSOR, "--fsdp") == [
        "current 1", "move Transformer cuda:1", "group nccl", "mesh cuda", "dynamo on", "patches False",
    ]  # fmt: skip


def test_ranks_that_share_a_gpu_can_talk_over_gloo():
    """--device cuda always asked for NCCL, which refuses two ranks on one GPU."""
    assert calls_of(DTENSOR, "--fsdp --backend gloo")[2] == "group gloo"


def test_megatrons_model_moves_to_the_gpu_of_its_rank_without_the_patches_for_cpus():
    """The model stayed on the CPU, the backend was Gloo, and norms came from the patches for CPUs."""
    assert calls_of(MEGATRON, "--rms-norm") == [
        "current 1", "group nccl", "move GPTModel cuda:1", "dynamo on", "patches False",
    ]  # fmt: skip


def test_tensor_parallel_parameters_are_updated_where_the_optimizer_takes_lists_of_tensors():
    """On a GPU AdamW updates all parameters at once: --tp without --fsdp ended with "got mixed torch.Tensor
    and DTensor" in the first step."""
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2"
    result = run(f"{launcher} {HERE / 'programs' / 'lists_on_cpu.py'} {DTENSOR} --tp 2 --steps 1")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "step 0 loss" in result.stdout


def test_megatrons_optimizer_takes_doubles_on_a_gpu_too():
    """The check in higher precision of an F32 program ended in Megatron-core's clipping of gradients, which
    asks for the name of the type, so that no operator was checked on its own."""
    code = """
import doubles, torch
doubles.apply("f64")
x = torch.ones(2).double()
print(x.type(), x.type(torch.int32).dtype)"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=MEGATRON.parent, timeout=HANG
    )
    assert result.stdout.split() == ["torch.FloatTensor", "torch.int32"], result.stderr[-3000:]

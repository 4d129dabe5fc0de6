"""A program of Megatron-FSDP, in each of its sharding strategies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from catalogue import Layout, Program

TRAIN = Path(__file__).parent / "train.py"
PACKAGE = ("megatron.core.distributed.fsdp.src.megatron_fsdp",)
ONE_RANK = "--strategy no_shard"  # which has masters in F32 as well


def _layouts(name: str, options: str, ranks: int = 2, quick: bool = False) -> tuple[Layout, ...]:
    """F32 against plain torch, BF16 against one rank of Megatron-FSDP."""
    layout = Layout(name, ranks, options, precisions=("f32",), quick=quick)
    return (layout, replace(layout, reference=ONE_RANK, precisions=("bf16",), quick=False))


NO_SHARD = _layouts("no shard", "--strategy no_shard")
OPTIMIZER = _layouts("optim", "--strategy optim --sync after")
GRADIENTS = _layouts("optim grads", "--strategy optim_grads")
PARAMETERS = _layouts("optim grads params", "--strategy optim_grads_params", quick=True)
HYBRID = _layouts("hybrid", "--strategy optim_grads_params --outer 2", ranks=4)
SHARDED = _layouts("hybrid sharded", "--strategy optim_grads_params --outer 2 --outer-strategy optim", ranks=4)
NO_MASTERS = Layout("no masters", 2, "--strategy optim_grads_params --no-masters")
LATE = _layouts("late", "--strategy optim_grads_params --sync after")
LAST = _layouts("hybrid last", "--strategy optim_grads_params --outer 2 --sync last", ranks=4)

PROGRAMS = (
    Program(
        "language model",
        TRAIN,
        (*NO_SHARD, *OPTIMIZER, *GRADIENTS, *PARAMETERS, *HYBRID, *SHARDED, NO_MASTERS),
        needs=("megatron.core",),
        imports=PACKAGE,
    ),
    Program(
        "accumulating",
        TRAIN,
        (*NO_SHARD, *OPTIMIZER, *GRADIENTS, *LATE, *LAST),
        "--accumulate 2 --clip 0.3",
        needs=("megatron.core",),
        imports=PACKAGE,
    ),
    Program(
        "tied",
        TRAIN,
        (*GRADIENTS, *PARAMETERS),
        "--tied",
        needs=("megatron.core",),
        imports=PACKAGE,
    ),
)

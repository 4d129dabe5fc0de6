"""Runs a script whose ranks share one GPU: repairs what torch's Gloo does not do with CUDA tensors.

    torchrun --nproc-per-node 2 shared_gpu.py SCRIPT --device cuda --backend gloo [option...]

NCCL refuses two ranks on one GPU. Gloo copies CUDA tensors through the host, but some calls take their
addresses for the host's (the functional all-gather, which DTensor uses) or refuse them (coalesced calls,
which Megatron-core uses). The former go through a call that works, and the latter run one by one.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group


def all_gather_into_tensor(tensor: torch.Tensor, size: int, group: str) -> torch.Tensor:
    """The parts of all ranks, joined in their first dimension."""
    result = tensor.new_empty(size * tensor.shape[0], *tensor.shape[1:])
    dist.all_gather_into_tensor(result, tensor.contiguous(), _resolve_process_group(group))
    return result


@contextlib.contextmanager
def one_by_one(group=None, device=None, async_ops=False):
    if async_ops:
        raise NotImplementedError("ranks that share a GPU cannot overlap communication; leave out --overlap")
    yield None


def main() -> None:
    functional = torch.library.Library("_c10d_functional", "IMPL")
    for kind in ("CPU", "CUDA"):
        functional.impl("all_gather_into_tensor", all_gather_into_tensor, kind)
    dist._coalescing_manager = one_by_one
    script = str(Path(sys.argv[1]).resolve())
    sys.argv = [script, *sys.argv[2:]]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

"""What tensor-parallel layers send and sum; all along the first dimension."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed as dist

IS_HIDDEN = os.environ.get("FAKE_TE_COMMUNICATION") == "hidden"


def allreduce(tensor: torch.Tensor, tp_group: Any) -> tuple[torch.Tensor, None]:
    if IS_HIDDEN:
        return _sum(_exchange([tensor] * dist.get_world_size(tp_group), tp_group)), None
    dist.all_reduce(tensor, group=tp_group)
    return tensor, None


def reduce_scatter_along_first_dim(tensor: torch.Tensor, tp_group: Any) -> tuple[torch.Tensor, None]:
    size = dist.get_world_size(tp_group)
    if IS_HIDDEN:
        return _sum(_exchange(list(tensor.contiguous().chunk(size)), tp_group)), None
    result = tensor.new_empty(tensor.shape[0] // size, *tensor.shape[1:])
    dist.reduce_scatter_tensor(result, tensor.contiguous(), group=tp_group)
    return result, None


def gather_along_first_dim(tensor: torch.Tensor, process_group: Any) -> tuple[torch.Tensor, None]:
    size = dist.get_world_size(process_group)
    result = tensor.new_empty(tensor.shape[0] * size, *tensor.shape[1:])
    dist.all_gather_into_tensor(result, tensor.contiguous(), group=process_group)
    return result, None


def _exchange(parts: list[torch.Tensor], group: Any) -> list[torch.Tensor]:
    """Part i goes to rank i; returns what the ranks have sent to this one, in their order."""
    mine = dist.get_rank(group)
    received = [torch.empty_like(part) for part in parts]
    received[mine] = parts[mine]
    transfers = []
    for rank, part in enumerate(parts):
        if rank != mine:
            peer = dist.get_global_rank(group, rank)
            transfers.append(dist.irecv(received[rank], src=peer, group=group))
            transfers.append(dist.isend(part.contiguous(), dst=peer, group=group))
    for transfer in transfers:
        transfer.wait()
    return received


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    """Rounded after every addend, as kernels do that add up what arrives."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


@contextmanager
def activation_recompute_forward(
    activation_recompute: bool = False, recompute_phase: bool = False
) -> Iterator[None]:
    """Nothing has to be kept for a forward that runs again: no test recomputes in FP8."""
    del activation_recompute, recompute_phase
    yield


class CudaRNGStatesTracker:
    """megatron-core derives a class of its own from this one."""

"""Models and jobs that cannot be traced, each refused in one sentence with the remedy before anything is traced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from .layout import Layout


def refuse_untraceable(chunks: Sequence[Any]) -> None:
    """Raises TypeError for a model of a kind that no program can trace."""
    for chunk in chunks:
        if isinstance(chunk, torch.nn.Module):
            _refuse_megatron_fsdp(chunk)


def refuse_part_of_a_job(layout: Layout) -> None:
    """Raises RuntimeError where this process takes itself for the whole run, although a launcher started more."""
    ranks = os.environ.get("WORLD_SIZE", "")
    is_launched = "LOCAL_RANK" in os.environ and ranks.isdecimal() and int(ranks) > 1
    distributed = torch.distributed
    if not is_launched or layout.world_size > 1 or (distributed.is_available() and distributed.is_initialized()):
        return
    raise RuntimeError(
        f"{ranks} processes were started (WORLD_SIZE), but torch.distributed is not initialized, so each of them "
        "would trace itself as the whole run; call torch.distributed.init_process_group before ttrace.attach, or "
        "start one process"
    )


def _refuse_megatron_fsdp(chunk: torch.nn.Module) -> None:
    if any(type(module).__name__ == "MegatronFSDP" for module in chunk.modules()):
        raise TypeError(
            "ttrace.attach got a model in Megatron-FSDP, which keeps parameters and gradients in buffers of its own "
            "that TTrace does not read; wrap it with torch.distributed.fsdp.fully_shard (FSDP2), or use "
            "Megatron-core's DistributedDataParallel with a distributed optimizer"
        )

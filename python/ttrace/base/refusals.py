"""Jobs that cannot be traced, each refused in one sentence with the remedy before anything is traced."""

from __future__ import annotations

import os

import torch

from .layout import Layout


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

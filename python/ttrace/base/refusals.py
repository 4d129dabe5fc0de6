"""Models and jobs that cannot be traced, each refused in one sentence with the remedy before anything is traced."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from .layout import Layout
from .quantised import is_quantised

# Engines by the name of their class and the package that it is of. They keep gradients and states in buffers
# of their own.
_ENGINES = {"DeepSpeedEngine": "deepspeed", "PipelineEngine": "deepspeed"}


def refuse_untraceable(chunks: Sequence[Any]) -> None:
    """Raises TypeError for a model of a kind that no program can trace."""
    for chunk in chunks:
        _refuse_engine(chunk)
        if isinstance(chunk, torch.nn.Module):
            _refuse_flat_parameters(chunk)
            _refuse_subclasses(chunk)


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


def _refuse_engine(chunk: Any) -> None:
    for base in type(chunk).__mro__:
        package = _ENGINES.get(base.__name__)
        if package is not None and base.__module__.split(".")[0] == package:
            raise TypeError(
                f"ttrace.attach got a {base.__name__} of {package}, whose gradients and optimizer states TTrace "
                "cannot read; train the same model with DDP or torch.distributed.fsdp.fully_shard (FSDP2) to "
                "trace it"
            )


def _refuse_flat_parameters(chunk: torch.nn.Module) -> None:
    # Looked up by name: its module takes a while to load, and a model made of it has loaded it.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    wrapper = getattr(fsdp, "FullyShardedDataParallel", None)
    if wrapper is not None and any(isinstance(module, wrapper) for module in chunk.modules()):
        raise TypeError(
            "ttrace.attach got a model in FullyShardedDataParallel (FSDP1), which joins parameters into flat ones "
            "that no operator reads; wrap it with torch.distributed.fsdp.fully_shard (FSDP2) to trace it"
        )


def _refuse_subclasses(chunk: torch.nn.Module) -> None:
    for path, parameter in chunk.named_parameters():
        inner = getattr(parameter, "_local_tensor", parameter)
        kind = type(inner)
        if kind.__module__.split(".")[0] == "torchao" and not is_quantised(inner):
            raise TypeError(
                f"ttrace.attach got a model whose parameter {path} is a {kind.__name__} of torchao, whose memory "
                "TTrace cannot read; make the model without it (of Float8LinearConfig: "
                "enable_fsdp_float8_all_gather=False) to trace it"
            )

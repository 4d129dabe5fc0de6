"""Megatron-FSDP on CPUs with Gloo: what the package takes for granted of CUDA, patched from outside.

Nothing of this is needed on GPUs, and nothing of it concerns TTrace. The package itself stays as it was installed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings

import torch
import torch.distributed as dist


class _InOrder:
    """A stream or an event of a device whose work is in order."""

    def __init__(self, *args, **kwargs) -> None:
        pass

    def record_event(self, event=None):
        return event or _InOrder()

    def _nothing(self, *args, **kwargs) -> None:
        pass

    record = wait = wait_event = wait_stream = synchronize = _nothing


def stand_in() -> None:
    """Streams and events do nothing, and tensors that shall be on a GPU stay where they are."""
    cuda = torch.cuda
    cuda.Stream = cuda.Event = _InOrder
    cuda.current_device = lambda: 0
    cuda.current_stream = lambda *args, **kwargs: _InOrder()
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()
    cuda.synchronize = cuda.empty_cache = lambda *args, **kwargs: None
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    warnings.filterwarnings("ignore", message=".*(Transformer Engine|Apex|c10d::).*")
    # It warns that the CPU is not the current device.
    logging.getLogger("megatron.core.distributed.fsdp.src.megatron_fsdp.megatron_fsdp").setLevel(logging.ERROR)


def start() -> None:
    """Starts the processes of torchrun, or this one alone, which needs no port."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def without_premultiplied_sums(model):
    """Gloo adds up, but does not multiply first, which is the default of F32: the option of the configuration that does
    it before the sum has no argument of fully_shard."""
    model.ddp_config.gradient_reduce_div_fusion = False
    return model

"""The values of a tensor that Python wraps: the part of a DTensor that this rank holds, those of FP8 codes."""

from __future__ import annotations

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from .quantised import dequantised, is_quantised


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or what FP8 codes stand for, as a plain tensor outside of autograd;
    other tensors as they are.

    Waits for a collective that is still under way.
    """
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if isinstance(local, AsyncCollectiveTensor):
        local = local.trigger_wait()
    if is_quantised(local):
        return dequantised(local)
    return local if local is tensor else local.detach()

"""The values of a tensor that Python wraps: the part of a DTensor that this rank holds, those of FP8 codes."""

from __future__ import annotations

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from .quantised import dequantised, is_quantised
from .unseen import unseen


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or what FP8 codes stand for, as a plain tensor; other tensors as they are.

    Waits for a collective that is still under way. The program will still wait for it as well.
    """
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if isinstance(local, AsyncCollectiveTensor):
        with unseen():
            local = local.wait()
    return dequantised(local) if is_quantised(local) else local

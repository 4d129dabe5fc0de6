"""The values of a tensor that Python wraps: the part of a DTensor that this rank holds, those of FP8 codes; and such a
tensor with other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .quantised import dequantised, is_quantised
from .simulated import first_part, is_simulated
from .unseen import unseen

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or what FP8 codes stand for, as a plain tensor; other tensors as they are.

    Waits for a collective that is still under way. The program will still wait for it as well. Of simulated ranks it
    is the first one's part, which stands for all.
    """
    local = held(tensor)
    return unwrapped(dequantised(local) if is_quantised(local) else local)


def held(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a DTensor wraps: of simulated ranks, one that holds the parts of all. Others as they are."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if isinstance(local, AsyncCollectiveTensor):
        # Waiting is no change: selective checkpointing, which keeps the tensor, would refuse a later version of it.
        with unseen(), torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, True):
            local = local.wait()
    return local


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in which a subclass keeps its elements, in their type and shape, such as a weight of torchao that is
    cast to FP8 when it is gathered. Others as they are: is_wrapped() says which cannot be read."""
    tensor = first_part(tensor)
    while is_wrapped(tensor) and is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        inner = [getattr(tensor, name) for name in names]
        if len(inner) != 1 or inner[0].shape != tensor.shape or inner[0].dtype != tensor.dtype:
            break
        tensor = inner[0]
    return tensor


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether its elements are those of other tensors."""
    is_known = isinstance(tensor, (DTensor, AsyncCollectiveTensor)) or is_simulated(tensor)
    return not is_known and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)


def has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of plain tensors: NaN equals the same NaN, and 0 does not equal -0."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = _BITS[one.element_size()]
    with unseen(), torch.no_grad():
        return torch.equal(one.detach().view(bits), other.detach().view(bits))


def with_part(tensor: torch.Tensor, part: torch.Tensor, order: tuple[int, ...] = ()) -> torch.Tensor:
    """The tensor with `part` as what local_part() returns of it, permuted by `order`. FP8 codes stay as they are."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if is_quantised(local):
        return tensor
    if order:
        part = part.permute([order.index(dim) for dim in range(len(order))])
    if not isinstance(tensor, DTensor):
        return part
    with unseen():
        return DTensor.from_local(
            part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
        )


class _InsteadOf(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, original: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        del context, original
        return make()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        del context
        return gradient, None


def instead_of(original: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What `make` returns, whose gradient is that of `original`."""
    with unseen():
        return _InsteadOf.apply(original, make)


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor without pending reductions other than sums of its ranks' parts; other tensors as they are.

    Averages, maxima and norms are not sums of what the ranks hold, so that they are reduced here, on all ranks
    at once. Rows that a cut embedding looked up although another rank has them are zeros in its sum.
    """
    if not isinstance(tensor, DTensor) or not any(map(_is_more_than_a_sum, tensor.placements)):
        return tensor
    with unseen(), torch.no_grad():
        sums = _with_masks_applied(tensor.detach())
        places = [Replicate() if _is_more_than_a_sum(place) else place for place in sums.placements]
        return sums.redistribute(placements=places)


def _is_more_than_a_sum(placement: Any) -> bool:
    return placement.is_partial() and (type(placement) is not Partial or placement.reduce_op != "sum")


def _with_masks_applied(tensor: DTensor) -> DTensor:
    """The program's own reduction applies a mask in place and drops it then, so this works on a copy."""
    masks = [getattr(placement, "mask_buffer", None) for placement in tensor.placements]
    local = held(tensor)
    for mask in masks:
        if mask is not None and mask.data is not None:
            local = local.clone()
            mask.apply_mask(local)
    places = [place if mask is None else Partial() for place, mask in zip(tensor.placements, masks)]
    return DTensor.from_local(
        local, tensor.device_mesh, places, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )

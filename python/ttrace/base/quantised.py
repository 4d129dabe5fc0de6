"""FP8 as TransformerEngine keeps it: tensors of codes, and the scales and histories of a module's quantizers.

Nothing is imported: a tensor is quantised if its class has a `dequantize` of its own, and a module computes in
FP8 if its attribute `fp8` says so and it has `quantizers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

INPUT, WEIGHT, GRADIENT = 0, 1, 2  # slots of a product's operands: see Scope::scale() in <ttrace/scope.h>


class Fp8State(NamedTuple):
    """A record of what a module's product consumed."""

    kind: str  # "amax_history", "scale" or "operand"
    slot: int
    tensor: torch.Tensor


def is_quantised(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds codes and looks like what they stand for."""
    return isinstance(tensor, torch.Tensor) and type(tensor).dequantize is not torch.Tensor.dequantize


def dequantised(tensor: Any) -> torch.Tensor:
    """What the codes stand for, in the type that the tensor looks like; a plain tensor outside of autograd."""
    with torch.no_grad():
        return tensor.dequantize().detach()


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or what its codes stand for in memory of its own."""
    return dequantised(tensor) if is_quantised(tensor) else tensor


def memory_of(tensor: Any) -> int:
    """The address of what the tensor holds, which for codes is another tensor's."""
    inner = getattr(tensor, "_data", None) if is_quantised(tensor) else tensor
    return inner.data_ptr() if isinstance(inner, torch.Tensor) else id(tensor)


def of_forward(module: Any) -> Iterator[Fp8State]:
    """Histories, scales and operands of the forward that a module has just computed, in this order.

    The newest entry of a history is left out: it is still what this rank alone has seen.
    """
    if not _has_one_product(module):
        return
    weight = _weight_in_fp8(module)
    for slot in (INPUT, WEIGHT):
        yield from _history(module, "scaling_fwd", slot, slot)
        scale = _scale_of(weight) if slot == WEIGHT and weight is not None else None
        if scale is None:
            scale = _scale_of_quantizer(module, "scaling_fwd", slot)
        if scale is not None:
            yield Fp8State("scale", slot, scale)
    if weight is not None and tuple(weight.shape) == tuple(module.weight.shape):
        yield Fp8State("operand", WEIGHT, dequantised(weight))


def of_backward(module: Any) -> Iterator[Fp8State]:
    """History and scale by which a module will quantise the gradient of its output.

    Only where the scale follows from a history: others exist when the gradient is there.
    """
    if _has_one_product(module) and _histories(module, "scaling_bwd") is not None:
        yield from _history(module, "scaling_bwd", 0, GRADIENT)
        scale = _scale_of_quantizer(module, "scaling_bwd", 0)
        if scale is not None:
            yield Fp8State("scale", GRADIENT, scale)


def _has_one_product(module: Any) -> bool:
    return (
        getattr(module, "fp8", False) is True
        and isinstance(getattr(module, "quantizers", None), dict)
        and isinstance(getattr(module, "weight", None), torch.Tensor)
    )


def _histories(module: Any, key: str) -> torch.Tensor | None:
    """Largest magnitudes [length, quantizers], the current one first, then from the oldest to the newest."""
    histories = getattr(getattr(module, "fp8_meta", {}).get(key), "amax_history", None)
    return histories if isinstance(histories, torch.Tensor) and histories.dim() == 2 else None


def _history(module: Any, key: str, quantizer: int, slot: int) -> Iterator[Fp8State]:
    histories = _histories(module, key)
    if histories is not None and histories.shape[0] > 1 and quantizer < histories.shape[1]:
        yield Fp8State("amax_history", slot, histories[1:, quantizer].flip(0))


def _scale_of_quantizer(module: Any, key: str, index: int) -> torch.Tensor | None:
    """Values are codes times this. None for quantizers whose scales belong to blocks."""
    quantizers = module.quantizers.get(key) or []
    scale = getattr(quantizers[index], "scale", None) if index < len(quantizers) else None
    if not isinstance(scale, torch.Tensor) or scale.numel() != 1:
        return None
    return scale.detach().float().reciprocal().reshape(())


def _scale_of(tensor: Any) -> torch.Tensor | None:
    scale = getattr(tensor, "_scale_inv", None)
    if not isinstance(scale, torch.Tensor) or scale.numel() != 1:
        return None
    return scale.detach().reshape(())


def _weight_in_fp8(module: Any) -> Any:
    """The weight that the product takes, if the module keeps it; None if not."""
    if is_quantised(module.weight):
        return module.weight
    kept = getattr(module, "_fp8_workspaces", {}).get("weight")
    return kept if kept is not None and is_quantised(kept) else None

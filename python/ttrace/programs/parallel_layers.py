"""Where inputs and outputs of tensor-parallel layers lie, by what the layers say of themselves.

TransformerEngine's layers have `parallel_mode`, `sequence_parallel`, `tp_size` and, if they compute a norm
first, `return_layernorm_output`; Megatron-core's own have `gather_output` or `input_is_parallel`. Class names
are asked only where a layer has no such attribute. Positions are the first dimension, except in the format
bshd of an attention: ``[s, b, h]``, or ``[t, h]`` for packed sequences.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from ..base.layout import Layout
from ..base.values import Dims

SEQUENCE = "s[cp:zigzag]"  # of a tensor that every tp rank has all positions of
SHARED = "s[cp:zigzag,sp]"  # between blocks: sequence parallelism cuts the positions

_NORM_WEIGHTS = ("layer_norm_weight", "layer_norm_bias")
_MODES = {"ColumnParallelLinear": "column", "RowParallelLinear": "row"}


def _class_names(module: torch.nn.Module) -> set[str]:
    return {cls.__name__ for cls in type(module).__mro__}


def is_parallel_layer(module: torch.nn.Module) -> bool:
    """Whether layer_dims() knows where the tensors of such a module lie."""
    return is_linear(module) or is_norm_and_mlp(module) or is_attention_core(module)


def layer_dims(
    module: torch.nn.Module,
    role: str,
    slot: int,
    tensor: torch.Tensor,
    layout: Layout,
    is_gated: bool = False,
) -> Dims | None:
    """Where an input or output (`role`) of a parallel layer lies. None: nothing is known of this tensor.

    `is_gated`: a linear's output is two halves, each of them cut; it may say so itself.
    """
    if is_linear(module):
        return _linear_dims(module, role, slot, tensor, layout, is_gated)
    if is_norm_and_mlp(module):
        return _norm_and_mlp_dims(module, role, slot, tensor, layout)
    return _attention_dims(module, role, slot, tensor, layout)


def cuts_weights(module: torch.nn.Module) -> bool:
    """Whether the ranks of the layer hold parts of its weights: only some modes do, but all weights are marked."""
    return is_norm_and_mlp(module) or (is_linear(module) and _mode(module) is not None)


def is_linear(module: torch.nn.Module) -> bool:
    return hasattr(module, "parallel_mode") or not _class_names(module).isdisjoint(_MODES)


def is_row_parallel(module: torch.nn.Module) -> bool:
    """Whether a linear takes features that are cut. Requires: is_linear(module)."""
    return _mode(module) == "row"


def is_norm_and_mlp(module: torch.nn.Module) -> bool:
    """A norm and both linears in one module, such as TransformerEngine's LayerNormMLP."""
    return hasattr(module, "set_parallel_mode") and hasattr(module, "fc1_weight")


def is_attention_core(module: torch.nn.Module) -> bool:
    return "DotProductAttention" in _class_names(module)


def has_norm(module: torch.nn.Module) -> bool:
    """Whether the layer has a norm of its own, whose weights it has next to those of its product."""
    return isinstance(getattr(module, "layer_norm_weight", None), torch.Tensor)


def tp_size(module: torch.nn.Module, layout: Layout) -> int:
    """How many ranks share the layer's product."""
    return int(getattr(module, "tp_size", layout.size("tp")))


def key_axis(layout: Layout) -> str:
    """The axis that cuts the heads of keys and values."""
    return "kv" if layout.size("kv_copy") > 1 else "tp"


def gradient_of_heads(dims: str) -> str | None:
    """Ranks that share a key head have different queries: each holds an addend of its gradient. None: the
    gradient lies as the value does."""
    return re.sub(r" d$", " d[kv_copy:partial]", dims) if "[kv]" in dims else None


def _linear_dims(
    module: torch.nn.Module, role: str, slot: int, tensor: torch.Tensor, layout: Layout, is_gated: bool
) -> Dims | None:
    mode = _mode(module)
    ranks = tp_size(module, layout)
    shared = SHARED if mode is None or getattr(module, "sequence_parallel", False) else SEQUENCE
    features = _features(module, is_gated)
    if role == "input":
        if slot != 0:
            return None
        if mode == "row":
            is_cut = getattr(module, "input_is_parallel", True)
            return _dims(tensor, SEQUENCE, "f[tp]" if is_cut else "f")
        dims = _dims(tensor, shared, "h", ranks if mode == "column" else 1)
        return replace(dims, follow=_NORM_WEIGHTS) if dims and mode == "column" and has_norm(module) else dims
    if slot == 0:
        if mode == "column":
            return _dims(tensor, SEQUENCE, features)
        return _dims(tensor, shared, "h", ranks if mode == "row" else 1)
    if tensor.dim() == 1:  # its bias, in the type of activations
        return Dims(features if mode == "column" else "h")
    if getattr(module, "return_layernorm_output", False):
        is_gathered = getattr(module, "return_layernorm_output_gathered", False)
        return _dims(tensor, SEQUENCE if is_gathered else shared, "h")
    return None


def _norm_and_mlp_dims(
    module: torch.nn.Module, role: str, slot: int, tensor: torch.Tensor, layout: Layout
) -> Dims | None:
    if role == "input" and slot != 0:
        return None
    shared = SHARED if getattr(module, "sequence_parallel", False) else SEQUENCE
    dims = _dims(tensor, shared, "h", tp_size(module, layout) if slot == 0 else 1)
    return replace(dims, follow=_NORM_WEIGHTS) if dims and role == "input" else dims


def _attention_dims(
    module: torch.nn.Module, role: str, slot: int, tensor: torch.Tensor, layout: Layout
) -> Dims | None:
    """Of the core of an attention: queries, keys, values and the result. Three dimensions of an input are
    those of packed sequences, as two are of an output."""
    is_batch_first = getattr(module, "qkv_format", "") == "bshd"
    positions = f"b {SEQUENCE}" if is_batch_first else f"{SEQUENCE} b"
    if role == "output":
        leading = {3: positions, 2: SEQUENCE}.get(tensor.dim())
        return Dims(f"{leading} a[tp]") if leading and slot == 0 else None
    leading = {4: positions, 3: SEQUENCE}.get(tensor.dim())
    if leading is None or slot > 2:
        return None
    text = f"{leading} n[{'tp' if slot == 0 else key_axis(layout)}] d"
    return Dims(text, gradient_of_heads(text))


def _mode(module: torch.nn.Module) -> str | None:
    if hasattr(module, "parallel_mode"):
        return module.parallel_mode if module.parallel_mode in ("column", "row") else None
    return next(mode for name, mode in _MODES.items() if name in _class_names(module))


def _features(module: Any, is_gated: bool) -> str:
    if getattr(module, "gather_output", False):
        return "f"
    parts = 2 if is_gated else int(getattr(getattr(module, "weight", None), "partition_stride", 1))
    return f"({parts}*f[tp])" if parts > 1 else "f[tp]"


def _dims(tensor: torch.Tensor, positions: str, features: str, addends: int = 1) -> Dims | None:
    leading = {3: f"{positions} b", 2: positions}.get(tensor.dim())
    return Dims(f"{leading} {features}", addends=addends) if leading else None

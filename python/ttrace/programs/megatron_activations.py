"""Where activations of Megatron-core's modules lie: of linears and attention cores by their attributes
(parallel_layers.py), of others by the class of the module.

Activations are ``[s, b, h]``. Context parallelism cuts s in zig-zag order. Outside of attention and MLP,
sequence parallelism (axis sp, which is tp) cuts the rest of s; inside of them tp cuts features or heads.
Gradients of activations lie as the activations do, because each region communicates in its own backward;
only those of key and value heads that several ranks share are addends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..base.layout import Layout
from ..base.values import UNTRACED, Dims, Site, Untraced
from .megatron_experts import is_within_expert
from .parallel_layers import SEQUENCE, SHARED, gradient_of_heads, is_parallel_layer, key_axis, layer_dims

# Modules that return their input, and those whose tensors another module records under its name.
_NOT_TRACED = {
    "IdentityOp",
    "IdentityFuncOp",
    "Identity",
    "ModuleList",
    "ModuleDict",
    # Inside of TransformerEngine's attention core; which of them runs depends on the machine.
    "FlashAttention",
    "FusedAttention",
    "UnfusedDotProductAttention",
}
# The container of a layer's experts: its rows are those of all of them.
_EXPERTS = re.compile(r"(^|\.)mlp\.experts(\.|$)")

_NORMS = ("LayerNorm", "RMSNorm", "FusedLayerNorm", "WrappedTorchNorm", "TorchNorm", "L2Norm")


def is_left_out(name: str, module: torch.nn.Module) -> bool:
    """Whether a module is not traced, other than one within an expert; `name` is its name within the chunk."""
    if type(module).__name__ in _NOT_TRACED or (_EXPERTS.search(name) and not is_within_expert(name)):
        return True
    # Of the stages' blocks, the last one returns what the whole model's block does.
    return _is_block(module) and getattr(module, "final_layernorm", None) is None


def is_rotary_table(module: torch.nn.Module) -> bool:
    return any(cls.__name__ == "RotaryEmbedding" for cls in type(module).__mro__)


def _is_block(module: torch.nn.Module) -> bool:
    return any(cls.__name__ == "TransformerBlock" for cls in type(module).__mro__)


class Activations:
    """Places the activations of one model.

    What no rule knows lies as the module did that returned it. Else it is guessed to lie as the latest tensor
    of the same shape, or to be whole.
    """

    def __init__(self, config: Any, layout: Layout):
        self._config = config
        self._layout = layout
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()  # dims of tensors that are alive
        self._latest: dict[tuple[int, ...], Dims] = {}  # by local shape

    def place(self, site: Site, role: str, slot: int, tensor: torch.Tensor) -> Dims | Untraced:
        dims = activation_dims(site, role, slot, tensor, self._config, self._layout)
        if isinstance(dims, Untraced):
            return dims
        if dims is None:
            dims = self._known.get(tensor) or self._guess(tensor)
        self._known[tensor] = dims
        if not dims.order:
            self._latest[tuple(tensor.shape)] = replace(dims, addends=1, follow=())
        return dims

    def _guess(self, tensor: torch.Tensor) -> Dims:
        alike = self._latest.get(tuple(tensor.shape))
        if alike is None:
            return Dims("? " + " ".join("acdefghi"[: tensor.dim()]))
        if alike.value.startswith("?"):
            return alike
        return Dims("? " + alike.value, alike.grad and "? " + alike.grad)


def activation_dims(
    site: Site, role: str, slot: int, tensor: torch.Tensor, config: Any, layout: Layout
) -> Dims | Untraced | None:
    """Where a module's input or output lies; None if nothing is known."""
    if role == "input" and type(site.module).__name__ == "FusedScaleMaskSoftmax":
        return UNTRACED  # it masks its input, which is a view, in place: no gradient arrives there
    if role == "input" and _is_block(site.module):
        return UNTRACED  # its first layer has it, and stages without embeddings are given none
    if _reduce_scatters(site.module):
        # [s, b, h], of which other ranks have other positions; the reference's is [b, s, h].
        return Dims(f"b {SHARED} h", order=(1, 0, 2)) if role == "output" and tensor.dim() == 3 else None
    if is_parallel_layer(site.module):
        is_gated = getattr(config, "gated_linear_unit", False) and site.path.endswith("linear_fc1")
        return layer_dims(site.module, role, slot, tensor, layout, is_gated)
    for cls in type(site.module).__mro__:
        rule = _RULES.get(cls.__name__)
        if rule is not None:
            text = rule(site, role, slot, tensor, config, layout)
            if text is not None and len(_split(text)) == tensor.dim():
                return Dims(text, gradient_of_heads(text))
            return None
    return None


def _reduce_scatters(module: torch.nn.Module) -> bool:
    """Word embeddings, not the embedding around them, which says so, too."""
    return bool(getattr(module, "reduce_scatter_embeddings", False)) and not any(True for _ in module.children())


def _split(dims: str) -> list[str]:
    return re.sub(r"\([^)]*\)", "x", dims).split()


Rule = Callable[[Site, str, int, torch.Tensor, Any, Layout], "str | None"]


def _shared(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del site, role, slot, unused
    return f"{SHARED} b h" if tensor.dim() == 3 else None


def _norm(site: Site, role: str, slot: int, tensor: torch.Tensor, config: Any, layout: Layout) -> str | None:
    del role, slot, config
    name = site.path.rsplit(".", 1)[-1]
    if name in ("q_layernorm", "k_layernorm") and tensor.dim() == 4:
        return f"{SEQUENCE} b n[{'tp' if name[0] == 'q' else key_axis(layout)}] d"
    return f"{SHARED} b h" if tensor.dim() == 3 else None


def _weights(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del site, role, slot, unused
    return f"b n[tp] {SEQUENCE} t" if tensor.dim() == 4 else None


def _word_embeddings(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del site, role, slot, unused
    return f"b {SEQUENCE} h" if tensor.dim() == 3 else None


def _predictions(
    site: Site, role: str, slot: int, tensor: torch.Tensor, config: Any, layout: Layout
) -> str | None:
    """The block of multi-token prediction returns what it was given and what its layers made of that, one
    behind the other."""
    del slot, config
    if tensor.dim() != 3:
        return None
    if role == "input":
        return f"{SHARED} b h"
    return f"({1 + len(site.module.layers)}*s{_cut_of_shared(layout)}) b h"  # type: ignore[arg-type]


def _cut_of_shared(layout: Layout) -> str:
    """What cuts the positions of a tensor between blocks, of the axes that this run has."""
    axes = [axis + suffix for axis, suffix in (("cp", ":zigzag"), ("sp", "")) if layout.size(axis) > 1]
    return f"[{','.join(axes)}]" if axes else ""


def _rotary_table(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del site, slot, unused
    return f"{SEQUENCE} c e d" if role == "output" and tensor.dim() == 4 else None


# How many samples a router's current micro-batch has: the router flattens them with the positions.
_samples: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()


def _router(
    site: Site, role: str, slot: int, tensor: torch.Tensor, config: Any, layout: Layout
) -> str | None:
    del slot, config
    if role == "input" or tensor.dim() == 3:
        _samples[site.module] = tensor.shape[1]
        return f"{SHARED} b h"
    samples = _samples.get(site.module)
    if samples is None or tensor.dim() != 2:
        return None
    return f"(s{_cut_of_shared(layout)}*b={samples}) x"


def _dropout(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del unused
    if "attention_dropout" in site.path:
        return _weights(site, role, slot, tensor)
    return _shared(site, role, slot, tensor)


_RULES: dict[str, Rule] = {
    "TransformerLayer": _shared,
    "TransformerBlock": _shared,
    "MultiTokenPredictionLayer": _shared,
    "MultiTokenPredictionBlock": _predictions,
    "RotaryEmbedding": _rotary_table,
    "LanguageModelEmbedding": _shared,
    "Attention": _shared,
    "MLP": _shared,
    "BaseMoELayer": _shared,
    "VocabParallelEmbedding": _word_embeddings,
    "FusedScaleMaskSoftmax": _weights,
    "Router": _router,
    "Dropout": _dropout,
    **dict.fromkeys(_NORMS, _norm),
}

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
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..base.layout import Layout
from ..base.values import UNTRACED, Dims, Site, Untraced
from .parallel_layers import SEQUENCE, SHARED, gradient_of_heads, is_parallel_layer, key_axis, layer_dims

# Modules that return their input, and those whose tensors another module records under its name.
_NOT_TRACED = {
    "IdentityOp",
    "IdentityFuncOp",
    "Identity",
    "TransformerBlock",
    "RotaryEmbedding",  # every chunk has its own
    "ModuleList",
    "ModuleDict",
    # Inside of TransformerEngine's attention core; which of them runs depends on the machine.
    "FlashAttention",
    "FusedAttention",
    "UnfusedDotProductAttention",
}
# Modules inside of an expert or of the experts' container: their rows depend on the routing.
_EXPERTS = re.compile(r"(^|\.)mlp\.experts(\.|$)")

_NORMS = ("LayerNorm", "RMSNorm", "FusedLayerNorm", "WrappedTorchNorm", "TorchNorm", "L2Norm")


def is_left_out(name: str, module: torch.nn.Module) -> bool:
    """Whether a module is not traced; `name` is its name within the chunk."""
    if _EXPERTS.search(name) or type(module).__name__ in _NOT_TRACED:
        return True
    return bool(getattr(module, "reduce_scatter_embeddings", False)) and not any(
        True for _ in module.children()
    )


def activation_dims(
    site: Site, role: str, slot: int, tensor: torch.Tensor, config: Any, layout: Layout
) -> Dims | Untraced | None:
    """Where a module's input or output lies; None if nothing is known, and it is taken to be whole."""
    if role == "input" and type(site.module).__name__ == "FusedScaleMaskSoftmax":
        return UNTRACED  # it masks its input, which is a view, in place: no gradient arrives there
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
    del role, slot, unused
    if getattr(site.module, "reduce_scatter_embeddings", False):
        return f"{SHARED} b h"
    return f"b {SEQUENCE} h" if tensor.dim() == 3 else None


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
    cut = ",".join(axis + suffix for axis, suffix in (("cp", ":zigzag"), ("sp", "")) if layout.size(axis) > 1)
    return f"(s{f'[{cut}]' if cut else ''}*b={samples}) x"


def _dropout(site: Site, role: str, slot: int, tensor: torch.Tensor, *unused: Any) -> str | None:
    del unused
    if "attention_dropout" in site.path:
        return _weights(site, role, slot, tensor)
    return _shared(site, role, slot, tensor)


_RULES: dict[str, Rule] = {
    "TransformerLayer": _shared,
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

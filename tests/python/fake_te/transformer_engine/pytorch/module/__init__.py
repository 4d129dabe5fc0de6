"""Layers with parameters."""

from .base import TransformerEngineBaseModule
from .linears import GroupedLinear, LayerNormLinear, LayerNormMLP, Linear
from .norms import LayerNorm, RMSNorm

__all__ = [
    "GroupedLinear",
    "LayerNorm",
    "LayerNormLinear",
    "LayerNormMLP",
    "Linear",
    "RMSNorm",
    "TransformerEngineBaseModule",
]

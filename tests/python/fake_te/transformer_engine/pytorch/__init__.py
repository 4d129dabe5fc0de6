"""The layers, and the context in which they compute in FP8."""

from . import distributed, fp8, module, ops, tensor
from .attention import DotProductAttention
from .fp8 import fp8_autocast, fp8_model_init
from .module import GroupedLinear, LayerNorm, LayerNormLinear, LayerNormMLP, Linear, RMSNorm

__all__ = [
    "DotProductAttention",
    "GroupedLinear",
    "LayerNorm",
    "LayerNormLinear",
    "LayerNormMLP",
    "Linear",
    "RMSNorm",
    "distributed",
    "fp8",
    "fp8_autocast",
    "fp8_model_init",
    "module",
    "ops",
    "tensor",
]

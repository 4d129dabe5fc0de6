"""Norms: statistics in F32, one rounding of the result."""

from __future__ import annotations

from typing import Any

import torch


def normalise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kind: str, eps: float, is_centered: bool
) -> torch.Tensor:
    """The norm along the last dimension, in F32 (F64 for F64). `is_centered`: the weight is off by one."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if kind == "LayerNorm":
        wide = wide - wide.mean(-1, keepdim=True)
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    result = wide * (weight.to(wide.dtype) + (1.0 if is_centered else 0.0))
    return result if bias is None else result + bias.to(wide.dtype)


class _Norm(torch.nn.Module):
    kind = ""

    def __init__(
        self,
        normalized_shape: int | None = None,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        params_dtype: torch.dtype | None = None,
        zero_centered_gamma: bool = False,
        hidden_size: int | None = None,
        device: Any = None,
    ):
        super().__init__()
        size = normalized_shape if hidden_size is None else hidden_size
        self.eps = eps
        self.zero_centered_gamma = zero_centered_gamma
        self.sequence_parallel = sequence_parallel
        options = {"dtype": params_dtype, "device": device}
        self.weight = torch.nn.Parameter(torch.full((size,), 0.0 if zero_centered_gamma else 1.0, **options))
        self.bias = torch.nn.Parameter(torch.zeros(size, **options)) if self.kind == "LayerNorm" else None
        for parameter in self.parameters():
            parameter.sequence_parallel = sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = normalise(x, self.weight, self.bias, self.kind, self.eps, self.zero_centered_gamma)
        return wide.to(x.dtype)


class LayerNorm(_Norm):
    kind = "LayerNorm"


class RMSNorm(_Norm):
    kind = "RMSNorm"

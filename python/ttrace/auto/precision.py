"""Lets a model that no line asks for a precision follow the one that a pass asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..base.values import PRECISIONS


def precision_of_parameters(model: Any) -> str | None:
    """That of the parameters, where all have the same. None for what is no module, or mixes types."""
    if not isinstance(model, nn.Module):
        return None
    types = {parameter.dtype for parameter in model.parameters()}
    return PRECISIONS.get(types.pop()) if len(types) == 1 else None


def convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Parameters stay the objects that an optimizer holds. The model casts floating-point inputs from now on."""
    own = next(model.parameters()).dtype

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype == own else value

    def cast_inputs(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        del module
        return tuple(cast(value) for value in args), {name: cast(value) for name, value in kwargs.items()}

    with torch.no_grad():
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                parameter.data = cast(parameter.data)
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = cast(buffer)
    model.register_forward_pre_hook(cast_inputs, with_kwargs=True)

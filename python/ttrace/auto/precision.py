"""Lets a model that no line asks for a precision follow the one that a pass asks for."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..base.calls import Replaced
from ..base.values import PRECISIONS

_NAMED = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}


class ConvertedModules:
    """Modules get the type that a pass asks for, wherever the program converts them to a narrower one.

    Wrappers copy parameters into buffers of their own, so that a model in a wrapper can no longer be converted."""

    def __init__(self, asked: torch.dtype) -> None:
        self.own: torch.dtype | None = None  # the narrowest that the program asked for
        self._asked = asked
        self._policies: list[Any] = []
        self._replaced = [Replaced(nn.Module, "to", self._to(nn.Module.to))]
        for name, dtype in _NAMED.items():
            self._replaced.append(Replaced(nn.Module, name, self._to_named(getattr(nn.Module, name), dtype)))

    def remove(self) -> None:
        for replaced in self._replaced:
            replaced.remove()
        self._replaced.clear()

    def watch_policy(self, kind: str, module: ModuleType) -> None:
        """Of FSDP's mixed precision, which the modules that it shards read when they first run."""
        policy = getattr(module, kind)
        own = policy.__init__

        @functools.wraps(own)
        def construct(made: Any, *args: Any, **kwargs: Any) -> None:
            own(made, *args, **kwargs)
            self._policies.append(made)

        self._replaced.append(Replaced(policy, "__init__", construct))

    def follow_policies(self) -> None:
        """Where this pass asks for more than the program's own precision; its parameters are converted then."""
        for policy in self._policies:
            for field in dataclasses.fields(policy):
                value = getattr(policy, field.name)
                if isinstance(value, torch.dtype) and value in PRECISIONS and self._is_narrower(value):
                    object.__setattr__(policy, field.name, self._asked)  # it is frozen

    def follow_in(self, arguments: dict[str, Any]) -> None:
        """Of deepspeed.initialize, whose engine casts parameters itself where its configuration says so."""
        config = arguments.get("config") or arguments.get("config_params")
        config = config or getattr(arguments.get("args"), "deepspeed_config", None)
        if config is None or self._follows_a_line():
            return
        plain = json.loads(Path(config).read_text()) if isinstance(config, (str, Path)) else dict(config)
        for section, dtype in (("bf16", torch.bfloat16), ("bfloat16", torch.bfloat16), ("fp16", torch.float16)):
            if plain.get(section, {}).get("enabled", False):
                self._remember(dtype)
                if self._is_narrower(dtype):
                    plain[section] = {"enabled": False}
        arguments["config"] = plain

    def _follows_a_line(self) -> bool:
        from ..attach import own_precision

        return own_precision() is not None

    def _is_narrower(self, dtype: torch.dtype) -> bool:
        return torch.finfo(dtype).bits < torch.finfo(self._asked).bits

    def _remember(self, dtype: torch.dtype) -> None:
        if self.own is None or torch.finfo(dtype).bits < torch.finfo(self.own).bits:
            self.own = dtype

    def _to(self, own: Callable) -> Callable:
        @functools.wraps(own)
        def to(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
            device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
            if not self._replaced or dtype not in PRECISIONS or self._follows_a_line():
                return own(module, *args, **kwargs)
            self._remember(dtype)
            if not self._is_narrower(dtype):
                return own(module, *args, **kwargs)
            options = {} if memory_format is None else {"memory_format": memory_format}
            return own(module, device, self._asked, non_blocking, **options)

        return to

    def _to_named(self, own: Callable, dtype: torch.dtype) -> Callable:
        @functools.wraps(own)
        def convert_to_named(module: nn.Module) -> nn.Module:
            return module.to(dtype)

        return convert_to_named


def precision_of_parameters(model: Any) -> str | None:
    """That of the parameters, where all have the same. None for what is no module, or mixes types."""
    if not isinstance(model, nn.Module):
        return None
    types = {parameter.dtype for parameter in model.parameters()}
    return PRECISIONS.get(types.pop()) if len(types) == 1 else None


def convert(model: nn.Module, own: torch.dtype, asked: torch.dtype) -> None:
    """Parameters stay the objects that an optimizer holds. The model casts floating-point inputs from now on.
    Its call raises RuntimeError once a parameter has its own type again."""

    def cast(value: Any) -> Any:
        return value.to(asked) if isinstance(value, torch.Tensor) and value.dtype == own else value

    def cast_inputs(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        if any(parameter.dtype == own for parameter in module.parameters()):
            raise RuntimeError(
                f"this pass asks for {PRECISIONS[asked]}, and something has put {PRECISIONS[own]} back into the model; "
                'let the program make its parameters with ttrace.dtype (docs/python.md, "Without a line")'
            )
        return tuple(cast(value) for value in args), {name: cast(value) for name, value in kwargs.items()}

    attributes = [(parameter, dict(vars(parameter))) for parameter in model.parameters()]
    with torch.no_grad():
        model._apply(cast)  # as Module.to: sharded parameters change whole, and FSDP2 follows
    for parameter, own_ones in attributes:  # which a sharded parameter loses
        vars(parameter).update({name: value for name, value in own_ones.items() if name not in vars(parameter)})
    model.register_forward_pre_hook(cast_inputs, with_kwargs=True)

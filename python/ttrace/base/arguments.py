"""Slots of what a module is given: the numbers of the parameters of its forward, however they are passed. An
argument that one program passes and another one leaves out, such as a mask, moves no other.

Of `forward(self, x, mask=None, *, scale=None)`, x is 0, mask 1 and scale 2. What `*args` and then what `**kwargs`
take follows, in the order of the call. If an argument is a container, its first tensor has the argument's slot, and
the next ones follow in steps of the number of parameters, those that `*args` and `**kwargs` take included.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .names import unwrapped

_Names = tuple[tuple[str, ...], int]  # of parameters; how many of them, the first, arguments may be given by position


@functools.lru_cache(maxsize=4096)
def _names_of(function: Callable[..., Any], is_bound: bool) -> _Names:
    try:
        parameters = list(inspect.signature(function).parameters.values())[is_bound:]
    except (TypeError, ValueError):  # it is no code of Python
        return (), 0
    kinds = inspect.Parameter
    named = [p for p in parameters if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    return tuple(p.name for p in named), sum(p.kind is not kinds.KEYWORD_ONLY for p in named)


def _parameters(module: torch.nn.Module) -> _Names:
    forward = unwrapped(module).forward
    function = getattr(forward, "__func__", None)
    return _names_of(forward, False) if function is None else _names_of(function, True)


class Slots:
    """Of one call."""

    def __init__(self, module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]):
        names, by_position = _parameters(module)
        more = [name for name in kwargs if name not in names]
        beyond = max(0, len(args) - by_position)
        self._positions = [i if i < by_position else len(names) + i - by_position for i in range(len(args))]
        self._names = {name: number for number, name in enumerate(names)}
        self._names.update({name: len(names) + beyond + number for number, name in enumerate(more)})
        self._step = len(names) + beyond + len(more)

    def of(self, argument: int | str, number: int) -> int:
        """Of the tensor with this number in the argument at this position, or of this name."""
        first = self._positions[argument] if isinstance(argument, int) else self._names[argument]
        return first + number * self._step

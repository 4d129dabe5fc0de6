"""Functions that are traced as modules are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

_installed: Any = None  # hooks of the step that is traced now


def install(hooks: Any) -> None:
    """From now on, `hooks.around(name, function, args, kwargs)` calls the functions; None: nobody does."""
    global _installed
    _installed = hooks


def record(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Records a tensor of the forward, wherever it is computed, and its gradient, as what a region ``name`` returns.
    Returns the tensor."""
    return region(name)(lambda: tensor)()


def region(name: str) -> Callable[[Function], Function]:
    """Decorates a function that computes outside of modules: code in functional style, a loss, a part of a
    schedule. The tensors that it takes and returns are recorded as those of a module ``name`` within the
    module that runs, with their gradients, so that an error in it is found there.

        @ttrace.region("rope")
        def rotate(x, cos, sin): ...

    Weights and numbers among the arguments are left out, as for modules. Outside of traced steps the function
    is called as it is.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling() or _installed is None:
                return function(*args, **kwargs)
            return _installed.around(name, function, args, kwargs)

        return call  # type: ignore[return-value]

    return decorate

"""Hooks around calls of modules that change nothing for compilers and modes.

A compiler that reaches a hook within a function that it compiles ignores it: the function becomes the same
code with and without the hook, and the hook does not run there. `Module.compile` would compile a
module's own hooks, too; ours run outside of it. A mode on torch's functions does not see what hooks ask of
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

# Gets the module, its positional and its keyword arguments; returns new ones, or None for the same.
Before = Callable[[nn.Module, tuple, dict], "tuple[tuple, dict] | None"]
# Also gets what the module returns; returns what takes its place, or None for the same.
After = Callable[[nn.Module, tuple, dict, Any], Any]


class Removable(Protocol):
    def remove(self) -> None: ...


def is_compiled_in_place(module: nn.Module) -> bool:
    """Whether Module.compile() has compiled it, and its own hooks with it."""
    return getattr(module, "_compiled_call_impl", None) is not None


def aside(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook as neither a compiler nor a function mode of the program sees it."""

    def call(*args: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return None
        with torch._C.DisableTorchFunction():
            return hook(*args)

    return call


def before_call(module: nn.Module, hook: Before) -> Removable:
    """Runs before the module's call, and before all hooks that it has."""
    if is_compiled_in_place(module):
        return _AroundCompiled(module, before=aside(hook))
    return module.register_forward_pre_hook(aside(hook), prepend=True, with_kwargs=True)


def after_call(module: nn.Module, hook: After, always: bool = False) -> Removable:
    """Runs after the module's call, and after all hooks that it has; if `always`, with None as the output,
    also after a call that throws, as a recomputation does that stops early."""
    if is_compiled_in_place(module):
        return _AroundCompiled(module, after=aside(hook), always=always)
    return module.register_forward_hook(aside(hook), with_kwargs=True, always_call=always)


def before_outermost_call(module: nn.Module, hook: Callable[[tuple, dict], None]) -> Iterator[Removable]:
    """`hook` gets the arguments of every call of the module that is not within another call of the same. Lightning
    lets DDP call a training step in place of the forward, which then calls the forward."""
    depth = 0

    def begins(module: nn.Module, args: tuple, kwargs: dict) -> None:
        nonlocal depth
        del module
        depth += 1
        if depth == 1:
            hook(args, kwargs)

    def ends(*unused: Any) -> None:
        nonlocal depth
        depth -= 1

    yield before_call(module, begins)
    yield after_call(module, ends, always=True)


class Replaced:
    """An attribute of an object that has another value until `remove`, which leaves what somebody else has put on top:
    a program may patch what we have wrapped."""

    def __init__(self, owner: Any, name: str, value: Any):
        self._owner, self._name = owner, name
        self._is_own = name in vars(owner)  # and not its class's, or a module within a module
        self._value, self._ours = getattr(owner, name), value
        self._is_module = name in getattr(owner, "_modules", ())
        if self._is_module:
            vars(owner)[name] = value  # nn.Module takes no other object there
        else:
            setattr(owner, name, value)

    def remove(self) -> None:
        if vars(self._owner).get(self._name) is not self._ours:
            return
        if self._is_own:
            setattr(self._owner, self._name, self._value)
        elif self._is_module:
            del vars(self._owner)[self._name]
        else:
            delattr(self._owner, self._name)


class _AroundCompiled:
    """Takes the place of a module's compiled call. The last one made is the outermost, and has to be removed
    first."""

    def __init__(
        self,
        module: nn.Module,
        before: Before | None = None,
        after: After | None = None,
        always: bool = False,
    ):
        self._module: Any = module
        self._own = self._module._compiled_call_impl
        self._before, self._after, self._always = before, after, always
        self._module._compiled_call_impl = self._call

    def remove(self) -> None:
        self._module._compiled_call_impl = self._own

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._before is not None:
            args, kwargs = self._before(self._module, args, kwargs) or (args, kwargs)
        try:
            output = self._own(*args, **kwargs)
        except BaseException:
            if self._after is not None and self._always:
                self._after(self._module, args, kwargs, None)
            raise
        if self._after is None:
            return output
        changed = self._after(self._module, args, kwargs, output)
        return output if changed is None else changed

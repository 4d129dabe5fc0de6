"""The torch optimizers behind what a program calls its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch

from .calls import Removable, Replaced, aside
from .unseen import unseen


def optimizers_in(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Those that hold moments: the optimizer itself, or the ones that a container or wrapper of it keeps.

    A container may be a list, or an object that has optimizers, or lists of them, among its attributes.
    """
    found: dict[int, torch.optim.Optimizer] = {}
    _collect(optimizer, found, set())
    return list(found.values())


def _collect(holder: Any, found: dict[int, torch.optim.Optimizer], seen: set[int]) -> None:
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, (list, tuple)):
        inner = list(holder)
    else:
        inner = list(_attributes(holder))
    held = [entry for entry in inner if isinstance(entry, torch.optim.Optimizer) and entry is not holder]
    for entry in held:
        _collect(entry, found, seen)
    if not held and isinstance(holder, torch.optim.Optimizer):
        found[id(holder)] = holder


def _attributes(holder: Any) -> Iterator[Any]:
    for value in list(getattr(holder, "__dict__", {}).values()):
        if isinstance(value, (list, tuple)):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()
        else:
            yield value


def _calls_hooks(optimizer: Any) -> bool:
    """Wrappers like accelerate's are optimizers whose constructor torch's own never saw."""
    return hasattr(optimizer, "_optimizer_step_post_hooks") and getattr(type(optimizer).step, "hooked", False)


class Optimizers:
    """What a program passed to `attach` as its optimizer, whatever it is."""

    def __init__(self, optimizer: Any):
        self._optimizers = optimizers_in(optimizer)
        # An optimizer that wraps another one may do more after its step: ZeroRedundancyOptimizer broadcasts.
        self._last = [optimizer] if _calls_hooks(optimizer) else self._optimizers[-1:]

    def __bool__(self) -> bool:
        return bool(self._optimizers)

    def __contains__(self, optimizer: Any) -> bool:
        return any(optimizer is own for own in (*self._optimizers, *self._last))

    def state(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Of one parameter, such as its moments. Empty before the first step."""
        for optimizer in self._optimizers:
            if parameter in optimizer.state:
                return optimizer.state[parameter]
        return {}

    def learning_rates(self) -> dict[int, float]:
        """Of every parameter, by its id, as the groups have them now."""
        with unseen():
            return {
                id(parameter): float(group["lr"])
                for optimizer in self._optimizers
                for group in optimizer.param_groups
                if isinstance(group.get("lr"), (int, float, torch.Tensor))
                for parameter in group["params"]
            }

    @property
    def are_several(self) -> bool:
        """Whether each of them steps on its own, as those of an actor and a critic do."""
        return len(self._optimizers) > 1 and len(self._last) == 1 and self._last[0] is self._optimizers[-1]

    def of_others(self, parameters: Iterable[torch.Tensor]) -> set[int]:
        """Ids of the parameters that are left to step where the optimizers step these alone."""
        now = {id(parameter) for parameter in parameters}
        return {id(parameter) for optimizer in self._optimizers for parameter in _held(optimizer)} - now

    def watch(self, begins: Callable[[list[torch.Tensor]], None], done: Callable[[], None]) -> None:
        """`begins` gets the parameters of each of them when their gradients are there and it has not yet stepped,
        `done` runs after the last of them, or the one around them, has."""
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(aside(_when_gradients_are_there(partial(_given, begins, optimizer))))
        for optimizer in self._last:
            optimizer.register_step_post_hook(aside(lambda *unused: done()))


def _held(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _given(begins: Callable[[list[torch.Tensor]], None], optimizer: torch.optim.Optimizer) -> None:
    begins(_held(optimizer))


def _when_gradients_are_there(begins: Callable[[], None]) -> Callable[..., Any]:
    """A hook before an optimizer's step. If that gets a closure, forward and backward are within it, as in LBFGS and in
    Lightning's automatic optimization."""

    def before_step(optimizer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        del optimizer
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            begins()
            return None

        def computed() -> Any:
            loss = closure()
            aside(begins)()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": computed}
        return (args[0], computed, *args[2:]), kwargs

    return before_step


# Gets the parameters whose gradients are clipped, and their norm; returns the norm to clip them by.
Clips = Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]


def before_clipping(clips: Clips) -> Iterator[Removable]:
    """Until they are removed, `clips` runs before torch clips gradients by their norm.

    All of torch's ways of clipping by a norm end in one function, which has two names.
    """
    for owner, name in _names():
        yield Replaced(owner, name, _calling(clips, getattr(owner, name)))


def _calling(clips: Clips, own: Callable[..., Any]) -> Callable[..., Any]:
    def clip(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return own(parameters, max_norm, clips(parameters, total_norm), *args, **kwargs)

    return clip


def _names() -> Iterator[tuple[Any, str]]:
    import torch.nn.utils.clip_grad as clip_grad

    for owner, name in ((clip_grad, "_clip_grads_with_norm_"), (torch.nn.utils, "clip_grads_with_norm_")):
        if hasattr(owner, name):  # torch has them since 2.6
            yield owner, name

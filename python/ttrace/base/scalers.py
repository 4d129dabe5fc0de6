"""What GradScalers keep from step to step."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from .calls import Removable, Replaced
from .optimizers import Optimizers
from .states import further_states, number
from .unseen import unseen
from .values import OptimizerState

# What torch's and Megatron-core's call it in their state, without the underscore in front.
_COUNTS = ("growth_tracker", "growth_interval", "hysteresis_tracker")


class Scalers:
    """The scalers of a step. Two runs may have different scales, so that not the scale is compared, but what each
    step makes of it."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[Any, float]] = {}  # by id: the scaler, and its scale in this step

    def forget(self) -> None:
        self._noted.clear()

    def note(self, scaler: Any) -> None:
        """It belongs to this step, whose scale it still has."""
        if id(scaler) not in self._noted:
            self._noted[id(scaler)] = (scaler, _scale_of(scaler))

    def watch(self, optimizers: Optimizers) -> Iterator[Removable]:
        """Until this is removed, notes each scaler of torch that steps one of the optimizers."""
        own = torch.amp.GradScaler.step

        @functools.wraps(own)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if optimizer in optimizers:
                self.note(scaler)
            return own(scaler, optimizer, *args, **kwargs)

        yield Replaced(torch.amp.GradScaler, "step", step)

    def states(self) -> list[OptimizerState]:
        """As they are now. Those that hold the same are one: a framework gives each part of its optimizer a scaler, and one
        with parallel experts has more parts."""
        found: list[dict[str, torch.Tensor]] = []
        for scaler, scale in self._noted.values():
            kept = {name.lstrip("_"): value for name, value in scaler.state_dict().items()}
            if kept:  # else it is switched off
                others, _ = further_states({name: kept[name] for name in _COUNTS if name in kept})
                others["scale_change"] = number(_scale_of(scaler) / scale)
                if not any(_are_equal(others, earlier) for earlier in found):
                    found.append(others)
        return [OptimizerState(f"scaler_{i}" if i else "scaler", others=others) for i, others in enumerate(found)]


def _are_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    with unseen():
        return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def _scale_of(scaler: Any) -> float:
    with unseen():
        return float(scaler.get_scale() if hasattr(scaler, "get_scale") else scaler.scale)

"""Programs whose parameters, gradients or optimizer states are divided among data-parallel ranks at any element: ZeRO of
DeepSpeed, and FSDP1.

A parameter that is itself divided is whole only while a module uses it. Before the first step and at the beginning of
each traced one, all ranks gather such parameters into copies, which are what is loaded and recorded. Gradients of
their single micro-batches are not recorded, because they are reduced before anyone sees them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..base.local_part import local_part
from ..base.names import canonical
from ..base.recorder import Recorder
from ..base.states import LEARNING_RATE, MOMENTS, NEXT_LEARNING_RATE, further_states, number
from ..base.unseen import unseen
from ..base.values import Description, Gradient, OptimizerState, Parameter, precision_of
from .plain import PlainProgram


@dataclass(frozen=True)
class Part:
    """Elements of a parameter that this rank has: all of them, shaped like the parameter (`first` is -1), or those
    of the flattened parameter from `first` on."""

    tensor: torch.Tensor
    first: int = -1


def part_of(tensor: torch.Tensor, first: int, shape: torch.Size) -> Part:
    """What `tensor` holds of a parameter of this shape; all of it as a view of that shape."""
    if tensor.shape == shape:
        return Part(tensor)
    flat = tensor.reshape(-1)
    return Part(flat.view(shape)) if flat.numel() == shape.numel() else Part(flat, first)


class Divided(ABC):
    """Where a wrapper keeps what it divides. None stands for what this rank has no part of, or does not exist (yet)."""

    @abstractmethod
    def shape(self, parameter: Any) -> torch.Size | None:
        """Of the whole parameter, if it is itself divided; None for any other."""

    @abstractmethod
    def gathered(self, parameters: Sequence[Any], changes: bool) -> AbstractContextManager:
        """While it is entered, these divided parameters are whole. If it `changes` them, what all ranks have made of
        them is then divided again."""

    def refresh_masters(self) -> None:
        """Copies the parameters into what the optimizer updates."""

    @abstractmethod
    def value(self, parameter: Any) -> Part | None:
        """What this rank has of the parameter itself."""

    @abstractmethod
    def gradient(self, parameter: Any) -> Part | None:
        """What it has of the reduced gradient, before it is clipped."""

    def master(self, parameter: Any) -> Part | None:
        """The copy in higher precision that the optimizer updates; None if it updates the parameter's own type."""
        del parameter
        return None

    @abstractmethod
    def state(self, parameter: Any, name: str) -> Part | None:
        """A tensor of the optimizer's state, such as "exp_avg"."""

    @abstractmethod
    def held(self, parameter: Any) -> Any:
        """The tensor by which torch's optimizer knows the parameter: the parameter itself, or what its elements were
        joined into."""

    def learning_rate(self, parameter: Any, rates: Mapping[int, float]) -> float | None:
        """`rates` has those of what the optimizer's groups hold, by id."""
        return rates.get(id(self.held(parameter)))


class DividedProgram(PlainProgram):
    """See the head of this file. Who derives from it calls `divide` at the end of its constructor."""

    def divide(self, divided: Divided) -> None:
        """`divided` says where things are."""
        self._where = divided
        self._parameters = [
            self._parameter(canonical(name), parameter) for name, parameter in self.named_parameters()
        ]
        self._copied = [entry for entry in self._parameters if entry.tensor is not entry.object]
        self._gather()

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that forward and backward read."""
        return self.model.named_parameters()

    def description(self) -> Description:
        description = super().description()
        description.precision = precision_of(parameter.tensor for parameter in self._parameters)
        if self._copied:
            description.untraced.append(r"/param_grad/")
        return description

    def parameters(self) -> list[Parameter]:
        return self._parameters

    def parts_of_copies(self, copies: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        divided = [copy for copy in copies if self._where.shape(copy) is not None]
        if not divided:
            return super().parts_of_copies(copies)
        with self._where.gathered(divided, changes=False):
            return [part.clone() for part in super().parts_of_copies(copies)]

    def _parameter(self, path: str, parameter: Any) -> Parameter:
        shape = self._where.shape(parameter)
        tensor = parameter
        if shape is not None:
            tensor = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
            tensor.requires_grad_(parameter.requires_grad)
        return Parameter(path, tensor, self.parameter_dims(tensor), parameter)

    def _gather(self) -> None:
        if self._copied:
            with self._gathered(changes=False):
                for entry in self._copied:
                    entry.tensor.copy_(entry.object)

    @contextmanager
    def _gathered(self, changes: bool) -> Iterator[None]:
        parameters = [entry.object for entry in self._copied]
        with unseen(), torch.no_grad(), self._where.gathered(parameters, changes):
            yield

    def refresh_masters(self) -> None:
        if self._copied:
            with self._gathered(changes=True):
                for entry in self._copied:
                    entry.object.copy_(entry.tensor)
        self._where.refresh_masters()

    # --- when things happen ------------------------------------------------------------------------

    def gathered_later(self) -> list[str]:
        return [entry.path for entry in self._copied]

    def step_begins(self, recorder: Recorder) -> None:
        super().step_begins(recorder)
        self._gather()
        recorder.parameters_gathered(self.gathered_later())

    def gradients(self) -> list[Gradient]:
        parts = ((entry.path, self._where.gradient(entry.object)) for entry in self._parameters)
        return [Gradient(path, part.tensor, part.first) for path, part in parts if part is not None]

    def learning_rates(self) -> dict[str, float]:
        """By path, as the optimizer's groups have them now, of the parameters of which this rank has a part."""
        held = self.optimizers.learning_rates()
        rates = {entry.path: self._where.learning_rate(entry.object, held) for entry in self._parameters}
        return {path: rate for path, rate in rates.items() if rate is not None}

    def states(self, rates: Mapping[str, float] | None = None) -> list[OptimizerState]:
        """`rates`: those of the step, where they may be others by now."""
        rates = self.learning_rates() if rates is None else rates
        return [state for entry in self._parameters for state in self._states(entry, rates)]

    def kept_states(self) -> list[OptimizerState]:
        rates = self.learning_rates()
        held = [(entry, self._where.held(entry.object)) for entry in self._parameters]
        return [self._kept_state(entry, tensor, rates) for entry, tensor in held if tensor is not None]

    def _states(self, entry: Parameter, rates: Mapping[str, float]) -> Iterator[OptimizerState]:
        """The parameter and what the optimizer has of it, which may be another part of it."""
        value = self._where.value(entry.object)
        if value is not None:
            yield OptimizerState(entry.path, param=value.tensor, flat_first=value.first)
        master = self._where.master(entry.object)
        moments = [self._where.state(entry.object, name) for name in MOMENTS]
        known = next((part for part in (master, *moments) if part is not None), None)
        if known is not None:
            tensors = [None if part is None else part.tensor for part in (master, *moments)]
            others = {LEARNING_RATE: number(rates[entry.path])} if entry.path in rates else {}
            yield OptimizerState(entry.path, None, *tensors, flat_first=known.first, others=others)

    def _kept_state(self, entry: Parameter, held: torch.Tensor, rates: Mapping[str, float]) -> OptimizerState:
        """Of states that lie as `held` does, the part that is of this parameter; and numbers."""
        states, left_out = further_states(self.optimizers.state(held))
        like_held = {name for name, tensor in states.items() if tensor.numel() > 1 and tensor.shape == held.shape}
        others = {name: local_part(tensor) for name, tensor in states.items() if tensor.numel() == 1}
        parts = {name: self._where.state(entry.object, name) for name in like_held}
        found = {name: part for name, part in parts.items() if part is not None}
        if entry.path in rates:
            others[NEXT_LEARNING_RATE] = number(rates[entry.path])
        return OptimizerState(
            entry.path,
            flat_first=next((part.first for part in found.values()), -1),
            others=others | {name: part.tensor for name, part in found.items()},
            left_out=(*left_out, *(states.keys() - others.keys() - like_held)),
        )

"""What a tracer must know of a training program, whatever it is built with.

`ttrace.programs` holds one `Program` for every way of building one: plain modules and DDP, DTensor and
FSDP2, stages of torch.distributed.pipelining, Megatron-core. A program names modules and parameters by
canonical paths (global layer numbers, no wrappers), says where their tensors lie in the single-device
layout, and finds the moments at which gradients and parameters are final.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .calls import Removable
from .layout import Layout
from .local_part import local_part
from .recorder import Recorder
from .values import Buffer, Description, Dims, OptimizerState, Parameter, Rows, Site, Untraced


class Program(ABC):
    """See the head of this file. All methods run on the training thread, after the model is built."""

    layout: Layout

    @abstractmethod
    def description(self) -> Description: ...

    @abstractmethod
    def parameters(self) -> list[Parameter]: ...

    def ties(self) -> dict[str, str]:
        """The path of a parameter in `parameters`, by each of the further names that it has."""
        return {}

    @abstractmethod
    def sites(self) -> list[Site]: ...

    def path_of_call(self, path: str, caller: str, called_as: str) -> str:
        """The path under which the module `path` is recorded that runs inside of the module `caller`, which
        itself is recorded as `called_as`."""
        del caller, called_as
        return path

    looks_inside = False  # whether placement() is shown tensors inside of the module's own hooks

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Rows | Untraced | None:
        """Where a running module's input or output (`role`) lies. None: it is whole on every rank.

        `inside` is the tensor on the inner side of the module's own hooks: what they made of the input, or
        what they made the output from.
        """
        del site, role, slot, tensor, inside
        return None

    def gradient_dims(self, gradient: torch.Tensor) -> str | None:
        """Where a gradient lies that is a DTensor; None for any other."""
        del gradient
        return None

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        """Where tokens, labels, masks and the loss lie."""
        del name, tensor
        return None

    def addend_of_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """This rank's addend of the loss that the single-device program computes for the micro-batch. `loss` is
        the one number that this rank computes, of shape [1]."""
        return loss

    @abstractmethod
    def watch(self, recorder: Recorder) -> None:
        """Installs the hooks that notify the recorder when gradients and parameters are final."""

    @abstractmethod
    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        """Installs hooks that notify the recorder when a micro-batch begins and what a whole model returns.

        They exist while a step is traced, outside of the hooks on modules.
        """

    def is_model(self, module: torch.nn.Module) -> bool:
        """Whether a call of this module, one of the sites, is a forward of the whole model."""
        del module
        return False

    def model_called(self, recorder: Recorder, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        """The model itself was called. Where its forward calls it again, this is about the inner call alone."""

    def part_called(self, recorder: Recorder, args: tuple, kwargs: Mapping[str, Any]) -> None:
        """A module, other than the model itself, is called while no traced module runs."""

    def module_called(self, recorder: Recorder, site: Site, args: tuple, kwargs: Mapping[str, Any]) -> None:
        """Any module, other than the model itself, is called. The first one of a micro-batch may be what reads the data."""

    def part_returned(self, output: Any) -> None:
        """What the module returns that `part_called` was told of."""

    def after_updates(self, done: Callable[[], None]) -> bool:
        """Calls `done` after each update of the parameters, if the program itself knows when that is. Returns whether it
        does; if not, the step of its optimizer says so."""
        del done
        return False

    def refresh_masters(self) -> None:
        """The parameters were changed in place: the optimizer must copy its masters again."""

    def gathered_later(self) -> list[str]:
        """Paths of parameters that are not yet whole when a step begins; the program calls
        `Recorder.parameters_gathered` once they are."""
        return []

    def buffers(self) -> list[Buffer]:
        """Of the model's modules, persistent or not, as they are now."""
        return []

    def parts_of_copies(self, copies: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """This rank's parts of tensors that the program keeps as copies of parameters (base/copies.py)."""
        return [local_part(copy) for copy in copies]

    def states_before(self) -> list[OptimizerState]:
        """What the optimizer has kept of the steps before, as it is now. Fields of the parameter itself do not matter."""
        return []

    def step_begins(self, recorder: Recorder) -> None:
        """A traced step begins."""

    def step_ends(self, recorder: Recorder) -> None:
        """A traced step ends. Records made in this call still belong to it."""

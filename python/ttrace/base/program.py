"""What a tracer must know of a training program, whatever it is built with.

`ttrace.programs` holds one `Program` for every way of building one: plain modules and DDP, DTensor and
FSDP2, stages of torch.distributed.pipelining, Megatron-core. A program names modules and parameters by
canonical paths (global layer numbers, no wrappers), says where their tensors lie in the single-device
layout, and finds the moments at which gradients and parameters are final.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch.utils.hooks import RemovableHandle

from .layout import Layout
from .recorder import Recorder
from .values import Description, Dims, Parameter, Rows, Site, Untraced


class Program(ABC):
    """See the head of this file. Everything is called on the training thread, after the model is built."""

    layout: Layout

    @abstractmethod
    def description(self) -> Description: ...

    @abstractmethod
    def parameters(self) -> list[Parameter]: ...

    @abstractmethod
    def sites(self) -> list[Site]: ...

    looks_inside = False  # whether placement() is shown tensors inside of the module's own hooks

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Rows | Untraced | None:
        """Of a module's input or output (`role`) while it runs. None: whole on every rank.

        `inside` is what the module's own hooks make of an input, or made the output of.
        """
        del site, role, slot, tensor, inside
        return None

    def gradient_dims(self, gradient: torch.Tensor) -> str | None:
        """Of the gradient of a DTensor, if it is one."""
        del gradient
        return None

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        """Of tokens, labels, masks and the loss."""
        del name, tensor
        return None

    @abstractmethod
    def watch(self, recorder: Recorder) -> None:
        """Has the tracer told when gradients and parameters are final."""

    @abstractmethod
    def hook_models(self, recorder: Recorder) -> Iterator[RemovableHandle]:
        """Hooks that tell the tracer when a micro-batch begins, and what a whole model gives. They are there
        while a step is traced, outside of those of modules."""

    def refresh_masters(self) -> None:
        """The parameters were changed in place: what the optimizer has copied of them is stale."""

    def gathered_later(self) -> list[str]:
        """Paths of parameters that are not whole when a step begins: `Recorder.parameters_gathered` names
        them when they are."""
        return []

    def step_begins(self, recorder: Recorder) -> None:
        """A traced step begins."""

    def step_ends(self, recorder: Recorder) -> None:
        """A traced step ends; what is recorded now still belongs to it."""

"""What a tracer must know of a training program, whatever it is built with.

`ttrace.programs` holds one `Program` for every way of building one: plain modules and DDP, DTensor and
FSDP2, stages of torch.distributed.pipelining, Megatron-core. A program names modules and parameters by
canonical paths (global layer numbers, no wrappers), says where their tensors lie in the single-device
layout, and finds the moments at which gradients and parameters are final.

Dims are strings of the grammar of docs/trace_format.md, such as ``"s[sp] b h"``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import torch
from torch.utils.hooks import RemovableHandle

from .layout import Layout

if TYPE_CHECKING:
    from .tracer import Tracer


@dataclass(frozen=True)
class Dims:
    """Where a tensor lies, and its gradient where that differs."""

    value: str
    grad: str | None = None


@dataclass(frozen=True)
class Parameter:
    """This rank's part of one parameter."""

    path: str
    tensor: torch.Tensor  # local, plain
    dims: Dims | None  # None: whole on every rank
    object: torch.Tensor  # what the model holds: the same tensor, or the DTensor around it


@dataclass(frozen=True)
class Gradient:
    """A reduced gradient; `flat_first` as in OptimizerState."""

    path: str
    tensor: torch.Tensor
    flat_first: int = -1


@dataclass(frozen=True)
class OptimizerState:
    """A parameter after the optimizer's step; None for what the optimizer does not have.

    Where a distributed optimizer has cut master and moments anywhere, they are one-dimensional and hold
    the elements from `flat_first` on of this rank's parameter; -1: they are shaped like it.
    """

    path: str
    param: torch.Tensor | None = None
    master: torch.Tensor | None = None
    exp_avg: torch.Tensor | None = None
    exp_avg_sq: torch.Tensor | None = None
    flat_first: int = -1


@dataclass(frozen=True)
class Rows:
    """Which logical rows a tensor's rows are, where that depends on the data (tokens of an expert)."""

    index: torch.Tensor  # int64 [rows]; -1: padding
    size: int  # logical rows
    dim: int = 0
    sparse: bool = True  # rows that no rank holds are legitimate


class Untraced(Enum):
    """UNTRACED stands where a placement would, for a tensor that is not to be recorded."""

    UNTRACED = 0


UNTRACED = Untraced.UNTRACED


@dataclass
class Description:
    """Goes to the manifest; `model` and `data` must be equal on both sides of a comparison."""

    precision: str  # "f64", "f32", "bf16"
    model: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    untraced: list[str] = field(default_factory=list)  # regular expressions of ids that it cannot give
    # What plays a role of docs/parallelism.md, "Names of your own": patterns separated by spaces, by role.
    roles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A module that is traced."""

    path: str
    module: torch.nn.Module


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
    def watch(self, tracer: Tracer) -> None:
        """Has the tracer told when gradients and parameters are final."""

    @abstractmethod
    def hook_models(self, tracer: Tracer) -> Iterator[RemovableHandle]:
        """Hooks that tell the tracer when a micro-batch begins, and what a whole model gives. They are there
        while a step is traced, outside of those of modules."""

    def refresh_masters(self) -> None:
        """The parameters were changed in place: what the optimizer has copied of them is stale."""

    def gathered_later(self) -> list[str]:
        """Paths of parameters that are not whole when a step begins: `Tracer.parameters_gathered` names
        them when they are."""
        return []

    def step_begins(self, tracer: Tracer) -> None:
        """A traced step begins."""

    def step_ends(self, tracer: Tracer) -> None:
        """A traced step ends; what is recorded now still belongs to it."""


def precision_of(tensors: Iterable[torch.Tensor]) -> str:
    """The element type of activations, told by the parameters': most elements decide."""
    counts: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if tensor.is_floating_point():
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.numel()
    names = {
        torch.float64: "f64",
        torch.float32: "f32",
        torch.bfloat16: "bf16",
        torch.float16: "f16",
    }
    if not counts:
        raise ValueError("the model has no floating-point parameter; attach the model that is trained")
    return names[max(counts, key=lambda dtype: counts[dtype])]

"""Values by which a program describes its modules, parameters and gradients, and where they lie.

Dims are strings of the grammar of docs/trace_format.md, such as ``"s[sp] b h"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import torch

ROOT = "model"  # path of the model's own call


@dataclass(frozen=True)
class Dims:
    """Where a tensor lies, and where its gradient lies if that differs.

    Dims that begin with ``?`` are a guess: where the ranks' tensors contradict it, a comparison asks the
    values where they lie.
    """

    value: str
    grad: str | None = None
    addends: int = 1  # ranks whose addends the tensor is the sum of; of an input, its gradient
    follow: tuple[str, ...] = ()  # parameters of the module whose gradients follow from that of the input
    # The tensor's dimensions in the order of the reference's, as for Tensor.permute; empty: they are in order.
    order: tuple[int, ...] = ()


def whole(tensor: torch.Tensor) -> Dims | None:
    """That every rank holds all of it; None for a scalar, which has no dimension to speak of."""
    return Dims(" ".join("acdefghi"[: tensor.dim()])) if tensor.dim() > 0 else None


@dataclass(frozen=True)
class Parameter:
    """This rank's part of one parameter."""

    path: str
    tensor: torch.Tensor  # local, plain; of FP8 codes a copy of what they stand for
    dims: Dims | None  # None: whole on every rank
    object: torch.Tensor  # what the model holds: the same tensor, the DTensor around it, or FP8 codes


@dataclass(frozen=True)
class Gradient:
    """A reduced gradient; `flat_first` as in OptimizerState."""

    path: str
    tensor: torch.Tensor
    flat_first: int = -1


@dataclass(frozen=True)
class OptimizerState:
    """A parameter after the optimizer's step; a field is None if the optimizer has no such tensor.

    `others` has everything that is no moment of AdamW: what has the parameter's shape lies as it does. A
    distributed optimizer may cut master and states at any element. Then they are one-dimensional and hold
    the elements of this rank's parameter from `flat_first` on. -1: they are shaped like the parameter.
    """

    path: str
    param: torch.Tensor | None = None
    master: torch.Tensor | None = None
    exp_avg: torch.Tensor | None = None
    exp_avg_sq: torch.Tensor | None = None
    flat_first: int = -1
    others: Mapping[str, torch.Tensor] = field(default_factory=dict)  # by the optimizer's names
    dims: Mapping[str, str] = field(default_factory=dict)  # where those of other shapes lie, by name
    left_out: tuple[str, ...] = ()  # names of what cannot be recorded


@dataclass(frozen=True)
class Buffer:
    """This rank's part of what a module keeps that is no parameter."""

    path: str
    tensor: torch.Tensor  # local, plain
    dims: str | None = None  # None: nobody says where it lies


@dataclass(frozen=True)
class Rows:
    """Which logical rows a tensor's rows are, if that depends on the data (tokens of an expert). See
    <ttrace/rows.h>."""

    index: torch.Tensor  # int64 [rows]; -1: padding
    size: int  # logical rows of a micro-batch
    dim: int = 0
    sparse: bool = True  # rows that no rank holds are legitimate
    microbatch: torch.Tensor | None = None  # int64 [rows], where they come from several
    microbatches: tuple[int, ...] = ()  # all that rows can come from
    dims: Dims | None = None  # where the other dimensions lie; None: they are whole


class Untraced(Enum):
    """UNTRACED stands in place of a placement for a tensor that is not recorded."""

    UNTRACED = 0


UNTRACED = Untraced.UNTRACED


@dataclass
class Description:
    """Written to the manifest; `model` and `data` must be equal on both sides of a comparison."""

    precision: str  # "f64", "f32", "bf16", "f16", "fp8", "fp8_f32"
    model: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    untraced: list[str] = field(default_factory=list)  # regular expressions of ids that it cannot record
    # Names that the program has for roles of docs/parallelism.md, "Names of your own": patterns separated by
    # spaces, by role.
    roles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A module that is traced."""

    path: str
    module: torch.nn.Module


# Names of precisions by element type, the coarsest first.
PRECISIONS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64"}


def in_fp8(precision: str) -> str:
    """The precision of a program whose products take FP8 and whose other activations have `precision`."""
    return {"bf16": "fp8", "f32": "fp8_f32"}.get(precision, precision)


def precision_of(tensors: Iterable[torch.Tensor]) -> str:
    """The element type of activations, taken to be that of most elements of the parameters."""
    counts: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if tensor.is_floating_point():
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + tensor.numel()
    if not counts:
        raise ValueError("the model has no floating-point parameter; attach the model that is trained")
    return PRECISIONS[max(counts, key=lambda dtype: counts[dtype])]

"""How a program writes where a tensor lies: dims (docs/trace_format.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.values import Dims

_NAMES = "acdefghijklmnopqrstuvwxyz"  # `b` holds samples


@dataclass(frozen=True)
class Samples:
    """The dimension of samples."""

    dim: int
    positions: int = 1  # rows of each sample, where the dimension holds samples x positions


def dim_name(dim: int, samples: Samples | None, axes: str = "") -> str:
    """ "b[dp]", "(b[dp]*6)" or, of a dimension without samples, "c"."""
    cut = f"[{axes}]" if axes else ""
    if samples is None or dim != samples.dim:
        return _NAMES[dim] + cut
    return f"b{cut}" if samples.positions == 1 else f"(b{cut}*{samples.positions})"


def dims_text(dims: int, cut: Mapping[int, str], samples: Samples | None = None) -> str:
    """ "b[dp] c d": names for `dims` dimensions, with axes where `cut` has any."""
    return " ".join(dim_name(dim, samples, cut.get(dim, "")) for dim in range(dims))


def addends_text(axes: Sequence[str]) -> str:
    """ "dp:partial,cp:partial": the ranks of these axes hold addends."""
    return ",".join(f"{axis}:partial" for axis in axes)


def scalar_text(axes: Sequence[str] = ()) -> str:
    """ "# dp:partial": a tensor without dimensions, of which the ranks of these axes hold addends."""
    return " ".join(["#", *(f"{axis}:partial" for axis in axes)])


def guess(
    dims: int, value: Mapping[int, str], grad: Mapping[int, str] | None = None, samples: Samples | None = None
) -> Dims:
    """By its size alone. Samples may be as many as heads, or be merged with them."""
    value_dims = dims_text(dims, value, samples)
    grad_dims = value_dims if grad is None else dims_text(dims, grad, samples)
    return Dims(f"? {value_dims}", f"? {grad_dims}")

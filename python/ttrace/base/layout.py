"""The named axes of a parallel run and where this rank stands on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .simulated import places


@dataclass(frozen=True)
class Axis:
    """One axis: `size` ranks, this one at `coordinate`; `follows` names an axis it always equals. `others` are the
    coordinates of the ranks after this one, if this process simulates them and they differ."""

    name: str
    size: int
    coordinate: int
    follows: str = ""
    others: tuple[int, ...] = ()

    def coordinate_of(self, place: int) -> int:
        """Of the rank that comes so many places after this one."""
        return self.others[place - 1] if place > 0 and self.others else self.coordinate


@dataclass
class Layout:
    """The axes of a run; a run on one device has none."""

    rank: int = 0
    world_size: int = 1
    axes: list[Axis] = field(default_factory=list)

    def add(self, name: str, size: int, coordinate: Any, follows: str = "") -> None:
        """Adds an axis unless it exists. `coordinate` may be that of a mesh of simulated ranks. Raises ValueError if an
        axis of that name differs."""
        own, *others = places(coordinate)
        self.add_axis(Axis(name, size, own, follows, tuple(others)))

    def add_axis(self, axis: Axis) -> None:
        """The same."""
        for known in self.axes:
            if known.name == axis.name:
                if (known.size, known.coordinate) != (axis.size, axis.coordinate):
                    raise ValueError(f"axis {axis.name} is declared twice, as {known} and as {axis}; declare it once")
                return
        self.axes.append(axis)

    def axes_of(self, rank: int) -> list[tuple[str, int, int, str]]:
        """As the library takes them: of this rank, or of another one that this process simulates."""
        return [(axis.name, axis.size, axis.coordinate_of(rank - self.rank), axis.follows) for axis in self.axes]

    def size(self, name: str) -> int:
        """How many ranks the axis has; 1 if the run has no such axis."""
        return next((axis.size for axis in self.axes if axis.name == name), 1)

    def coordinate(self, name: str) -> int:
        return next((axis.coordinate for axis in self.axes if axis.name == name), 0)

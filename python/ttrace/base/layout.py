"""The named axes of a parallel run and where this rank stands on them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Axis:
    """One axis: `size` ranks, this one at `coordinate`; `follows` names an axis it always equals."""

    name: str
    size: int
    coordinate: int
    follows: str = ""


@dataclass
class Layout:
    """The axes of a run; a run on one device has none."""

    rank: int = 0
    world_size: int = 1
    axes: list[Axis] = field(default_factory=list)

    def add(self, name: str, size: int, coordinate: int, follows: str = "") -> None:
        """Adds an axis unless it exists. Raises ValueError if an axis of that name differs."""
        axis = Axis(name, size, coordinate, follows)
        for known in self.axes:
            if known.name == name:
                if (known.size, known.coordinate) != (size, coordinate):
                    raise ValueError(f"axis {name} is declared twice, as {known} and as {axis}; declare it once")
                return
        self.axes.append(axis)

    def size(self, name: str) -> int:
        """How many ranks the axis has; 1 if the run has no such axis."""
        return next((axis.size for axis in self.axes if axis.name == name), 1)

    def coordinate(self, name: str) -> int:
        return next((axis.coordinate for axis in self.axes if axis.name == name), 0)

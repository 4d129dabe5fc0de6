"""Where DTensors lie that msprobe has dumped: dump.json holds their meshes and placements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .foreign import Box
from .names import Name


@dataclass(frozen=True)
class Part:
    """What dump.json says of one rank's part of a tensor."""

    step: int
    rank: int
    name: Name
    info: dict[str, Any]


def boxes_of(parts: Iterable[Part]) -> dict[tuple[int, int, Name], Box]:
    """The boxes of all parts. A tensor whose placements do not say it has none.

    That is so for addends, for ranks that dumped nothing, and where two axes cut one dimension: msprobe does
    not say which of them cuts first.
    """
    tensors: dict[tuple[int, Name], list[Part]] = {}
    for part in parts:
        tensors.setdefault((part.step, part.name), []).append(part)
    boxes = {}
    for (step, name), own in tensors.items():
        try:
            found = _boxes(own)
        except (KeyError, TypeError, IndexError, AttributeError):
            found = {}  # not as msprobe writes it
        boxes.update({(step, rank, name): box for rank, box in found.items()})
    return boxes


def _boxes(parts: list[Part]) -> dict[int, Box]:
    cut: dict[int, int] = {}  # dimension: axis of the mesh
    for axis, placement in enumerate(parts[0].info["placements"]):
        if "Partial" in placement:
            return {}
        if "Shard" in placement:
            dimension = placement["Shard"]["dim"]
            if dimension in cut:
                return {}
            cut[dimension] = axis
    places = dict(_coordinates(parts[0].info["device_mesh"]))
    shapes = {part.rank: tuple(part.info["shape"]) for part in parts}
    if shapes.keys() != places.keys():
        return {}
    result = {}
    for rank, shape in shapes.items():
        start, logical = [0] * len(shape), list(shape)
        for dimension, axis in cut.items():
            row = {
                place[axis]: shapes[other][dimension]
                for other, place in places.items()
                if place[:axis] + place[axis + 1 :] == places[rank][:axis] + places[rank][axis + 1 :]
            }
            start[dimension] = sum(size for index, size in row.items() if index < places[rank][axis])
            logical[dimension] = sum(row.values())
        result[rank] = Box(tuple(start), tuple(logical))
    return result


def _coordinates(mesh: Any, place: tuple[int, ...] = ()) -> Iterable[tuple[int, tuple[int, ...]]]:
    if isinstance(mesh, list):
        for index, inner in enumerate(mesh):
            yield from _coordinates(inner, (*place, index))
    else:
        yield mesh, place

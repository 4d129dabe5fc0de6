"""On which axes the ranks of a plain program lie: those that it names, and those of its wrapper's group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..base.layout import Axis, Layout
from ..base.simulated import ranks as simulated_ranks


def named_axes(axes: Mapping[str, int], layout: Layout) -> list[Axis]:
    """These axes, the slowest first, with this rank's coordinates. Raises ValueError if they have another number of
    ranks than run."""
    ranks = math.prod(axes.values())
    if ranks != layout.world_size:
        raise ValueError(
            f"axes {dict(axes)} have {ranks} ranks, but {layout.world_size} run; "
            "give their sizes in the order of the ranks, the slowest axis first"
        )
    below, named = ranks, []
    others = range(1, simulated_ranks())
    for name, size in axes.items():
        below //= size
        on_axis = tuple(rank // below % size for rank in (layout.rank, *others))
        named.append(Axis(name, size, on_axis[0], others=on_axis[1:]))
    return named


def axes_of_group(group: Sequence[int], axes: Sequence[Axis], rank: int) -> list[str]:
    """The axes whose product is just this group of ranks, which has `rank`; none if there are no such axes."""
    members, spanned, product = set(group), [], {rank}
    below = math.prod(axis.size for axis in axes)
    for axis in axes:
        below //= axis.size
        along = {member + (place - axis.coordinate) * below for member in product for place in range(axis.size)}
        if axis.size > 1 and along <= members:
            spanned, product = [*spanned, axis.name], along
    return spanned if product == members else []


def axes_around(group: Sequence[int], world_size: int) -> dict[str, int]:
    """Axes of a run of which only a group of ranks, `dp`, is known: `ranks`, and where the group is cut out of the
    middle `ranks_within`. Empty if the ranks of the group have other distances than such axes give."""
    size, first = len(group), group[0]
    stride = group[1] - first if size > 1 else 1
    block = size * stride
    is_regular = list(group) == [first + place * stride for place in range(size)]
    if not is_regular or first % block >= stride or world_size % block != 0:
        return {}
    if world_size == block:
        return {"dp": size, "ranks": stride}
    return {"ranks": world_size // block, "dp": size, **({"ranks_within": stride} if stride > 1 else {})}


class RankAxes:
    """The axes of a program: which ranks have different samples, and over which ranks a wrapper takes the mean.

    Names that the program gives rule. A wrapper's group that they do not give is the axis `dp`, unless the program
    has an axis of that name.
    """

    def __init__(self, layout: Layout, group: Sequence[int] | None):
        self._layout = layout
        self._group = group
        self._averaged: list[str] = []  # axes over whose ranks the wrapper takes the mean of gradients
        self.is_by_hand = False  # code of the program's own divides the ranks
        if group is not None:
            self._name(group)

    def _name(self, group: Sequence[int]) -> None:
        self._layout.add("dp", len(group), group.index(self._layout.rank))
        self._averaged = ["dp"]

    def divide(self, axes: Mapping[str, int] | None) -> None:
        """Takes what the program names, the slowest axis first. None: all ranks are one axis, unless the wrapper or
        layers that we know have said otherwise. Raises ValueError if these are not as many ranks as run."""
        if self._layout.world_size == 1:
            return
        axes = self._undeclared() if axes is None else axes
        if axes is None:
            return
        named = named_axes(axes, self._layout)
        others = [axis for axis in self._layout.axes if axis.name not in self._averaged]
        self._layout.axes = []
        for axis in [*named, *others]:
            self._layout.add_axis(axis)
        if self._group is not None:
            self._averaged = axes_of_group(self._group, named, self._layout.rank)
            if not self._averaged and "dp" not in axes:
                self._name(self._group)
        self.is_by_hand = any(axis.name not in self.samples() for axis in named)

    def _undeclared(self) -> dict[str, int] | None:
        """Names of ours, if the program gives none. None: the axes are known."""
        ranks = self._layout.world_size
        if not self._layout.axes:
            return {"ranks": ranks}
        has_others = any(axis.name not in self._averaged for axis in self._layout.axes)
        if self._group is None or has_others or len(self._group) == ranks:
            return None
        return axes_around(self._group, ranks) or None

    def samples(self) -> list[str]:
        """Axes whose ranks have different samples of a micro-batch: `dp`, or if there is none the wrapper's."""
        names = ["dp"] if any(axis.name == "dp" for axis in self._layout.axes) else self._averaged
        return [name for name in names if self._layout.size(name) > 1]

    def addends(self, samples: Sequence[str]) -> list[str]:
        """Axes whose ranks have addends of a gradient: what the wrapper takes the mean over, if that has these axes
        of samples."""
        axes = self._averaged if set(samples) <= set(self._averaged) else samples
        return [name for name in axes if self._layout.size(name) > 1]

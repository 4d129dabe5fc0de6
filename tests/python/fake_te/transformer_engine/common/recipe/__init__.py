"""How numbers become FP8."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class _Largest(NamedTuple):
    """The largest numbers of the formats of forward and backward."""

    max_fwd: float
    max_bwd: float


class Format(Enum):
    E4M3 = _Largest(448.0, 448.0)
    HYBRID = _Largest(448.0, 57344.0)


class Recipe:
    def delayed(self) -> bool:
        return isinstance(self, DelayedScaling)


class DelayedScaling(Recipe):
    """The scale follows from the largest magnitudes of earlier forwards."""

    def __init__(
        self,
        margin: int = 0,
        fp8_format: Format = Format.HYBRID,
        amax_history_len: int = 1024,
        amax_compute_algo: str = "max",
        reduce_amax: bool = True,
        **unused: Any,
    ):
        del unused
        self.margin = margin
        self.fp8_format = fp8_format
        self.amax_history_len = amax_history_len
        self.amax_compute_algo = amax_compute_algo
        self.reduce_amax = reduce_amax

"""Hands foreign tensors to the library, which writes the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .._library import message_of
from ..base.values import PRECISIONS
from .foreign import Foreign, ForeignFileError, Source, listed
from .loading import storable
from .names import id_of


@dataclass
class Options:
    """Where the trace goes, and what the user says of the files; None where that is nothing."""

    output: str
    step: int | None = None
    kind: str | None = None
    axes: list[tuple[str, int]] = field(default_factory=list)
    dims: Path | None = None
    precision: str | None = None


@dataclass(frozen=True)
class Written:
    tensors: int
    ranks: int
    precision: str
    warnings: list[str]


def precision_among(types: set[torch.dtype]) -> str:
    """What a program computed in whose tensors have these types: the coarsest one."""
    eight_bits = types & {torch.float8_e4m3fn, torch.float8_e5m2}
    if eight_bits:
        return "fp8_f32" if torch.float32 in types and torch.bfloat16 not in types else "fp8"
    return next((name for dtype, name in PRECISIONS.items() if dtype in types), "f32")


class _Writer:
    def __init__(self, trace: Any):
        self._trace = trace
        self._place: tuple[int, int] | None = None
        self._origins: dict[str, str] = {}  # of this step of this rank
        self._names: set[str] = set()
        self.types: set[torch.dtype] = set()
        self.left_out: list[str] = []
        self.unread_dims: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def append(self, foreign: Foreign) -> None:
        if self._place != (foreign.step, foreign.rank):
            self._place = (foreign.step, foreign.rank)
            self._trace.begin(foreign.step, foreign.rank)
            self._origins = {}
        value = storable(foreign.value)
        if value is None:
            self.left_out.append(f"{foreign.origin} ({foreign.value.dtype}, {foreign.value.layout})")
            return
        name = id_of(foreign.step, foreign.name)
        if name in self._origins:
            raise ForeignFileError(
                f"{self._origins[name]} and {foreign.origin} both become {name}; "
                "give one of them another name"
            )
        self._origins[name] = foreign.origin
        self._names.add(name)
        self._derive(foreign)
        if foreign.called_at:
            self._trace.called_at(foreign.name.path, foreign.called_at)
        box = foreign.box
        start, logical = (list(box.start), list(box.logical_shape)) if box else ([], None)
        try:
            self._trace.append(name, value, start, logical)
        except RuntimeError as error:
            if not foreign.dims:
                raise
            raise ForeignFileError(
                f"{foreign.origin} says that its dims are '{foreign.dims}': {sentence_of(error)}; "
                "say otherwise with --dims FILE"
            ) from None
        if value.is_floating_point() and value.dim() > 0 and foreign.name.kind != "scalar":
            self.types.add(value.dtype)

    def _derive(self, foreign: Foreign) -> None:
        if not foreign.dims:
            return
        name = foreign.name
        try:
            self._trace.derive(name.path, name.kind, name.slot, foreign.dims)
        except RuntimeError as error:
            self.unread_dims.append(f"{foreign.origin}: {sentence_of(error)}")


def sentence_of(error: RuntimeError) -> str:
    """The library's sentence, without the line of its own code."""
    text = message_of(error)
    return text[: text.rindex(" [")] if text.endswith("]") and " [" in text else text


def write(source: Source, origin: str, options: Options) -> Written:
    """Writes all of `source`. Raises ForeignFileError or the library's RuntimeError; then nothing is left."""
    text = options.dims.read_text(encoding="utf-8") if options.dims else ""
    trace = torch.classes.ttrace.ImportedTrace(
        options.output, origin, source.layouts, text, str(options.dims or "annotations")
    )
    writer = _Writer(trace)
    for foreign in source.tensors():
        writer.append(foreign)
    if not writer:
        reason = f": {source.left_out[0]}" if source.left_out else ""
        raise ForeignFileError(
            f"the files hold no tensor that can be imported{reason}; pass files of {origin}"
        )
    warnings = list(source.left_out)
    if writer.left_out:
        warnings.append(f"a trace has no type for {listed(writer.left_out)}; left out")
    if writer.unread_dims:
        warnings.append(
            "what these say of their placement was not understood, so they count as whole: "
            + listed(writer.unread_dims)
        )
    for warning in warnings:
        trace.note(warning)
    precision = options.precision or precision_among(writer.types)
    trace.commit(precision)
    return Written(len(writer), len(source.layouts), precision, warnings)

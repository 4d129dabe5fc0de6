"""What a reader of a foreign format hands over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

# (name, size, coordinate, axis that it follows): see Layout of the library.
Axis = tuple[str, int, int, str]

MOST_RANKS = 65536
_LISTED = 3


class ForeignFileError(Exception):
    """Files that cannot be imported: one sentence with the path, what is wrong, and what to do."""


@dataclass(frozen=True)
class Name:
    """What a foreign name means, but for the step. `microbatch`: of kinds that have one."""

    kind: str
    path: str
    slot: int = 0
    call: int = 0
    recompute: bool = False
    microbatch: int = 0


@dataclass(frozen=True)
class Box:
    """Where a rank's tensor begins in the logical one, and that one's shape."""

    start: tuple[int, ...]
    logical_shape: tuple[int, ...]


@dataclass(frozen=True)
class Foreign:
    """One tensor of one rank. `origin` names it as the foreign files do.

    `dims`: how it is cut, in the grammar of annotations, where the file says so. `called_at`: the line of the
    program that calls its module.
    """

    step: int
    rank: int
    name: Name
    value: torch.Tensor
    origin: str
    box: Box | None = None
    dims: str = ""
    called_at: str = ""


class Source(Protocol):
    """The files of one program."""

    layouts: list[list[Axis]]  # of every rank; a rank without axes has an empty list
    left_out: list[str]  # sentences about what is in the files and not in the trace

    def tensors(self) -> Iterator[Foreign]:
        """All of a step of a rank in one go, in the order of execution where the files say it."""
        ...


def layouts_of(ranks: int, axes: list[tuple[str, int]]) -> list[list[Axis]]:
    """The coordinates of all ranks; the last axis varies fastest. Without axes all ranks are one axis."""
    if ranks > MOST_RANKS:
        raise ForeignFileError(
            f"the files name rank {ranks - 1}, but at most {MOST_RANKS} ranks can be imported; rename them"
        )
    if not axes:
        return [[("ranks", ranks, rank, "")] if ranks > 1 else [] for rank in range(ranks)]
    product = 1
    for _, size in axes:
        product *= size
    if product != ranks:
        text = ",".join(f"{name}={size}" for name, size in axes)
        raise ForeignFileError(
            f"--axes {text} describes {product} ranks, but the files are of {ranks}; make the sizes fit"
        )
    layouts = []
    for rank in range(ranks):
        layout: list[Axis] = []
        rest = rank
        for name, size in reversed(axes):
            layout.insert(0, (name, size, rest % size, ""))
            rest //= size
        layouts.append(layout)
    return layouts


_RANK = re.compile(r"(?:^|[^A-Za-z0-9])rank[_-]?([0-9]+)(?![0-9])", re.IGNORECASE)


def rank_in(text: str) -> int | None:
    """The number behind "rank" in the name of a file or folder."""
    found = _RANK.search(text)
    return int(found.group(1)) if found else None


def by_numbers(text: str) -> list[tuple[int, Any]]:
    """Sorts "layers.10" behind "layers.2"."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]+)", text) if part]


def require_package(package: str, what: str) -> None:
    """Raises where an optional package is missing."""
    try:
        __import__(package)
    except ImportError as error:
        raise ForeignFileError(
            f"{what} needs the Python package {package}, which cannot be imported ({error}); "
            f"install it with `pip install {package}`"
        ) from None


def listed(texts: list[str]) -> str:
    """The first few of them."""
    more = len(texts) - _LISTED
    return "; ".join(texts[:_LISTED]) + (f"; and {more} more" if more > 0 else "")


def first_line(error: BaseException) -> str:
    """The cause in one line, without a full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def inside(folder: Path, file: Path) -> Path:
    """The same file. Raises where a link leads out of the folder, whose files alone are the user's to read."""
    root = os.path.realpath(folder)
    cache, snapshots = os.path.split(os.path.dirname(root))
    # The cache of Hugging Face links a model's files to the folder `blobs` beside its snapshots.
    blobs = os.path.join(cache, "blobs")
    allowed = [root, blobs] if snapshots == "snapshots" and os.path.realpath(blobs) == blobs else [root]
    real = os.path.realpath(file)
    if not any(os.path.commonpath((real, place)) == place for place in allowed):
        raise ForeignFileError(
            f"{file} is a link to {real}, which lies outside of {folder}; copy that file into the folder"
        )
    return file


def existing_folder(path: Path, what: str) -> Path:
    if not path.is_dir():
        raise ForeignFileError(f"{path} is no folder, but {what}; pass the folder")
    return path

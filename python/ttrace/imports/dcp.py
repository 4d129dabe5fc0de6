"""Checkpoints of torch.distributed.checkpoint, saved at any layout.

`.metadata` is a pickle. It is read by an unpickler that makes nothing but stand-ins for the classes which
describe tensors; the values are read with torch's weights_only loader. What is no tensor stays unread.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .foreign import Box, Foreign, ForeignFileError, by_numbers, existing_folder, first_line, inside, layouts_of
from .loading import load_torch
from .names import of_checkpoint
from .writing import Options

_METADATA = "torch.distributed.checkpoint.metadata"
_ALLOWED = {
    *((_METADATA, name) for name in (
        "Metadata", "StorageMeta", "MetadataIndex", "ChunkStorageMetadata", "TensorStorageMetadata",
        "BytesStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING",
    )),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"),
    ("pathlib", "Path"), ("pathlib", "PosixPath"), ("pathlib._local", "PosixPath"),
}  # fmt: skip
_WRITER = re.compile(r"__(?P<rank>[0-9]{1,9})_[0-9]+\.distcp")


class _Plain:
    """In place of an object of torch or pathlib: nothing but what the pickle says of it."""

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


# Those of which the reader needs the items.
_CONTAINERS: dict[str, type] = {"Size": tuple, "OrderedDict": dict}


class _Unpickler(pickle.Unpickler):
    """A pickle may set attributes of whatever class or function it names. So it gets none that anybody else
    uses: every unpickler makes stand-ins of its own.
    """

    def __init__(self, file: Any):
        super().__init__(file)
        self._made: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_type and (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        if (module, name) not in self._made:
            self._made[module, name] = type(name, (_CONTAINERS.get(name, _Plain),), {})
        return self._made[module, name]


@dataclass(frozen=True)
class _Chunk:
    """Part of the tensor `name` that one rank saved; `rank` is its number in the trace."""

    name: str
    rank: int
    box: Box
    shape: tuple[int, ...]
    file: Path
    offset: int
    length: int


def _read_metadata(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            metadata = _Unpickler(opened).load()
        if type(metadata).__name__ != "Metadata" or not isinstance(metadata.storage_data, dict):
            raise ValueError("it holds no metadata")
        return metadata
    except pickle.UnpicklingError as error:
        if re.fullmatch(r"[\w.]+\.[\w.]+", str(error)):
            raise ForeignFileError(
                f"{file} names {error}, which is no part of a checkpoint's metadata, and TTrace runs no code "
                "of a pickle; save the checkpoint with torch.distributed.checkpoint"
            ) from None
        raise _damaged(file, error) from None
    except Exception as error:  # whatever a damaged pickle makes Python raise
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> ForeignFileError:
    return ForeignFileError(
        f"{file} cannot be read as the metadata of a checkpoint: {first_line(error)}; it is damaged, cut "
        "off, or of another format"
    )


class Source:
    """One checkpoint. A rank is one that saved chunks; its further chunks of one tensor get further ranks."""

    def __init__(self, paths: list[Path], options: Options):
        if len(paths) != 1:
            raise ForeignFileError(
                f"dcp takes one checkpoint, but {len(paths)} paths were given; import each on its own"
            )
        folder = existing_folder(paths[0], "torch.distributed.checkpoint writes folders")
        file = folder / ".metadata"
        if not file.exists():
            raise ForeignFileError(
                f"{folder} has no file .metadata, so it is no checkpoint of torch.distributed.checkpoint; "
                "pass the folder that was given as checkpoint_id"
            )
        self._step = options.step or 0
        self._kind = options.kind or "param"
        self.left_out: list[str] = []
        metadata = _read_metadata(inside(folder, file))
        try:
            self._paths: dict[str, Any] = dict(getattr(metadata, "planner_data", None) or {})
            self._chunks = self._find(metadata, folder)
        except ForeignFileError:
            raise
        except Exception as error:  # fields of other types than torch writes
            raise _damaged(file, error) from None
        if not self._chunks:
            raise ForeignFileError(f"{folder} holds no tensor; pass a checkpoint of a model or an optimizer")
        self.layouts = layouts_of(max(chunk.rank for chunk in self._chunks) + 1, [])

    def _find(self, metadata: Any, folder: Path) -> list[_Chunk]:
        others = sorted({info.relative_path for info in metadata.storage_data.values()})
        unnumbered = {path: number for number, path in enumerate(others)}
        chunks: list[_Chunk] = []
        unread = 0
        for index, info in metadata.storage_data.items():
            tensor = metadata.state_dict_metadata[index.fqn]
            if type(tensor).__name__ != "TensorStorageMetadata":
                unread += 1
                continue
            if transforms := getattr(info, "transform_descriptors", None):
                raise ForeignFileError(
                    f"{folder} is compressed ({', '.join(map(str, transforms))}), which "
                    "cannot be imported; save it without extensions"
                )
            if type(info.relative_path) is not str or os.path.basename(info.relative_path) != info.relative_path:
                raise ForeignFileError(
                    f"{folder}/.metadata names the file {info.relative_path}, which is not in it"
                )
            if min(info.offset, info.length, *tensor.size, *index.offset) < 0:
                raise ValueError(f"{index.fqn} has a negative size or offset")
            start = tuple(index.offset)
            shape = next(tuple(chunk.sizes) for chunk in tensor.chunks if tuple(chunk.offsets) == start)
            found = _WRITER.fullmatch(info.relative_path)
            rank = int(found["rank"]) if found else unnumbered[info.relative_path]
            file, box = inside(folder, folder / info.relative_path), Box(start, tuple(tensor.size))
            chunks.append(_Chunk(index.fqn, rank, box, shape, file, info.offset, info.length))
        if unread:
            self.left_out.append(f"{unread} entries of the checkpoint are no tensors and were not read")
        return _spread(chunks)

    def tensors(self) -> Iterator[Foreign]:
        for chunk in sorted(self._chunks, key=lambda chunk: (chunk.rank, by_numbers(chunk.name))):
            value = _values(chunk)
            parts = self._paths.get(chunk.name, (chunk.name,))
            parts = tuple(map(str, parts)) if isinstance(parts, tuple) and parts else (chunk.name,)
            name = of_checkpoint(parts, self._kind, not chunk.box.logical_shape)
            yield Foreign(self._step, chunk.rank, name, value, chunk.name, box=chunk.box)


def _spread(chunks: list[_Chunk]) -> list[_Chunk]:
    """A rank of a trace holds a tensor once, so a second chunk of it goes to a rank that saved nothing."""
    free = max((chunk.rank for chunk in chunks), default=-1) + 1
    seen: dict[tuple[str, int], int] = {}
    further: dict[tuple[int, int], int] = {}  # rank and number of the chunk: the further rank
    result = []
    for chunk in chunks:
        number = seen[chunk.name, chunk.rank] = seen.get((chunk.name, chunk.rank), -1) + 1
        rank = chunk.rank
        if number:
            rank = further.setdefault((chunk.rank, number), free + len(further))
        result.append(replace(chunk, rank=rank))
    return result


def _values(chunk: _Chunk) -> torch.Tensor:
    try:
        with chunk.file.open("rb") as opened:
            opened.seek(chunk.offset)
            content = opened.read(chunk.length)
    except OSError as error:
        raise ForeignFileError(
            f"{chunk.file} cannot be read: {first_line(error)}; copy the whole checkpoint"
        ) from None
    if len(content) < chunk.length:
        raise ForeignFileError(
            f"{chunk.file} ends within {chunk.name}: {len(content)} of {chunk.length} bytes are there; copy "
            "the whole checkpoint"
        )
    value = load_torch(content, f"{chunk.name} in {chunk.file}")
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != chunk.shape:
        is_tensor = isinstance(value, torch.Tensor)
        what = f"a tensor of shape {tuple(value.shape)}" if is_tensor else type(value).__name__
        raise ForeignFileError(
            f"{chunk.file} holds {what} as {chunk.name}, but .metadata says {chunk.shape}; "
            "save the checkpoint again"
        )
    return value

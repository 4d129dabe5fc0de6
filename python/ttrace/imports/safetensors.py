"""safetensors: a file, a folder of files with or without an index, or one file for each rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .foreign import (
    Foreign, ForeignFileError, by_numbers, first_line, inside, layouts_of, rank_in, require_package,
)  # fmt: skip
from .names import of_checkpoint, own_id
from .writing import Options


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    indices = sorted(path.glob("*.safetensors.index.json"))
    if not indices:
        files = [*path.glob("*.safetensors"), *path.glob("rank*/*.safetensors")]
        files.sort(key=lambda file: by_numbers(str(file)))
        if not files:
            raise ForeignFileError(
                f"{path} holds no .safetensors file; pass the files or the folder that holds them"
            )
        return [inside(path, file) for file in files]
    index = inside(path, indices[0])
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ForeignFileError(
            f"{index} is no index of safetensors ({first_line(error)}); remove it"
        ) from None
    for name in sorted(names):
        if not isinstance(name, str) or Path(name).name != name:
            raise ForeignFileError(
                f"{index} names the file {name!r}, which does not lie next to it; correct the index"
            )
        if not (path / name).exists():
            raise ForeignFileError(f"{index} names {name}, which is missing; copy all files of the model")
    return [inside(path, path / name) for name in sorted(names, key=by_numbers)]


def _rank_of(file: Path) -> int | None:
    own = rank_in(file.stem)
    return rank_in(file.parent.name) if own is None else own


class Source:
    """One step of a program. Several files without a rank in their names are parts of rank 0."""

    def __init__(self, paths: list[Path], options: Options):
        require_package("safetensors", "importing safetensors")
        self._step = options.step or 0
        self._kind = options.kind or "param"
        self.left_out: list[str] = []
        files = [file for path in paths for file in _files_of(path)]
        ranks = [_rank_of(file) for file in files]
        named = [rank for rank in ranks if rank is not None]
        if named and len(named) < len(files):
            raise ForeignFileError(
                f"{files[ranks.index(None)]} has no rank in its name, but "
                f"{files[ranks.index(named[0])].name} has; name all files like rank0.safetensors, or none"
            )
        self._files: dict[int, list[Path]] = {}
        for file, rank in zip(files, ranks):
            self._files.setdefault(rank or 0, []).append(file)
        self.layouts = layouts_of(max(self._files) + 1, options.axes)

    def tensors(self) -> Iterator[Foreign]:
        for rank in sorted(self._files):
            places = [
                (name, file, opened)
                for file in self._files[rank]
                for opened in [self._open(file)]
                for name in opened.keys()  # noqa: SIM118  the class is no dictionary
            ]
            for name, file, opened in sorted(places, key=lambda place: by_numbers(place[0])):
                value = opened.get_tensor(name)
                meaning = own_id(name) or of_checkpoint((name,), self._kind, value.dim() == 0)
                yield Foreign(self._step, rank, meaning, value, f"{name} of {file}")

    @staticmethod
    def _open(file: Path):  # type: ignore[no-untyped-def]  # a class of the library, which may be absent
        from safetensors import SafetensorError, safe_open

        try:
            return safe_open(str(file), framework="pt")
        except (SafetensorError, OSError) as error:
            raise ForeignFileError(
                f"{file} cannot be read as a .safetensors file: {first_line(error)}; it is damaged, cut off, "
                "or of another format"
            ) from None

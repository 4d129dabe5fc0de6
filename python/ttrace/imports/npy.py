"""Folders of .npy files, whose paths are the names of the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .foreign import Foreign, ForeignFileError, by_numbers, existing_folder, inside, layouts_of, rank_in
from .loading import load_numpy
from .names import KINDS, Name, canonical, of_checkpoint, own_id
from .writing import Options


class Source:
    """One step of a program."""

    def __init__(self, paths: list[Path], options: Options):
        self._step = options.step or 0
        self._kind = options.kind or "output"
        self.left_out: list[str] = []
        self._files: dict[int, list[tuple[tuple[str, ...], Path]]] = {}
        for path in paths:
            self._add(existing_folder(path, "npy files are named by their paths in one"))
        if not self._files:
            raise ForeignFileError(f"{paths[0]} holds no .npy file; pass the folder that holds them")
        self.layouts = layouts_of(max(self._files) + 1, options.axes)

    def _add(self, folder: Path) -> None:
        own = rank_in(folder.name)
        for file in folder.rglob("*.npy"):
            parts = file.relative_to(folder).with_suffix("").parts
            rank = own
            if rank is None and len(parts) > 1 and (rank := rank_in(parts[0])) is not None:
                parts = parts[1:]
            self._files.setdefault(rank or 0, []).append((parts, inside(folder, file)))

    def tensors(self) -> Iterator[Foreign]:
        for rank in sorted(self._files):
            for parts, file in sorted(self._files[rank], key=lambda found: by_numbers("/".join(found[0]))):
                value = load_numpy(file)
                yield Foreign(self._step, rank, self._name(parts, value.dim() == 0), value, str(file))

    def _name(self, parts: tuple[str, ...], is_number: bool) -> Name:
        text = "/".join(parts)
        if found := own_id(text):
            return found
        if len(parts) > 1 and parts[0] in KINDS:
            return Name(parts[0], canonical("/".join(parts[1:])))
        return of_checkpoint((text.replace("/", "."),), self._kind, is_number)

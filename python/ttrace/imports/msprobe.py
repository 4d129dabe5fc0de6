"""Folders of msprobe (MindStudio Probe): step0/rank0/{dump.json, stack.json, dump_tensor_data}.

dump.json lists what modules and functions took and returned, in the order of execution, and names the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .foreign import Foreign, ForeignFileError, existing_folder, first_line, inside, layouts_of, rank_in
from .loading import load_numpy, load_torch
from .msprobe_dtensors import Part, boxes_of
from .names import Name, canonical
from .writing import Options

_MODULE = re.compile(
    r"(?:Module|Cell)\.(?P<path>.+)\.[^.]+\.(?:(?P<stage>forward|backward)\.(?P<call>[0-9]+)"
    r"|(?P<old_call>[0-9]+)\.(?P<old_stage>forward|backward))"
)
_GRADIENTS = re.compile(r"(?:Module|Cell)\.(?P<path>.+)\.[^.]+\.parameters_grad(?:\.(?P<call>[0-9]+))?")
_FUNCTION = re.compile(r"(?P<path>[^.]+\..+)\.(?P<call>[0-9]+)\.(?P<stage>forward|backward)")
_KINDS = {
    ("forward", "input_args"): "input", ("forward", "input_kwargs"): "input", ("forward", "output"): "output",
    # The input of a backward is the gradient of the module's output.
    ("backward", "input"): "grad_output", ("backward", "output"): "grad_input",
}  # fmt: skip
_FRAME = re.compile(r"File (?P<file>.+), line (?P<line>[0-9]+), in ")
_LIBRARIES = ("/site-packages/torch/", "/site-packages/msprobe/", "/msprobe/")


@dataclass(frozen=True)
class _Leaf:
    name: Name
    entry: str
    info: dict[str, Any]


@dataclass(frozen=True)
class _Folder:
    path: Path
    step: int
    rank: int


def _folders_in(path: Path) -> list[_Folder]:
    existing_folder(path, "msprobe writes folders")
    files = [found for depth in ("", "*/", "*/*/") for found in sorted(path.glob(f"{depth}dump.json"))]
    if not files:
        raise ForeignFileError(
            f"{path} holds no dump.json; pass the dump_path of msprobe's configuration, or a step "
            "or rank folder in it"
        )
    folders = []
    for file in files:
        inside(path, file)
        step = re.fullmatch(r"step([0-9]+)", file.parent.parent.name)
        folders.append(
            _Folder(file.parent, int(step.group(1)) if step else 0, rank_in(file.parent.name) or 0)
        )
    return folders


def _leaves(tree: Any, first: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """The tensors of nested lists and dictionaries, with their positions among all leaves."""
    position = first
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict) and not isinstance(node.get("type"), str):
            stack.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            stack.extend(reversed(node))
        else:
            if isinstance(node, dict) and "dtype" in node:
                yield position, node
            position += 1


def _count(tree: Any) -> int:
    if isinstance(tree, dict) and not isinstance(tree.get("type"), str):
        return sum(map(_count, tree.values()))
    return sum(map(_count, tree)) if isinstance(tree, list) else 1


def _named(entry: str, data: dict[str, Any]) -> Iterator[tuple[Name, dict[str, Any]]]:
    """Names and descriptions of an entry's tensors; none for a kind of entry that TTrace does not know."""
    if found := _GRADIENTS.fullmatch(entry):
        for parameter, infos in data.items():
            for _, info in _leaves(infos):
                path = canonical(f"{found['path']}.{parameter}")
                yield Name("param_grad", path, call=int(found["call"] or 0)), info
        return
    module = _MODULE.fullmatch(entry)
    found = module or _FUNCTION.fullmatch(entry)
    if not found:
        return
    stage = found["stage"] or found["old_stage"]
    call = int(found["call"] or (module["old_call"] if module else 0) or 0)
    path = canonical(found["path"])
    arguments = _count(data.get("input_args", []))
    for category, tree in data.items():
        if category == "parameters" and call == 0 and isinstance(tree, dict):
            for parameter, info in tree.items():
                for _, leaf in _leaves(info):
                    yield Name("param", f"{path}.{canonical(parameter)}"), leaf
        elif (stage, category) in _KINDS:
            first = arguments if category == "input_kwargs" else 0
            for slot, info in _leaves(tree, first):
                yield Name(_KINDS[stage, category], path, slot, call), info


class Source:
    """All dumped steps, or the one that the user names."""

    def __init__(self, paths: list[Path], options: Options):
        self.left_out: list[str] = []
        folders = [folder for path in paths for folder in _folders_in(path)]
        if options.step is not None:
            steps = sorted({folder.step for folder in folders})
            folders = [folder for folder in folders if folder.step == options.step]
            if not folders:
                raise ForeignFileError(
                    f"{paths[0]} has no step {options.step}; it has {', '.join(map(str, steps))}"
                )
        self._folders = sorted(folders, key=lambda folder: (folder.step, folder.rank))
        for one, other in zip(self._folders, self._folders[1:]):
            if (one.step, one.rank) == (other.step, other.rank):
                raise ForeignFileError(
                    f"{one.path} and {other.path} are both rank {one.rank} of step {one.step}; name the "
                    "folders rank0, rank1, ..., or import one of them"
                )
        self._contents = {folder: self._read(folder) for folder in self._folders}
        if not any("data_name" in leaf.info for leaves in self._contents.values() for leaf in leaves):
            raise ForeignFileError(
                f"{self._folders[0].path}/dump.json names no file of values; "
                "dump again with the task `tensor`"
            )
        self.layouts = layouts_of(max(folder.rank for folder in folders) + 1, options.axes)

    def _read(self, folder: _Folder) -> list[_Leaf]:
        file = folder.path / "dump.json"
        try:
            data = json.loads(file.read_text(encoding="utf-8"))["data"]
            return [
                _Leaf(name, entry, info)
                for entry, content in data.items()
                for name, info in _named(entry, content)
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ForeignFileError(
                f"{file} is not what msprobe writes ({first_line(error)}); it is damaged or cut off, "
                "so dump again"
            ) from None

    def tensors(self) -> Iterator[Foreign]:
        boxes = boxes_of(
            Part(folder.step, folder.rank, leaf.name, leaf.info)
            for folder, leaves in self._contents.items()
            for leaf in leaves
            if "placements" in leaf.info
        )
        for folder, leaves in self._contents.items():
            lines = _lines_of(inside(folder.path, folder.path / "stack.json"))
            absent = 0
            for leaf in leaves:
                if "data_name" not in leaf.info:
                    absent += 1
                    continue
                file = self._file(folder, leaf.info["data_name"])
                value = load_numpy(file) if file.suffix == ".npy" else load_torch(file, str(file))
                box = boxes.get((folder.step, folder.rank, leaf.name))
                yield Foreign(
                    folder.step,
                    folder.rank,
                    leaf.name,
                    value,
                    str(file),
                    box,
                    called_at=lines.get(leaf.entry, ""),
                )
            if absent:
                self.left_out.append(f"{folder.path}/dump.json has no values of {absent} tensors; left out")

    @staticmethod
    def _file(folder: _Folder, name: Any) -> Path:
        file = folder.path / "dump_tensor_data" / str(name)
        if Path(str(name)).name != str(name):
            raise ForeignFileError(
                f"{folder.path}/dump.json names the file {name}, which is not in dump_tensor_data"
            )
        if not file.exists():
            raise ForeignFileError(
                f"{folder.path}/dump.json names {file}, which is missing; copy the whole folder"
            )
        return inside(folder.path, file)


def _lines_of(file: Path) -> dict[str, str]:
    """Of every entry of a module the line of the program that calls it, where stack.json has it."""
    try:
        stacks = json.loads(file.read_text(encoding="utf-8")).values()
        return {
            entry: line
            for entries, frames in stacks
            for entry in entries
            if entry.startswith(("Module.", "Cell.")) and (line := _line_in(frames))
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # only the report's `source:` depends on it


def _line_in(frames: list[str]) -> str:
    for frame in frames:
        found = _FRAME.match(frame)
        if found and not any(library in found["file"] for library in _LIBRARIES):
            return f"{found['file']}:{found['line']}"
    return ""

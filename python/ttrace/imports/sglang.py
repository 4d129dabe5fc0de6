"""Folders of SGLang's dumper (sglang.srt.debug_utils.dumper): one .pt file for each tensor.

A file's name holds tags: `step=0___rank=1___dump_index=7___name=hidden_states___layer_id=3.pt`; earlier
versions call the step forward_pass_id or curr_step. The file holds the value, or a dictionary of value and
meta.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .foreign import Axis, Foreign, ForeignFileError, existing_folder, inside, layouts_of, listed
from .loading import load_torch
from .names import Name, canonical
from .writing import Options

_STEPS = ("step", "forward_pass_id", "curr_step")
# Tags that are no part of a tensor's name.
_KNOWN = {
    *_STEPS, "rank", "dump_index", "name", "recompute_status", "layer_id",
    "pp_rank", "tp_rank", "cp_rank", "ep_rank", "etp_rank",
}  # fmt: skip
_AXES = (
    "pp", "dp", "tp", "cp", "sp", "ep", "etp", "edp", "attn_tp", "attn_dp", "attn_cp", "moe_ep", "moe_tp",
    "moe_dp",
)  # fmt: skip
_MODULE = re.compile(r"(?P<path>.*?)\.?(?P<role>inputs|output)(?:\.(?P<rest>.+))?")


@dataclass(frozen=True)
class _Dump:
    file: Path
    tags: dict[str, str]
    step: int
    rank: int
    index: int


def _folder_of(path: Path) -> Path:
    existing_folder(path, "SGLang's dumper writes folders")
    if any(path.glob("*.pt")):
        return path
    inner = sorted({file.parent for file in path.glob("*/*.pt")})
    if len(inner) == 1:
        return inner[0]
    if inner:
        raise ForeignFileError(
            f"{path} holds dumps of {len(inner)} runs; pass one of them, such as {inner[-1]}"
        )
    raise ForeignFileError(
        f"{path} holds no .pt file; pass the folder that the dumper wrote (DUMPER_DIR/dump_...)"
    )


def _dump_of(file: Path) -> _Dump:
    tags = dict(part.split("=", 1) for part in file.stem.split("___") if "=" in part)
    step = next((tags[key] for key in _STEPS if key in tags), "")
    numbers = (step, tags.get("rank", ""), tags.get("dump_index", ""))
    if "name" not in tags or not all(re.fullmatch(r"[0-9]{1,9}", number) for number in numbers):
        raise ForeignFileError(
            f"{file} is no dump of SGLang: its name must hold step, rank, dump_index and name, as in "
            "step=0___rank=0___dump_index=1___name=x.pt; remove it from the folder"
        )
    return _Dump(file, tags, *map(int, numbers))


def _name_of(tags: dict[str, str], is_data: bool) -> Name:
    text, kind = tags["name"], "output"
    is_gradient = text.startswith("grad__")
    text = text.removeprefix("grad__")
    slot = 0
    if text.startswith("param__"):
        text, kind = text.removeprefix("param__"), "param"
    elif text.startswith("non_intrusive__"):
        text = text.removeprefix("non_intrusive__")
        if found := _MODULE.fullmatch(text):
            rest = found["rest"] or ""
            kind = "input" if found["role"] == "inputs" else "output"
            slot = int(rest) if rest.isdigit() else 0
            inner = [rest] if rest and not rest.isdigit() else []
            text = ".".join([found["path"] or "root", *inner])
    elif "layer_id" in tags:
        text = f"layers.{tags['layer_id']}.{text}"
    more = [f"{key}-{value}" for key, value in tags.items() if key not in _KNOWN]
    if is_gradient:
        kind = {"param": "main_grad", "input": "grad_input"}.get(kind, "grad_output")
    elif is_data and kind != "param":
        kind = "data"
    recompute = tags.get("recompute_status") == "recompute"
    return Name(kind, canonical(".".join([text, *more])), slot, recompute=recompute)


class Source:
    """All dumped steps, or the one that the user names."""

    def __init__(self, paths: list[Path], options: Options):
        self.left_out: list[str] = []
        folders = [_folder_of(path) for path in paths]
        dumps = [_dump_of(inside(folder, file)) for folder in folders for file in folder.glob("*.pt")]
        if options.step is not None:
            steps = sorted({dump.step for dump in dumps})
            dumps = [dump for dump in dumps if dump.step == options.step]
            if not dumps:
                raise ForeignFileError(
                    f"{folders[0]} has no step {options.step}; it has {', '.join(map(str, steps))}"
                )
        self._dumps = sorted(dumps, key=lambda dump: (dump.step, dump.rank, dump.index))
        ranks = max(dump.rank for dump in dumps) + 1
        self.layouts = (None if options.axes else self._axes(ranks)) or layouts_of(ranks, options.axes)

    def _axes(self, ranks: int) -> list[list[Axis]] | None:
        """What the programs wrote about themselves. None where they wrote nothing, or not of every rank."""
        infos: dict[int, dict[str, Any]] = {}
        for dump in self._dumps:
            if dump.rank not in infos:
                infos[dump.rank] = self._parallel(_content(dump.file)[1])
        if len(infos) != ranks:
            return None
        layouts: list[list[Axis]] = [[] for _ in range(ranks)]
        columns: dict[tuple[int, ...], str] = {}  # coordinates of all ranks: the axis that has them
        for axis in _AXES:
            sizes = {info.get(f"{axis}_size") for info in infos.values()}
            places = tuple(infos[rank].get(f"{axis}_rank") for rank in range(ranks))
            size = next(iter(sizes))
            if len(sizes) != 1 or not isinstance(size, int) or size < 2:
                continue
            if not all(isinstance(place, int) and 0 <= place < size for place in places):
                continue
            follows = columns.setdefault(places, axis)
            for layout, place in zip(layouts, places):
                layout.append((axis, size, place, "" if follows == axis else follows))
        return layouts if any(layouts) else None

    @staticmethod
    def _parallel(meta: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for key in ("megatron_parallel_info", "sglang_parallel_info"):
            found = meta.get(key)
            merged.update(found if isinstance(found, dict) else {})
        return merged

    def tensors(self) -> Iterator[Foreign]:
        calls: dict[tuple[int, int, Name], int] = {}
        others: list[str] = []
        for dump in self._dumps:
            value, meta = _content(dump.file)
            tensor = value if isinstance(value, torch.Tensor) else None
            if isinstance(value, (bool, int, float)):
                tensor = torch.tensor(float(value), dtype=torch.float64)
            if tensor is None:
                what = type(value).__name__
                others.append(f"{dump.file.name} ({what})")
                continue
            name = _name_of(dump.tags, not (tensor.is_floating_point() or tensor.is_complex()))
            if not isinstance(value, torch.Tensor):
                name = Name("scalar", name.path)
            number = calls[dump.step, dump.rank, name] = calls.get((dump.step, dump.rank, name), -1) + 1
            name = Name(name.kind, name.path, name.slot, number, name.recompute)
            dims = meta.get("dims")
            yield Foreign(
                dump.step, dump.rank, name, tensor, str(dump.file), dims=dims if isinstance(dims, str) else ""
            )
        if others:
            self.left_out.append(f"these dumps hold no tensor and were left out: {listed(others)}")


def _content(file: Path) -> tuple[Any, dict[str, Any]]:
    content = load_torch(file, str(file))
    if isinstance(content, dict) and "value" in content and isinstance(content.get("meta", {}), dict):
        return content["value"], content.get("meta", {})
    return content, {}

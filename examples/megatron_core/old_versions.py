"""Stand-ins for what Megatron-core before 0.12 imports whether it is used or not: apex and pkg_resources."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import torch


def _version() -> tuple[int, int]:
    for folder in importlib.util.find_spec("megatron").submodule_search_locations:
        info = Path(folder) / "core" / "package_info.py"
        if info.exists():
            numbers = dict(re.findall(r"^(MAJOR|MINOR) *= *(\d+)", info.read_text(), re.MULTILINE))
            return int(numbers["MAJOR"]), int(numbers["MINOR"])
    raise ImportError("megatron-core is not installed: pip install --no-deps megatron-core==0.16.1")


class _Adam(torch.optim.AdamW):
    """apex's FusedAdam, as far as its arguments are torch's."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **unused):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


def _norms(_, overflow, lists, per_tensor=False):
    norms = torch.stack([tensor.float().norm() for tensor in lists[0]])
    return norms.norm().reshape(1), norms if per_tensor else None


def _scale(_, overflow, lists, factor):
    for source, target in zip(*lists):
        target.copy_(source * factor)


def _provide(name: str, **attributes) -> None:
    module = sys.modules[name] = types.ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    for key, value in attributes.items():
        setattr(module, key, value)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def apply() -> None:
    if _version() >= (0, 12):
        return
    if importlib.util.find_spec("pkg_resources") is None:
        import packaging.version

        _provide("pkg_resources", packaging=packaging)
    _provide("apex")
    _provide("apex.optimizers", FusedAdam=_Adam, FusedSGD=torch.optim.SGD)
    _provide(
        "apex.multi_tensor_apply",
        multi_tensor_applier=lambda operation, buffer, lists, *args: operation(0, buffer, lists, *args),
    )
    _provide("amp_C", multi_tensor_l2norm=_norms, multi_tensor_scale=_scale)

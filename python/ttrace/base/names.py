"""Canonical paths: names of modules and parameters without the parts that wrappers insert."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import torch

from .compiled import is_compiled

log = logging.getLogger("ttrace")

# Parts of names that wrappers insert: torch.compile, activation checkpointing, FSDP1, DDP.
_INSERTED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def canonical(name: str) -> str:
    """`name` without inserted parts; only letters, digits, ``_`` and ``-`` remain."""
    parts = [part for part in name.split(".") if part and part not in _INSERTED]
    return ".".join(_FORBIDDEN.sub("_", part) for part in parts)


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """What wrappers that insert a part of a name stand for."""
    inner = next((module._modules[name] for name in _INSERTED if name in module._modules), None)
    return module if inner is None else unwrapped(inner)


def traced_modules(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Canonical paths and modules below `root`, which itself has the empty path.

    A compiled region counts as one module. A wrapper and the module that it wraps count as one, too; the
    wrapper's call is the outer one. A module that is registered twice has its first name.
    """
    seen: set[str] = set()
    hidden: list[str] = []
    for name, module in root.named_modules():
        if any(name.startswith(prefix) for prefix in hidden):
            continue
        if is_compiled(module):
            hidden.append(name + "." if name else "")
        path = canonical(name)
        if path in seen:
            continue
        seen.add(path)
        yield path, module

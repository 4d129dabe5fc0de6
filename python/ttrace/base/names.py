"""Canonical paths: names of modules and parameters without the parts that wrappers insert."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import torch

log = logging.getLogger("ttrace")

# Parts of names that wrappers insert: torch.compile, activation checkpointing, FSDP1, DDP.
_INSERTED = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def canonical(name: str) -> str:
    """`name` without inserted parts; only letters, digits, ``_`` and ``-`` remain."""
    parts = [part for part in name.split(".") if part and part not in _INSERTED]
    return ".".join(_FORBIDDEN.sub("_", part) for part in parts)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether its forward runs as one compiled region: hooks inside of it would change the region."""
    return type(module).__name__ == "OptimizedModule"


def is_compiled_in_place(module: torch.nn.Module) -> bool:
    """Whether Module.compile() has compiled it, and its own hooks with it."""
    return getattr(module, "_compiled_call_impl", None) is not None


def traced_modules(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Canonical paths and modules below `root`, which itself has the empty path.

    A compiled region counts as one module, and a warning says so. A wrapper and the module that it wraps
    count as one, too; the wrapper's call is the outer one. A module that is registered twice has its first
    name.
    """
    seen: set[str] = set()
    hidden: list[str] = []
    for name, module in root.named_modules():
        if any(name.startswith(prefix) for prefix in hidden):
            continue
        if is_compiled(module) or is_compiled_in_place(module):
            hidden.append(name + "." if name else "")
            log.warning(
                "ttrace: %s is compiled: %s",
                name or "the whole model",
                "its inputs and outputs are traced, but the tensors inside are not"
                if is_compiled(module)
                else "it is not traced; use torch.compile(module) instead of module.compile(), or do not compile "
                "it in the traced step",
            )
            if is_compiled_in_place(module):
                continue
        path = canonical(name)
        if path in seen:
            continue
        seen.add(path)
        yield path, module

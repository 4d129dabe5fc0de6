"""Where the code of modules stands."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence

import torch

from .compiled import original
from .values import Site

def sources_of(sites: Sequence[Site]) -> dict[str, str]:
    """Texts such as "model.py:88 (Attention)" by path."""
    return {site.path: text for site in sites if (text := _source(site.module))}


def _source(module: torch.nn.Module) -> str:
    """File, line of `forward` and class. Empty for torch's own modules: their names say where they are."""
    kind = type(original(module))
    code = getattr(inspect.unwrap(kind.forward), "__code__", None)
    if code is None or code.co_filename.startswith(os.path.dirname(torch.__file__)):
        return ""
    return f"{shown(code.co_filename)}:{code.co_firstlineno} ({kind.__qualname__})"


def shown(file: str) -> str:
    """Relative to the working folder, if the file lies below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative

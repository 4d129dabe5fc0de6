"""Where the code of modules stands."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence

import torch

from .compiled import original
from .values import Site

_NUMBER = re.compile(r"(^|\.)\d+(?=\.|$)")


def sources_of(sites: Sequence[Site]) -> dict[str, str]:
    """Texts such as "model.py:88 (Attention)" by path. Paths that are equal up to numbers share one, with ``*``
    for the numbers, unless their code stands in different places."""
    texts = {site.path: text for site in sites if (text := _source(site.module))}
    by_pattern: dict[str, set[str]] = {}
    for path, text in texts.items():
        by_pattern.setdefault(_pattern(path), set()).add(text)
    return {
        (_pattern(path) if len(by_pattern[_pattern(path)]) == 1 else path): text
        for path, text in texts.items()
    }


def _pattern(path: str) -> str:
    return _NUMBER.sub(r"\1*", path)


def _source(module: torch.nn.Module) -> str:
    """File, line of `forward` and class. Empty for torch's own modules: their names say where they are."""
    kind = type(original(module))
    code = getattr(inspect.unwrap(kind.forward), "__code__", None)
    if code is None or code.co_filename.startswith(os.path.dirname(torch.__file__)):
        return ""
    return f"{_shown(code.co_filename)}:{code.co_firstlineno} ({kind.__qualname__})"


def _shown(file: str) -> str:
    """Relative to the working folder, if the file lies below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative

"""Parameters that a model uses under several names, such as a head that shares the embedding's weight.

A trace has such a parameter once, under its first name; ties.json in its folder says which other names it has. Wrappers
that make new parameters break a tie, silently: the copies begin alike and drift apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from .names import canonical

_FILE = "ties.json"


def ties_in(model: torch.nn.Module) -> dict[str, str]:
    """The first name of a parameter, by each of its further ones."""
    first: dict[int, str] = {}
    ties = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        path = canonical(name)
        known = first.setdefault(id(parameter), path)
        if known != path:
            ties[path] = known
    return ties


def write_ties(folder: str, ties: Mapping[str, str]) -> None:
    if ties:
        Path(folder, _FILE).write_text(json.dumps(ties, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def refuse_broken_ties(reference: str, paths: Iterable[str]) -> None:
    """Raises RuntimeError where two of the parameters are one in the trace `reference`."""
    file = Path(reference, _FILE)
    own = set(paths)
    for path, known in json.loads(file.read_text(encoding="utf-8")).items() if file.exists() else ():
        if path in own and known in own:
            raise RuntimeError(
                f"{path} is the same tensor as {known} in the reference, and a tensor of its own here: the tie is broken "
                "(parallelize_module and to_empty make new Parameters); assign it again after them, or compare the "
                "program as it is with --start own"
            )

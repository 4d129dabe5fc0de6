"""Tensors inside the arguments and results of modules: nested tuples, lists, dictionaries, dataclasses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch


def _is_named_tuple(tree: Any) -> bool:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors, in the order in which `map_tensors` visits them. Other values are skipped."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors_of(value)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            yield from tensors_of(value)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def map_tensors(tree: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same tree with `function` applied to every tensor.

    Where `function` changes nothing, tensors and containers stay the same objects, so that a program that
    compares identities sees no difference.
    """
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return _map_items(tree, list(tree.items()), function)
    if isinstance(tree, (tuple, list)):
        values = [map_tensors(value, function) for value in tree]
        if all(new is old for new, old in zip(values, tree)):
            return tree
        return type(tree)(*values) if _is_named_tuple(tree) else type(tree)(values)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        changed = None
        for field in dataclasses.fields(tree):
            old = getattr(tree, field.name)
            new = map_tensors(old, function)
            if new is not old:
                changed = copy.copy(tree) if changed is None else changed
                object.__setattr__(changed, field.name, new)
        return tree if changed is None else changed
    return tree


def _map_items(tree: dict, items: list, function: Callable[[torch.Tensor], torch.Tensor]) -> dict:
    changed = None
    for key, old in items:
        new = map_tensors(old, function)
        if new is not old:
            changed = copy.copy(tree) if changed is None else changed
            changed[key] = new
    return tree if changed is None else changed

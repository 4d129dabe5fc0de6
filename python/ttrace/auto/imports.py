"""Runs something once a module has been imported. This file is loaded by its path, before torch or ttrace is."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds the modules that are waited for as the other finders do, and acts when they have run."""

    def __init__(self) -> None:
        self._actions: dict[str, Action] = {}

    def wait(self, name: str, action: Action) -> None:
        self._actions[name] = action

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)  # asks us again, who no longer wait for it
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Acting(spec.loader, action)
        return spec


class _Acting(importlib.abc.Loader):
    """Another loader that acts when the module has run. It stands aside then: modules are asked for their loader."""

    def __init__(self, own: Any, action: Action) -> None:
        self._own = own
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._action(module)


def _finder() -> _AfterImport:
    for finder in sys.meta_path:
        if type(finder).__name__ == _AfterImport.__name__:  # this file may have been loaded by its path and by its name
            return finder
    sys.meta_path.insert(0, finder := _AfterImport())
    return finder


def after_import(name: str, action: Action) -> None:
    """`action` gets the module when it has been imported, or now if it has been already."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        _finder().wait(name, action)

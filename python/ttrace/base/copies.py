"""Copies of the parameters that a program keeps beside its model, such as averages over steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .names import canonical
from .values import Parameter

_OF_WRAPPERS = "module."  # what torch.optim.swa_utils.AveragedModel and others put in front


class Copies:
    """What `attach` got as `copies`: models, or mappings from names to tensors, by a name for each."""

    def __init__(self, copies: Mapping[str, Any], parameters: Sequence[Parameter]):
        self._paths = {parameter.path for parameter in parameters}
        self._copies = dict(copies)
        if parameters:
            for name in self._copies:
                if not any(True for _ in self._parts_of(name)):
                    raise ValueError(
                        f'copies["{name}"] has no tensor with the name of a parameter of the model; pass a model of '
                        "the same class, or a dictionary from the parameters' names to tensors"
                    )

    def parts(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Path of the parameter, name of the copy, and what the program keeps as it."""
        for name in self._copies:
            for path, tensor in self._parts_of(name):
                yield path, canonical(name).replace(".", "_"), tensor

    def _parts_of(self, name: str) -> Iterator[tuple[str, torch.Tensor]]:
        copy = self._copies[name]
        named = copy.named_parameters() if isinstance(copy, torch.nn.Module) else copy.items()
        for key, tensor in named:
            path = canonical(key)
            if path not in self._paths:
                path = path.removeprefix(_OF_WRAPPERS)
            if path in self._paths and isinstance(tensor, torch.Tensor):
                yield path, tensor

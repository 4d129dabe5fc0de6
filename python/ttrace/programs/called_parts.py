"""Micro-batches of programs that call modules of a model, and never the model itself."""

from __future__ import annotations

from typing import Any

import torch

from ..base.trees import tensors_of


class Parts:
    """Calls of a model's modules that began a micro-batch, because the program does not call the model itself. The
    first one after their backward begins the next."""

    def __init__(self) -> None:
        self.went_back = False

    def wait_for_backward(self, output: Any) -> None:
        for tensor in tensors_of(output):
            if tensor.requires_grad and torch.is_grad_enabled():
                tensor.register_hook(self._goes_back)

    def _goes_back(self, gradient: torch.Tensor) -> None:
        del gradient
        self.went_back = True

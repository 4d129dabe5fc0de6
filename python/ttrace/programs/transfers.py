"""What one pipeline stage sends to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base.recorder import Recorder
from ..base.trees import tensors_of
from .plain import PlainProgram


def record_transfer(
    recorder: Recorder, record: Callable[[str, torch.Tensor], None], program: PlainProgram, to: int, tree: Any
) -> None:
    """Records the first tensor of `tree`, which the stage with the number `to` receives, by `recorder.sent` or
    `recorder.received`."""
    tensor = next(tensors_of(tree), None)
    if tensor is None or not tensor.is_floating_point():
        return
    path = f"to_stage_{to}"
    dims = program.data_dims(path, tensor)
    if dims is not None:
        recorder.derive(path, "value", 0, dims)
    record(path, tensor)

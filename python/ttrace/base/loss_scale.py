"""The factor that a program multiplies its loss by, so that gradients in F16 do not vanish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .unseen import unseen


def loss_scale_of(optimizer: Any, scaler: Any = None) -> Callable[[], float]:
    """What reads the scale now. `scaler` is a torch.amp.GradScaler; None: that of the optimizer's wrapper, or
    what Megatron-core's optimizers say of theirs (`get_loss_scale`). A program without any has the scale 1."""
    if scaler is None:
        scaler = getattr(optimizer, "scaler", None)
    read = getattr(scaler, "get_scale", None) or getattr(optimizer, "get_loss_scale", None)
    if read is None:
        return lambda: 1.0

    def scale() -> float:
        with unseen():
            return float(read())

    return scale

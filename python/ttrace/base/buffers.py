"""The buffers of a model that its next forward reads."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn.modules.batchnorm import _NormBase


def kept_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All but the number of batches of a norm that has a momentum: nothing reads it, and a forward that recomputation
    repeats counts in it, whether or not the statistics stay as they are."""
    unread = {
        id(module.num_batches_tracked)
        for module in model.modules()
        if isinstance(module, _NormBase) and module.momentum is not None
    }
    yield from ((name, buffer) for name, buffer in model.named_buffers() if id(buffer) not in unread)

"""What tracing does itself, hidden from the program's modes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """The program's dispatch and function modes do not see what runs within: a mode that counts operators,
    or saves and replays them as selective checkpointing does, finds only the program's own."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield

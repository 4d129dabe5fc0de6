"""What tracing does itself, hidden from the program's modes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Operators on plain tensors pass by the program's dispatch and function modes: a mode that counts
    operators, or saves and replays them as selective checkpointing does, finds only the program's own.

    Operators on tensors that Python wraps do not work within.
    """
    with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_MODES):
        yield

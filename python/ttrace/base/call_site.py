"""Where the program calls what is traced."""

from __future__ import annotations

import os
import sysconfig
from types import FrameType

import torch

from .sources import shown

_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = ("site-packages", "dist-packages")
_SKIPPED = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep
    for file in (torch.__file__, os.path.dirname(os.path.abspath(__file__)))
)
_BACKWARD = "_engine_run_backward"  # the function of torch's that calls the engine of autograd

_own: dict[str, bool] = {}  # by file name: whether it is code of the program


def call_site(frame: FrameType | None) -> str:
    """File and line of the innermost frame that is neither torch's, nor ours, nor of Python's library.

    Empty within backward where no function of the program runs: only the forward operator has a line then.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        own = _own.get(file)
        if own is None:
            own = _own[file] = _is_own(file)
        if own:
            return f"{shown(file)}:{frame.f_lineno}"
        if frame.f_code.co_name == _BACKWARD:
            return ""
        frame = frame.f_back
    return ""


def _is_own(file: str) -> bool:
    if file.startswith("<") or file.startswith(_SKIPPED):
        return False
    return not file.startswith(_STDLIB) or any(f"{os.sep}{name}{os.sep}" in file for name in _PACKAGES)

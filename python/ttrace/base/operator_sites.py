"""Reports to the C++ library where the program calls operators.

The library asks only in zoom passes (TTRACE_ZOOM), on whatever thread the operator runs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from .call_site import call_site

_TYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_callback = None  # must outlive the library's use of it


def are_asked() -> bool:
    """Whether this is a zoom pass."""
    return bool(os.environ.get("TTRACE_ZOOM"))


def install(library: Path) -> None:
    """From here on `library`, which is loaded, knows where Python calls operators."""
    global _callback
    if _callback is None:
        _callback = _TYPE(_answer)
    ctypes.CDLL(str(library)).ttrace_set_call_site_provider(_callback)


def remove(library: Path) -> None:
    ctypes.CDLL(str(library)).ttrace_set_call_site_provider(None)


def _answer(text: int, size: int) -> int:
    site = call_site(sys._getframe(1)).encode()[:size]
    ctypes.memmove(text, site, len(site))
    return len(site)

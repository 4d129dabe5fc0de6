"""Finds libttrace_torch.so and loads it into the torch that is running.

The library registers TorchScript classes under ``torch.classes.ttrace``; no Python header was needed
to build it, so one build serves every version of Python. It does depend on the C++ interface of torch,
which changes between minor versions.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

# Its name does not begin with TTRACE_: `ttrace check` passes on only those variables that it sets itself.
_LIBRARY_VARIABLE = "LIBTTRACE_TORCH"
_FOLDER = Path(__file__).parent / "lib"
_NAME = "libttrace_torch.so"


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _check_version(folder: Path) -> None:
    stamp = folder / "built_for.json"
    if not stamp.exists():
        return
    built = json.loads(stamp.read_text(encoding="utf-8"))["torch"]
    if _minor(built) != _minor(torch.__version__):
        raise ImportError(
            f"ttrace was built for torch {_minor(built)}, but this is torch {torch.__version__}; install "
            f"torch {_minor(built)}, or rebuild ttrace against this one with "
            "`pip install --no-build-isolation --force-reinstall .` in its sources"
        )


def library_path() -> Path:
    """The shared library that `load` loads. Raises ImportError where there is none."""
    named = os.environ.get(_LIBRARY_VARIABLE)
    path = Path(named) if named else _FOLDER / _NAME
    if not path.exists():
        origin = f"{_LIBRARY_VARIABLE} names it" if named else "it belongs to this package"
        raise ImportError(
            f"{path} does not exist ({origin}); install the package with `pip install .`, or set "
            f"{_LIBRARY_VARIABLE} to the library of a build folder"
        )
    return path


def load() -> None:
    """Loads the library once. Raises ImportError with the remedy where that is impossible."""
    path = library_path()
    _check_version(path.parent)
    try:
        torch.classes.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"{path} cannot be loaded into torch {torch.__version__}: {error}; if it was built for another "
            "version of torch, rebuild it"
        ) from error

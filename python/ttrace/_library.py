"""Finds libttrace_torch.so and loads it into the torch that is running.

The library registers TorchScript classes under ``torch.classes.ttrace``; no Python header was needed
to build it, so one build serves every version of Python. It does depend on the C++ interface of torch,
which changes between minor versions. The package therefore has one for each torch that it was made for, in
``lib/torch-2.13/`` for torch 2.13, and compiles one for any other torch when it is first imported. All of
them share ``lib/libttrace.so``, which knows no torch.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch

from ._adapter import NAME as _NAME
from ._adapter import CannotCompile, cached_adapter

# Its name does not begin with TTRACE_: `ttrace check` passes on only those variables that it sets itself.
_LIBRARY_VARIABLE = "LIBTTRACE_TORCH"
_FOLDER = Path(__file__).parent / "lib"
_CORE = "libttrace.so"
_PREFIX = "torch-"


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _served() -> list[str]:
    """The minor versions of torch that the package has a library for, the oldest first."""
    found = (path.parent.name.removeprefix(_PREFIX) for path in _FOLDER.glob(f"{_PREFIX}*/{_NAME}"))
    return sorted(found, key=lambda minor: [int(part) for part in minor.split(".")])


def library_path() -> Path:
    """The shared library that `load` loads. Raises ImportError where there is none."""
    named = os.environ.get(_LIBRARY_VARIABLE)
    if named:
        if not Path(named).exists():
            raise ImportError(
                f"{named} does not exist ({_LIBRARY_VARIABLE} names it); set {_LIBRARY_VARIABLE} to the "
                "library of a build folder, or unset it to use the package's own"
            )
        return Path(named)
    present = _minor(torch.__version__)
    served = _served()
    if present in served:
        return _FOLDER / f"{_PREFIX}{present}" / _NAME
    core = _FOLDER / _CORE
    if not core.exists():
        raise ImportError(
            f"{_FOLDER} has no {_CORE}; install the package with `pip install .`, or set {_LIBRARY_VARIABLE} "
            f"to the {_NAME} of a build folder"
        )
    try:
        return cached_adapter(Path(__file__).parent / "adapter", core, Path(torch.__file__).parent, torch.__version__)
    except CannotCompile as reason:
        versions = " and ".join(filter(None, [", ".join(served[:-1]), *served[-1:]])) or "no version of torch"
        raise ImportError(
            f"this is torch {torch.__version__}, but this ttrace has libraries for {versions}, and as to one for "
            f"{present}, {reason}; install a C++ compiler, or one of these versions of torch"
        ) from None


def _name_cuda_kernels() -> None:
    """Tells the library, which opens them when it meets the first CUDA tensor, where `ttrace-torch-cuda` has put the kernels."""
    kernels = importlib.util.find_spec("ttrace_cuda")
    for folder in (kernels and kernels.submodule_search_locations) or []:
        os.environ.setdefault("LIBTTRACE_CUDA", str(Path(folder) / "libttrace_cuda.so"))


def load() -> None:
    """Loads the library once. Raises ImportError with the remedy where that is impossible."""
    path = library_path()
    _name_cuda_kernels()
    try:
        torch.classes.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"{path} cannot be loaded into torch {torch.__version__}: {error}; if it was built for another "
            "version of torch, rebuild it"
        ) from error


def message_of(error: RuntimeError) -> str:
    """What the library said: torch appends a stack of C++ to it."""
    return str(error).split("\nException raised from")[0]

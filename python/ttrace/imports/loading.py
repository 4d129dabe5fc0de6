"""Reads torch's and numpy's files without running what a pickle says, and fits values into a trace."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import torch

from .foreign import ForeignFileError, first_line, require_package

_STORED = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
    torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
)  # fmt: skip
# Types of which a trace has none, and one that holds all their values.
_WIDER = {
    torch.int8: torch.int32, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64,
    torch.float8_e4m3fnuz: torch.float32, torch.float8_e5m2fnuz: torch.float32,
}  # fmt: skip


def load_torch(file: Path | bytes, origin: str) -> Any:
    """What torch.save wrote, of tensors, numbers, texts and containers of these. Nothing else is made."""
    try:
        source = io.BytesIO(file) if isinstance(file, bytes) else file
        return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a hostile or damaged file makes torch raise
        text = str(error).split("WeightsUnpickler error:")[-1]
        if found := re.search(r"GLOBAL ([\w.]+)", text):
            raise ForeignFileError(
                f"{origin} holds an object of {found.group(1)} that is neither tensor, number nor text, and "
                "TTrace runs no code of a pickle; leave the file out, or save tensors alone"
            ) from None
        cause = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
        raise ForeignFileError(
            f"{origin} cannot be read as a file of torch.save: {cause}; it is damaged, cut off, or of "
            "another format"
        ) from None


def load_numpy(file: Path) -> torch.Tensor:
    require_package("numpy", "reading .npy files")
    import numpy as np

    try:
        array = np.load(file, allow_pickle=False)
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("="))
    except Exception as error:  # whatever a damaged file makes numpy raise
        is_pickle = "allow_pickle" in str(error)
        reason = "it holds a pickle, and TTrace runs no code of one" if is_pickle else first_line(error)
        raise ForeignFileError(
            f"{file} cannot be read as a .npy file: {reason}; save it again with numpy.save"
        ) from None
    try:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    except TypeError:
        raise ForeignFileError(
            f"{file} holds elements of numpy's type {array.dtype.str}, which no tensor has; save it in "
            "another type (BF16 and FP8 in a .safetensors file)"
        ) from None


def storable(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same values in a type that a trace has; None where there is no such type."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype in _STORED:
        return plain
    if plain.dtype in _WIDER:
        return plain.to(_WIDER[plain.dtype])
    if plain.dtype is torch.uint64 and not bool((plain.view(torch.int64) < 0).any()):
        return plain.view(torch.int64)
    return None

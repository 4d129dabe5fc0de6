"""The precisions in which programs compute, as programs spell them."""

from __future__ import annotations

import torch

from .values import PRECISIONS

# In which each precision keeps parameters and activations.
_TYPES = {
    **{name: dtype for dtype, name in PRECISIONS.items()},
    "fp8": torch.bfloat16,
    "fp8_f32": torch.float32,
}
_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "f16",
    "half": "f16",
    "fp16": "f16",
    "float32": "f32",
    "float": "f32",
    "fp32": "f32",
    "float64": "f64",
    "double": "f64",
    "fp64": "f64",
}


def precision_named(own: str | torch.dtype) -> str:
    """TTrace's name of a precision that a program gives as a type of torch or in a usual spelling. Raises
    ValueError with the choices."""
    text = str(own).removeprefix("torch.").lower()
    name = _SPELLINGS.get(text, text)
    if name not in _TYPES:
        raise ValueError(
            f"ttrace.precision got {own!r}; pass torch.float64, torch.float32, torch.bfloat16 or torch.float16, "
            f"or one of {', '.join(_TYPES)}"
        )
    return name


def dtype_of(precision: str) -> torch.dtype:
    """The type of parameters and activations in this precision."""
    return _TYPES[precision]


def mismatch(own: str, parameters: str) -> str:
    """What to write in a program that asks for `own` while its parameters have another precision."""
    return (
        f'the program passes "{own}" to ttrace.precision, but its parameters are {parameters}; pass "{parameters}", '
        "make the parameters with it, and let autocast or MixedPrecisionPolicy follow it (docs/python.md, Mixed "
        "precision)"
    )

"""Lets Megatron-core's optimizer hold doubles, in which a check in higher precision computes.

The package compares Tensor.type() with the names of the types that it takes, of which none is a double's.
"""

from __future__ import annotations

import torch


def apply(precision: str) -> None:
    """Nothing happens where `precision` is not "f64"."""
    if precision != "f64":
        return
    own_type = torch.Tensor.type

    def as_float(self, *args, **kwargs):
        named = own_type(self, *args, **kwargs)
        return named if args or kwargs else named.replace("Double", "Float")

    torch.Tensor.type = as_float

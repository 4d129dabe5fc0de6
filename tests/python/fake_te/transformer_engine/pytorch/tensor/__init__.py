"""Tensors that look like BF16 or F32 and hold FP8 codes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map


class QuantizedTensor(torch.Tensor):
    """Every operation sees the values that the codes stand for."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        aten = torch.ops.aten
        if func is aten.detach.default:
            return args[0].alias()
        if func is aten.copy_.default and isinstance(args[0], QuantizedTensor):
            return args[0].quantize_(args[1])
        args, kwargs = tree_map(
            lambda item: item.dequantize() if isinstance(item, QuantizedTensor) else item,
            (args, kwargs or {}),
        )
        return func(*args, **kwargs)


class Float8Tensor(QuantizedTensor):
    """One scale for the whole tensor: value = code x `_scale_inv`."""

    @staticmethod
    def __new__(
        cls,
        *,
        shape: Any,
        dtype: torch.dtype,
        data: torch.Tensor,
        fp8_scale_inv: torch.Tensor,
        fp8_dtype: torch.dtype,
        quantizer: Float8Quantizer | None = None,
        requires_grad: bool = False,
    ):
        self = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, requires_grad=requires_grad, device=data.device
        )
        self._data = data
        self._scale_inv = fp8_scale_inv
        self._fp8_dtype = fp8_dtype
        self._quantizer = quantizer
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Float8Tensor(scale_inv={self._scale_inv.item()}, data={self.dequantize()})"

    def dequantize(self, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        values = self._data.view(self._fp8_dtype).float() * self._scale_inv
        return values.to(dtype or self.dtype)

    def quantize_(self, tensor: torch.Tensor) -> Float8Tensor:
        new = self._quantizer(tensor)
        self._data.copy_(new._data)
        self._scale_inv.copy_(new._scale_inv)
        return self

    def alias(self) -> Float8Tensor:
        """The same codes without a history."""
        return self.with_data(self._data)

    def with_data(self, data: torch.Tensor) -> Float8Tensor:
        """Other codes that mean what these mean."""
        return Float8Tensor(
            shape=data.shape,
            dtype=self.dtype,
            data=data,
            fp8_scale_inv=self._scale_inv,
            fp8_dtype=self._fp8_dtype,
            quantizer=self._quantizer,
        )


class Float8Quantizer:
    """Codes are round(x * scale). `amax` keeps the largest magnitude until the scale is updated."""

    def __init__(self, scale: torch.Tensor, amax: torch.Tensor, fp8_dtype: torch.dtype):
        self.scale = scale
        self.amax = amax
        self.dtype = fp8_dtype

    def __call__(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> Float8Tensor:
        """`dtype`: what the codes look like; that of the tensor if it is left out."""
        with torch.no_grad():
            wide = tensor.detach().float()
            self.amax.copy_(torch.maximum(self.amax, wide.abs().amax().view(1)))
            largest = torch.finfo(self.dtype).max
            codes = (wide * self.scale).clamp(-largest, largest).to(self.dtype)
            return Float8Tensor(
                shape=tensor.shape,
                dtype=dtype or tensor.dtype,
                data=codes.view(torch.uint8),
                fp8_scale_inv=self.scale_inv(),
                fp8_dtype=self.dtype,
                quantizer=self,
            )

    def scale_inv(self) -> torch.Tensor:
        return self.scale.reciprocal().view(1)

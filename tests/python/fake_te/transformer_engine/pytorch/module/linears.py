"""Linears, with the communication that tensor and sequence parallelism put around them."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from .. import distributed
from ..fp8 import FP8GlobalStateManager
from ..tensor import Float8Quantizer, Float8Tensor
from .base import TransformerEngineBaseModule
from .norms import normalise

IS_OPAQUE = os.environ.get("FAKE_TE_MATHS") == "opaque"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.dequantize(dtype=torch.float32) if isinstance(tensor, Float8Tensor) else tensor


def _linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """x W^T + b, rounded once."""
    x, weight = _plain(x), _plain(weight)
    if IS_OPAQUE:
        result = torch.from_numpy(x.float().numpy() @ weight.float().numpy().T)
        return (result if bias is None else result + bias.float()).to(dtype)
    return F.linear(x, weight, None if bias is None else bias.to(x.dtype)).to(dtype)


def _gathered(tensor: torch.Tensor, layer: Any) -> torch.Tensor:
    if isinstance(tensor, Float8Tensor):
        return tensor.with_data(distributed.gather_along_first_dim(tensor._data, layer.tp_group)[0])
    return distributed.gather_along_first_dim(tensor, layer.tp_group)[0]


def _summed(tensor: torch.Tensor, layer: Any) -> torch.Tensor:
    if layer.tp_size == 1:
        return tensor
    if layer.sequence_parallel:
        return distributed.reduce_scatter_along_first_dim(tensor, layer.tp_group)[0]
    return distributed.allreduce(tensor, layer.tp_group)[0]


class _Linear(torch.autograd.Function):
    """Takes and returns this rank's part; `dtype` is that of activations (x may be wider, after a norm)."""

    @staticmethod
    def forward(ctx, x, weight, bias, layer, dtype, is_first_microbatch):
        ctx.gathers = layer.parallel_mode == "column" and layer.sequence_parallel
        ctx.wide, x_of_product, weight_of_product = x.dtype, x.to(dtype), weight
        if layer.fp8:
            ofs = layer.quantizers["scaling_fwd"]
            x_of_product = ofs[0](x, dtype)
            name = None if is_first_microbatch is None else "weight"
            weight_of_product = layer.get_weight_workspace(weight, ofs[1], name, is_first_microbatch)
        ctx.is_first_module = layer.fp8 and layer.fp8_meta["is_first_module"]
        ctx.layer, ctx.dtype, ctx.has_bias = layer, dtype, bias is not None
        ctx.operands = (x_of_product, weight_of_product)
        whole = _gathered(x_of_product, layer) if ctx.gathers else x_of_product
        is_row = layer.parallel_mode == "row"
        y = _linear(whole, weight_of_product, None if is_row else bias, dtype)
        if is_row:
            y = _summed(y, layer)
            y = y if bias is None else y + bias
        return y

    @staticmethod
    def backward(ctx, gradient):
        layer, (x, weight) = ctx.layer, ctx.operands
        is_row = layer.parallel_mode == "row"
        grad_bias = None
        if ctx.has_bias:
            wide = gradient.flatten(0, -2).to(torch.promote_types(ctx.dtype, torch.float32))
            grad_bias = wide.sum(0).to(ctx.dtype)
        if layer.fp8:
            gradient = layer.quantizers["scaling_bwd"][0](gradient, ctx.dtype)
        if is_row and layer.sequence_parallel:
            gradient = _gathered(gradient, layer)
        gradient, x = _plain(gradient), _plain(_gathered(x, layer) if ctx.gathers else x)
        grad_x = _linear(gradient, _plain(weight).t(), None, ctx.dtype)
        grad_weight = _linear(gradient.flatten(0, -2).t(), x.flatten(0, -2).t(), None, ctx.dtype)
        if layer.parallel_mode == "column":
            grad_x = _summed(grad_x, layer)
        if ctx.is_first_module:  # in forward, and so the last one in backward
            FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=False)
        return grad_x.to(ctx.wide), grad_weight, grad_bias, None, None, None


def _mark(weight: torch.nn.Parameter, dim: int) -> None:
    weight.tensor_model_parallel, weight.partition_dim, weight.partition_stride = True, dim, 1


def _weight(shape: tuple[int, int], init_method: Callable | None, **options: Any) -> torch.nn.Parameter:
    weight = torch.empty(shape, **options)
    with torch.no_grad():
        (init_method or (lambda tensor: tensor.normal_(0.0, 0.023)))(weight)
    if FP8GlobalStateManager.with_fp8_parameters():
        weight = Float8Quantizer(torch.ones(()), torch.zeros(1), torch.float8_e4m3fn)(weight)
    return torch.nn.Parameter(weight)


class Linear(TransformerEngineBaseModule):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Callable | None = None,
        init_method: Callable | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        parameters_split: Any = None,
        device: Any = "cpu",
        ub_overlap_ag: bool = False,
        ub_overlap_rs: bool = False,
        ub_name: str | None = None,
        symmetric_ar_type: str | None = None,
        rng_tracker_name: str | None = None,
    ):
        super().__init__()
        self.tp_group, self.tp_size, self.parallel_mode = tp_group, tp_size, parallel_mode
        self.in_features = in_features // (tp_size if parallel_mode == "row" else 1)
        self.out_features = out_features // (tp_size if parallel_mode == "column" else 1)
        self.sequence_parallel = tp_size > 1 and sequence_parallel
        self.use_bias, self.return_bias = bias, return_bias
        self.ub_overlap_ag, self.ub_overlap_rs, self.ub_name = ub_overlap_ag, ub_overlap_rs, ub_name
        self.symmetric_ar_type = symmetric_ar_type
        options = {"dtype": params_dtype, "device": device}
        self.weight = _weight((self.out_features, self.in_features), init_method, **options)
        self.bias = torch.nn.Parameter(torch.zeros(self.out_features, **options)) if bias else None
        _mark(self.weight, 1 if parallel_mode == "row" else 0)  # whatever the mode, as the real one does
        if bias and parallel_mode == "column":
            _mark(self.bias, 0)
        if bias and parallel_mode == "row":
            self.bias.sequence_parallel = self.sequence_parallel

    def forward(self, inp: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        self.init_fp8_metadata()
        return self._returned(self._product(inp, inp.dtype, is_first_microbatch))

    def _product(self, x: torch.Tensor, dtype: torch.dtype, is_first_microbatch: bool | None) -> torch.Tensor:
        bias = None if self.return_bias else self.bias
        return _Linear.apply(x, self.weight, bias, self, dtype, is_first_microbatch)

    def _returned(self, out: torch.Tensor, *more: torch.Tensor) -> Any:
        results = (out, self.bias, *more) if self.return_bias else (out, *more)
        return results if len(results) > 1 else out


class LayerNormLinear(Linear):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        normalization: str = "LayerNorm",
        params_dtype: torch.dtype | None = None,
        return_layernorm_output: bool = False,
        return_layernorm_output_gathered: bool = False,
        zero_centered_gamma: bool = False,
        device: Any = "cpu",
        ub_overlap_rs_dgrad: bool = False,
        ub_bulk_dgrad: bool = False,
        ub_bulk_wgrad: bool = False,
        **options: Any,
    ):
        super().__init__(
            in_features,
            out_features,
            sequence_parallel=sequence_parallel,
            params_dtype=params_dtype,
            device=device,
            **options,
        )
        self.ub_overlap_rs_dgrad = ub_overlap_rs_dgrad
        self.ub_bulk_dgrad, self.ub_bulk_wgrad = ub_bulk_dgrad, ub_bulk_wgrad
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        self.return_layernorm_output = return_layernorm_output
        self.return_layernorm_output_gathered = return_layernorm_output_gathered
        kind = {"dtype": params_dtype, "device": device}
        one = 0.0 if zero_centered_gamma else 1.0
        self.layer_norm_weight = torch.nn.Parameter(torch.full((in_features,), one, **kind))
        self.layer_norm_bias = (
            torch.nn.Parameter(torch.zeros(in_features, **kind)) if normalization == "LayerNorm" else None
        )
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel
        if self.layer_norm_bias is not None:
            self.layer_norm_bias.sequence_parallel = self.sequence_parallel

    def forward(self, inp: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        self.init_fp8_metadata()
        normalised = normalise(
            inp,
            self.layer_norm_weight,
            self.layer_norm_bias,
            self.normalization,
            self.eps,
            self.zero_centered_gamma,
        )
        out = self._product(normalised, inp.dtype, is_first_microbatch)
        if not self.return_layernorm_output:
            return self._returned(out)
        norm = normalised.to(inp.dtype)
        is_gathered = self.return_layernorm_output_gathered and self.sequence_parallel
        return self._returned(out, _gathered(norm, self) if is_gathered else norm)


class LayerNormMLP(TransformerEngineBaseModule):
    """A norm, a column-parallel linear, GELU and a row-parallel linear. It has no FP8 here."""

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        eps: float = 1e-5,
        sequence_parallel: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        params_dtype: torch.dtype | None = None,
        set_parallel_mode: bool = False,
        device: Any = "cpu",
    ):
        super().__init__()
        self.tp_group, self.tp_size, self.eps = tp_group, tp_size, eps
        self.set_parallel_mode = set_parallel_mode
        self.sequence_parallel = tp_size > 1 and sequence_parallel
        options = {"dtype": params_dtype, "device": device}
        mine = ffn_hidden_size // tp_size
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(hidden_size, **options))
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(hidden_size, **options))
        self.fc1_weight = _weight((mine, hidden_size), None, **options)
        self.fc1_bias = torch.nn.Parameter(torch.zeros(mine, **options))
        self.fc2_weight = _weight((hidden_size, mine), None, **options)
        self.fc2_bias = torch.nn.Parameter(torch.zeros(hidden_size, **options))
        for parameter in (self.layer_norm_weight, self.layer_norm_bias, self.fc2_bias):
            parameter.sequence_parallel = self.sequence_parallel
        for parameter, dim in ((self.fc1_weight, 0), (self.fc1_bias, 0), (self.fc2_weight, 1)):
            _mark(parameter, dim)

    def forward(self, inp: torch.Tensor) -> torch.Tensor:
        x = normalise(inp, self.layer_norm_weight, self.layer_norm_bias, "LayerNorm", self.eps, False)
        x = _Linear.apply(x, self.fc1_weight, self.fc1_bias, self._side("column"), inp.dtype, None)
        x = F.gelu(x)
        return _Linear.apply(x, self.fc2_weight, self.fc2_bias, self._side("row"), inp.dtype, None)

    def _side(self, parallel_mode: str) -> SimpleNamespace:
        return SimpleNamespace(
            parallel_mode=parallel_mode,
            sequence_parallel=self.sequence_parallel,
            tp_group=self.tp_group,
            tp_size=self.tp_size,
            fp8=False,
        )


class GroupedLinear(TransformerEngineBaseModule):
    """megatron-core derives classes from it; nothing here multiplies by experts."""

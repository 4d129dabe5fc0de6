"""Where tensors of tensor-parallel layers lie by their attributes, and what is read of FP8."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from ttrace.base import quantised
from ttrace.base.layout import Layout
from ttrace.base.values import Dims
from ttrace.programs.parallel_layers import is_parallel_layer, layer_dims

sys.path.insert(0, str(Path(__file__).parent / "fake_te"))
import transformer_engine.pytorch as te
from transformer_engine.pytorch.tensor import Float8Quantizer

WHOLE, CUT = "s[cp:zigzag]", "s[cp:zigzag,sp]"


def tp2(**axes: int) -> Layout:
    layout = Layout(world_size=2)
    for name, size in {"tp": 2, **axes}.items():
        layout.add(name, size, 0)
    return layout


def linear(kind=te.Linear, mode: str | None = "column", **options) -> nn.Module:
    options = {"sequence_parallel": True, "tp_size": 2, "bias": False, **options}
    return kind(8, 16, parallel_mode=mode, params_dtype=torch.float32, **options)


def gated() -> nn.Module:
    module = linear()
    module.weight.partition_stride = 2
    return module


def returning_norm(**options) -> nn.Module:
    return linear(te.LayerNormLinear, return_layernorm_output=True, **options)


# Module, role, slot, shape, where it lies.
LINEARS = {
    "column input": (linear(), "input", 0, (4, 2, 8), Dims(f"{CUT} b h", addends=2)),
    "column input, no sp": (
        linear(sequence_parallel=False), "input", 0, (4, 2, 8), Dims(f"{WHOLE} b h", addends=2),
    ),
    "column output": (linear(), "output", 0, (8, 2, 8), Dims(f"{WHOLE} b f[tp]")),
    "column output, packed": (linear(), "output", 0, (8, 8), Dims(f"{WHOLE} f[tp]")),
    "gated output": (gated(), "output", 0, (8, 2, 8), Dims(f"{WHOLE} b (2*f[tp])")),
    "column bias": (linear(), "output", 1, (8,), Dims("f[tp]")),
    "row input": (linear(mode="row"), "input", 0, (8, 2, 4), Dims(f"{WHOLE} b f[tp]")),
    "row output": (linear(mode="row"), "output", 0, (4, 2, 16), Dims(f"{CUT} b h", addends=2)),
    "row output, no sp": (
        linear(mode="row", sequence_parallel=False), "output", 0, (8, 2, 16), Dims(f"{WHOLE} b h", addends=2),
    ),
    "row output of one rank": (
        linear(mode="row", tp_size=1), "output", 0, (8, 2, 16), Dims(f"{WHOLE} b h"),
    ),
    "row bias": (linear(mode="row"), "output", 1, (16,), Dims("h")),
    "duplicated output": (linear(mode=None, tp_size=1), "output", 0, (4, 2, 16), Dims(f"{CUT} b h")),
    "norm of a linear": (returning_norm(), "output", 1, (4, 2, 8), Dims(f"{CUT} b h")),
    "norm of a linear, gathered": (
        returning_norm(return_layernorm_output_gathered=True), "output", 1, (8, 2, 8), Dims(f"{WHOLE} b h"),
    ),
    "norm and mlp": (
        te.LayerNormMLP(8, 32, sequence_parallel=True, tp_size=2), "output", 0, (4, 2, 8),
        Dims(f"{CUT} b h", addends=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEARS)
def test_linears_say_where_their_tensors_lie(name):
    module, role, slot, shape, expected = LINEARS[name]
    assert is_parallel_layer(module)
    assert layer_dims(module, role, slot, torch.empty(shape), tp2()) == expected


def attention(qkv_format: str) -> nn.Module:
    return te.DotProductAttention(4, 8, qkv_format=qkv_format, tp_size=2)


@pytest.mark.parametrize(
    ("qkv_format", "role", "shape", "expected"),
    [
        ("sbhd", "input", (8, 2, 2, 8), f"{WHOLE} b n[tp] d"),
        ("sbhd", "output", (8, 2, 16), f"{WHOLE} b a[tp]"),
        ("bshd", "input", (2, 8, 2, 8), f"b {WHOLE} n[tp] d"),
        ("bshd", "output", (2, 8, 16), f"b {WHOLE} a[tp]"),
        ("sbhd", "input", (16, 2, 8), f"{WHOLE} n[tp] d"),  # packed
        ("sbhd", "output", (16, 16), f"{WHOLE} a[tp]"),
    ],
)
def test_attention_cores_say_in_which_format_their_tensors_are(qkv_format, role, shape, expected):
    assert layer_dims(attention(qkv_format), role, 0, torch.empty(shape), tp2()) == Dims(expected)


def test_ranks_that_share_a_key_head_hold_addends_of_its_gradient():
    found = layer_dims(attention("sbhd"), "input", 1, torch.empty(8, 2, 1, 8), tp2(kv=1, kv_copy=2))
    assert found == Dims(f"{WHOLE} b n[kv] d", f"{WHOLE} b n[kv] d[kv_copy:partial]")


def test_other_modules_are_no_parallel_layers():
    assert not any(is_parallel_layer(module) for module in (nn.Linear(2, 2), nn.LayerNorm(2), te.LayerNorm(2)))


def codes_of(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return Float8Quantizer(torch.tensor(scale), torch.zeros(1), torch.float8_e4m3fn)(tensor)


def test_a_tensor_of_codes_is_what_they_stand_for():
    values = torch.tensor([1.0, -0.5, 448.0 / 2])
    codes = codes_of(values, 2.0)
    assert quantised.is_quantised(codes) and not quantised.is_quantised(values)
    assert not quantised.is_quantised(nn.Parameter(values))
    plain = quantised.readable(codes)
    assert type(plain) is torch.Tensor and torch.equal(plain, values)
    assert quantised.readable(values) is values


def test_scales_and_histories_of_a_forward_are_read_from_quantizers():
    module = linear(mode=None, tp_size=1)
    assert list(quantised.of_forward(module)) == [], "it has not computed in FP8"
    recipe = te.fp8.DelayedScaling(amax_history_len=4)
    x = torch.full((2, 1, 8), 0.25, requires_grad=True)
    for _ in range(2):
        with te.fp8_autocast(fp8_recipe=recipe):
            out = module(x, is_first_microbatch=True)
            states = list(quantised.of_forward(module))
        out.sum().backward()
    assert [(state.kind, state.slot) for state in states] == [
        ("amax_history", 0), ("scale", 0), ("amax_history", 1), ("scale", 1), ("operand", 1),
    ]  # fmt: skip
    assert states[0].tensor.tolist() == [0.25, 0.0, 0.0], "the newest first"
    assert states[1].tensor.item() == pytest.approx(0.25 / 448.0), "what codes are multiplied by"
    assert torch.allclose(states[4].tensor, module.weight, rtol=0.07)
    backward = list(quantised.of_backward(module))
    assert [(state.kind, state.slot) for state in backward] == [("amax_history", 2), ("scale", 2)]
    assert backward[1].tensor.item() == pytest.approx(1.0 / 57344.0)

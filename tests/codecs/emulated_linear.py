#!/usr/bin/env python3
"""What FP8 linears of every recipe compute, by numpy and gfloat, which share no code with torch or TTrace.

  emulated_linear.py table FILE    writes cases for the tests of the reference's and megatron_mini's FP8: lines
                                   `case WHAT RECIPE FORMAT IS_WEIGHT`, and behind them their tensors,
                                   `tensor NAME DIMENSIONS SIZE... VALUE...` in hexadecimal
  emulated_linear.py package       compares the linear of tests/python/fake_te with numpy and gfloat

The recipes are those of reference/fp8.h. Codes are round(x / scale) and saturate; scales are float32, or powers of
two rounded up. A linear multiplies what the codes stand for: y = X W^T + b, dX = dY W, dW = dY^T X, db = sum dY, all of
it here in float64.
"""

import sys
from pathlib import Path

import numpy as np
from gfloat import RoundMode, decode_ndarray, encode_ndarray, quantize_block, round_ndarray
from gfloat.formats import (
    format_info_mxfp8_e4m3,
    format_info_mxfp8_e5m2,
    format_info_ocp_e4m3,
    format_info_ocp_e5m2,
    format_info_ocp_e8m0,
)

FORMATS = {"e4m3": format_info_ocp_e4m3, "e5m2": format_info_ocp_e5m2}
MX_FORMATS = {"e4m3": format_info_mxfp8_e4m3, "e5m2": format_info_mxfp8_e5m2}
BLOCKS = {"blockwise": 128, "mxfp8": 32}
SMALLEST_SCALE = np.float32(2.0**-127)


def magnitudes(x):
    return np.where(np.isfinite(x), np.abs(x), np.float32(0))


def values_of_codes(info, x, scale):
    """x, scale float32 -> float32. Finite numbers saturate; infinity stays, or is NaN where the format has none."""
    scaled = x.astype(np.float64) / scale.astype(np.float64)
    with np.errstate(over="ignore"):
        scaled = scaled.astype(np.float32).astype(np.float64)  # the quotient is rounded once
    finite = np.isfinite(x)
    rounded = np.where(
        finite,
        round_ndarray(info, np.where(finite, scaled, 0.0), sat=True),
        round_ndarray(info, np.where(finite, 0.0, x.astype(np.float64))),
    )
    values = decode_ndarray(info, encode_ndarray(info, rounded))
    with np.errstate(over="ignore", invalid="ignore"):
        return (values.astype(np.float32) * scale).astype(np.float32)


def scale_of(amax, info):
    """One scale for a whole tensor."""
    return np.float32(1) if amax == 0 else np.float32(amax / np.float32(info.max))


def power_of_two(scale):
    """The smallest that is not below the scale: what gfloat rounds upwards to a code of E8M0."""
    wide = np.maximum(scale, SMALLEST_SCALE).astype(np.float64)
    rounded = round_ndarray(format_info_ocp_e8m0, wide, RoundMode.TowardPositive)
    return decode_ndarray(format_info_ocp_e8m0, encode_ndarray(format_info_ocp_e8m0, rounded)).astype(np.float32)


def by_block(recipe, info, is_weight, x):
    """x [rows, columns] -> values, scales [row blocks, column blocks]."""
    columns = BLOCKS[recipe]
    rows = columns if is_weight and recipe == "blockwise" else 1
    starts = [np.arange(0, size, step) for size, step in zip(x.shape, (rows, columns))]
    amax = np.maximum.reduceat(np.maximum.reduceat(magnitudes(x), starts[0], axis=0), starts[1], axis=1)
    scale = power_of_two((amax / np.float32(info.max)).astype(np.float32))
    spread = scale.repeat(rows, axis=0).repeat(columns, axis=1)[: x.shape[0], : x.shape[1]]
    return values_of_codes(info, x, spread), scale


def quantised(recipe, kind, is_weight, x):
    info = FORMATS[kind]
    if recipe == "current":
        scale = scale_of(magnitudes(x).max(), info)
        return values_of_codes(info, x, scale), np.asarray(scale)
    values, scale = by_block(recipe, info, is_weight, x)
    if recipe == "mxfp8":
        check_with_blocks_of_gfloat(kind, x, scale, values)
    return values, scale


def check_with_blocks_of_gfloat(kind, x, scale, values):
    """gfloat has quantised blocks of its own; it is given the scales, because the standard rounds them down."""
    for row in range(x.shape[0]):
        for block in range(scale.shape[1]):
            part = slice(32 * block, min(32 * block + 32, x.shape[1]))
            if not np.isfinite(x[row, part]).all():
                continue
            with np.errstate(over="ignore"):
                expected = quantize_block(
                    MX_FORMATS[kind], x[row, part].astype(np.float64), lambda _emax, _x: float(scale[row, block])
                )
            assert (expected.astype(np.float32) == values[row, part]).all(), (kind, row, block)


class Table:
    def __init__(self, file):
        self.out = open(file, "w", encoding="ascii")

    def case(self, what, recipe, kind="-", is_weight=False, **tensors):
        self.out.write(f"case {what} {recipe} {kind} {int(is_weight)}\n")
        for name, tensor in tensors.items():
            tensor = np.asarray(tensor, dtype=np.float64)
            numbers = " ".join(value.hex() for value in tensor.ravel().tolist())
            sizes = "".join(f" {size}" for size in tensor.shape)
            self.out.write(f"tensor {name} {tensor.ndim}{sizes} {numbers}\n")


def numbers(random, shape, low=-20, high=4):
    """float32 of very different sizes."""
    return (random.standard_normal(shape) * np.exp2(random.integers(low, high, shape))).astype(np.float32)


def with_odd_ones(random, x):
    """Zeros of both signs, what is not finite, subnormal numbers, and blocks of nothing but zeros or of tiny numbers."""
    x = x.copy()
    x.ravel()[random.choice(x.size, 5, replace=False)] = [0.0, -0.0, np.nan, np.inf, -np.inf]
    x[0, :64] = 0.0
    if x.shape[0] > 3:
        x[1, :32] = np.float32(448) * np.exp2(random.integers(-149, -126, 32).astype(np.float64)) / 448
        x[2, :32] = np.exp2(random.uniform(-149, -118, 32))
        x[3, :32] = np.exp2(random.uniform(120, 127, 32))
    return x.astype(np.float32)


# Largest magnitudes of blocks at and next to those whose scale is exactly a power of two.
def at_borders(info, exponents):
    border = np.float32(info.max) * np.exp2(np.asarray(exponents, dtype=np.float64)).astype(np.float32)
    around = [np.nextafter(border, np.float32(0)), border, np.nextafter(border, np.float32(np.inf))]
    return np.stack(around, axis=1).reshape(-1).astype(np.float32)


def write_quantised(table, random):
    for recipe in ("current", "blockwise", "mxfp8"):
        for kind in FORMATS:
            for is_weight in (False, True):
                large = [(130, 136)] if is_weight and recipe == "blockwise" else []
                for shape in [(5, 200), (1, 7), *large]:
                    plain = numbers(random, shape)
                    for x in (plain, with_odd_ones(random, plain)) if shape[1] > 64 else (plain,):
                        values, scale = quantised(recipe, kind, is_weight, x)
                        table.case("quantised", recipe, kind, is_weight, x=x, values=values, scale=scale)


def write_borders(table):
    for kind, info in FORMATS.items():
        amax = at_borders(info, np.arange(-126, 118 if kind == "e4m3" else 111))
        x = np.zeros((len(amax), 32), np.float32)
        x[:, 0] = amax
        values, scale = quantised("mxfp8", kind, False, x)
        table.case("quantised", "mxfp8", kind, False, x=x, values=values, scale=scale)


def write_delayed(table, random):
    """Two steps: the second one's scale follows from the first one's largest magnitude, and much saturates."""
    for kind, info in FORMATS.items():
        first, second = numbers(random, (3, 40), -140, -125), numbers(random, (3, 40))
        second[0, :5] = [np.inf, -np.inf, np.nan, 3e38, -3e38]
        own = magnitudes(first).max()
        scales = [scale_of(own, info) if kind == "e5m2" else np.float32(1), scale_of(own, info)]
        values = [values_of_codes(info, x, scale) for x, scale in zip((first, second), scales)]
        tensors = {"x0": first, "x1": second, "values0": values[0], "values1": values[1]}
        table.case("delayed", "delayed", kind, False, scale0=scales[0], scale1=scales[1], **tensors)


def linear(recipe, x, weight, bias, gradient):
    """float64, of quantised operands."""
    xq = quantised(recipe, "e4m3", False, x)[0].astype(np.float64)
    wq = quantised(recipe, "e4m3", True, weight)[0].astype(np.float64)
    gq = quantised(recipe, "e5m2", False, gradient)[0].astype(np.float64)
    return {
        "y": xq @ wq.T + bias,
        "grad_x": gq @ wq,
        "grad_weight": gq.T @ xq,
        "grad_bias": gradient.astype(np.float64).sum(0),
    }


def operands(random, tokens, inputs, outputs):
    return {
        "x": numbers(random, (tokens, inputs), -6, 3),
        "weight": numbers(random, (outputs, inputs), -8, 1),
        "bias": numbers(random, (outputs,), -3, 1),
        "gradient": numbers(random, (tokens, outputs), -24, -6),
    }


def write_linears(table, random):
    for recipe in ("current", "blockwise", "mxfp8"):
        for sizes in ((6, 64, 96), (9, 200, 136)):
            given = operands(random, *sizes)
            table.case("linear", recipe, **given, **linear(recipe, **given))


def write_table(file):
    random = np.random.default_rng(7)
    table = Table(file)
    write_quantised(table, random)
    write_borders(table)
    write_delayed(table, random)
    write_linears(table, random)


def scaled_codes(quantizer, info, x):
    """x * scale, as TransformerEngine has it."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (x * np.float32(quantizer.scale.item())).astype(np.float32)
        return encode_ndarray(info, round_ndarray(info, scaled.astype(np.float64), sat=True))


def check_quantizer(torch, package, random):
    count = 0
    for dtype, kind in ((torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2")):
        for scale in (1.0, 3.7e4, 2.0**-20, 1e-3, 3e38):
            quantizer = package.tensor.Float8Quantizer(torch.tensor(scale), torch.zeros(1), dtype)
            x = np.concatenate([numbers(random, (3000,), -40, 30), np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38])])
            found = quantizer(torch.from_numpy(x))._data.numpy()
            expected = scaled_codes(quantizer, FORMATS[kind], x)
            nan = np.isnan(decode_ndarray(FORMATS[kind], found.astype(np.int64)))
            same = (found == expected) | (nan & np.isnan(decode_ndarray(FORMATS[kind], expected.astype(np.int64))))
            assert same.all(), (kind, scale, x[~same][:5], found[~same][:5], expected[~same][:5])
            count += len(x)
    print(f"quantizer: {count} numbers")


def check_package(torch):
    """Three steps of a linear under fp8_autocast: delayed scales from a history of two."""
    import transformer_engine.pytorch as te
    from transformer_engine.common.recipe import DelayedScaling

    random = np.random.default_rng(8)
    check_quantizer(torch, te, random)
    given = operands(random, 6, 64, 48)
    layer = te.Linear(64, 48, params_dtype=torch.float32)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(given["weight"]))
        layer.bias.copy_(torch.from_numpy(given["bias"]))
    scales = {"x": np.float32(1), "weight": np.float32(1), "gradient": np.float32(1)}
    kinds = {"x": "e4m3", "weight": "e4m3", "gradient": "e5m2"}
    history = {name: [] for name in scales}
    for step in range(3):
        given["x"] = numbers(random, (6, 64), -6, 3 + step)
        given["gradient"] = numbers(random, (6, 48), -24, -6)
        leaf = torch.from_numpy(given["x"]).requires_grad_(True)
        layer.zero_grad()
        with te.fp8_autocast(fp8_recipe=DelayedScaling(amax_history_len=2, amax_compute_algo="max")):
            y = layer(leaf)
        y.backward(torch.from_numpy(given["gradient"]))
        values = {}
        for name, kind in kinds.items():
            codes = encode_ndarray(
                FORMATS[kind], round_ndarray(FORMATS[kind], (given[name] * scales[name]).astype(np.float64), sat=True)
            )
            values[name] = decode_ndarray(FORMATS[kind], codes) * np.float64(np.float32(1) / scales[name])
            history[name] = [*history[name], np.abs(given[name]).max()][-2:]
            amax = max(history[name])
            scales[name] = np.float32(np.float32(FORMATS[kind].max) / amax)
        expected = {
            "y": values["x"] @ values["weight"].T + given["bias"],
            "grad_x": values["gradient"] @ values["weight"],
            "grad_weight": values["gradient"].T @ values["x"],
            "grad_bias": given["gradient"].sum(0),
        }
        found = {"y": y, "grad_x": leaf.grad, "grad_weight": layer.weight.grad, "grad_bias": layer.bias.grad}
        for name, tensor in found.items():
            error = np.linalg.norm(tensor.detach().numpy() - expected[name]) / np.linalg.norm(expected[name])
            assert error < 1e-6, (step, name, error)
    print("linear: 3 steps, forward and both gradients")


if __name__ == "__main__":
    if sys.argv[1:] == ["package"]:
        import torch

        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "fake_te"))
        check_package(torch)
    elif len(sys.argv) == 3 and sys.argv[1] == "table":
        write_table(sys.argv[2])
    else:
        sys.exit(__doc__)

#!/usr/bin/env python3
"""Codes of small formats by gfloat, a library of number formats that shares no code with torch or TTrace.

  small_formats.py torch         compares the casts of the installed torch with gfloat; exit code 1 where they differ
  small_formats.py table FILE    writes what gfloat says, for the test of TTrace's own conversions: records of
                                 a value (f64), a code (u16), a format (u8), and whether it is encoded (u8)

Every code of a format is decoded. Encoded are all codes' own values, the middle between neighbours and the next
number on both sides of it, what lies beyond the largest number, infinity, NaN, and random numbers of all sizes around
the format's range. A table holds float64, so that it shows who rounds twice; torch is asked for float32.
"""

import sys

import numpy as np
from gfloat import RoundMode, decode_ndarray, encode_ndarray, round_ndarray
from gfloat.formats import (
    format_info_bfloat16,
    format_info_binary16,
    format_info_ocp_e4m3,
    format_info_ocp_e5m2,
    format_info_ocp_e8m0,
)

# The numbers are those of ttrace::ElementType.
FORMATS = {
    "f16": (2, format_info_binary16),
    "bf16": (3, format_info_bfloat16),
    "e4m3": (8, format_info_ocp_e4m3),
    "e5m2": (9, format_info_ocp_e5m2),
    "e8m0": (10, format_info_ocp_e8m0),
}
RECORD = np.dtype([("value", "<f8"), ("code", "<u2"), ("format", "u1"), ("is_encoded", "u1"), ("unused", "<u4")])
RANDOM = 100_000


def codes_of(name):
    return np.arange(2 ** FORMATS[name][1].bits)


def values_of(name):
    return decode_ndarray(FORMATS[name][1], codes_of(name))


def around(points, dtype):
    """Each number with both of its neighbours in that type."""
    points = np.asarray(points).astype(dtype)
    return np.concatenate([points, np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(-np.inf))])


def inputs_of(name, dtype):
    """What is to be encoded, as numbers of a numpy type."""
    decoded = values_of(name)
    finite = np.unique(np.abs(decoded[np.isfinite(decoded)]))
    # Where the largest number's spacing goes on, the next one would be this; a sum could be infinite in float32.
    beyond = finite[-1] + (finite[-1] - finite[-2]) if name != "e8m0" else finite[-1]
    middles = np.concatenate([(finite[1:] + finite[:-1]) / 2, [(finite[-1] + beyond) / 2]])
    random = np.random.default_rng(1)
    low = max(finite[finite > 0][0], 2.0**-120)
    exponents = random.uniform(np.log2(low) - 3, np.log2(finite[-1]) + 2, RANDOM)
    with np.errstate(over="ignore"):
        magnitudes = np.concatenate(
            [around(middles, dtype), np.concatenate([finite, np.exp2(exponents), [beyond, 2 * beyond, 1e30, np.inf]]).astype(dtype)]
        )
    if name == "e8m0":  # scales are powers of two within its range; what lies below rounds to the smallest
        return magnitudes[magnitudes >= finite[0]]
    tiny = np.array([np.nextafter(dtype(0), dtype(1))])
    magnitudes = np.concatenate([magnitudes, tiny])
    return np.concatenate([magnitudes, -magnitudes, [dtype(np.nan)]])


def codes_for(name, values, saturates=False):
    """Ties to even. E8M0 has one bit of precision; torch and TTrace round its ties up."""
    mode = RoundMode.TiesToAway if name == "e8m0" else RoundMode.TiesToEven
    info = FORMATS[name][1]
    return encode_ndarray(info, round_ndarray(info, values.astype(np.float64), mode, sat=saturates))


def records(name, is_encoded, values, codes):
    table = np.zeros(len(values), RECORD)
    table["value"], table["code"] = values, codes
    table["format"], table["is_encoded"] = FORMATS[name][0], is_encoded
    return table


def write_table(file):
    parts = []
    for name in FORMATS:
        values = inputs_of(name, np.float64)
        parts.append(records(name, False, values_of(name), codes_of(name)))
        parts.append(records(name, True, values, codes_for(name, values)))
    np.concatenate(parts).tofile(file)


def is_nan_code(name, codes):
    return np.isnan(values_of(name)[codes])


def differences_of_torch(torch, name, dtype):
    is_wide = FORMATS[name][1].bits == 16
    integers = torch.int16 if is_wide else torch.uint8
    bits = torch.from_numpy(codes_of(name).astype(np.uint16 if is_wide else np.uint8).view(np.int16 if is_wide else np.uint8))
    decoded = bits.view(dtype).to(torch.float64).numpy()
    expected = values_of(name)
    for code in np.flatnonzero(~((decoded == expected) | (np.isnan(decoded) & np.isnan(expected)))):
        yield f"{name}: code {code} is {decoded[code]} in torch, {expected[code]} in gfloat"
    values = inputs_of(name, np.float32)
    encoded = torch.from_numpy(values).to(dtype).view(integers).numpy().view(np.uint16 if is_wide else np.uint8)
    # What lies beyond the largest number of E4M3 is NaN up to torch 2.11, and that number in torch 2.13.
    saturates = name == "e4m3" and not torch.tensor([1000.0]).to(dtype).float().isnan().item()
    expected = codes_for(name, values, saturates).astype(np.int64)
    same = (encoded == expected) | (is_nan_code(name, encoded) & is_nan_code(name, expected))
    if name == "e8m0":  # torch rounds up all that lies between the two smallest powers of two, which is subnormal
        same |= values < np.float32(2.0**-126)
    for i in np.flatnonzero(~same):
        yield f"{name}: {values[i]!r} is code {encoded[i]} in torch, {expected[i]} in gfloat"
    print(f"{name}: {len(decoded)} codes decoded, {len(values)} values encoded")


def saturation_of_torch(torch, name, dtype):
    """What recipes do before they cast (clamp to the largest number) against gfloat's saturation."""
    info = FORMATS[name][1]
    values = inputs_of(name, np.float32)
    numbers = torch.from_numpy(values)
    saturated = numbers.clamp(-info.max, info.max).to(dtype).to(torch.float64).numpy()
    expected = round_ndarray(info, values.astype(np.float64), RoundMode.TiesToEven, sat=True)
    for i in np.flatnonzero(~((saturated == expected) | (np.isnan(saturated) & np.isnan(expected)))):
        yield f"{name}: {values[i]!r} saturates to {saturated[i]} in torch, to {expected[i]} in gfloat"


def check_torch():
    import torch

    dtypes = {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "e8m0": torch.float8_e8m0fnu,
    }
    differences = []
    for name, dtype in dtypes.items():
        differences += differences_of_torch(torch, name, dtype)
        if name in ("e4m3", "e5m2"):
            differences += saturation_of_torch(torch, name, dtype)
    for line in differences[:20]:
        print(line)
    print(f"{len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["torch"]:
        sys.exit(check_torch())
    if len(sys.argv) == 3 and sys.argv[1] == "table":
        write_table(sys.argv[2])
    else:
        sys.exit(__doc__)

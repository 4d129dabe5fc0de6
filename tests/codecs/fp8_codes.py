#!/usr/bin/env python3
"""FP8 codes by gfloat, a library of number formats that shares no code with torch or TTrace.

  fp8_codes.py torch         compares the casts of the installed torch with gfloat; exit code 1 where they differ
  fp8_codes.py table FILE    writes what gfloat says, for the test of TTrace's own conversions:
                             per line a format, a code, its value; then a format, a value, its code

Every one of the 256 codes of a format is decoded. Encoded are all codes' own values, the middle between
neighbours and the next float32 on both sides of it, numbers from below the smallest subnormal to beyond the
largest number, and random float32 of all sizes around the format's range: some 100 000 for each.
"""

import struct
import sys

import numpy as np
from gfloat import decode_ndarray, encode_ndarray, round_ndarray
from gfloat.formats import format_info_ocp_e4m3, format_info_ocp_e5m2, format_info_ocp_e8m0

FORMATS = {"e4m3": format_info_ocp_e4m3, "e5m2": format_info_ocp_e5m2, "e8m0": format_info_ocp_e8m0}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
CODES = np.arange(256)
RANDOM = 100_000


def values_of(name):
    return decode_ndarray(FORMATS[name], CODES)


def floats_around(points):
    """Each float32 with both of its neighbours."""
    points = np.asarray(points, dtype=np.float32)
    return np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])


def inputs_of(name):
    """float32 values to encode, none beyond the largest number: what becomes of those is no matter of rounding."""
    decoded = values_of(name)
    finite = np.unique(np.abs(decoded[np.isfinite(decoded)]))
    if name == "e8m0":  # scales are powers of two
        return finite[finite >= 2.0**-126].astype(np.float32)
    middles = (finite[1:] + finite[:-1]) / 2
    random = np.random.default_rng(1)
    exponents = random.uniform(np.log2(finite[1]) - 3, np.log2(LARGEST[name]), RANDOM)
    magnitudes = np.concatenate([finite, floats_around(middles), np.exp2(exponents), [2.0**-149]]).astype(np.float32)
    magnitudes = magnitudes[magnitudes <= LARGEST[name]]
    return np.concatenate([magnitudes, -magnitudes])


def codes_for(name, values):
    rounded = round_ndarray(FORMATS[name], values.astype(np.float64))
    return encode_ndarray(FORMATS[name], rounded)


def table(file):
    with open(file, "w", encoding="ascii") as out:
        for name in FORMATS:
            for code, value in zip(CODES, values_of(name)):
                out.write(f"decode {name} {code} {float(value)!r}\n")
            values = inputs_of(name)
            for value, code in zip(values, codes_for(name, values)):
                out.write(f"encode {name} {int(code)} {float(value)!r}\n")


def differences_of_torch(torch, name, dtype):
    codes = torch.tensor(CODES.tolist(), dtype=torch.uint8)
    decoded = np.array(codes.view(dtype).to(torch.float32).tolist())
    expected = values_of(name)
    same = (decoded == expected) | (np.isnan(decoded) & np.isnan(expected))
    for code in CODES[~same]:
        yield f"{name}: code {code} is {decoded[code]} in torch, {expected[code]} in gfloat"
    values = inputs_of(name)
    numbers = torch.frombuffer(bytearray(values.tobytes()), dtype=torch.float32)
    encoded = np.frombuffer(struct.pack(f"{len(values)}B", *numbers.to(dtype).view(torch.uint8).tolist()), dtype=np.uint8)
    expected = codes_for(name, values)
    for i in np.flatnonzero(encoded != expected):
        yield f"{name}: {values[i]!r} is code {encoded[i]} in torch, {expected[i]} in gfloat"
    print(f"{name}: 256 codes decoded, {len(values)} values encoded")


def saturation_of_torch(torch, name, dtype):
    """What recipes do before they cast: clamp to the largest number."""
    largest = LARGEST[name]
    beyond = torch.tensor([largest, np.nextafter(np.float32(largest), np.float32(np.inf)), 1.1 * largest, 1e30])
    numbers = torch.cat([beyond, -beyond])
    saturated = numbers.clamp(-largest, largest).to(dtype).to(torch.float32)
    if not torch.equal(saturated, torch.sign(numbers) * largest):
        yield f"{name}: clamped numbers become {saturated.tolist()} and not the largest number"
    if not torch.tensor([np.nan]).clamp(-largest, largest).to(dtype).to(torch.float32).isnan().all():
        yield f"{name}: NaN does not stay NaN"


def check_torch():
    import torch

    dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e8m0": torch.float8_e8m0fnu}
    differences = []
    for name, dtype in dtypes.items():
        differences += differences_of_torch(torch, name, dtype)
        if name in LARGEST:
            differences += saturation_of_torch(torch, name, dtype)
    for line in differences[:20]:
        print(line)
    print(f"{len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["torch"]:
        sys.exit(check_torch())
    if len(sys.argv) == 3 and sys.argv[1] == "table":
        table(sys.argv[2])
    else:
        sys.exit(__doc__)

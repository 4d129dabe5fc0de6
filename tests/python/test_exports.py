"""What `ttrace merge` writes, read back by the libraries that others read it with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy
import pytest
import torch
import ttrace
from conftest import HANG, PROGRAM, ROOT, python, torchrun

TRAIN = str(ROOT / "examples" / "dtensor" / "train.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a candidate of two ranks in BF16."""
    folder = tmp_path_factory.mktemp("exports")
    command = [
        PROGRAM, "check", "--noise", "0", "--no-forced", "--reference", python(f"{TRAIN} --precision bf16"),
        "--candidate", torchrun(2, f"{TRAIN} --fsdp --precision bf16"), "-o", str(folder / "run"),
    ]  # fmt: skip
    subprocess.run(command, check=False, capture_output=True, timeout=HANG)
    return folder / "run" / "candidate"


def merge(trace: Path, output: str) -> None:
    result = subprocess.run([PROGRAM, "merge", str(trace), "-o", output], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_safetensors_hold_every_tensor_bit_for_bit(run, tmp_path):
    torch_of = pytest.importorskip("safetensors.torch")
    merge(run, str(tmp_path / "all.safetensors"))
    tensors = torch_of.load_file(tmp_path / "all.safetensors")
    trace = ttrace.open(run)
    assert set(tensors) == set(trace)
    for name, tensor in tensors.items():
        expected = trace[name].merged()
        bits, expected_bits = (number.reshape(-1).view(torch.uint8) for number in (tensor, expected))
        assert tensor.dtype == expected.dtype and torch.equal(bits, expected_bits), name
    assert {torch.bfloat16, torch.int64} <= {tensor.dtype for tensor in tensors.values()}


def test_numpy_files_hold_every_value(run, tmp_path):
    merge(run, f"{tmp_path}/arrays/")
    trace = ttrace.open(run)
    files = {str(path.relative_to(tmp_path / "arrays"))[:-4]: path for path in (tmp_path / "arrays").rglob("*.npy")}
    assert set(files) == set(trace)
    for name, path in files.items():
        array = numpy.load(path, allow_pickle=False)
        assert numpy.array_equal(array, trace[name].merged().double().numpy().astype(array.dtype)), name
    assert not (tmp_path / "arrays.tmp").exists()


def test_a_name_that_says_no_format_is_refused(run, tmp_path):
    result = subprocess.run([PROGRAM, "merge", str(run), "-o", str(tmp_path / "all")], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "ends in .h5 or .safetensors, or in /" in result.stderr

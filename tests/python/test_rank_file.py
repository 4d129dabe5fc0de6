"""Rank files and merged files read by h5py alone, by a program that follows docs/trace_format.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import HERE, PROGRAM, ROOT, run_untraced, torchrun

h5py = pytest.importorskip("h5py")
numpy = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.torch")

TRAIN = ROOT / "examples" / "dtensor" / "train.py"
DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2",
}  # fmt: skip


def traced(folder: Path, variables: str = "") -> Path:
    words = "TTRACE_PASS=candidate TTRACE_START=own TTRACE_COLLECTIVES=1"
    run_untraced(f"env {words} {variables} TTRACE_DIR={folder} {torchrun(4, f'{TRAIN} --steps 1 --fsdp --tp 2 --precision bf16')}")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return traced(tmp_path_factory.mktemp("rank_file") / "trace")


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> Path:
    """A trace of one rank with tensors of every type, of no element, of no dimension, and of megabytes."""
    folder = tmp_path_factory.mktemp("imported")
    generator = torch.Generator().manual_seed(1)
    tensors = {
        f"of_{name}.weight": (torch.randn(3, 5, generator=generator) * 4).abs().to(dtype) for dtype, name in DTYPES.items()
    }
    tensors["large.weight"] = torch.randn(700, 900, generator=generator).to(torch.bfloat16)
    tensors["scalar.weight"] = torch.tensor(2.5)
    tensors["empty.weight"] = torch.empty(0, 4)
    safetensors.save_file(tensors, folder / "weights.safetensors")
    command = [PROGRAM, "import", "safetensors", str(folder / "weights.safetensors")]
    command += ["-o", str(folder / "trace"), "--python", sys.executable]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder / "trace"


def by_h5py(file: Path, tmp_path: Path) -> tuple[dict, dict]:
    """What the reader makes of a file: what it says, and bytes by id. It runs without the package."""
    out = tmp_path / "read.npz"
    command = [sys.executable, "-I", str(HERE / "read_rank_file.py"), str(file), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    read = dict(numpy.load(out))
    return json.loads(str(read.pop("about"))), read


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def check_rank(trace: ttrace.Trace, rank: int, about: dict, tensors: dict) -> None:
    """Everything that h5py read is what ttrace.open() returns."""
    own = {name: part for name, record in trace.items() for part in record.parts if part.rank == rank}
    assert set(about["records"]) == set(own) == set(tensors)
    for name, part in own.items():
        read = about["records"][name]
        assert (read["dtype"], tuple(read["shape"])) == (part.dtype, part.shape), name
        assert (read["order"], read["norm"], read["time"]) == (part.order, part.norm, part.time), name
        assert tuple(read["placement"]["logical"]) == trace[name].shape, name
        assert tensors[name].tobytes() == bytes_of(trace[name].local(rank)), name
        addends = int(read["placement"]["options"].get("partial", "0/1").split(":")[0].split("/")[1])
        assert addends == part.addends, name


def test_every_rank_is_read(run, tmp_path):
    trace = ttrace.open(run)
    for rank in range(4):
        about, tensors = by_h5py(run / "step000000" / f"rank0000{rank}.h5", tmp_path)
        assert (about["rank"], about["world_size"]) == (rank, 4)
        places = {axis["name"]: (axis["size"], axis["coordinate"]) for axis in about["layout"]}
        assert places == {"dp": (2, rank // 2), "tp": (2, rank % 2)}
        assert about["began"] == trace.began[0, rank]
        assert len(tensors) > 100
        check_rank(trace, rank, about, tensors)


def test_segments_say_where_the_rows_lie(run, tmp_path):
    name = "s0/m0/output/layers.0.feed_forward.w1/0"
    trace = ttrace.open(run)
    whole = trace[name].merged()
    for rank in (0, 1):
        about, tensors = by_h5py(run / "step000000" / f"rank0000{rank}.h5", tmp_path)
        record = about["records"][name]
        local = torch.frombuffer(bytearray(tensors[name].tobytes()), dtype=torch.bfloat16).view(record["shape"])
        segments = record["placement"]["segments"]
        assert any(own != [[0, 0, size]] for own, size in zip(segments, whole.shape))
        assert all(len(own) == 1 for own in segments)  # so that one box says it all
        here = tuple(slice(start, start + extent) for ((_, start, extent),) in segments)
        assert torch.equal(whole[here], local)


def test_edges_and_lines_of_code_are_read(run, tmp_path):
    about, _ = by_h5py(run / "step000000" / "rank00000.h5", tmp_path)
    assert ["s0/m0/input/layers.0.attention.wq/0", "s0/m0/output/layers.0.attention_norm/0"] in about["edges"]
    assert any(line.startswith("examples/dtensor/train.py:") for line in about["code"].values())


def test_every_element_type_is_read(imported, tmp_path):
    about, tensors = by_h5py(imported / "step000000" / "rank00000.h5", tmp_path)
    trace = ttrace.open(imported)
    assert about["began"] is None and trace.began == {}
    assert {record["dtype"] for record in about["records"].values()} == set(DTYPES.values())
    assert about["records"]["s0/param/large.weight/0"]["dataset"] == "s0|param|large.weight|0"
    check_rank(trace, 0, about, tensors)


def test_a_tensor_may_have_a_dataset_of_its_own(tmp_path):
    run = traced(tmp_path / "named", "TTRACE_NAMED=1")
    trace = ttrace.open(run)
    about, tensors = by_h5py(run / "step000000" / "rank00003.h5", tmp_path)
    assert all(record["dataset"] == name.replace("/", "|") for name, record in about["records"].items())
    check_rank(trace, 3, about, tensors)
    name = "s0/m0/output/layers.0.attention.wo/0"
    with h5py.File(run / "step000000" / "rank00003.h5") as file:
        values = file[name.replace("/", "|")][()]  # HDF5 converts bf16 by itself
    assert numpy.array_equal(values, trace[name].local(3).float().numpy())


def test_a_merged_file_has_a_dataset_per_id(run, tmp_path):
    command = [PROGRAM, "merge", str(run), "-o", str(tmp_path / "merged.h5"), "--kinds", "output,main_grad"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    trace = ttrace.open(run)
    names = [name for name in trace if "/output/" in name or "/main_grad/" in name]
    assert len(names) > 50
    with h5py.File(tmp_path / "merged.h5") as file:
        assert file.attrs["ttrace_merged"] == 1
        for name in names:
            merged = trace[name].merged()
            assert file[name].shape == tuple(merged.shape)
            assert numpy.array_equal(file[name][()].astype("f8"), merged.double().numpy()), name

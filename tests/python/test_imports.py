"""`ttrace import`: traces of other tools' files. The files are written by those tools themselves."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import HANG, HERE, PROGRAM, ROOT, torchrun
from ttrace.imports.__main__ import run
from ttrace.imports.names import KINDS

numpy = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.torch")

FOREIGN = Path(sys.prefix) / "foreign"
needs_foreign = pytest.mark.skipif(
    not FOREIGN.exists(), reason="./dev could not install msprobe and SGLang into .venv/foreign"
)
TYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def ttrace_program(
    *words: object, environment: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=HANG, check=False,
        env={**os.environ, **(environment or {})}, cwd=cwd,
    )  # fmt: skip


def imported(folder: Path, *words: object, by_program: bool = False) -> ttrace.Trace:
    """The trace of `ttrace import WORDS`, which `ttrace verify` must find sound.

    Most tests call what the program runs, in this process: an interpreter takes seconds to import torch.
    """
    folder.mkdir(exist_ok=True)
    target = folder / f"trace{len(list(folder.iterdir()))}"
    if by_program:
        result = ttrace_program("import", *words, "-o", target, "--python", sys.executable)
        assert result.returncode == 0, result.stderr
    else:
        outcome = run([*map(str, words), "-o", str(target)])
        assert "error" not in outcome, outcome
    verified = ttrace_program("verify", target)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return ttrace.open(target)


def refused(folder: Path, *words: object) -> str:
    """What `ttrace import WORDS` says that cannot import. It must leave nothing behind."""
    folder.mkdir(exist_ok=True)
    before = sorted(folder.iterdir())
    outcome = run([*map(str, words), "-o", str(folder / "refused")])
    assert sorted(folder.iterdir()) == before
    assert list(outcome) == ["error"], outcome
    return str(outcome["error"])


def refused_by_program(folder: Path, *words: object, environment: dict[str, str] | None = None) -> str:
    """The same of the program, which must end with exit code 2 after one sentence."""
    folder.mkdir(exist_ok=True)
    before = sorted(folder.iterdir())
    options = [] if "--python" in words else ["--python", sys.executable]
    result = ttrace_program("import", *words, "-o", folder / "refused", *options, environment=environment)
    assert result.returncode == 2 and result.stdout == "", result.stdout + result.stderr
    assert sorted(folder.iterdir()) == before
    (line,) = result.stderr.splitlines()
    return line.removeprefix("ttrace: error: ")


def run_program(name: str, folder: Path, *words: str) -> Path:
    command = [sys.executable, str(HERE / "programs" / name), str(folder), *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def run_ranks(ranks: int, name: str, folder: Path, *words: str) -> Path:
    command = torchrun(ranks, " ".join([str(HERE / "programs" / name), str(folder), *words]))
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    plain = tensor.detach().contiguous()
    return plain.dtype, tuple(plain.shape), bytes(plain.reshape(-1).view(torch.uint8).tolist())


def assert_holds(trace: ttrace.Trace, truth: dict[str, torch.Tensor]) -> None:
    """Every tensor of `truth` is in the trace, bit for bit."""
    for name, value in truth.items():
        assert name in trace, f"{name} is not among {list(trace)}"
        assert bits(trace[name].merged()) == bits(value), name


def values_of(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(int(dtype.is_floating_point) + dtype.itemsize)
    if dtype.is_floating_point:
        special = [float("nan"), -0.0, 1e-6, 240.0]
        return torch.cat([torch.randn(8), torch.tensor(special)]).reshape(3, 4).to(dtype)
    return torch.randint(0, 100, (3, 4)).to(dtype)


def in_trace(value: torch.Tensor) -> torch.Tensor:
    """The value in a type that a trace has."""
    return value.to(torch.int32) if value.dtype in (torch.int8, torch.int16) else value


class Touches:
    """A pickle that makes a file if anybody runs it."""

    def __init__(self, victim: Path):
        self._victim = victim

    def __reduce__(self):
        return os.system, (f"touch {self._victim}",)


# --- safetensors ---------------------------------------------------------------------------------


def test_safetensors_come_bit_for_bit_in_every_type(tmp_path):
    content = {f"model.layers.{i}.weight": values_of(dtype) for i, dtype in enumerate(TYPES)}
    content |= {"scale": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    safetensors.save_file(content, tmp_path / "model.safetensors")
    trace = imported(tmp_path / "out", "safetensors", tmp_path / "model.safetensors")
    truth = {
        f"s0/param/model.layers.{i}.weight/0": in_trace(values_of(dtype)) for i, dtype in enumerate(TYPES)
    }
    assert_holds(trace, truth | {"s0/scalar/scale/0": content["scale"], "s0/param/empty/0": content["empty"]})
    assert len(trace) == len(content) and trace.manifest["pass"] == "imported"
    layers = [name for name in trace if "layers" in name]
    assert layers.index("s0/param/model.layers.2.weight/0") < layers.index(
        "s0/param/model.layers.10.weight/0"
    )


def test_optimizer_states_have_their_kinds_and_the_user_names_others(tmp_path):
    content = {
        "state.a.weight.exp_avg": torch.randn(2), "optimizer.state.exp_avg_sq.a.weight": torch.randn(2),
        "optimizer.state.fp32_param.a.weight": torch.randn(2), "s7/m3/grad_output/a/1#2": torch.randn(2),
        "a.weight": torch.randn(2),
    }  # fmt: skip
    safetensors.save_file(content, tmp_path / "x.safetensors")
    trace = imported(
        tmp_path / "out", "safetensors", tmp_path / "x.safetensors", "--kind", "main_grad", "--step", 4
    )
    assert sorted(trace) == [
        "s4/exp_avg/a.weight/0", "s4/exp_avg_sq/a.weight/0", "s4/m3/grad_output/a/1#2",
        "s4/main_grad/a.weight/0", "s4/master/a.weight/0",
    ]  # fmt: skip


def test_a_folder_with_an_index_is_one_model(tmp_path):
    parts = {f"model-{i}.safetensors": {f"h.{i}.w": torch.randn(2, 2)} for i in range(2)}
    for file, content in parts.items():
        safetensors.save_file(content, tmp_path / file)
    index = {"weight_map": {name: file for file, content in parts.items() for name in content}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    safetensors.save_file({"other": torch.ones(1)}, tmp_path / "adapter.safetensors")
    trace = imported(tmp_path / "out", "safetensors", tmp_path)
    assert_holds(
        trace, {f"s0/param/h.{i}.w/0": parts[f"model-{i}.safetensors"][f"h.{i}.w"] for i in range(2)}
    )
    assert len(trace) == 2
    (tmp_path / "model-1.safetensors").unlink()
    assert "names model-1.safetensors, which is missing" in refused(tmp_path / "out", "safetensors", tmp_path)


DIMS = "tensors:\n  - path: w\n    value: h f[tp]\n"


def cut_over_ranks(folder: Path, whole: torch.Tensor) -> Path:
    folder.mkdir()
    for rank, part in enumerate(whole.chunk(2, dim=1)):
        content = {"w": part.contiguous(), "same": whole}
        safetensors.save_file(content, folder / f"rank{rank}.safetensors")
    return folder


def test_files_of_ranks_are_put_together_as_the_dims_say(tmp_path):
    whole = torch.randn(4, 6)
    cut_over_ranks(tmp_path / "cut", whole)
    (tmp_path / "dims.yaml").write_text(DIMS)
    cuts = ("--dims", tmp_path / "dims.yaml", "--axes", "tp=2")
    trace = imported(tmp_path / "out", "safetensors", tmp_path / "cut", *cuts, by_program=True)
    assert_holds(trace, {"s0/param/w/0": whole, "s0/param/same/0": whole})
    assert [part.shape for part in trace["s0/param/w/0"].parts] == [(4, 3), (4, 3)]
    assert not trace["s0/param/w/0"].parts[0].undeclared and trace["s0/param/same/0"].parts[0].undeclared


def test_where_nobody_says_how_ranks_are_cut_the_values_decide(tmp_path):
    whole = torch.randn(4, 6)
    safetensors.save_file({"w": whole, "same": whole.clone()}, tmp_path / "whole.safetensors")
    out = tmp_path / "out"
    reference = imported(out, "safetensors", tmp_path / "whole.safetensors", "--kind", "output")
    parts = cut_over_ranks(tmp_path / "cut", whole)
    assert "error" not in run(["safetensors", str(parts), "--kind", "output", "-o", str(out / "parts")])
    # Whole on every rank, as far as anybody says, so that the ranks contradict each other.
    assert ttrace.open(out / "parts")["s0/m0/output/w/0"].shape == (4, 3)
    assert "replicas_disagree" in ttrace_program("verify", out / "parts").stdout
    report = ttrace.diff(reference.directory, out / "parts")
    assert report.verdict == "clean", report


def test_ranks_must_fit_axes_and_annotations(tmp_path):
    folder = cut_over_ranks(tmp_path / "cut", torch.randn(4, 6))
    out = tmp_path / "out"
    assert "describes 4 ranks, but the files are of 2" in refused(
        out, "safetensors", folder, "--axes", "tp=4"
    )
    assert "holds 'tp', which is no axis" in refused(out, "safetensors", folder, "--axes", "tp")
    (tmp_path / "dims.yaml").write_text(DIMS.replace("h f[tp]", "h"))
    message = refused(out, "safetensors", folder, "--dims", tmp_path / "dims.yaml")
    assert "s0/param/w/0 does not fit its annotation" in message and ".cpp" not in message
    (tmp_path / "dims.yaml").write_text("tensors:\n  - path: w\n    valeu: h\n")
    assert "valeu" in refused(out, "safetensors", folder, "--dims", tmp_path / "dims.yaml")
    shutil.copy(folder / "rank0.safetensors", folder / "model.safetensors")
    assert "has no rank in its name" in refused(out, "safetensors", folder)


def test_a_damaged_safetensors_file_is_refused(tmp_path):
    file = tmp_path / "x.safetensors"
    safetensors.save_file({"w": torch.randn(100)}, file)
    file.write_bytes(file.read_bytes()[:-8])
    assert "x.safetensors cannot be read as a .safetensors file" in refused(
        tmp_path / "out", "safetensors", file
    )
    victim = tmp_path / "victim"
    torch.save(Touches(victim), file)
    assert "cannot be read as a .safetensors file" in refused(tmp_path / "out", "safetensors", file)
    assert not victim.exists()
    assert "holds no .safetensors file" in refused(tmp_path / "out", "safetensors", HERE / "programs")


def test_names_that_become_one_are_refused(tmp_path):
    safetensors.save_file({"a b": torch.ones(2), "a:b": torch.ones(2)}, tmp_path / "x.safetensors")
    message = refused(tmp_path / "out", "safetensors", tmp_path / "x.safetensors")
    assert "a b of" in message and "a:b of" in message and "both become s0/param/a_b/0" in message


def test_what_no_trace_can_hold_is_left_out_and_named(tmp_path):
    content = {"z": torch.ones(2, dtype=torch.complex64), "w": torch.ones(2)}
    safetensors.save_file(content, tmp_path / "x.safetensors")
    trace = imported(tmp_path / "out", "safetensors", tmp_path / "x.safetensors")
    assert list(trace) == ["s0/param/w/0"]
    assert any("has no type for z of" in note and "complex64" in note for note in trace.notes)


# --- .npy ----------------------------------------------------------------------------------------


def save(folder: Path, name: str, array) -> None:
    path = folder / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    numpy.save(path, array)


def test_npy_files_come_bit_for_bit_under_their_paths(tmp_path):
    folder = tmp_path / "dump"
    truth = {}
    for i, dtype in enumerate((*TYPES[:3], *TYPES[6:])):
        save(folder, f"layers/{i}/mlp", values_of(dtype).numpy())
        truth[f"s2/m0/output/layers.{i}.mlp/0"] = in_trace(values_of(dtype))
    save(folder, "param/layers.0.weight", numpy.float32([[1, 2]]))
    save(folder, "s0/m1/grad_output/layers.0/3", numpy.float16([5]))
    save(folder, "swapped", numpy.arange(3, dtype=">f4"))
    save(folder, "columns", numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)))
    save(folder, "unsigned", numpy.uint16([65535]))
    trace = imported(tmp_path / "out", "npy", folder, "--step", 2, by_program=True)
    truth |= {
        "s2/param/layers.0.weight/0": torch.tensor([[1.0, 2.0]]),
        "s2/m1/grad_output/layers.0/3": torch.tensor([5.0], dtype=torch.float16),
        "s2/m0/output/swapped/0": torch.arange(3.0),
        "s2/m0/output/columns/0": torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
        "s2/m0/output/unsigned/0": torch.tensor([65535], dtype=torch.int32),
    }
    assert_holds(trace, truth)
    assert len(trace) == len(truth)


def test_npy_folders_of_ranks_are_ranks(tmp_path):
    whole = numpy.random.default_rng(0).normal(size=(4, 2))
    for rank in range(2):
        save(tmp_path / "dump", f"rank{rank}/w", whole[2 * rank : 2 * rank + 2])
    (tmp_path / "dims.yaml").write_text("tensors:\n  - path: w\n    value: a[ranks] b\n")
    trace = imported(tmp_path / "out", "npy", tmp_path / "dump", "--dims", tmp_path / "dims.yaml")
    assert_holds(trace, {"s0/m0/output/w/0": torch.from_numpy(whole)})


def test_npy_files_that_hold_no_numbers_are_refused(tmp_path):
    folder, victim = tmp_path / "dump", tmp_path / "victim"
    save(folder, "x", numpy.array([Touches(victim)], dtype=object))
    message = refused_by_program(tmp_path / "out", "npy", folder)
    assert "it holds a pickle, and TTrace runs no code of one" in message
    assert not victim.exists()
    save(folder, "x", numpy.array(["text"]))
    assert "numpy's type <U4, which no tensor has" in refused(tmp_path / "out", "npy", folder)
    save(folder, "x", numpy.ones(100))
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-100])
    assert "x.npy cannot be read as a .npy file" in refused(tmp_path / "out", "npy", folder)
    assert "is no folder" in refused(tmp_path / "out", "npy", folder / "x.npy")
    assert "holds no .npy file" in refused(tmp_path / "out", "npy", HERE / "programs")


# --- SGLang's dumper -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sglang(tmp_path_factory) -> Path:
    return run_program("dumped_by_sglang.py", tmp_path_factory.mktemp("sglang"))


@needs_foreign
def test_sglang_dumps_come_bit_for_bit(sglang, tmp_path):
    truth = torch.load(sglang / "truth.pt")
    trace = imported(
        tmp_path / "out", "sglang", sglang / "dump", by_program=True
    )  # which holds the run's folder
    assert_holds(trace, truth | {f"s{step}/scalar/rate/0": torch.tensor(0.5).double() for step in range(2)})
    assert len(trace) == len(truth) + 2 and trace.steps == [0, 1]
    names = list(trace)
    tokens, first = names.index("s0/m0/data/tokens/0"), names.index("s0/m0/output/layers.0.hidden_states/0")
    assert tokens < first < names.index("s0/m0/grad_output/layers.0.hidden_states/0")
    assert any("name=lengths" in note and "(dict)" in note for note in trace.notes)


@needs_foreign
def test_one_step_of_sglang_dumps_can_be_chosen(sglang, tmp_path):
    assert imported(tmp_path / "out", "sglang", sglang / "dump" / "run", "--step", 1).steps == [1]
    message = refused(tmp_path / "out", "sglang", sglang / "dump" / "run", "--step", 5)
    assert "has no step 5; it has 0, 1" in message


@needs_foreign
def test_a_wrong_tensor_of_sglang_dumps_is_the_first_divergence(sglang, tmp_path):
    wrong = run_program("dumped_by_sglang.py", tmp_path / "wrong", "--wrong")
    reference = imported(tmp_path / "out", "sglang", sglang / "dump")
    candidate = imported(tmp_path / "out", "sglang", wrong / "dump")
    result = ttrace_program("diff", reference.directory, candidate.directory)
    assert result.returncode == 1
    assert "reference  imported from sglang, 1 rank, bf16 (" in result.stdout
    assert "DIVERGED  layers.1.hidden_states: output, step 0, micro-batch 0" in result.stdout
    assert "candidate = a x reference, a = 2.000" in result.stdout
    assert "files of other tools have no noise passes" in result.stdout
    assert ttrace_program("diff", reference.directory, reference.directory).returncode == 0


@needs_foreign
def test_what_sglang_programs_say_of_dims_and_ranks_is_used(tmp_path):
    folder = run_ranks(2, "dumped_by_sglang.py", tmp_path / "dumped", "--tp")
    target = tmp_path / "trace"
    assert "error" not in run(["sglang", str(folder / "dump"), "-o", str(target)])
    trace = ttrace.open(target)
    assert trace.manifest["layout"] == {"tp": "2", "etp": "2"}
    truth = torch.load(folder / "truth.pt")
    for name, whole in truth.items():
        torch.testing.assert_close(trace[name].merged().float(), whole, rtol=0, atol=0)
    assert trace["s0/m0/output/addends/0"].parts[0].addends == 2
    unsaid = trace["s0/m0/output/unsaid/0"].parts
    assert all(part.undeclared for part in unsaid) and [part.shape for part in unsaid] == [(2, 8), (1, 8)]


def sglang_file(folder: Path, value: object, **tags: object) -> Path:
    """As earlier versions of the dumper wrote it."""
    folder.mkdir(exist_ok=True)
    tags = {"forward_pass_id": 1, "rank": 0, "name": "x", "dump_index": 1, **tags}
    file = folder / ("___".join(f"{key}={tag}" for key, tag in tags.items()) + ".pt")
    torch.save(value, file)
    return file


def test_earlier_sglang_dumps_and_tags_of_a_program_are_read(tmp_path):
    folder = tmp_path / "dump"
    content = torch.randn(2, 2)
    sglang_file(folder, content, name="attn_out", layer_id=3)
    sglang_file(
        folder, {"value": content, "meta": {}}, name="attn_out", layer_id=3, dump_index=2, phase="decode"
    )
    sglang_file(folder, content, name="non_intrusive__model.layers.0.inputs.1", dump_index=3, layer_id=0)
    sglang_file(folder, content, name="non_intrusive__output", dump_index=4)
    sglang_file(folder, content, name="grad__non_intrusive__model.norm.inputs.0", dump_index=5)
    sglang_file(folder, content, name="attn_out", layer_id=3, dump_index=6, recompute_status="recompute")
    trace = imported(tmp_path / "out", "sglang", folder)
    assert sorted(trace) == [
        "s1/m0/grad_input/model.norm/0", "s1/m0/input/model.layers.0/1",
        "s1/m0/output/layers.3.attn_out.phase-decode/0", "s1/m0/output/layers.3.attn_out/0",
        "s1/m0/output/layers.3.attn_out/0~", "s1/m0/output/root/0",
    ]  # fmt: skip


def test_dims_of_sglang_that_say_nothing_here_are_named_and_those_that_do_not_fit_refused(tmp_path):
    folder = tmp_path / "dump"
    sglang_file(folder, {"value": torch.ones(2, 2), "meta": {"dims": "b h # dp:=moe_dp"}})
    trace = imported(tmp_path / "out", "sglang", folder)
    assert any("was not understood" in note for note in trace.notes), trace.notes
    (tmp_path / "dims.yaml").write_text("tensors:\n  - path: x\n    value: b h\n")
    sglang_file(folder, {"value": torch.ones(2, 2), "meta": {"dims": "b s h"}})
    message = refused(tmp_path / "out", "sglang", folder)
    assert "says that its dims are 'b s h'" in message and "--dims FILE" in message
    trace = imported(tmp_path / "out", "sglang", folder, "--dims", tmp_path / "dims.yaml")
    assert list(trace) == ["s1/m0/output/x/0"]


def test_hostile_and_damaged_sglang_dumps_are_refused(tmp_path):
    folder, victim, out = tmp_path / "dump", tmp_path / "victim", tmp_path / "out"
    sglang_file(folder, torch.ones(2), name="fine")
    for content in (Touches(victim), {"value": Touches(victim), "meta": {}}):
        file = sglang_file(folder, content, dump_index=2)
        message = refused_by_program(out, "sglang", folder)
        assert f"{file} holds an object of " in message and "runs no code of a pickle" in message
        assert not victim.exists()
    torch.save(torch.randn(100), file)
    file.write_bytes(file.read_bytes()[:200])
    assert "cannot be read as a file of torch.save" in refused(out, "sglang", folder)
    file.unlink()
    torch.save(torch.ones(2), folder / "weights.pt")
    assert "weights.pt is no dump of SGLang" in refused(out, "sglang", folder)
    assert "holds no .pt file" in refused(out, "sglang", HERE / "programs")
    (tmp_path / "runs").mkdir()
    for name in "ab":
        sglang_file(tmp_path / "runs" / name, torch.ones(2))
    assert "holds dumps of 2 runs" in refused(out, "sglang", tmp_path / "runs")


# --- msprobe -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def msprobe(tmp_path_factory) -> Path:
    return run_program("dumped_by_msprobe.py", tmp_path_factory.mktemp("msprobe"))


@needs_foreign
def test_msprobe_dumps_come_bit_for_bit(msprobe, tmp_path):
    truth = torch.load(msprobe / "truth.pt")
    assert {value.dtype for value in truth.values()} == {
        torch.int64, torch.bfloat16, torch.float32, torch.float16
    }  # fmt: skip
    trace = imported(tmp_path / "out", "msprobe", msprobe / "dump", by_program=True)
    assert_holds(trace, truth)
    assert trace.steps == [0, 1] and "s0/m0/output/Torch.relu/0" in trace
    names = list(trace)
    assert names.index("s0/m0/output/fc1/0") < names.index("s0/m0/output/fc2/0") < names.index(
        "s0/m0/grad_output/fc2/0"
    )  # fmt: skip
    assert imported(tmp_path / "out", "msprobe", next((msprobe / "dump" / "step1").iterdir())).steps == [1]


@needs_foreign
def test_a_divergence_of_msprobe_dumps_is_named_with_its_line(msprobe, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(msprobe / "dump", changed)
    (file,) = (changed / "step0").glob("*/dump_tensor_data/Module.fc1.Linear.forward.0.output.0.pt")
    torch.save(torch.load(file) * 1.5, file)
    reference = imported(tmp_path / "out", "msprobe", msprobe / "dump")
    candidate = imported(tmp_path / "out", "msprobe", changed)
    report = ttrace.diff(reference.directory, candidate.directory)
    assert report.first_divergence.id == "s0/m0/output/fc1/0"
    assert [verdict.id for verdict in report.findings] == ["s0/m0/output/fc1/0"]
    program = (HERE / "programs" / "dumped_by_msprobe.py").read_text().splitlines()
    line = next(number for number, text in enumerate(program, 1) if "self.fc1(self.embed" in text)
    assert report.first_divergence.source.endswith(f"dumped_by_msprobe.py:{line}")


@needs_foreign
def test_dtensors_of_msprobe_lie_where_it_says(tmp_path):
    folder = run_ranks(2, "dumped_by_msprobe.py", tmp_path / "dumped", "--tensor-parallel")
    target = tmp_path / "trace"
    assert "error" not in run(["msprobe", str(folder / "dump"), "-o", str(target)])
    trace = ttrace.open(target)
    assert_holds(trace, torch.load(folder / "truth.pt"))
    first, second = (trace[f"s0/param/{layer}.weight/0"].boxes(1)[0] for layer in (0, 2))
    assert first.logical_start == (4, 0) and second.logical_start == (0, 4)


@needs_foreign
def test_msprobe_dumps_without_values_are_refused(tmp_path):
    folder = run_program("dumped_by_msprobe.py", tmp_path / "dumped", "--task", "statistics")
    message = refused(tmp_path / "out", "msprobe", folder / "dump")
    assert "names no file of values; dump again with the task `tensor`" in message


def msprobe_folder(folder: Path, name: str = "x.pt", rank: str = "rank0") -> Path:
    """A dump of one output, in msprobe's layout."""
    values = folder / "step0" / rank / "dump_tensor_data"
    values.mkdir(parents=True)
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": name}
    content = {"task": "tensor", "data": {"Module.a.b.Linear.0.forward": {"output": [leaf]}}}
    (values.parent / "dump.json").write_text(json.dumps(content))
    return values


def test_earlier_names_and_ranks_of_msprobe_are_read(tmp_path):
    for rank in range(2):
        torch.save(torch.ones(2), msprobe_folder(tmp_path / "dump", rank=f"rank{rank}") / "x.pt")
    trace = imported(tmp_path / "out", "msprobe", tmp_path / "dump")
    assert [part.rank for part in trace["s0/m0/output/a.b/0"].parts] == [0, 1]


def test_arrays_of_msprobe_on_mindspore_are_read(tmp_path):
    numpy.save(msprobe_folder(tmp_path / "dump", "x.npy") / "x.npy", numpy.float32([1, 2]))
    assert_holds(
        imported(tmp_path / "out", "msprobe", tmp_path / "dump"),
        {"s0/m0/output/a.b/0": torch.tensor([1.0, 2.0])},
    )


def test_hostile_and_damaged_msprobe_dumps_are_refused(tmp_path):
    victim, out, folder = tmp_path / "victim", tmp_path / "out", tmp_path / "dump"
    values = msprobe_folder(folder)
    assert "x.pt, which is missing" in refused(out, "msprobe", folder)
    torch.save(Touches(victim), values / "x.pt")
    assert "runs no code of a pickle" in refused_by_program(out, "msprobe", folder)
    assert not victim.exists()
    (values / "x.pt").write_bytes(b"PK")
    assert "cannot be read as a file of torch.save" in refused(out, "msprobe", folder)
    dump = values.parent / "dump.json"
    text = dump.read_text()
    dump.write_text(text.replace("x.pt", "../../../../secret.pt"))
    assert "which is not in dump_tensor_data" in refused(out, "msprobe", folder)
    dump.write_text(text[:-5])
    assert "dump.json is not what msprobe writes" in refused(out, "msprobe", folder)
    assert "holds no dump.json" in refused(out, "msprobe", HERE / "programs")
    dump.write_text(text)
    shutil.copytree(values.parent, values.parent.parent / "proc7")
    assert "are both rank 0 of step 0" in refused(out, "msprobe", folder)


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    run_program("saved_by_dcp.py", folder / "one", "one")
    run_ranks(2, "saved_by_dcp.py", folder / "fsdp", "fsdp")
    run_ranks(4, "saved_by_dcp.py", folder / "tp", "tp")
    return folder


@pytest.mark.parametrize(("layout", "ranks"), [("one", 1), ("fsdp", 2), ("tp", 4)])
def test_checkpoints_of_all_layouts_hold_the_same_tensors_bit_for_bit(checkpoints, tmp_path, layout, ranks):
    truth = {f"s3/{name}/0": value for name, value in torch.load(checkpoints / "one.truth.pt").items()}
    trace = imported(tmp_path / "out", "dcp", checkpoints / layout, "--step", 3, by_program=True)
    assert_holds(trace, truth)
    assert sorted(trace) == sorted(truth) and trace.manifest["world_size"] == ranks
    assert len(trace["s3/param/0.weight/0"].parts) == ranks


def test_checkpoints_of_two_layouts_are_compared(checkpoints, tmp_path):
    traces = {
        layout: imported(tmp_path / "out", "dcp", checkpoints / layout) for layout in ("one", "fsdp", "tp")
    }
    for layout in ("fsdp", "tp"):
        report = ttrace.diff(traces["one"].directory, traces[layout].directory)
        assert report.verdict == "clean" and report.counts["missing_in_candidate"] == 0
    wrong = run_ranks(2, "saved_by_dcp.py", tmp_path / "wrong", "fsdp", "--wrong")
    report = ttrace.diff(traces["tp"].directory, imported(tmp_path / "out", "dcp", wrong).directory)
    assert [verdict.id for verdict in report.findings] == [
        "s0/param/2.weight/0", "s0/exp_avg/2.weight/0", "s0/exp_avg_sq/2.weight/0",
    ]  # fmt: skip


def test_further_chunks_of_a_rank_get_ranks_of_their_own(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor
    from torch.distributed._shard.sharding_spec import ShardMetadata

    whole = torch.randn(5, 2)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        cuts = [(0, 2), (2, 2), (4, 1)]
        shards = [
            Shard(whole[first : first + count].clone(), ShardMetadata([first, 0], [count, 2], "rank:0/cpu"))
            for first, count in cuts
        ]
        tensor = ShardedTensor._init_from_local_shards(shards, 5, 2)
        dcp.save({"w": tensor, "b": torch.ones(2)}, checkpoint_id=tmp_path / "saved")
    finally:
        torch.distributed.destroy_process_group()
    trace = imported(tmp_path / "out", "dcp", tmp_path / "saved")
    assert_holds(trace, {"s0/param/w/0": whole, "s0/param/b/0": torch.ones(2)})
    assert len(trace["s0/param/w/0"].parts) == 3


def test_hostile_and_damaged_checkpoints_are_refused(checkpoints, tmp_path):
    victim, out, folder = tmp_path / "victim", tmp_path / "out", tmp_path / "saved"
    shutil.copytree(checkpoints / "fsdp", folder)
    metadata, chunks = folder / ".metadata", folder / "__1_0.distcp"
    fine, whole = metadata.read_bytes(), chunks.read_bytes()

    metadata.write_bytes(pickle.dumps(Touches(victim)))
    message = refused_by_program(out, "dcp", folder)
    assert ".system, which is no part of a checkpoint's metadata" in message
    for harmless in ([1, 2], "text"):
        metadata.write_bytes(pickle.dumps(harmless))
        assert "cannot be read as the metadata of a checkpoint" in refused(out, "dcp", folder)
    metadata.write_bytes(fine[:-200])
    assert "cannot be read as the metadata of a checkpoint" in refused(out, "dcp", folder)
    metadata.write_bytes(fine)

    chunks.write_bytes(whole[:-100])
    assert "__1_0.distcp ends within" in refused(out, "dcp", folder)
    chunks.write_bytes(b"\0" * len(whole))
    assert "cannot be read as a file of torch.save" in refused(out, "dcp", folder)
    loaded = pickle.loads(fine)
    index, info = next(
        (index, info)
        for index, info in loaded.storage_data.items()
        if index.fqn == "model.0.weight" and info.relative_path == chunks.name
    )
    torch.save(Touches(victim), tmp_path / "hostile.pt")
    hostile = (tmp_path / "hostile.pt").read_bytes()
    chunks.write_bytes(whole + hostile)
    loaded.storage_data[index] = type(info)(info.relative_path, len(whole), len(hostile))
    metadata.write_bytes(pickle.dumps(loaded))
    assert "runs no code of a pickle" in refused(out, "dcp", folder)
    chunks.unlink()
    assert "__1_0.distcp cannot be read" in refused(out, "dcp", folder)
    assert not victim.exists()
    metadata.unlink()
    assert "has no file .metadata" in refused(out, "dcp", folder)


def test_a_checkpoint_that_patches_classes_or_names_files_elsewhere_is_refused(checkpoints, tmp_path):
    """A pickle set pathlib's PosixPath.name, and the import then read a file beside the checkpoint."""
    out, folder = tmp_path / "out", tmp_path / "saved"
    shutil.copytree(checkpoints / "one", folder)
    metadata, chunks = folder / ".metadata", folder / "__0_0.distcp"
    fine = metadata.read_bytes()
    shutil.copy(chunks, tmp_path / "outside.distcp")
    loaded = pickle.loads(fine)
    for index, info in list(loaded.storage_data.items()):
        loaded.storage_data[index] = type(info)("../outside.distcp", info.offset, info.length)
    elsewhere = pickle.dumps(loaded)
    metadata.write_bytes(elsewhere)
    assert "names the file ../outside.distcp, which is not in it" in refused(out, "dcp", folder)

    # BUILD with the state (None, {"name": "../outside.distcp"}) sets attributes of the class before it.
    for name in (b"pathlib\nPosixPath", b"torch.distributed.checkpoint.metadata\nMetadata"):
        patch = b"c" + name + b"\nN}X\x04\0\0\0nameX\x11\0\0\0../outside.distcps\x86b0"
        for content in (elsewhere, fine):
            metadata.write_bytes(content[:2] + patch + content[2:])
            assert "cannot be read as the metadata of a checkpoint" in refused(out, "dcp", folder)
    assert Path("a/b").name == "b" and not hasattr(torch.distributed.checkpoint.Metadata, "name")

    chunks.unlink()
    chunks.symlink_to(tmp_path / "outside.distcp")
    metadata.write_bytes(fine)
    assert "__0_0.distcp is a link to " in refused(out, "dcp", folder)


def test_what_a_checkpoint_holds_beside_tensors_is_never_read(checkpoints, tmp_path):
    victim = tmp_path / "victim"
    import torch.distributed.checkpoint as dcp

    dcp.save({"w": torch.ones(2), "other": Touches(victim)}, checkpoint_id=tmp_path / "saved")
    trace = imported(tmp_path / "out", "dcp", tmp_path / "saved")
    assert list(trace) == ["s0/param/w/0"] and not victim.exists()


# --- the command ---------------------------------------------------------------------------------


def test_nothing_in_the_working_folder_runs(tmp_path):
    """`cd DUMP; ttrace import sglang .` ran a torch.py of the dump."""
    dump, victim = tmp_path / "dump", tmp_path / "victim"
    dump.mkdir()
    numpy.save(dump / "x.npy", numpy.ones(2, numpy.float32))
    for module in ("torch", "numpy", "json", "os", "runpy", "sitecustomize", "encodings"):
        (dump / f"{module}.py").write_text(f"open({str(victim)!r}, 'w').close()\nraise ImportError('hijacked')\n")
    for path in ("{}", ":{}", "{}:", ".:{}"):
        environment = {"PYTHONPATH": path.format(os.environ.get("PYTHONPATH", "/nowhere"))}
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        words = ("import", "npy", ".", "-o", out, "--python", sys.executable)
        result = ttrace_program(*words, environment=environment, cwd=dump)
        assert result.returncode == 0, result.stderr
        assert not victim.exists()


def test_links_out_of_a_dump_are_refused_but_not_those_of_a_cache(tmp_path):
    out, folder, outside = tmp_path / "out", tmp_path / "dump", tmp_path / "outside.npy"
    folder.mkdir()
    numpy.save(outside, numpy.ones(2, numpy.float32))
    numpy.save(folder / "a.npy", numpy.ones(2, numpy.float32))
    (folder / "b.npy").symlink_to("a.npy")
    imported(out, "npy", folder)
    (folder / "c.npy").symlink_to(outside)
    assert f"c.npy is a link to {outside}, which lies outside of {folder}" in refused(out, "npy", folder)

    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "0", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    safetensors.save_file({"w": torch.ones(2)}, blobs / "1")
    (snapshot / "model.safetensors").symlink_to("../../blobs/1")
    imported(out, "safetensors", snapshot)
    (snapshot / "other.safetensors").symlink_to("../../../outside.npy")
    assert "other.safetensors is a link to" in refused(out, "safetensors", snapshot)


def test_wrong_arguments_are_refused_with_the_remedy(tmp_path):
    out, file = tmp_path / "out", tmp_path / "x.safetensors"
    safetensors.save_file({"w": torch.ones(2)}, file)
    assert "does not know the format 'safetensor'" in refused_by_program(out, "safetensor", file)
    assert "does not know what to read" in refused_by_program(out, "safetensors")
    assert "nowhere does not exist" in refused_by_program(out, "safetensors", tmp_path / "nowhere")
    assert "paramm" in refused_by_program(out, "safetensors", file, "--kind", "paramm")
    assert "--kind does not go with sglang" in refused_by_program(out, "sglang", tmp_path, "--kind", "param")
    assert "--dims does not go with dcp" in refused_by_program(out, "dcp", tmp_path, "--dims", file)
    assert "fp7" in refused_by_program(out, "safetensors", file, "--precision", "fp7")
    no_output = ttrace_program("import", "safetensors", file)
    assert no_output.returncode == 2 and "does not know where to write" in no_output.stderr
    (out / "full").mkdir()
    (out / "full" / "mine").write_text("kept")
    result = ttrace_program("import", "safetensors", file, "-o", out / "full", "--python", sys.executable)
    assert result.returncode == 2 and "full is not empty" in result.stderr
    assert (out / "full" / "mine").read_text() == "kept"


def test_an_interpreter_without_package_or_library_is_named(tmp_path):
    out, file = tmp_path / "out", tmp_path / "it's.safetensors"
    safetensors.save_file({"w": torch.ones(2)}, file)
    without_package = f"env -u PYTHONPATH {sys.executable} -I"
    message = refused_by_program(out, "safetensors", file, "--python", without_package)
    assert "No module named 'ttrace'" in message and "ttrace doctor" in message
    assert "not found" in refused_by_program(out, "safetensors", file, "--python", "/nowhere/python")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "safetensors.py").write_text("raise ImportError('libfoo.so is missing')\n")
    environment = {"PYTHONPATH": f"{broken}:{os.environ['PYTHONPATH']}"}
    message = refused_by_program(out, "safetensors", file, environment=environment)
    assert "needs the Python package safetensors" in message and "libfoo.so is missing" in message
    assert_holds(imported(out, "safetensors", file, by_program=True), {"s0/param/w/0": torch.ones(2)})


def test_all_kinds_are_known_but_those_that_only_traced_runs_have():
    named = re.findall(r'\.name = "(\w+)"', (ROOT / "trace" / "base" / "kind.h").read_text())
    ours = ["collective_input", "collective_output", "operator", "operator_grad", "operators"]
    assert sorted(named) == sorted([*KINDS, *ours])


def test_precisions_follow_from_the_types(tmp_path):
    def precision(*types: torch.dtype) -> str:
        content = {str(i): torch.ones(2).to(dtype) for i, dtype in enumerate(types)}
        safetensors.save_file(content, tmp_path / "x.safetensors")
        return imported(tmp_path / "out", "safetensors", tmp_path / "x.safetensors").manifest["precision"]

    assert precision(torch.float32, torch.bfloat16) == "bf16"
    assert precision(torch.float64, torch.float32) == "f32"
    assert precision(torch.float8_e4m3fn, torch.bfloat16) == "fp8"
    assert precision(torch.int64) == "f32"

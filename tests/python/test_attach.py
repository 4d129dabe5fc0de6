"""What a program sees of TTrace where nothing traces it, and where it does something wrong."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import ttrace
from conftest import HANG
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def test_without_variables_a_tracer_is_inert():
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU())
    optimizer = torch.optim.AdamW(model.parameters())
    tracer = ttrace.attach(model, optimizer=optimizer)
    assert not tracer.active
    with tracer.step(0) as step:
        step.loss(model(torch.ones(1, 2)))
        step.data("x", torch.ones(1))
        step.scalar("y", 1.0)
    for module in model.modules():
        assert not any(getattr(module, name) for name in HOOKS)
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_an_exception_in_an_inert_step_passes_through():
    tracer = ttrace.attach(nn.Linear(2, 2))
    with pytest.raises(KeyError), tracer.step(0):
        raise KeyError("x")


def test_a_loss_outside_of_a_traced_step_is_not_recorded():
    """`tracer.loss` raised in a run without ttrace: loops that are not the program's own have no other way to
    record a loss, so such a program died in its first step."""
    model = nn.Linear(2, 2)
    tracer = ttrace.attach(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), steps="optimizer")
    tracer.loss(model(torch.ones(1, 2)))
    tracer.data("x", torch.ones(1))


def test_no_method_of_an_inert_tracer_does_anything():
    """What a tracer does was asked of parts that it has only in a traced step."""
    tracer = ttrace.attach(nn.Linear(2, 2))
    tensor = torch.ones(1)
    assert tracer.routing(tensor, tensor) is tensor
    assert tracer.microbatch(0) is False
    assert tracer.watch_loss(abs) is abs
    tracer.follow(torch.optim.SGD([tensor], lr=0.1))
    tracer.scalar("x", 1.0)
    tracer.called("x")
    tracer.derive("x", "value", 0, "a")
    tracer.sent("x", tensor)
    tracer.received("x", tensor)
    tracer.parameters_gathered(["x"])
    tracer.gradients_reduced([])
    tracer.parameters_updated([])


def test_untraced_steps_of_a_traced_run_record_nothing(tmp_path):
    """The same error ended the training in the first step after the traced one."""
    result = run(
        "model = nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "tracer = ttrace.attach(model, optimizer=optimizer, steps='optimizer')\n"
        "for _ in range(3):\n"
        "    loss = model(torch.ones(1, 2)).sum()\n"
        "    tracer.loss(loss)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "print('trained')\n",
        tmp_path,
    )
    assert "trained" in result.stdout, result.stderr
    assert ttrace.open(tmp_path).find("/loss/")


def test_a_program_that_ends_before_the_traced_step_leaves_which_steps_it_ran(tmp_path):
    """`--steps` beyond the end was "exited with status 0 before the trace was complete"."""
    loop = (
        "model = nn.Linear(2, 2)\n"
        "tracer = ttrace.attach(model)\n"
        "for i in range(3):\n"
        "    with tracer.step(i):\n"
        "        model(torch.ones(1, 2))\n"
    )
    early = run(loop, tmp_path, TTRACE_STEPS="5")
    assert early.returncode == 0, early.stderr
    seen = json.loads((tmp_path / "ranks" / "rank00000.json").read_text())
    assert (seen["first"], seen["last"], seen["awaited"]) == (0, 2, 5)
    forgotten = run("ttrace.attach(nn.Linear(2, 2))", tmp_path / "forgotten")
    assert forgotten.returncode == 0, forgotten.stderr
    seen = json.loads((tmp_path / "forgotten" / "ranks" / "rank00000.json").read_text())
    assert "first" not in seen and seen["awaited"] == 0
    complete = run(loop, tmp_path / "complete", TTRACE_STEPS="1:3")
    assert complete.returncode == 0, complete.stderr
    assert not (tmp_path / "complete" / "ranks").exists()


def test_two_processes_that_take_themselves_for_one_rank_are_refused(tmp_path):
    """Both wrote the same file, and the report compared one of them."""
    other = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
    second = "import ttrace; from torch import nn; ttrace.attach(nn.Linear(2, 2))"
    result = run(f"ttrace.attach(nn.Linear(2, 2))\nimport sys; sys.argv = ['', {second!r}]\n{other}\n", tmp_path,
                 TTRACE_COUNT="1")  # fmt: skip
    assert result.returncode != 0
    assert "another process has already attached as rank 0 of 1" in result.stderr


def test_precision_is_the_programs_own_without_variables():
    assert ttrace.precision("bf16") == "bf16"


@pytest.mark.parametrize(
    ("own", "name", "dtype"),
    [
        (torch.bfloat16, "bf16", torch.bfloat16),
        ("bfloat16", "bf16", torch.bfloat16),
        ("torch.float32", "f32", torch.float32),
        ("fp32", "f32", torch.float32),
        ("fp16", "f16", torch.float16),
        ("double", "f64", torch.float64),
        ("fp8", "fp8", torch.bfloat16),
        ("fp8_f32", "fp8_f32", torch.float32),
    ],
)
def test_a_precision_has_its_usual_spellings(own, name, dtype):
    """A type of torch was refused with details of a cast, and "bfloat16" was handed back as it was."""
    assert ttrace.precision(own) == name
    assert ttrace.dtype(own) == dtype


def test_another_precision_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="ttrace.precision got 'bf17'; pass torch.float64, .* or one of bf16, f16"):
        ttrace.precision("bf17")
    with pytest.raises(ValueError, match="got torch.int8"):
        ttrace.dtype(torch.int8)


def test_a_tracer_has_all_that_a_recorder_promises():
    promised = {name: value for name, value in vars(ttrace.Recorder).items() if not name.startswith("_")}
    assert {"in_step", "microbatch", "gradients_reduced", "parameters_updated"} <= promised.keys()
    for name, value in promised.items():
        own = inspect.getattr_static(ttrace.Tracer, name)
        assert type(own) is type(value), name
        if callable(value):
            assert inspect.signature(own) == inspect.signature(value), name


def run(code: str, tmp_path: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "TTRACE_PASS": "reference", "TTRACE_DIR": str(tmp_path), **variables}
    return subprocess.run(
        [sys.executable, "-c", "import torch, ttrace\nfrom torch import nn\n" + code],
        capture_output=True, text=True, env=environment, timeout=HANG, check=False,
    )  # fmt: skip


def test_what_is_no_model_is_named(tmp_path):
    result = run("ttrace.attach('gpt')", tmp_path)
    assert result.returncode != 0
    assert "TypeError: ttrace.attach got a str" in result.stderr


def test_a_model_of_flat_parameters_is_refused_by_name(tmp_path):
    """The report said "ended by signal 9" and a sentence about a model of another kind. FSDP1 is traced where it shows
    the model's own parameters."""
    result = run(
        "import torch.distributed as dist\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "model = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device('cpu'))\n"
        "ttrace.attach(nn.Sequential(model))\n",
        tmp_path,
    )
    assert result.returncode != 0
    assert "TypeError: ttrace.attach got a model in FullyShardedDataParallel (FSDP1)" in result.stderr
    assert "fully_shard (FSDP2)" in result.stderr


def test_a_rank_without_a_process_group_is_refused(tmp_path):
    """Two ranks attached before init_process_group wrote one file, and the report compared rank 0 alone."""
    code = "ttrace.attach(nn.Linear(2, 2))\nprint('attached')\n"
    refused = run(code, tmp_path, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    assert refused.returncode != 0
    assert "call torch.distributed.init_process_group before ttrace.attach" in refused.stderr
    # One process of torchrun, and a single-device program on a node whose job has more ranks, are right.
    alone = run(code, tmp_path / "alone", WORLD_SIZE="1", RANK="0", LOCAL_RANK="0")
    assert "attached" in alone.stdout, alone.stderr
    beside = run(code, tmp_path / "beside", WORLD_SIZE="2", RANK="0")
    assert "attached" in beside.stdout, beside.stderr


def test_parameters_in_another_precision_than_asked_for_are_said_as_that(tmp_path):
    """The message spoke of a program that does not follow Session::precision(), which it did."""
    code = "ttrace.precision('bf16')\nttrace.attach(nn.Linear(2, 2))\nprint('attached')\n"
    refused = run(code, tmp_path, TTRACE_PRECISION="f64")
    assert "this pass asks for f64, which this program does not reach" in refused.stderr
    assert 'passes "bf16" to ttrace.precision, but its parameters are f32' in refused.stderr
    assert 'pass "f32"' in refused.stderr
    accepted = run(code, tmp_path)
    assert "attached" in accepted.stdout, accepted.stderr


def test_the_manifest_says_what_models_of_other_names_call_things(tmp_path):
    """Heads, layers and tokens of a Hugging Face model were not found, because only Megatron's names were."""
    result = run(
        "model = nn.Linear(2, 2)\n"
        "tracer = ttrace.attach(model)\n"
        "with tracer.step(0) as step:\n"
        "    step.loss(model(torch.ones(1, 2)).sum())\n",
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    roles = json.loads((tmp_path / "manifest.json").read_text())["roles"]
    assert roles["tokens"] == "tokens input_ids"
    assert "*attn*" in roles["attention"]


def test_an_unknown_option_is_named(tmp_path):
    result = run("ttrace.attach(nn.Linear(2, 2), batch_axis=1)", tmp_path)
    assert "batch_axis" in result.stderr


def test_a_library_that_is_not_there_is_named_with_the_remedy(tmp_path):
    result = run("", tmp_path, LIBTTRACE_TORCH="/nowhere/lib.so")
    assert result.returncode != 0
    assert "ImportError: /nowhere/lib.so does not exist (LIBTTRACE_TORCH names it)" in result.stderr


def package_with_libraries_for(tmp_path: Path, *versions: str) -> str:
    """A copy of the package that claims to have libraries for these versions of torch."""
    shutil.copytree(ttrace.__path__[0], tmp_path / "ttrace", ignore=shutil.ignore_patterns("lib"))
    library = tmp_path / "ttrace" / "lib"
    for version in versions:
        (library / f"torch-{version}").mkdir(parents=True)
        (library / f"torch-{version}" / "libttrace_torch.so").write_bytes(b"")
        (library / "libttrace.so").write_bytes(b"")
    return str(tmp_path)


def test_a_torch_that_the_package_has_no_library_for_is_named_with_the_remedies(tmp_path):
    package = package_with_libraries_for(tmp_path, "1.13", "1.9", "1.10")
    result = run("", tmp_path, PYTHONPATH=package, LIBTTRACE_TORCH="")
    assert f"ImportError: this is torch {torch.__version__}, but this ttrace has libraries for 1.9, 1.10 and 1.13" in result.stderr
    assert f"{tmp_path}/ttrace/adapter has no sources to compile it from; install" in result.stderr


def test_of_several_libraries_the_one_for_this_torch_is_loaded(tmp_path):
    present = ".".join(torch.__version__.split(".")[:2])
    package = package_with_libraries_for(tmp_path, "1.13", present)
    result = run("", tmp_path, PYTHONPATH=package, LIBTTRACE_TORCH="")
    # It is empty here, so that loading it fails by name.
    assert f"lib/torch-{present}/libttrace_torch.so cannot be loaded into torch" in result.stderr


def test_a_package_without_any_library_is_named_with_the_remedy(tmp_path):
    result = run("", tmp_path, PYTHONPATH=package_with_libraries_for(tmp_path), LIBTTRACE_TORCH="")
    assert "ttrace/lib has no libttrace.so; install the package with `pip install .`" in result.stderr


def test_a_step_in_which_the_program_raises_is_marked_failed(tmp_path):
    code = """
model = nn.Linear(2, 2)
tracer = ttrace.attach(model)
with tracer.step(0):
    model(torch.ones(1, 2))
    raise ValueError("no data left")
"""
    result = run(code, tmp_path)
    assert "ValueError: no data left" in result.stderr
    failed = tmp_path / "step000000" / "rank00000.failed"
    assert "the training program raised ValueError within the traced step: no data left" in failed.read_text()
    assert not (tmp_path / "step000000" / "rank00000.h5").exists()


def test_modules_have_hooks_only_while_a_step_is_traced(tmp_path):
    code = """
model = nn.Sequential(nn.Linear(2, 2), torch.compile(nn.Linear(2, 2), backend="eager"))
tracer = ttrace.attach(model)
def hooks():
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
def run(number, raises=False):
    try:
        with tracer.step(number):
            model(torch.ones(1, 2))
            counts.append(hooks())
            if raises:
                raise KeyError
    except KeyError:
        pass
    counts.append(hooks())
counts = [hooks()]
run(0)
run(1)
run(2, raises=True)
assert counts[0] == counts[1] == counts[2] == counts[4] == counts[6] == 0, counts
assert counts[3] > 6 and counts[5] == counts[3], counts
"""
    result = run(code, tmp_path, TTRACE_STEPS="1:4")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "step000001" / "rank00000.h5").exists()


def test_a_loss_before_any_forward_is_an_error_that_says_so(tmp_path):
    result = run("with ttrace.attach(nn.Linear(2, 2)).step(0) as s:\n    s.loss(torch.ones(1))", tmp_path)
    assert "loss was recorded before the model's first forward in this step" in result.stderr

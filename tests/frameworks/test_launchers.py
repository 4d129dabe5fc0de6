"""The launchers of docs/launchers.md as they are installed, checked with `--auto`, and by lines in a configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FRAMEWORKS = Path(__file__).parent
sys.path[:0] = [str(FRAMEWORKS.parent / "python")]

from conftest import ROOT, Checker, python, torchrun  # noqa: E402

LAUNCH = f"{FRAMEWORKS / 'titan' / 'launch.py'} --module configs --config"
MEGATRON = f"{FRAMEWORKS / 'without_lines.py'} {ROOT / 'examples' / 'megatron_core' / 'train.py'} --layers 1 --steps 1"
FEW = ("--noise", "2", "--no-forced")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def of_torchtitan(check, options: str, config: str = "small", bug: str = ""):
    pytest.importorskip("torchtitan", reason="torchtitan cannot be imported; ./dev frameworks installs it")
    planted = f"{FRAMEWORKS / 'with_bug.py'} titan {bug}" if bug else ""
    auto = ("--auto",) if config == "small" else ()
    candidate = torchrun(2, f"{planted} {LAUNCH} {config} {options}")
    return check(torchrun(1, f"{LAUNCH} {config}"), candidate, *auto, *FEW, steps="0:1")


TP, FSDP = "--parallelism.tensor_parallel_degree 2", "--parallelism.data_parallel_shard_degree 2 --training.local_batch_size 4"


@pytest.mark.parametrize("options", [TP, pytest.param(FSDP, marks=pytest.mark.full)], ids=["tp", "fsdp"])
def test_torchtitans_launcher_is_checked_without_a_line(check, options):
    outcome = of_torchtitan(check, options)
    assert outcome.code == 0, outcome.summary()
    assert {"s0/m0/output/layers.0.feed_forward.w2/0", "s0/main_grad/layers.0.ffn_norm.weight/0"} <= set(outcome.ids())


def test_a_bug_under_torchtitans_launcher_is_located(check):
    outcome = of_torchtitan(check, TP, bug="norm-gradient-of-one-shard")
    assert outcome.first == "s0/main_grad/layers.0.ffn_norm.weight/0", outcome.summary()


@pytest.mark.full
def test_lines_in_a_configuration_of_torchtitan_see_the_loss(check):
    outcome = of_torchtitan(check, FSDP, "traced")
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/loss/loss/0" in outcome.ids()


def of_megatron(check, options: str):
    pytest.importorskip("megatron.core", reason="megatron-core cannot be imported; ./dev setup installs it")
    return check(python(MEGATRON), torchrun(2, f"{MEGATRON} {options}"), "--auto", *FEW, steps="0:1")


def test_megatron_is_checked_without_a_line(check):
    """Symptom: steps="optimizer" got a ChainedOptimizer; pass a torch.optim.Optimizer."""
    outcome = of_megatron(check, "--tp 2 --sp")
    assert outcome.code == 0, outcome.summary()
    wanted = {"s0/m0/output/decoder.layers.0.mlp.linear_fc2/0", "s0/main_grad/decoder.layers.0.mlp.linear_fc2.weight/0"}
    assert wanted <= set(outcome.ids())


def test_a_defect_of_megatron_is_located_without_a_line(check):
    """megatron-core 0.16.1 sums a copy of embeddings that are not contiguous, and returns the original."""
    outcome = of_megatron(check, "--tp 2 --deterministic --transposed-batch")
    assert outcome.first == "s0/m0/output/embedding.word_embeddings/0", outcome.summary()

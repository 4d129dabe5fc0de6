"""Trainers of Lightning, and modules that they train, as `attach` and `attach_trainer` get them."""

from __future__ import annotations

import subprocess

import pytest
from conftest import HANG, HERE, Checker, python, torchrun

pytest.importorskip("lightning", reason="lightning cannot be imported; ./dev frameworks installs it")
PROGRAM = str(HERE / "programs" / "lightning_loops.py")
MODULES = ("lightning.pytorch",)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def run(check, options: str = "", of_both: str = ""):
    candidate = torchrun(2, f"{PROGRAM} {of_both} {options}", MODULES)
    return check(python(f"{PROGRAM} {of_both}", MODULES), candidate, "--noise", "2", steps="0:2")


full = pytest.mark.full


@pytest.mark.parametrize("attach", [pytest.param("trainer", marks=full), pytest.param("wrapper", marks=full), "module"])
def test_automatic_optimization_is_traced_however_one_attaches(check, attach):
    """Symptom: gradients were read before the closure that computes them ran, so that no main gradient was recorded; and the
    module without its DDP wrapper was a program whose ranks nobody knew."""
    outcome = run(check, of_both=f"--attach {attach}")
    assert outcome.code == 0, outcome.summary()
    assert {"s0/main_grad/net.0.weight/0", "s1/exp_avg/net.2.bias/0", "s1/m0/output/net.2/0"} <= set(outcome.ids())
    assert not outcome.ids("missing_in_reference") and not outcome.ids("missing_in_candidate")


@full
def test_a_wrong_gradient_of_automatic_optimization_is_found(check):
    outcome = run(check, "--wrong", "--attach trainer")
    assert outcome.first == "s0/main_grad/net.0.weight/0", outcome.summary()


@full
def test_two_optimizers_of_one_batch_are_one_step(check):
    outcome = run(check, of_both="--two --attach trainer")
    assert outcome.code == 0, outcome.summary()
    assert {"s1/exp_avg/net.0.weight/0", "s1/exp_avg/other.weight/0"} <= set(outcome.ids())


@full
def test_a_forward_behind_the_first_optimizers_step_is_said_to_be_unseen(check):
    """Symptom: the second forward of a batch was not recorded, and no report said so."""
    outcome = run(check, of_both="--two --alternate --attach trainer")
    assert outcome.code == 0, outcome.summary()
    assert "s1/exp_avg/other.weight/0" in outcome.ids()
    unseen = [entry for entry in outcome.report["not_seen"] if "after gradients were clipped" in entry["sentence"]]
    assert {(entry["kind"], entry["side"]) for entry in unseen} >= {("gradients", "both")}


def test_samples_that_lightning_shuffles_are_said_to_be_others(check):
    """Symptom: "check what chooses the rows of net: the router and the exchange of tokens"."""
    outcome = run(check, "--shuffled", "--attach trainer")
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/m0/input/net/0", outcome.summary()
    assert "DistributedSampler" in outcome.report["first_divergence"]["where_to_look"]


@pytest.mark.parametrize("attach", [pytest.param("before", marks=full), "setup"])
def test_a_module_that_its_trainer_has_not_set_up_is_refused(attach):
    """Symptom: two processes that call no init_process_group of their own were told to call it."""
    environment = "env TTRACE_PASS=candidate TTRACE_STEPS=0 TTRACE_DIR=/nowhere"
    command = f"{environment} {torchrun(2, f'{PROGRAM} --attach {attach}', MODULES)}"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG, check=False)
    assert result.returncode != 0
    assert "got the LightningModule Task before its Trainer has set it up" in result.stderr
    assert "call ttrace.attach_trainer(trainer) before trainer.fit()" in result.stderr


@full
def test_what_fabric_returns_is_traced_in_its_wrapper(check):
    """Symptom: the module around DDP was a program whose ranks nobody knew, and its modules had names of the wrapper."""
    program = str(HERE / "programs" / "fabric_loop.py")
    right, wrong = (torchrun(2, f"{program} {option}", MODULES) for option in ("", "--wrong"))
    outcome = check(python(program, MODULES), right, "--noise", "2")
    assert outcome.code == 0, outcome.summary()
    assert {"s1/m0/output/2/0", "s1/main_grad/0.weight/0", "s1/exp_avg/0.weight/0"} <= set(outcome.ids())
    found = check(python(program, MODULES), wrong, "--noise", "2")
    assert found.first == "s0/m0/grad_output/2/0", found.summary()


def test_what_is_no_trainer_is_refused():
    import ttrace

    with pytest.raises(TypeError, match="got a list; pass a Trainer of transformers or of Lightning"):
        ttrace.attach_trainer([])

"""Callbacks that a user adds to the Trainer of transformers or of Lightning, where no line of the program can be changed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import HANG, HERE, Checker, python, torchrun

HF, PL = (str(HERE / "programs" / name) for name in ("transformers_callback.py", "lightning_loops.py"))
FIRST = "s0/main_grad/net.0.weight/0"


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def of_transformers(check, options: str = "", *of_check: str):
    pytest.importorskip("transformers", reason="transformers cannot be imported; ./dev frameworks installs it")
    modules = ("transformers.trainer",)
    return check(python(HF, modules), torchrun(2, f"{HF} {options}", modules), "--noise", "2", *of_check)


def of_lightning(check, package: str, options: str = ""):
    pytest.importorskip(package, reason=f"{package} cannot be imported; ./dev frameworks installs it")
    both = f"{PL} --attach callback --package {package}"
    return check(python(both, (package,)), torchrun(2, f"{both} {options}", (package,)), "--noise", "2")


def expect_all(outcome) -> None:
    """That both steps are compared whole, in the wrapper for data parallelism and with the optimizer."""
    assert outcome.code == 0, outcome.summary()
    ids = outcome.ids()
    assert {FIRST, "s1/exp_avg/net.2.bias/0", "s1/m0/output/net.2/0", "s1/param_next/net.0.weight/0"} <= set(ids)
    assert not outcome.ids("missing_in_reference") and not outcome.ids("missing_in_candidate")
    assert outcome.report["candidate"]["layout"] == {"dp": "2"}


def test_a_trainer_of_transformers_is_traced_by_a_callback(check):
    outcome = of_transformers(check)
    expect_all(outcome)
    assert {"s0/m1/output/net.2/0", "s1/m1/grad_output/net.0/0"} <= set(outcome.ids()), "both micro-batches"


def test_a_wrong_gradient_of_a_trainer_of_transformers_is_found(check):
    outcome = of_transformers(check, "--wrong")
    assert outcome.first == FIRST, outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == "wrong_factor"


@pytest.mark.parametrize("options", [("--attach",), ("", "--auto")], ids=["attach_trainer", "auto"])
def test_a_trainer_that_has_the_callback_is_not_traced_twice(check, options):
    """Symptom: "Session::attach was called twice in this process", also where a program with attach_trainer ran with --auto."""
    expect_all(of_transformers(check, *options))


@pytest.mark.parametrize("package", ["lightning.pytorch", pytest.param("pytorch_lightning", marks=pytest.mark.full)])
def test_a_trainer_of_lightning_is_traced_by_a_callback(check, package):
    expect_all(of_lightning(check, package))


def test_a_wrong_gradient_of_a_trainer_of_lightning_is_found(check):
    outcome = of_lightning(check, "lightning.pytorch", "--wrong")
    assert outcome.first == FIRST, outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == "wrong_factor"


def run_without(packages: list[str], code: str) -> subprocess.CompletedProcess:
    hide = f"import sys; sys.modules.update(dict.fromkeys({packages}))\n"
    return subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, check=False, timeout=HANG)


def test_a_callback_needs_its_own_framework_alone():
    lightning = ["lightning", "pytorch_lightning"]
    needs_none = "from ttrace.callbacks import TransformersCallback as C; C().on_log()"
    assert run_without(["transformers", *lightning], needs_none).returncode == 0
    missing = run_without(lightning, "from ttrace.callbacks import LightningCallback")
    assert "LightningCallback needs lightning or pytorch_lightning, and neither is installed" in missing.stderr


def test_lightning_takes_the_callback_without_a_list():
    """It asks whether a single one is of its class."""
    pl = pytest.importorskip("lightning.pytorch", reason="lightning cannot be imported; ./dev frameworks installs it")
    from ttrace.callbacks import LightningCallback

    callback = LightningCallback(untraced=["experts/"])
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    assert pl.Trainer(accelerator="cpu", callbacks=callback, **quiet).callbacks == [callback]


def test_a_callback_that_no_trainer_calls_says_so():
    from ttrace.callbacks import TransformersCallback

    with pytest.raises(RuntimeError, match="something else than the Trainer of transformers"):
        TransformersCallback().on_train_begin()

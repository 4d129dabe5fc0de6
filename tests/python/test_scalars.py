"""`report.log_to`: numbers of a report in TensorBoard, Weights & Biases and MLflow, written by their packages and read again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import ttrace
from conftest import PROGRAM, python, torchrun

WITHOUT_LINES = Path(__file__).parent / "programs" / "without_lines.py"
STEP = 7
OF_ALL = {
    f"ttrace/{name}"
    for name in (
        "clean", "tensors_judged", "tensors_wrong", "operators_judged", "largest_error_over_bound", "detectable_error", "seconds"
    )
}  # fmt: skip
OF_DIVERGED = {"ttrace/first_divergence_error", "ttrace/first_divergence_times_rounding"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, ttrace.Report]:
    """A clean one, and one whose loss is scaled on two ranks."""
    folder, reference = tmp_path_factory.mktemp("scalars"), python(WITHOUT_LINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTRACE_PROGRAM", PROGRAM)

        def check(name: str, option: str) -> ttrace.Report:
            candidate = torchrun(2, f"{WITHOUT_LINES} --parallel {option}")
            return ttrace.check(reference, candidate, "--auto", "-o", str(folder / name))

        return {"clean": check("clean", ""), "diverged": check("diverged", "--scaled")}


def written(report: ttrace.Report) -> dict[str, float]:
    """What a logger gets, by names."""

    class Writer:
        def __init__(self):
            self.values = {}

        def add_scalar(self, name, value, step):
            assert step == STEP
            self.values[name] = value

    report.log_to(writer := Writer(), step=STEP)
    return writer.values


def test_a_clean_report_has_the_numbers_of_its_text(reports):
    report = reports["clean"]
    values = written(report)
    assert set(values) == OF_ALL
    assert values["ttrace/clean"] == 1 and values["ttrace/tensors_wrong"] == 0
    assert values["ttrace/tensors_judged"] == report.counts["judged"] > 40
    numbers = {fact["key"]: fact["number"] for fact in report.json["facts"]}
    assert values["ttrace/largest_error_over_bound"] == pytest.approx(numbers["closest"]), "what the text calls closest"
    assert values["ttrace/detectable_error"] == numbers["would_see"]
    assert values["ttrace/seconds"] > 1, "a check starts Python several times"


def test_a_diverged_report_says_how_wrong_its_first_divergence_is(reports):
    report = reports["diverged"]
    values = written(report)
    assert set(values) == OF_ALL | OF_DIVERGED
    assert values["ttrace/clean"] == 0 and values["ttrace/tensors_wrong"] == len(report.findings) > 0
    numbers = {fact["key"]: fact["number"] for fact in report.json["first_divergence"]["facts"]}
    assert values["ttrace/first_divergence_error"] == numbers["size"] == pytest.approx(0.03, rel=0.01), "--scaled is 3 %"
    assert values["ttrace/first_divergence_times_rounding"] == numbers["made_here"] > 1000
    assert values["ttrace/largest_error_over_bound"] > 1000


def test_tensorboard_shows_them(reports, tmp_path):
    reason = "tensorboard cannot be imported; ./dev setup installs it"
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        reports["diverged"].log_to(writer, step=STEP)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == OF_ALL | OF_DIVERGED
    (event,) = events.Scalars("ttrace/tensors_wrong")
    assert (event.step, event.value) == (STEP, len(reports["diverged"].findings))


def test_a_run_of_wandb_shows_them(reports, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed (a download of 20 MB)")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="ttrace")
    reports["diverged"].log_to(run, step=STEP)
    run.log({"loss": 1.0}, step=STEP + 1)  # wandb keeps a step open until the program logs the next one
    summary = dict(run.summary)
    run.finish()
    assert {name: value for name, value in summary.items() if name.startswith("ttrace/")} == written(reports["diverged"])
    assert summary["_step"] == STEP


@pytest.mark.parametrize("by", ["module", "client"])
def test_mlflow_shows_them(reports, tmp_path, monkeypatch, by):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (mlflow-skinny is enough)")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no SQLAlchemy for another store
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())  # which it makes, with a first experiment
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        if by == "module":
            reports["clean"].log_to(mlflow, step=STEP)
        else:
            reports["clean"].log_to(client, step=STEP, run_id=run.info.run_id)
    assert client.get_run(run.info.run_id).data.metrics == pytest.approx(written(reports["clean"]))
    (metric,) = client.get_metric_history(run.info.run_id, "ttrace/clean")
    assert (metric.step, metric.value) == (STEP, 1)


def test_a_client_of_mlflow_needs_its_run(reports):
    class Client:
        def log_metric(self, run_id, key, value, step=None):
            raise AssertionError("it does not know the run")

    with pytest.raises(TypeError, match="pass run_id"):
        reports["clean"].log_to(Client())


def test_what_is_no_tracker_is_refused(reports):
    with pytest.raises(TypeError, match="got a Logger; pass a SummaryWriter"):
        reports["clean"].log_to(logging.getLogger("ttrace"))

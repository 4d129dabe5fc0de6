"""What of a report a tracker of experiments shows over time: one table, for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

Report = Any  # of reading.py, which imports this file

# Each with its name behind "ttrace/" and how to get it. What a report does not have, or is not finite, is left out.
SCALARS: dict[str, Callable[[Report], float | None]] = {
    "clean": lambda report: float(report.verdict == "clean"),
    "tensors_judged": lambda report: report.counts["judged"],
    "tensors_wrong": lambda report: len(report.findings),
    "operators_judged": lambda report: report.counts["operators"],
    "largest_error_over_bound": lambda report: max(_shares(report), default=None),
    "detectable_error": lambda report: _fact(report.json, "would_see"),
    "first_divergence_error": lambda report: _fact(report.json["first_divergence"], "size"),
    "first_divergence_times_rounding": lambda report: _operator_error(report),
    "seconds": lambda report: report.seconds,
}


def scalars_of(report: Report) -> dict[str, float]:
    """Those that the report has, by their full names."""
    values = ((name, of(report)) for name, of in SCALARS.items())
    return {f"ttrace/{name}": float(value) for name, value in values if value is not None and math.isfinite(value)}


def _shares(report: Report) -> Iterator[float]:
    """error / bound of every tensor that has both and that nothing excuses."""
    for verdict in report.values():
        is_judged = verdict.finding or verdict.status == "within"
        if is_judged and verdict.bound and verdict.error is not None and not verdict.json["excuses"]:
            share = verdict.error / verdict.bound
            if math.isfinite(share):
                yield share


def _fact(holder: dict[str, Any] | None, key: str) -> float | None:
    numbers = [fact["number"] for fact in (holder or {}).get("facts", ()) if fact["key"] == key]
    return numbers[0] if numbers and isinstance(numbers[0], (int, float)) else None


def _operator_error(report: Report) -> float | None:
    """Of the first divergence's operators on the candidate's own inputs, as a multiple of their rounding error."""
    first = report.first_divergence
    checks = report[first.id].checks if first and first.id in report else ()
    return next((check.value for check in checks if check.question == "operator"), None)


def log_scalars(report: Report, logger: Any, step: int | None = None, run_id: str | None = None) -> None:
    """Gives a logger the scalars by its own function. docs/python.md says which loggers there are.

    Raises TypeError for what is none of them, and for a client of MLflow without the run to log to.
    """
    values = scalars_of(report)
    if hasattr(logger, "add_scalar"):  # TensorBoard
        for name, value in values.items():
            logger.add_scalar(name, value, step)
    elif hasattr(logger, "log_metrics"):  # the module mlflow, or a logger of Lightning
        logger.log_metrics(values, step=step)
    elif hasattr(logger, "log_metric") and run_id is not None:  # a client of MLflow
        for name, value in values.items():
            logger.log_metric(run_id, name, value, step=step)
    elif hasattr(logger, "log_metric"):
        raise TypeError("a client of MLflow needs the run to log to: pass run_id=run.info.run_id, or the module mlflow")
    elif hasattr(logger, "log") and hasattr(logger, "config"):  # Weights & Biases
        logger.log(values, step=step)
    else:
        raise TypeError(
            f"report.log_to got a {type(logger).__name__}; pass a SummaryWriter of TensorBoard, a run of wandb, the module "
            "mlflow, or a client of MLflow with run_id"
        )

"""Reports of strangers: the right program is clean, and the bug is found where it was declared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

from conftest import Checker  # noqa: E402
from reports import Report, idioms, reports  # noqa: E402

# One of each kind of mechanism; ./dev test --full runs all.
QUICK = ("expert_scale", "lora_not_summed", "old_references", "counted_preparation", "average_not_kept", "contrastive", "own_columns")
# What is known to fail, and why: README.md.
NOT_CLEAN = ("rounded_frequencies",)
NOT_LOCATED = (
    "cast_without_gradient", "module_encodes", "scaled_without_gather", "short_epoch", "untied", "wrong_group",
)  # fmt: skip


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def _marks(report: Report) -> list:
    text = report.script.read_text(encoding="utf-8")
    needed = [name for name in ("deepspeed", "lightning", "transformers") if f"import {name}" in text or f"from {name}" in text]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    skipped = [pytest.mark.skip(reason=f"{missing[0]} cannot be imported; ./dev test installs it")] if missing else []
    return skipped + ([] if report.name in QUICK else [pytest.mark.full])


REPORTS = [pytest.param(report, id=report.name, marks=_marks(report)) for report in [*reports(), *idioms()]]


@pytest.mark.parametrize("report", REPORTS)
def test_the_right_program_is_not_accused(check, report):
    outcome = report.run(check, bug=False)
    assert (outcome.code == 0) == (report.name not in NOT_CLEAN), outcome.summary()


@pytest.mark.parametrize("report", REPORTS)
def test_the_bug_is_found_where_it_is_declared(check, report):
    outcome = report.run(check, bug=True)
    assert report.locates(outcome) == (report.name not in NOT_LOCATED), f"{outcome.first}: {outcome.summary()}"

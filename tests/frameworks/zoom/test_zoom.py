"""Bugs inside large modules: the zoom names the operator that was declared before, and its line of source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from judged import BUGS, Checker, run  # noqa: E402


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=[] if bug.quick else [pytest.mark.full]) for bug in BUGS],
)
def test_the_zoom_names_operator_and_line(check, bug):
    outcome, named = run(check, bug)
    assert outcome.code == 1, outcome.summary()
    assert named.is_operator_of(bug), named.text
    assert named.is_line_of(bug), f"{named.source}, expected {bug.line}"

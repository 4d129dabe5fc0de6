"""Programs of other frameworks: clean in every layout, and planted bugs found where they are declared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

from catalogue import families  # noqa: E402
from conftest import Checker  # noqa: E402
from runs import run_bug, run_clean  # noqa: E402


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(tmp_path_factory.mktemp("check"))


def _marks(quick: bool, missing: str) -> list:
    skipped = [pytest.mark.skip(reason=f"{missing} cannot be imported; ./dev frameworks installs it")]
    return ([] if quick else [pytest.mark.full]) + (skipped if missing else [])


CLEAN = [
    pytest.param(
        program, layout, precision,
        id=f"{family.name}-{program.name}-{layout.name}-{precision}".replace(" ", "_"),
        marks=_marks(layout.quick and precision == layout.precisions[0], program.missing()),
    )
    for family in families() for program in family.programs
    for layout in program.layouts for precision in layout.precisions
]  # fmt: skip
# Where wrappers copy or cast parameters, and where nothing but a library's schedule calls the model.
WITHOUT_LINES = ("mfsdp language model optim bf16", "zero engine zero 0 bf16", "zero engine zero 3 bf16", "zero stages pp 2 f32")
CLEAN_WITHOUT_LINES = [
    pytest.param(program, layout, precision, id=name.replace(" ", "_"), marks=_marks(True, program.missing()))
    for family in families() for program in family.programs
    for layout in program.layouts for precision in layout.precisions
    if (name := f"{family.name} {program.name} {layout.name} {precision}") in WITHOUT_LINES
]  # fmt: skip
BUGS = [
    pytest.param(
        family, bug, id=f"{family.name}-{bug.name}",
        marks=_marks(bug.quick, family.program(bug.program).missing()),
    )
    for family in families() for bug in family.bugs if not bug.redeclared
]  # fmt: skip


@pytest.mark.parametrize(("program", "layout", "precision"), CLEAN)
def test_clean_programs_raise_no_alarm(check, program, layout, precision):
    clean = run_clean(check, program, layout, precision)
    assert clean.outcome.code == 0, clean.outcome.summary()
    assert not clean.alarms


@pytest.mark.parametrize(("program", "layout", "precision"), CLEAN_WITHOUT_LINES)
def test_clean_programs_without_lines_raise_no_alarm(check, program, layout, precision):
    clean = run_clean(check, program, layout, precision, auto=True)
    assert clean.outcome.code == 0, clean.outcome.summary()
    assert not clean.alarms
    assert clean.outcome.report["counts"]["judged"] > 200


def test_programs_without_lines_are_those_of_the_catalogue():
    assert len(CLEAN_WITHOUT_LINES) == len(WITHOUT_LINES)


@pytest.mark.parametrize(("family", "bug"), BUGS)
def test_planted_bugs_are_found_where_they_are(check, family, bug):
    judged = run_bug(check, family, bug)
    assert judged.found, judged.sentence
    assert judged.located, f"{judged.first}, expected {bug.expected}: {judged.sentence}"


@pytest.mark.parametrize(
    "program", [pytest.param(p, id=f"{f.name}-{p.name}") for f in families() for p in f.programs]
)
def test_a_user_adds_at_most_ten_lines(program):
    assert 1 <= program.lines_added() <= 10

"""The plugin of pytest, and `ttrace.check`, which it calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import ttrace
from conftest import HANG, PROGRAM, python, torchrun

PROGRAMS = Path(__file__).parent / "programs"
WITHOUT_LINES = PROGRAMS / "without_lines.py"
TEST = """
def test_layouts(ttrace_same_step):
    reports = ttrace_same_step({reference!r}, {candidate!r}, "--auto", "--no-forced", layouts={layouts!r})
    assert list(reports) == {names!r} and all(len(report) > 40 for report in reports.values())
"""


def run_pytest(folder: Path, layouts: dict[str, str]) -> subprocess.CompletedProcess:
    candidate = torchrun(2, f"{WITHOUT_LINES} --parallel")
    text = TEST.format(reference=python(WITHOUT_LINES), candidate=candidate, layouts=layouts, names=list(layouts))
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "ttrace_pytest", "-p", "no:cacheprovider", folder / "test_it.py"],
        capture_output=True, text=True, check=False, timeout=HANG, cwd=folder,
    )  # fmt: skip


def test_layouts_that_do_the_same_step_pass(tmp_path):
    result = run_pytest(tmp_path, {"ddp": "", "ddp/again": ""})
    assert result.returncode == 0, result.stdout


def test_a_layout_that_diverges_fails_with_its_report(tmp_path):
    result = run_pytest(tmp_path, {"right": "", "wrong": "--scaled"})
    assert result.returncode == 1
    assert "wrong:" in result.stdout and "right:" not in result.stdout
    assert "s0/m0/grad_output/3/0" in result.stdout


def test_the_plugin_imports_no_torch():
    """pytest loads it in every run, and torch takes seconds."""
    code = "import sys, ttrace_pytest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=HANG).returncode == 0


def test_a_check_is_a_report_and_a_table(tmp_path, monkeypatch):
    monkeypatch.setenv("TTRACE_PROGRAM", PROGRAM)
    candidate = torchrun(2, f"{WITHOUT_LINES} --parallel --scaled")
    report = ttrace.check(python(WITHOUT_LINES), candidate, "--auto", "--no-forced", "-o", str(tmp_path / "run"))
    assert report.diverged and report.first_divergence.id == "s0/m0/grad_output/3/0"
    pandas = pytest.importorskip("pandas")
    table = report.to_pandas()
    assert isinstance(table, pandas.DataFrame) and list(table.index) == list(report)
    assert table.loc["s0/m0/grad_output/3/0", "finding"] and not table.loc["s0/m0/output/0/0", "finding"]


def test_a_check_that_is_not_possible_raises(monkeypatch, tmp_path):
    monkeypatch.setenv("TTRACE_PROGRAM", PROGRAM)
    with pytest.raises(ttrace.TraceError, match="no-such-program"):
        ttrace.check("no-such-program", "no-such-program", "-o", str(tmp_path / "run"))


def test_a_tensor_is_recorded_anywhere(check):
    outcome = check(python(f"{WITHOUT_LINES} --lines"), torchrun(2, f"{WITHOUT_LINES} --parallel --lines"))
    assert outcome.code == 0, outcome.summary()
    for wanted in ("s0/m0/output/loss_before_the_mean/0", "s0/m0/grad_output/loss_before_the_mean/0"):
        assert wanted in outcome.ids()

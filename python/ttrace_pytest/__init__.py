"""A plugin of pytest: tests that a parallel program does the same step as a trusted one.

    def test_layouts(ttrace_same_step):
        ttrace_same_step("python train.py", "torchrun --nproc-per-node 2 train.py", layouts={"tp": "--tp 2", "dp": ""})

pytest loads this file in every run where it is installed, so that it imports neither torch nor ttrace by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ttrace import Report

SameStep = Callable[..., "dict[str, Report]"]


@pytest.fixture
def ttrace_same_step(tmp_path: Path) -> SameStep:
    """A function that checks one or several candidates, and fails the test if one diverges or is judged in part only.

    Args of the function:
        reference: the trusted single-device command, or the folder of a stored trace.
        candidate: the command under test.
        layouts: by name, what is appended to the candidate's command. The reference runs once for all of them.
        options: of `ttrace check`, such as "--auto".

    Returns the reports by name; without layouts, the name is "candidate". Traces stay in pytest's `tmp_path`.
    """

    def same_step(
        reference: str, candidate: str, *options: str, layouts: Mapping[str, str] | None = None
    ) -> dict[str, Report]:
        import ttrace

        __tracebackhide__ = True
        reports: dict[str, Report] = {}
        for name, more in (layouts or {"candidate": ""}).items():
            folder = tmp_path / name.replace("/", "_")
            reports[name] = ttrace.check(reference, f"{candidate} {more}".strip(), "-o", str(folder), *options)
            reference = str(folder / "reference") if (folder / "reference").is_dir() else reference
        wrong = [name for name, report in reports.items() if report.verdict != "clean"]
        if wrong:
            texts = (f"{name}:\n{(tmp_path / name.replace('/', '_') / 'report.txt').read_text()}" for name in wrong)
            pytest.fail("\n".join(texts), pytrace=False)
        return reports

    return same_step

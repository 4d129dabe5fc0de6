"""The wheel of `./dev wheel`, on a Debian 12 that has nothing but Python and torch."""

from __future__ import annotations

import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "install"))

import try_wheel


@pytest.mark.full
def test_the_wheel_works_where_there_are_no_compilers_and_no_libraries_of_ours():
    wheels = sorted((ROOT / "build" / "wheels").glob("ttrace_torch-*.whl"))
    if not wheels:
        pytest.skip("there is no wheel in build/wheels; `./dev wheel` makes it")
    try:
        [trial] = try_wheel.try_wheel(wheels[0], ["Debian 12"], try_wheel.TORCHES[:1])
    except try_wheel.Skipped as reason:
        pytest.skip(str(reason))
    print(try_wheel.table(wheels[0], [trial]))
    assert trial.passed, trial.log[-6000:]

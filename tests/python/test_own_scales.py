"""Programs that cast into FP8 by scales of each rank's own, which nobody records."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import asked, python, torchrun

PROGRAM = str(Path(__file__).parent / "programs" / "own_scales.py")


@pytest.fixture
def compare(check):
    """`options` of the candidate, which runs on two ranks."""

    def run(options: str = ""):
        return check(python(PROGRAM), torchrun(2, f"{PROGRAM} {options}"), steps="0:1")

    return run


def test_ranks_that_scale_by_their_own_rows_are_right(compare):
    """Symptom: a right program diverged at its first linear, R 1e5: its operators were expected to round to the codes
    of the reference, whose scales follow from the rows of all ranks."""
    outcome = compare()
    assert outcome.code == 0, outcome.summary()
    assert any("scales" in part["sentence"] for part in outcome.report["not_seen"]), outcome.summary()
    first = next(tensor for tensor in outcome.report["tensors"] if tensor["id"] == "s0/m0/output/0/0")
    assert 0.2 < asked(first, "operator")["value"] < 2.0


def test_a_frozen_weight_that_one_side_trains_is_the_first_finding(compare):
    """Symptom: the report began with thirteen linears that were right."""
    outcome = compare("--trained")
    assert outcome.code == 1 and outcome.first == "s0/m0/param_grad/0.weight/0", outcome.summary()


def test_a_factor_is_found_in_the_linear_that_has_it(compare):
    outcome = compare("--factor 1.1")
    assert outcome.code == 1 and outcome.first == "s0/m0/output/2/0", outcome.summary()

"""Programs whose parameters are not kept in the precision that they ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import python

PROGRAM = str(Path(__file__).parent / "programs" / "cast.py")


def run(check, reference: str, candidate: str, *options: str):
    programs = [python(f"{PROGRAM} {arguments}") for arguments in (reference, candidate)]
    return check(*programs, "--noise", "2", "--no-forced", *options, steps="0:1")


def test_parameters_that_were_not_cast_are_the_first_divergence(check):
    """Symptom: the loop that casts parameters to F32 changed nothing, and all bounds were those of BF16."""
    wrong = run(check, "--asks float32", "--asks float32 --stored bfloat16")
    assert wrong.code == 1, wrong.summary()
    assert wrong.first == "s0/param/0.weight/0"
    first = wrong.report["first_divergence"]
    assert first["signature"] == "extra_rounding"
    assert first["probable_cause"].startswith("both programs ask for f32, and the reference keeps its parameters in it")
    assert json.loads((wrong.folder / "candidate" / "manifest.json").read_text())["intended"] == "f32"
    right = run(check, "--asks float32", "--asks float32")
    assert right.code == 0, right.summary()


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("--asks float32", "--asks bfloat16 --stored bfloat16"),  # it means to
        ("--asks float32", "--stored bfloat16"),  # it does not say
        ("", "--stored bfloat16"),
        ("--asks float32 --stored bfloat16", "--asks float32"),  # the reference is what it says it is not
    ],
)
def test_a_program_that_does_not_ask_for_the_references_precision_is_not_accused(check, reference, candidate):
    outcome = run(check, reference, candidate)
    assert outcome.code == 0, outcome.summary()
    assert any("the precision is" in remark for remark in outcome.report["remarks"])

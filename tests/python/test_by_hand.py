"""Programs whose parallelism is code of their own: nobody declares where anything lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python, torchrun

PROGRAM = str(Path(__file__).parent / "programs" / "by_hand.py")


@pytest.mark.parametrize("layout", ["--tp 2", pytest.param("--tp 4", marks=pytest.mark.full), "--dp 2 --tp 2", "--dp 2"])
@pytest.mark.parametrize("precision", ["f32", pytest.param("bf16", marks=pytest.mark.full)])
def test_clean_runs_raise_no_alarm(check, layout, precision):
    """Symptom: "parameter layers.0.up.w is 64x32 here, but 128x32 in the trace to start from" ended the run."""
    words = layout.split()
    ranks = 1
    for size in words[1::2]:
        ranks *= int(size)
    options = f"--precision {precision}"
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(ranks, f"{PROGRAM} {options} {layout}"))
    assert outcome.code == 0, outcome.summary()
    assert outcome.report["counts"]["missing_in_candidate"] == 0


@pytest.mark.parametrize(
    ("wrong", "layout", "ranks", "first", "cause"),
    [
        ("row-not-reduced", "--tp 2", 2, "s0/m0/output/blocks.0.down/0", "missing_reduction"),
        ("copy-not-reduced", "--tp 2", 2, "s0/m0/grad_output/blocks.2.norm/0", "missing_reduction"),
        ("gradients-not-reduced", "--dp 2 --tp 2", 4, "s0/main_grad/tokens.weight/0", "missing_reduction"),
    ],
)
def test_missing_reductions_are_named_where_they_are(check, wrong, layout, ranks, first, cause):
    outcome = check(python(PROGRAM), torchrun(ranks, f"{PROGRAM} {layout} --wrong {wrong}"))
    assert outcome.first == first, outcome.summary()
    assert outcome.report["first_divergence"]["signature"] == cause


def test_axes_that_do_not_make_up_the_ranks_are_named(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --dp 2 --axes 3"))
    assert "axes {'dp': 3, 'tp': 1} have 3 ranks, but 2 run" in outcome.errors

"""Programs under modes of torch trace cleanly, and see no operator that is not their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT, asked, python, run_untraced, torchrun

PROGRAMS = Path(__file__).parent / "programs"
MODES = PROGRAMS / "modes.py"
COUNTED = PROGRAMS / "counted.py"
TRAIN = ROOT / "examples" / "dtensor" / "train.py"
PATCHED = ROOT / "examples" / "dtensor" / "planted_bug.py"
FULL = pytest.mark.full
PASSES = ("reference", "noise-1", "forced-wide", "forced-native", "candidate")


def lines_with(text: str, *words: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith(words))


def counts_in(text: str) -> list[str]:
    """What every rank prints of its operators, wherever in a line: one rank's count may come before the end of a
    line that another rank prints."""
    return sorted(re.findall(r"rank \d+: \d+ \S+", text))


@pytest.mark.parametrize(
    "options",
    ["--selective --flops --functions", *(pytest.param(o, marks=FULL) for o in ("--selective", "--flops"))],
)
def test_modes_count_the_same_in_every_pass_as_without_a_trace(check, options):
    """Copies of tensors that are not contiguous, and sums of squares, were counted and replayed."""
    program = python(f"{MODES} {options}")
    untraced = run_untraced(program)
    words = ("asked", "operations", "called")
    expected = lines_with(untraced, *words)
    assert expected
    outcome = check(program, program)
    assert outcome.code == 0, outcome.summary()
    for name in PASSES:
        assert lines_with(outcome.log(name), *words) == expected, name
    assert lines_with(outcome.log("candidate"), "loss") == lines_with(untraced, "loss")


def test_selective_checkpointing_and_no_checkpointing_are_one_model(check):
    outcome = check(python(MODES), python(f"{MODES} --selective --flops"))
    assert outcome.code == 0, outcome.summary()
    assert any(i.endswith("~") and "blocks.1.up" in i for i in outcome.ids())


def test_an_error_under_modes_is_found_where_it_is(check):
    outcome = check(python(f"{MODES} --selective"), python(f"{MODES} --selective --flops --wrong"))
    assert outcome.code == 1
    assert re.search("output/blocks.0/", outcome.first), outcome.summary()


@pytest.mark.parametrize(
    ("ranks", "options"), [(2, "--tp 2 --sp"), pytest.param(4, "--fsdp --tp 2", marks=FULL)]
)
def test_a_mode_around_all_of_a_parallel_program_counts_its_own_operators(tmp_path, ranks, options):
    """Copies of tensors that are not contiguous, and sums of gradients that no optimizer has summed yet, were
    among them."""
    words = f"{COUNTED} {TRAIN} --steps 1 {options}"
    program = torchrun(ranks, words)
    untraced = counts_in(run_untraced(program))
    variables = f"TTRACE_PASS=candidate TTRACE_START=own TTRACE_DIR={tmp_path}/t"
    traced = counts_in(run_untraced(f"env {variables} {program}"))
    assert (tmp_path / "t" / "step000000" / f"rank0000{ranks - 1}.h5").exists()
    assert traced == untraced and len(traced) > 20 * ranks


AUTOCAST = "--autocast"
# Runs of the candidate, and options of both.
UNDER_AUTOCAST = (
    (2, "--ddp", ""),
    (2, "--fsdp", "--seed 3"),
    (2, "--ddp", "--seed 4"),
    (4, "--fsdp --tp 2", "--seed 5"),
    (4, "--ddp", "--seed 6"),
)


@pytest.mark.parametrize(
    ("ranks", "options", "common"),
    [UNDER_AUTOCAST[0], *(pytest.param(*case, marks=FULL) for case in UNDER_AUTOCAST[1:])],
)
def test_a_program_under_autocast_is_within_bound_and_its_operators_are_checked(
    check, ranks, options, common
):
    both = f"{TRAIN} {AUTOCAST} {common}"
    outcome = check(python(both), torchrun(ranks, f"{both} {options}"))
    assert outcome.code == 0, outcome.summary()
    assert outcome.report["counts"]["missing_in_reference"] == 0
    assert sum(1 for tensor in outcome.report["tensors"] if asked(tensor, "operator")) > 60


def test_an_error_under_autocast_is_found_where_it_is(check):
    bug = "ddp-leaves-out-a-parameter --ddp"
    outcome = check(python(f"{TRAIN} {AUTOCAST}"), torchrun(2, f"{PATCHED} {bug} {AUTOCAST}"))
    assert outcome.code == 1, outcome.summary()
    assert outcome.first == "s0/main_grad/layers.1.feed_forward.w2.weight/0", outcome.summary()

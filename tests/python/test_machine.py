"""What the machine does to numbers: kernels that reproduce nothing (--self-check), and products in lower precision."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from conftest import python, torchrun

PROGRAM = str(Path(__file__).parent / "programs" / "machine.py")


def note(outcome) -> str:
    return next(text for text in outcome.report["notes"] if text.startswith("self-check: "))


# Ranks that add up in an order of their own were taken for ranks that disagree.
def test_ranks_that_add_up_in_another_order_are_alarms_without_a_self_check(check):
    outcome = check(python(PROGRAM), torchrun(2, PROGRAM), "--no-self-check")
    assert outcome.code == 1, outcome.summary()
    assert re.fullmatch(r"s0/m0/output/mix/0", outcome.first), outcome.summary()


@pytest.fixture(scope="module")
def self_checked(check):
    """Checks against one reference that was run twice."""

    def run(options: str = "", *more: str):
        # A reference of its own, which the checker does not mix up with those of other options.
        return check(python(f"{PROGRAM} "), torchrun(2, f"{PROGRAM} {options}"), *more)

    first = run("", "--self-check")
    return first, run


def test_with_a_self_check_it_is_clean(self_checked):
    outcome, _ = self_checked
    assert outcome.code == 0, outcome.summary()
    assert re.search(r"did not reproduce \d+ of \d+ tensors; the first is s0/m0/output/mix/0,", note(outcome))


def test_recomputed_values_need_not_be_equal_either(self_checked):
    _, run = self_checked
    outcome = run("--recompute")
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/output/mix/0~" in outcome.ids()


def test_a_bug_elsewhere_is_found_where_it_is(self_checked):
    _, run = self_checked
    outcome = run("--wrong")
    assert outcome.code == 1
    assert outcome.first == "s0/m0/output/down/0", outcome.summary()


def test_a_reproducible_reference_is_said_to_be_one(check):
    program = f"{PROGRAM} --ordered"
    outcome = check(python(program), torchrun(2, program), "--self-check")
    assert outcome.code == 0, outcome.summary()
    assert re.search(r"reproduced all of \d+ tensors", note(outcome))


def rounds_products(precision: str) -> bool:
    """Whether this processor rounds the operands of F32 products where torch allows it to."""
    torch.set_float32_matmul_precision(precision)
    product = torch.full((64, 64), 1 + 2.0**-13) @ torch.ones(64, 64)
    torch.set_float32_matmul_precision("highest")
    return product[0, 0].item() == 64


if_products_are_rounded = pytest.mark.skipif(
    not rounds_products("medium"), reason="this processor has no instructions that multiply in BF16"
)
EXACT, ROUNDED = f"{PROGRAM} --ordered", f"{PROGRAM} --ordered --products medium"


# Every tensor of a correct run diverged where one of the two programs rounded its operands.
@if_products_are_rounded
def test_products_in_bf16_on_one_side_are_refused(check):
    outcome = check(python(EXACT), torchrun(2, ROUNDED))
    assert outcome.code == 2
    assert "the reference multiplied in f32 and the candidate in bf16" in outcome.errors
    assert 'torch.set_float32_matmul_precision("highest") in the candidate' in outcome.errors


@if_products_are_rounded
def test_products_in_bf16_on_both_sides_are_judged_as_such(check):
    outcome = check(python(ROUNDED), torchrun(2, ROUNDED))
    assert outcome.code == 0, outcome.summary()
    assert any("both programs compute in f32 and multiply in bf16" in text for text in outcome.report["remarks"])


@if_products_are_rounded
def test_a_bug_among_products_in_bf16_is_found_where_it_is(check):
    outcome = check(python(ROUNDED), torchrun(2, f"{ROUNDED} --wrong"))
    assert outcome.code == 1
    assert outcome.first == "s0/m0/output/down/0", outcome.summary()


@pytest.mark.skipif(rounds_products("high"), reason="this processor has instructions that multiply in TF32")
def test_a_setting_of_cuda_changes_nothing_on_a_cpu(check):
    outcome = check(python(EXACT), torchrun(2, f"{EXACT} --products high"))
    assert outcome.code == 0, outcome.summary()

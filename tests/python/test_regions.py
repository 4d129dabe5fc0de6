"""Functions that `ttrace.region` makes visible."""

from __future__ import annotations

import os

import pytest
import torch
import ttrace
from conftest import ROOT, python, run_untraced
from ttrace.base import regions

TRAIN = str(ROOT / "tests" / "frameworks" / "functional" / "train.py")


def test_a_region_is_the_function_where_nothing_is_traced():
    @ttrace.region("double")
    def double(x: torch.Tensor) -> torch.Tensor:
        """Twice."""
        return 2 * x

    assert double(torch.ones(2)).tolist() == [2, 2]
    assert double.__doc__ == "Twice."


def test_a_region_is_compiled_as_the_function():
    class Hooks:
        def around(self, *unused):
            pytest.fail("the compiled function calls hooks")

    @ttrace.region("double")
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    regions.install(Hooks())
    try:
        compiled = torch.compile(lambda x: double(x) + 1, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    finally:
        regions.install(None)


def test_inputs_outputs_and_gradients_of_regions_are_recorded_within_their_module(check):
    outcome = check(python(TRAIN), python(f"{TRAIN} --recompute"))
    assert outcome.code == 0, outcome.summary()
    ids = set(outcome.ids())
    for expected in (
        "s0/m0/input/attention/0", "s0/m0/output/attention/0#2", "s0/m0/grad_input/attention/0",
        "s0/m0/output/attention.rope/0#5", "s0/m0/grad_output/mlp/0", "s0/m0/output/loss/0",
    ):  # fmt: skip
        assert expected in ids, sorted(ids)


def test_losses_are_the_same_bits_with_and_without_a_trace(check):
    untraced = run_untraced(python(TRAIN))
    outcome = check(python(TRAIN), python(TRAIN))
    assert outcome.log("candidate").split() == untraced.split()
    assert os.environ.get("TTRACE_PASS") is None

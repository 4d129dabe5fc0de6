"""Layers and optimizers whose kernels torch does not dispatch."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python, torchrun

PROGRAMS = Path(__file__).parent / "programs"
OPAQUE = str(PROGRAMS / "opaque.py")
OPTIMIZERS = str(PROGRAMS / "optimizers.py")


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_layers_of_numpy_raise_no_alarm_and_noise_reaches_them(check, precision):
    """All their noise passes were equal, so that every tensor had to be equal in every bit."""
    program = f"{OPAQUE} --precision {precision}"
    outcome = check(python(program), torchrun(2, program))
    assert outcome.code == 0, outcome.summary()
    coverage = outcome.report["noise_coverage"]
    assert coverage["untouched"] == 0 and coverage["reached"] > 0.9 * coverage["tensors"], coverage
    assert any(fact["key"] == "noise" for fact in outcome.report["facts"])
    bounds = {t["id"]: t["bound"] for t in outcome.report["tensors"]}
    assert bounds["s0/m0/output/tokens/0"] == 0.0  # a lookup that torch dispatches
    for name in ("blocks.0.norm", "blocks.0.up", "blocks.1.activation", "blocks.2.down", "blocks.2", "head"):
        assert bounds[f"s0/m0/output/{name}/0"] > 0.0, name
        assert bounds[f"s0/m0/grad_output/{name}/0"] > 0.0, name
    assert bounds["s0/main_grad/blocks.0.up.weight/0"] > 0.0


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_three_percent_in_a_layer_of_numpy_are_found_there(check, precision):
    program = f"{OPAQUE} --precision {precision}"
    for options in ((), ("--no-forced",)):
        outcome = check(python(program), torchrun(2, f"{program} --wrong 1"), *options)
        assert outcome.code == 1, outcome.summary()
        assert outcome.first == "s0/m0/output/blocks.1.down/0", outcome.summary()


def test_loops_of_an_optimizer_are_equally_noisy(check):
    """A fused optimizer had no noise at all, because it returns nothing."""
    bounds = {}
    for loop in ("plain", "foreach", "fused"):
        program = python(f"{OPTIMIZERS} --adamw {loop}")
        outcome = check(program, program, "--no-forced")
        assert outcome.code == 0, outcome.summary()
        bounds[loop] = {t["id"]: t["bound"] for t in outcome.report["tensors"]}
    for kind in ("exp_avg", "exp_avg_sq", "param_next"):
        name = f"s0/{kind}/0.weight/0"
        plain = bounds["plain"][name]
        assert plain > 0.0, name
        for loop in ("foreach", "fused"):
            assert 0.4 < bounds[loop][name] / plain < 2.5, (name, loop)

"""Which calls a micro-batch consists of, and what forced passes hand to them."""

from __future__ import annotations

import pytest
from conftest import HERE, python, torchrun

PROGRAM = str(HERE / "programs" / "nested.py")
BETWEEN = str(HERE / "programs" / "between.py")


@pytest.mark.parametrize("options", ["", "--accumulate"])
def test_a_forward_within_the_forward_is_no_other_micro_batch(check, options):
    """Symptom: the inner call was s0/m1/..., and 16 tensors were missing in the candidate."""
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options}"), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    last = "s0/m1" if options else "s0/m0"
    assert {f"{last}/input/model/0", f"{last}/output/model/0"} <= set(outcome.ids())
    assert not outcome.ids("missing_in_reference") and not outcome.ids("missing_in_candidate")


def test_the_reference_may_be_the_one_that_nests(check):
    """Noise and forced passes nest as well."""
    outcome = check(python(f"{PROGRAM} --nested"), python(PROGRAM), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    assert not outcome.ids("missing_in_reference") and not outcome.ids("missing_in_candidate")
    assert not outcome.broken_off


def test_a_missing_all_reduce_is_found_behind_nested_calls(check):
    outcome = check(python(PROGRAM), torchrun(2, f"{PROGRAM} --wrong"), steps="0:1")
    assert outcome.first.startswith("s0/main_grad/net."), outcome.summary()


def test_modules_that_a_step_calls_without_the_model_make_micro_batches(check):
    """Symptom: such a reference had no micro-batch at all. Under DDP the model itself is called: one note says so."""
    options = "--calls parts --accumulate"
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options}"), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    assert "s0/m1/output/net.2/0" in outcome.ids()
    assert any("it alone has the module model" in note for note in outcome.report["notes"])


@pytest.mark.parametrize("options", ["--calls parts", "--calls parts --tokens", "--calls forward"])
def test_samples_are_put_in_order_where_one_program_alone_calls_the_model(check, options):
    """Symptom: DDP calls the model, and the reference calls modules of it alone. So nothing said which sample is which, and a
    right program diverged at net's input, or at the output of the embedding."""
    outcome = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options} --deal"), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    assert "rank 1 has 1, 3, 5, 7" in " ".join(outcome.report["remarks"])
    assert "s0/m0/grad_output/net.2/0" in outcome.ids()
    wrong = check(python(f"{PROGRAM} {options}"), torchrun(2, f"{PROGRAM} {options} --deal --wrong"), steps="0:1")
    assert wrong.first.startswith("s0/main_grad/net."), wrong.summary()


def test_forced_passes_replace_inputs_that_no_module_returned_under_fsdp_as_well(check):
    """Symptom: the module behind the error was "wrong on its own, not because of an earlier error"."""
    right, wrong = (torchrun(1, f"{BETWEEN} --shard {option}") for option in ("", "--wrong"))
    outcome = check(right, wrong, steps="0:1")
    assert outcome.first == "s0/m0/input/1.out/0", outcome.summary()
    roots = [root["id"] for root in outcome.report.get("further_roots", [])]
    assert "s0/m0/output/1.out/0" not in roots and "s0/main_grad/1.out.weight/0" not in roots
    assert "s0/m0/output/1.out/0" in outcome.ids("inherited")

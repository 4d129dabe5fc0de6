"""What is recorded of modules that are more than a function of one tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import asked, python, run_untraced, torchrun

FEATURES = str(Path(__file__).parent / "programs" / "features.py")
PLAIN = python(FEATURES)


def test_a_program_is_within_bound_of_itself_and_its_operators_are_checked(check):
    outcome = check(PLAIN, PLAIN)
    assert outcome.code == 0, outcome.summary()
    assert outcome.report["counts"]["missing_in_candidate"] == 0
    operators = [t for t in outcome.report["tensors"] if asked(t, "operator")]
    assert len(operators) > 60


def test_an_input_of_nested_modules_has_one_gradient_of_all_its_consumers(check):
    """Symptom: a clean run diverged in forced passes where a module hands its own input to another one, and a
    residual takes it as well: the inner one got a copy, whose gradient was a part. FSDP2 makes such copies in every
    pass, so that the gradient is recorded of the outer module alone."""
    outcome = check(PLAIN, PLAIN)
    wrong = [t["id"] for t in outcome.report["tensors"] if t["status"] != "within"]
    assert not wrong, outcome.summary()
    judged = {t["id"] for t in outcome.report["tensors"] if asked(t, "operator")}
    assert {"s0/m0/grad_input/nested/0", "s0/m0/input/nested.linear/0"} <= judged
    assert "s0/m0/grad_input/nested.linear/0" not in {t["id"] for t in outcome.report["tensors"]}


def test_everything_that_a_module_takes_and_returns_has_a_record(check):
    ids = set(check(PLAIN, PLAIN).ids())
    for expected in (
        "s0/m0/input/model/0",  # nobody made it
        "s0/m0/output/tuples/0",  # of a tuple with None and a parameter
        "s0/m0/output/inplace.linear/0",  # before the consumer changed it
        "s0/m0/output/inplace/0",  # of a dictionary
        "s0/m0/output/shared/0",  # called twice
        "s0/m0/output/shared/0#1",
        "s0/m0/grad_output/shared/0#1",
        "s0/m0/output/model/0",  # of a dataclass
        "s0/m0/param_grad/tuples.linear.bias/0",
        "s0/main_grad/head.weight/0",
        "s0/exp_avg/head.weight/0",
        "s1/param/head.weight/0",
    ):
        assert expected in ids, expected


@pytest.mark.parametrize("mode", ["reentrant", "not-reentrant"])
def test_recomputation_changes_nothing_and_is_compared_with_the_first_forward(check, mode):
    outcome = check(PLAIN, python(f"{FEATURES} --recompute {mode}"))
    assert outcome.code == 0, outcome.summary()
    assert any(i.endswith("~") and "block.up" in i for i in outcome.ids())
    assert "s0/m0/grad_output/block.down/0" in outcome.ids()


def test_an_error_in_a_recomputed_block_is_found_where_it_is(check):
    outcome = check(PLAIN, python(f"{FEATURES} --recompute reentrant --wrong scale"))
    assert outcome.code == 1
    assert outcome.first in ("s0/m0/input/block.down/0", "s0/m0/output/block.down/0"), outcome.summary()


def test_of_a_module_that_is_called_twice_the_wrong_call_is_named(check):
    outcome = check(PLAIN, python(f"{FEATURES} --wrong shared"))
    assert outcome.first in ("s0/m0/input/shared/0#1", "s0/m0/output/shared/0#1"), outcome.summary()


def test_an_exception_in_a_forward_ends_the_check_with_its_text(check):
    outcome = check(PLAIN, python(f"{FEATURES} --raise-in-forward"))
    assert outcome.code == 2
    assert "raised RuntimeError within the traced step: cannot go on" in outcome.errors


def test_losses_are_the_same_bits_with_and_without_tracing(tmp_path, monkeypatch):
    untraced = run_untraced(PLAIN)
    traced = run_untraced(f"env TTRACE_PASS=reference TTRACE_DIR={tmp_path}/t TTRACE_STEPS=0:2 {PLAIN}")
    assert (Path(tmp_path) / "t" / "step000001" / "rank00000.h5").exists()
    assert traced == untraced


def test_an_output_that_its_own_module_uses_has_the_gradient_of_both(check):
    """Symptom: T5's table of relative positions diverged in every clean run. In forced passes its gradient was
    without the part of the block that makes it, and under FSDP2 the next block's had another part than the
    reference's. ViT's class token, one row for two ranks, was taken to have two rows."""
    program = str(Path(__file__).parent / "programs" / "handed_through.py")
    outcome = check(python(program), torchrun(2, program), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    judged = {t["id"] for t in outcome.report["tensors"] if asked(t, "operator")}
    assert "s0/m0/grad_output/blocks.0/1" in judged
    assert "s0/m0/output/blocks.1/1" in outcome.ids()
    assert "s0/m0/grad_output/blocks.1/1" not in outcome.ids(), "nobody agrees whose gradient it is"
    assert "s0/param/blocks.0.row/0" in outcome.ids()


def test_an_input_that_one_program_returns_and_the_other_redistributes_is_compared(check):
    """Symptom: a clean graph of operators alarmed: the candidate recorded an output that the reference did not,
    because there the module returned its own input."""
    program = str(Path(__file__).parent / "programs" / "redistributed_input.py")
    outcome = check(python(program), torchrun(2, program), steps="0:1")
    assert outcome.code == 0, outcome.summary()
    assert "s0/m0/output/split/1" in outcome.ids()
    outcome = check(python(program), torchrun(2, f"{program} --wrong"), steps="0:1")
    assert outcome.first == "s0/m0/output/split/1", outcome.summary()


def test_a_programs_hooks_on_gradients_are_kept_and_so_are_ours(check, tmp_path):
    """Symptom: a hook that masked a parameter's gradient was not called any more in a traced run, which then trained
    otherwise. And T5, checkpointed under FSDP2, "got no gradient" of the offsets that a block hands on."""
    program = python(str(Path(__file__).parent / "programs" / "gradient_hooks.py"))
    traced = run_untraced(f"env TTRACE_PASS=reference TTRACE_DIR={tmp_path}/t TTRACE_STEPS=1:2 {program}")
    assert traced == run_untraced(program)
    outcome = check(program, program)
    assert outcome.code == 0, outcome.summary()
    expected = {f"s0/m0/{name}/0" for name in ("param_grad/first.weight", "param_grad/head.bias")}
    assert expected | {"s0/m0/grad_output/offset/1"} <= set(outcome.ids())
    assert not outcome.report["notes"], outcome.report["notes"]


def test_a_programs_hooks_on_outputs_are_called_in_forced_passes(check):
    """Symptom: torchtitan's chunked loss over tied weights crashed in forced passes. The model returns what its norm
    returned, FSDP2 puts the hook that gathers weights on it, and the model got another copy of the norm's output."""
    program = str(Path(__file__).parent / "programs" / "gradient_hooks.py")
    outcome = check(python(program), python(program))
    assert outcome.code == 0, outcome.summary()
    assert not outcome.broken_off
    judged = {t["id"] for t in outcome.report["tensors"] if asked(t, "operator")}
    assert {"s0/m0/output/head/0", "s0/m0/output/model/0", "s0/m0/grad_output/head/0"} <= judged

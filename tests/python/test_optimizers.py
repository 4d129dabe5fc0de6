"""Optimizers in containers, and gradients that a program clips before its optimizer steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import python, torchrun
from torch import nn
from ttrace.base.optimizers import Optimizers, before_clipping, optimizers_in
from ttrace.programs.plain import GradientsOfStep, PlainProgram


class Container(torch.optim.Optimizer):
    """As torchtitan's: an optimizer of all parameters, which has no state and steps others."""

    def __init__(self, *optimizers):
        self.optimizers = list(optimizers)
        parameters = [p for one in optimizers for group in one.param_groups for p in group["params"]]
        super().__init__(parameters, {})

    def step(self, closure=None):
        for optimizer in self.optimizers:
            optimizer.step()


def two() -> tuple[list[nn.Parameter], list[torch.optim.Optimizer]]:
    parameters = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    return parameters, [torch.optim.AdamW([parameter]) for parameter in parameters]


class Sharded(torch.optim.Optimizer):
    """As ZeroRedundancyOptimizer: steps another one, and then gets what other ranks have updated."""

    def __init__(self, parameter, optimizer, told):
        super().__init__([parameter], {})
        self.optim, self.told = optimizer, told

    def step(self, closure=None):
        self.optim.step()
        self.told.append("broadcasts")


class Wrapper:
    """As accelerate's, around one optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


@pytest.mark.parametrize("wrap", [Container, lambda *o: list(o), lambda *o: Wrapper(Container(*o))])
def test_optimizers_are_found_in_what_holds_them(wrap):
    _, inner = two()
    assert optimizers_in(wrap(*inner)) == inner


def test_an_optimizer_holds_itself():
    _, (first, _) = two()
    assert optimizers_in(first) == [first]
    assert optimizers_in(None) == []


# Symptom: no moment of a torchtitan run was recorded, because its container has no state of its own.
def test_moments_of_a_container_are_those_of_its_optimizers():
    parameters, inner = two()
    container = Container(*inner)
    told = []
    optimizers = Optimizers(container)
    optimizers.watch(lambda unused: told.append("begins"), lambda: told.append("done"))
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    container.step()
    assert told == ["begins", "begins", "done"]
    assert all("exp_avg" in optimizers.state(parameter) for parameter in parameters)


# Symptom: LBFGS, and Lightning's automatic optimization, compute forward and backward within the optimizer's step. TTrace read
# the gradients before, which are those of the step before, or none.
@pytest.mark.parametrize("named", [True, False])
def test_gradients_are_read_when_a_closure_has_computed_them(named):
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    told = []
    Optimizers(optimizer).watch(lambda unused: told.append(parameter.grad), lambda: told.append("done"))

    def closure():
        parameter.grad = torch.full((3,), 2.0)
        return torch.tensor(5.0)

    loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
    assert loss == 5.0
    assert told[0] is parameter.grad and told[1:] == ["done"]
    assert torch.equal(parameter.detach(), torch.full((3,), 0.8))


# Symptom: one wrong gradient changed the norm by which all are clipped, so that the first parameter's was named.
@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grads_with_norm_"])
def test_gradients_are_seen_before_they_are_clipped(clip):
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    seen = []

    def sees(parameters, norm):
        seen.append((float(norm), parameters[0].grad.tolist()))
        return norm

    hooks = list(before_clipping(sees))
    if clip == "clip_grad_norm_":
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    else:
        torch.nn.utils.clip_grads_with_norm_([parameter], 1.0, torch.tensor(5.0))
    assert seen == [(5.0, [3.0, 4.0])]
    assert parameter.grad.norm() < 1.001
    for hook in hooks:
        hook.remove()
    torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    assert len(seen) == 1


# Symptom: all moments of a clean Hugging Face model in FP16, with a GradScaler and clipping, under FSDP2: "wrong
# factor", because a forced pass clipped the candidate's gradients by the norm of its own.
@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grads_with_norm_"])
def test_gradients_are_clipped_by_the_norm_that_the_hook_returns(clip):
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    hooks = list(before_clipping(lambda parameters, norm: norm * 2.0))
    if clip == "clip_grad_norm_":
        torch.nn.utils.clip_grad_norm_(iter([parameter]), 1.0)
    else:
        torch.nn.utils.clip_grads_with_norm_(iter([parameter]), 1.0, torch.tensor(5.0))
    for hook in hooks:
        hook.remove()
    assert parameter.grad.norm().item() == pytest.approx(0.5, rel=1e-6)


class ForcedRecorder:
    """Overwrites gradients when they are recorded, as a forced pass does."""

    in_step = True
    replaces_values = True

    def __init__(self, instead):
        self.instead, self.norm = instead, None

    def gradients_reduced(self, gradients):
        for gradient in gradients:
            gradient.tensor.data.copy_(self.instead)

    def scalar(self, name, value):
        self.norm = (name, value)


# Symptom: as above.
def test_forced_passes_clip_the_candidates_gradients_by_their_own_norm():
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = ForcedRecorder(torch.tensor([[6.0, 8.0]]))
    program = PlainProgram(model, optimizer, {})
    of_step = GradientsOfStep(recorder, program.optimizers, [program])
    hooks = list(of_step.hooks())
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for hook in hooks:
        hook.remove()
    assert recorder.norm == ("grad_norm", pytest.approx(10.0, rel=1e-6))
    assert model.weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)


# Symptom: "rank 0 and rank 1 hold different values" of every parameter after a step of ZeroRedundancyOptimizer.
def test_parameters_are_updated_when_the_outermost_optimizer_is_done():
    (parameter, _), (inner, _) = two()
    told = []
    optimizer = Sharded(parameter, inner, told)
    Optimizers(optimizer).watch(lambda unused: told.append("begins"), lambda: told.append("done"))
    optimizer.step()
    assert told == ["begins", "broadcasts", "done"]


TWO_MODELS = str(Path(__file__).parent / "programs" / "two_models.py")


@pytest.mark.parametrize("bug", ["", " --bug"])
def test_models_that_are_trained_together(check, bug):
    """Symptom: a list of two models was refused; and the gradients of the second optimizer were not recorded, because
    the first one had stepped, so that a factor in them passed. Each has a scalar, whose gradients are addends."""
    outcome = check(python(TWO_MODELS), torchrun(2, TWO_MODELS + bug), steps="0:1")
    assert {"s0/main_grad/critic.scale/0", "s0/m0/param_grad/critic.scale/0"} <= set(outcome.ids()), outcome.summary()
    if bug:
        assert outcome.first == "s0/main_grad/generator.scale/0", outcome.summary()
    else:
        assert outcome.code == 0, outcome.summary()

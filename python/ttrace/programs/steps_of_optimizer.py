"""What a step of a plain program's optimizer begins with and leaves, recorded at the right moments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from typing import Protocol

import torch
from torch.distributed.tensor import DTensor

from ..base.calls import Removable
from ..base.local_part import local_part
from ..base.optimizers import Optimizers, before_clipping
from ..base.recorder import Recorder
from ..base.scalers import Scalers
from ..base.unseen import unseen
from ..base.values import Gradient, OptimizerState, Parameter

# What programs change once the optimizer's step is done, which a step that ends with the optimizer does not see.
AFTER_THE_STEP = (r"/state/scaler(_\d+)?\.", r"\.lr_next/")
LEFT_OUT = (
    "steps that follow the optimizer end before the program's scheduler and scaler step: learning rates of the next step "
    "and the scaler's state were not compared"
)


class Updated(Protocol):
    """What a program tells of its parameters."""

    def parameters(self) -> list[Parameter]: ...

    def gradients(self) -> list[Gradient]: ...

    def states(self) -> list[OptimizerState]: ...

    def kept_states(self) -> list[OptimizerState]: ...


class GradientsOfStep:
    """Records gradients once they are final, before torch clips them or an optimizer's step begins, parameters and
    moments when that step is done, and what else is kept as the program's step leaves it. If several optimizers step on
    their own, each has its own gradients, and the parameters are recorded as the program's step leaves them."""

    def __init__(self, recorder: Recorder, optimizers: Optimizers, programs: Sequence[Updated]):
        self._recorded: set[int] = set()  # ids of parameters, in the current step
        self._stepped = False
        self._recorder = recorder
        self._optimizers = optimizers
        self._programs = programs
        self._scalers = Scalers()
        optimizers.watch(self._begins, self._updated)

    def hooks(self) -> Iterator[Removable]:
        """While a step is traced."""
        self._recorded.clear()
        self._stepped = False
        self._scalers.forget()
        if self._optimizers:
            yield from before_clipping(self._clips)
            yield from self._scalers.watch(self._optimizers)

    def _clips(self, parameters: list[torch.Tensor], total_norm: torch.Tensor) -> torch.Tensor:
        if self._is_recorded(parameters) or not self._recorder.in_step:
            return total_norm  # within the optimizer's step
        # The program took this norm of its own gradients. Where they are replaced, it clips by that of the others.
        own = norm_of_gradients(parameters) if self._recorder.replaces_values else 0.0
        self._begins(parameters)
        with unseen(), torch.no_grad():
            if 0.0 < own < math.inf:
                total_norm = total_norm * (norm_of_gradients(parameters) / own)
            norm = total_norm.full_tensor() if isinstance(total_norm, DTensor) else total_norm
            self._recorder.scalar("grad_norm", float(local_part(norm)))
        return total_norm

    def _begins(self, parameters: list[torch.Tensor]) -> None:
        self.record(self._optimizers.of_others(parameters) if self._optimizers.are_several else set())

    def _is_recorded(self, parameters: list[torch.Tensor]) -> bool:
        of_these = (id(parameter) in self._recorded for parameter in parameters)
        return any(of_these) if self._optimizers.are_several else bool(self._recorded)

    def record(self, without: Set[int] = frozenset()) -> None:
        """The gradients are final but for those of the parameters with the ids `without`; what the program does to them
        from now on, such as clipping, is not recorded."""
        if not self._recorder.in_step:
            return
        parameters = [parameter for program in self._programs for parameter in program.parameters()]
        final = {id(parameter.object) for parameter in parameters} - without - self._recorded
        if final:
            self._recorded |= final
            paths = {parameter.path for parameter in parameters if id(parameter.object) in final}
            gradients = [gradient for program in self._programs for gradient in program.gradients()]
            self._recorder.gradients_reduced([gradient for gradient in gradients if gradient.path in paths])

    def _updated(self) -> None:
        if self._recorder.in_step:
            self._stepped = True
            if not self._optimizers.are_several:
                self._record_states()

    def _record_states(self) -> None:
        with unseen():
            states = [state for program in self._programs for state in program.states()]
        self._recorder.parameters_updated(states)

    def step_ends(self) -> None:
        if self._stepped:
            if self._optimizers.are_several:
                self._record_states()
            with unseen():
                states = [state for program in self._programs for state in program.kept_states()]
                states += self._scalers.states()
            self._recorder.parameters_updated(states)


def norm_of_gradients(parameters: list[torch.Tensor]) -> float:
    """Of what this rank holds of them."""
    with unseen(), torch.no_grad():
        gradients = [local_part(parameter.grad) for parameter in parameters if parameter.grad is not None]
        return math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))

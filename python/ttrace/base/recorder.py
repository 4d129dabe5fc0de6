"""The interface through which a program reports what happens. `ttrace.Tracer` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .values import Gradient, OptimizerState

# Where a tensor of this name lies; None: it is whole on every rank.
DimsOf = Callable[[str, torch.Tensor], "str | None"]


class Recorder(Protocol):
    """All methods run on the training thread."""

    @property
    def in_step(self) -> bool:
        """Whether a traced step is running. Only then may a program record anything."""

    @property
    def replaces_values(self) -> bool:
        """Whether this pass overwrites what it records with the candidate's values, as forced passes do."""

    @property
    def in_microbatch(self) -> bool:
        """Whether a micro-batch of the step has begun. Without one nothing is recorded."""

    def microbatch(self, index: int, gradient_scale: float = 1.0) -> bool:
        """All records from now on belong to this micro-batch (global number). Returns whether it is new.

        `gradient_scale` is the factor from this rank's gradients to the reference's.
        """

    def data(self, name: str, tensor: torch.Tensor) -> None:
        """Records an input of the current micro-batch."""

    def loss(self, per_token: torch.Tensor) -> None:
        """Records the loss of the current micro-batch, before any averaging."""

    def note(self, sentence: str) -> None:
        """The report says this of the step, once."""

    def called(self, path: str) -> None:
        """The program calls this module, or function, now; its line goes into the trace."""

    def watch_loss(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose results are recorded as losses while a step is traced."""

    def not_seen(self, kind: str, sentence: str) -> None:
        """States what this run does that TTrace does not look at, for every report. See Session::not_seen()."""

    def sent(self, path: str, tensor: torch.Tensor, slot: int = 0) -> None:
        """Records a tensor that goes to the next stage; `path` names it on both sides."""

    def received(self, path: str, tensor: torch.Tensor, slot: int = 0) -> None:
        """Records a tensor that came from the stage before."""

    def derive(self, path: str, field: str, slot: int, dims: str) -> None:
        """Says where a tensor lies. See Annotations::derive() in <ttrace/annotations.h>."""

    def routing(
        self, choices: torch.Tensor, margins: torch.Tensor, dims: DimsOf | None = None
    ) -> torch.Tensor:
        """Records which experts the running module chose; returns the choices to continue with. `dims` says
        where the two lie; None: the program has said so by derive().

        See Scope::routing() in <ttrace/scope.h>.
        """

    def scalar(self, name: str, value: float) -> None:
        """Records a number of the step, such as the gradients' norm."""

    def parameters_gathered(self, paths: Sequence[str]) -> None:
        """These parameters of Program.gathered_later() are whole now."""

    def gradients_reduced(self, gradients: Sequence[Gradient]) -> None:
        """All gradients of the step are accumulated and reduced, and not yet clipped."""

    def parameters_updated(self, states: Sequence[OptimizerState]) -> None:
        """The optimizer's step is done. What is settled only later, such as the next learning rate, may come in a
        second call."""

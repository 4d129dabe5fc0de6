"""Stages of torch.distributed.pipelining: give `ttrace.attach` the schedule, or the stages, of a rank.

A stage's module is traced as a plain one, or as one of DTensor and FSDP2; its modules need the names that
they have in the whole model. Micro-batch i is the schedule's chunk i. Schedules divide gradients by
the number of micro-batches at the end (``scale_grads``). So the gradients of one micro-batch are that many
times those of a reference that divides its loss. Pass `loss="sum"` for a schedule that does not divide.

A schedule also shows the losses that it computes, one for each micro-batch. Stages alone do not.

`ttrace` also checks that each stage receives what the stage before sent, tensor by tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Iterator, Sequence
from typing import Any

import torch

from ..base.calls import Removable, Replaced, after_call, before_outermost_call
from ..base.optimizers import Optimizers
from ..base.program import Program
from ..base.recorder import Recorder
from ..base.values import ROOT, UNTRACED, Buffer, Description, Dims, OptimizerState, Parameter, Rows, Site, Untraced
from .plain import PlainProgram
from .steps_of_optimizer import GradientsOfStep
from .transfers import record_transfer


# What a stage does for one micro-batch, whose number is the first argument.
_OF_CHUNKS = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")


def recognises(chunks: Sequence[Any]) -> bool:
    module = sys.modules.get("torch.distributed.pipelining.stage")
    return module is not None and (
        schedule_of(chunks) is not None
        or all(isinstance(chunk, module._PipelineStageBase) for chunk in chunks)
    )


def schedule_of(chunks: Sequence[Any]) -> Any:
    """The schedule that `attach` got in place of stages; None if there is none."""
    module = sys.modules.get("torch.distributed.pipelining.schedules")
    is_one = module is not None and len(chunks) == 1 and isinstance(chunks[0], module._PipelineSchedule)
    return chunks[0] if is_one else None


def stages_of(chunks: Sequence[Any]) -> list[Any]:
    """This rank's stages, in the order in which the schedule has them."""
    schedule = schedule_of(chunks)
    if schedule is None:
        return list(chunks)
    return list(getattr(schedule, "_stages", None) or [schedule._stage])


class PipeliningProgram(Program):
    """See the head of this file."""

    def __init__(self, chunks: Sequence[Any], optimizer: Any, programs: Sequence[PlainProgram]):
        """`programs` has one program for the module of each stage."""
        self.stages = stages_of(chunks)
        self.schedule = schedule_of(chunks)
        self.optimizers = Optimizers(optimizer)
        self.programs = list(programs)
        for program in self.programs:
            program.optimizers = self.optimizers
        first = self.stages[0]
        self.layout = self.programs[0].layout
        self.layout.add("pp", first.group_size, first.group_rank)
        self.looks_inside = any(program.looks_inside for program in self.programs)
        self._running = self.programs[-1]  # of the stage that the schedule runs
        self._owner: dict[int, int] = {}  # number of the stage by id of the module

    # --- what the model is -------------------------------------------------------------------------

    def description(self) -> Description:
        descriptions = [program.description() for program in self.programs]
        untraced = dict.fromkeys(entry for one in descriptions for entry in one.untraced)
        if self.schedule is None:
            untraced[r"/loss/\d+$"] = None  # the schedule computes it
        descriptions[0].untraced = list(untraced)
        return descriptions[0]

    def parameters(self) -> list[Parameter]:
        return [parameter for program in self.programs for parameter in program.parameters()]

    def ties(self) -> dict[str, str]:
        return {path: first for program in self.programs for path, first in program.ties().items()}

    def sites(self) -> list[Site]:
        sites = []
        for number, program in enumerate(self.programs):
            for site in program.sites():
                self._owner[id(site.module)] = number
                sites.append(site)
        return sites

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Rows | Untraced | None:
        number = self._owner[id(site.module)]
        stage = self.stages[number]
        if site.path == ROOT and not (stage.is_first if role == "input" else stage.is_last):
            return UNTRACED  # a transfer
        return self.programs[number].placement(site, role, slot, tensor, inside)

    def gradient_dims(self, gradient: torch.Tensor) -> str | None:
        return self._running.gradient_dims(gradient)

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        return self._running.data_dims(name, tensor)

    def addend_of_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return self._running.addend_of_loss(loss)

    # --- when things happen ------------------------------------------------------------------------

    def watch(self, recorder: Recorder) -> None:
        self._gradients = GradientsOfStep(recorder, self.optimizers, self.programs)

    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        yield from self._gradients.hooks()
        if self.schedule is not None and self.schedule._loss_fn is not None:
            yield Replaced(self.schedule, "_loss_fn", recorder.watch_loss(self.schedule._loss_fn))
        for stage, program in zip(self.stages, self.programs):
            for name in _OF_CHUNKS:
                yield Replaced(stage, name, self._of_chunk(recorder, stage, program, getattr(stage, name)))
            yield from before_outermost_call(stage.submod, self._begins(recorder, stage, program))
            yield after_call(stage.submod, self._ends(recorder, stage))
            yield from program.watch_choices(recorder)

    def is_model(self, module: torch.nn.Module) -> bool:
        return any(program.is_model(module) for program in self.programs)

    def model_called(self, recorder: Recorder, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        self.programs[self._owner[id(model)]].model_called(recorder, model, args, kwargs)

    def _of_chunk(self, recorder: Recorder, stage: Any, program: PlainProgram, own: Any) -> Any:
        """A schedule's numbers of chunks are those of micro-batches, in whichever order it runs them. Gradients
        of weights may be computed long after those of activations."""

        def run(chunk: int, *args: Any, **kwargs: Any) -> Any:
            self._running = program
            program.accumulated = stage.chunks if program.loss == "mean" else 1
            program.of_microbatch(recorder, chunk)
            return own(chunk, *args, **kwargs)

        return run

    def step_begins(self, recorder: Recorder) -> None:
        for program in self.programs:
            program.step_begins(recorder)

    def step_ends(self, recorder: Recorder) -> None:
        del recorder
        self._gradients.step_ends()

    def states_before(self) -> list[OptimizerState]:
        return [state for program in self.programs for state in program.states_before()]

    def buffers(self) -> list[Buffer]:
        return [buffer for program in self.programs for buffer in program.buffers()]

    def _begins(self, recorder: Recorder, stage: Any, program: PlainProgram) -> Any:
        def begins(args: tuple, kwargs: dict) -> None:
            # A run without a number of micro-batches only finds out shapes.
            if not torch.is_grad_enabled() or not stage.chunks:
                return
            program.forward_begins(recorder, args, kwargs)
            if not stage.is_first and args:
                record_transfer(recorder, recorder.received, program, stage.stage_index, args)

        return begins

    def _ends(self, recorder: Recorder, stage: Any) -> Any:
        program = self.programs[self.stages.index(stage)]

        def ends(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            del module, args, kwargs
            if torch.is_grad_enabled() and stage.chunks and not stage.is_last:
                record_transfer(recorder, recorder.sent, program, stage.stage_index + 1, output)

        return ends

"""Programs of DeepSpeed's PipelineModule: an engine whose `train_batch` runs a schedule of micro-batches over stages.

The module of every stage names its layers by their numbers in the whole model. Micro-batch i is the schedule's i-th
forward, on every stage. The losses that the engine computes are recorded, and that each stage receives what the stage
before it sent. The reference is the same script with one stage on one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..base.calls import Removable, Replaced, after_call, before_call
from ..base.recorder import Recorder
from ..base.values import ROOT, UNTRACED, Dims, Site, Untraced
from .deepspeed import DeepSpeedProgram, is_pipeline
from .transfers import record_transfer


class PipelineModuleProgram(DeepSpeedProgram):
    """See the head of this file.

    Options of `ttrace.attach`: batch_dim, loss, as for plain modules.
    """

    def __init__(self, engine: Any, describe: Mapping[str, Any], **options: Any):
        super().__init__(engine, describe, **options)
        self.layout.add("pp", engine.num_stages, engine.stage_id)
        self._begun = 0  # forwards in this step
        self._numbers: dict[int, int] = {}  # of the micro-batch in each of the engine's buffers

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Untraced | None:
        engine = self._engine
        if site.path == ROOT and not (engine.is_first_stage() if role == "input" else engine.is_last_stage()):
            return UNTRACED  # a transfer
        return super().placement(site, role, slot, tensor, inside)

    def step_begins(self, recorder: Recorder) -> None:
        super().step_begins(recorder)
        self._begun = 0
        self._numbers.clear()

    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        if self.model.loss_fn is not None:
            yield Replaced(self.model, "loss_fn", recorder.watch_loss(self.model.loss_fn))
        yield Replaced(self._engine, "_INSTRUCTION_MAP", self._instructions(recorder))
        # Hooks run before those that were there, and the micro-batch and its samples must be known first.
        yield before_call(self._called, self._received(recorder))
        yield from super().hook_models(recorder)
        yield after_call(self._called, self._sent(recorder))

    def _instructions(self, recorder: Recorder) -> dict[type, Callable[..., Any]]:
        """What the engine does for each instruction of a schedule, with the number of the micro-batch known."""
        from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass

        own = dict(self._engine._INSTRUCTION_MAP)

        def forward(engine: Any, buffer_id: int, **kwargs: Any) -> Any:
            self._numbers[buffer_id] = self._begun
            self._begun += 1
            self.of_microbatch(recorder, self._numbers[buffer_id])
            return own[ForwardPass](engine, buffer_id=buffer_id, **kwargs)

        def backward(engine: Any, buffer_id: int, **kwargs: Any) -> Any:
            self.of_microbatch(recorder, self._numbers[buffer_id])
            return own[BackwardPass](engine, buffer_id=buffer_id, **kwargs)

        return {**own, ForwardPass: forward, BackwardPass: backward}

    def _received(self, recorder: Recorder) -> Callable[..., None]:
        def received(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
            del module
            if torch.is_grad_enabled() and not self._engine.is_first_stage():
                record_transfer(recorder, recorder.received, self, self._engine.stage_id, (args, kwargs))

        return received

    def _sent(self, recorder: Recorder) -> Callable[..., None]:
        def sent(module: torch.nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
            del module, args, kwargs
            if torch.is_grad_enabled() and not self._engine.is_last_stage():
                record_transfer(recorder, recorder.sent, self, self._engine.stage_id + 1, output)

        return sent


def make(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> DeepSpeedProgram:
    """The program of an engine with or without stages. The optimizer is the engine's."""
    del optimizer
    kind = PipelineModuleProgram if is_pipeline(chunks[0]) else DeepSpeedProgram
    return kind(chunks[0], describe, **options)

"""Finds the model and the optimizer of a program, and attaches to them before their first training step.

The model is the module that the program calls, with gradients, while an optimizer holds parameters of it: by then all
wrappers are around it. Programs whose loop is a library's are attached to where the library starts it. In a program that
trains nothing (TTRACE_AUTO is "inference") the model is the first module with parameters that it calls.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..base.calls import Replaced
from ..base.optimizers import optimizers_in
from ..base.precisions import dtype_of
from ..base.values import PRECISIONS
from .imports import after_import
from .precision import ConvertedModules, convert, precision_of_parameters

NOT_RECORDED = "the program has no lines of TTrace (--auto): what it computes outside of modules was not recorded"
LOSS = r"/loss/"  # computed outside of modules as well, unless a schedule computes it
POLICIES = (
    ("torch.distributed.fsdp._fully_shard._fsdp_api", "MixedPrecisionPolicy"),
    ("torch.distributed.fsdp.api", "MixedPrecision"),
)


class _Watch:
    """Until a model is found."""

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref] = []
        self._replaced: list[Replaced] = []
        self._given: tuple[Any, Any, Sequence[str]] | None = None  # what a library has told: as `_attach`
        self._converted: ConvertedModules | None = None  # in a pass that asks for a precision
        self._is_converted = False
        self._model: nn.Module | None = None  # of a program that trains nothing
        self._tracer: Any = None
        self._calls = 0

    def begin(self) -> None:
        from ..attach import asked_precision

        if asked := asked_precision():
            self._converted = ConvertedModules(dtype_of(asked))
            for name, kind in POLICIES:
                after_import(name, functools.partial(self._converted.watch_policy, kind))
        if os.environ.get("TTRACE_AUTO") == "inference":
            self._wrap(nn.Module, "__call__", self._stepping)
            return
        self._wrap(torch.optim.Optimizer, "__init__", self._remembering)
        self._wrap(nn.Module, "__call__", self._looking)
        for name, act in (
            ("torch.distributed.pipelining.schedules", self._of_pipelining),
            ("megatron.core.optimizer", self._of_megatron),
            ("deepspeed", self._of_deepspeed),
            ("transformers.trainer", functools.partial(self._of_trainer, "train")),
            ("lightning.pytorch.trainer.trainer", functools.partial(self._of_trainer, "fit")),
            ("pytorch_lightning.trainer.trainer", functools.partial(self._of_trainer, "fit")),
        ):
            after_import(name, act)

    def end(self) -> None:
        for replaced in self._replaced:
            replaced.remove()
        self._replaced.clear()
        if self._converted is not None:
            self._converted.remove()

    def _wrap(self, owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
        own = getattr(owner, name)
        self._replaced.append(Replaced(owner, name, functools.wraps(own)(make(own))))

    def _remembering(self, own: Callable) -> Callable:
        def construct(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            own(optimizer, *args, **kwargs)
            self._optimizers.append(weakref.ref(optimizer))

        return construct

    def _looking(self, own: Callable) -> Callable:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._replaced and (torch.is_grad_enabled() or self._is_to_convert()):
                self._look_at(module)
            return own(module, *args, **kwargs)

        return call

    def _stepping(self, own: Callable) -> Callable:
        """Every call of the model is a step."""

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._replaced and self._model is None and any(True for _ in module.parameters()):
                self._begin_to_infer(module)
            if module is not self._model or self._tracer.in_step:
                return own(module, *args, **kwargs)
            self._calls += 1
            with self._tracer.step(self._calls - 1):
                return own(module, *args, **kwargs)

        return call

    def _begin_to_infer(self, module: nn.Module) -> None:
        from ..attach import attach, is_attached

        if is_attached():  # the program has lines of its own
            self.end()
            return
        self._model = module
        self._convert(module)
        self._tracer = attach(module)
        self._tracer.not_seen("values", NOT_RECORDED)

    def _look_at(self, module: nn.Module) -> None:
        from ..attach import is_attached

        if is_attached():  # the program has lines of its own
            self.end()
        elif not torch.is_grad_enabled():  # an evaluation, in which FSDP2 settles the types of parameters
            if self._optimizers_of(module):
                self._convert(module)
        elif self._given is not None:
            self._attach(*self._given)
        elif optimizers := self._optimizers_of(module):
            self._attach(module, _alone(optimizers), [LOSS])

    def _optimizers_of(self, module: nn.Module) -> list[torch.optim.Optimizer]:
        """Those that hold parameters of the module, without those that another one of them wraps."""
        alive = [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]
        for part in module.modules():
            if hasattr(part, "set_reshard_after_forward"):  # FSDP2, which leaves an evaluation with parameters of its own
                part.reshard()
        parameters = {id(parameter) for parameter in module.parameters()}
        holding = [
            optimizer
            for optimizer in alive
            if any(id(p) in parameters for group in optimizer.param_groups for p in group["params"])
        ]
        wrapped = {id(inner) for one in holding for inner in optimizers_in(one) if inner is not one}
        return [optimizer for optimizer in holding if id(optimizer) not in wrapped]

    def _attach(self, model: Any, optimizer: Any, untraced: Sequence[str] = ()) -> None:
        from ..attach import attach

        self.end()
        self._convert(model)
        attach(model, optimizer, steps="optimizer", untraced=untraced).not_seen("values", NOT_RECORDED)

    def _is_to_convert(self) -> bool:
        return self._converted is not None and not self._is_converted

    def _convert(self, model: Any) -> None:
        """Once, to what this pass asks for, if that is not what the model has."""
        from ..attach import own_precision, precision

        if self._is_converted:
            return
        self._is_converted = True
        if own_precision() is None and (own := self._own_precision(model)) is not None:
            if (asked := precision(own)) != own:
                if self._converted is not None:
                    self._converted.follow_policies()
                convert(model, dtype_of(own), dtype_of(asked))

    def _own_precision(self, model: Any) -> str | None:
        """Of the program, in which it would compute if no pass asked for another."""
        if self._converted is not None and self._converted.own is not None:
            return PRECISIONS[self._converted.own]
        return precision_of_parameters(model)

    def _of_pipelining(self, schedules: ModuleType) -> None:
        """A schedule calls the modules of its stages, none of which is the model."""

        def attaching(own: Callable) -> Callable:
            def step(schedule: Any, *args: Any, **kwargs: Any) -> Any:
                if self._replaced and torch.is_grad_enabled():
                    stages = getattr(schedule, "_stages", None) or [schedule._stage]
                    held = [self._optimizers_of(stage.submod) for stage in stages]
                    found = list({id(one): one for several in held for one in several}.values())
                    if found:
                        self._attach(schedule, _alone(found))
                return own(schedule, *args, **kwargs)

            return step

        for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
            self._wrap(getattr(schedules, name), "step", attaching)

    def _of_megatron(self, module: ModuleType) -> None:
        """Its optimizer is none of torch, and its model a list of chunks."""

        def told(own: Callable) -> Callable:
            def make(*args: Any, **kwargs: Any) -> Any:
                optimizer = own(*args, **kwargs)
                chunks = kwargs["model_chunks"] if "model_chunks" in kwargs else args[1]
                self._given = (list(chunks) if isinstance(chunks, Sequence) else chunks, optimizer, [])
                return optimizer

            return make

        self._wrap(module, "get_megatron_optimizer", told)

    def _of_deepspeed(self, module: ModuleType) -> None:
        """An engine has its optimizer, whose parameters may be parts of those of the model."""

        def told(own: Callable) -> Callable:
            def initialize(*args: Any, **kwargs: Any) -> Any:
                given = inspect.signature(own).bind(*args, **kwargs)
                if self._converted is not None:
                    self._converted.follow_in(given.arguments)
                made = own(*given.args, **given.kwargs)
                if hasattr(made[0], "train_batch"):  # a pipeline's, which computes the loss, and calls no model that is whole
                    self._wrap(made[0], "train_batch", self._attaching_to(made[0]))
                else:
                    self._given = (made[0], None, [LOSS])
                return made

            return initialize

        self._wrap(module, "initialize", told)

    def _attaching_to(self, model: Any) -> Callable[[Callable], Callable]:
        def make(own: Callable) -> Callable:
            def step(*args: Any, **kwargs: Any) -> Any:
                if self._replaced:
                    self._attach(model, None)
                return own(*args, **kwargs)

            return step

        return make

    def _of_trainer(self, starts: str, module: ModuleType) -> None:
        """Trainers of transformers and of Lightning tell when a step begins and ends."""

        def attaching(own: Callable) -> Callable:
            def start(trainer: Any, *args: Any, **kwargs: Any) -> Any:
                if self._replaced:
                    from ..trainer import attach_trainer

                    self.end()
                    attach_trainer(trainer)
                return own(trainer, *args, **kwargs)

            return start

        self._wrap(module.Trainer, starts, attaching)


def _alone(optimizers: list[torch.optim.Optimizer]) -> Any:
    """The one optimizer, or all of several: what `attach` takes."""
    return optimizers[0] if len(optimizers) == 1 else optimizers


def begin() -> None:
    _Watch().begin()

"""Programs of plain torch: one module on one device, or in DistributedDataParallel.

Every forward of the model begins a micro-batch. With DDP all ranks' forwards with the same number are
one micro-batch of the reference, whose samples the ranks share: rank r has the r-th part of dimension
`batch_dim` of every activation that has as many elements there as the model's first argument has samples,
or samples x positions; what has other sizes (a table of positions) is whole. The loss is taken to be a mean
over samples, so that gradients are 1/ranks of this rank's (`loss="sum"`: it is a sum).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from ..layout import Layout
from ..names import canonical, traced_modules
from ..program import (
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Program,
    Site,
    Untraced,
    precision_of,
)
from ..tracer import Tracer
from ..trees import tensors_of

ROOT = "model"  # path of the model's own call

# Names that models of Hugging Face and others have next to the usual ones.
ROLES = {
    "attention": "*attention* *attn*",
    "layers": "*layers *layer *blocks h *.h",
    "tokens": "tokens input_ids",
}

_NAMES = "abcdefghijklmnopqrstuvwxyz"


def dims_text(dims: int, cut: Mapping[int, str]) -> str:
    """ "a b[dp] c": names for `dims` dimensions, with axes where `cut` has any."""
    return " ".join(_NAMES[i] + (f"[{cut[i]}]" if i in cut else "") for i in range(dims))


class PlainProgram(Program):
    """See the head of this file."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None,
        describe: Mapping[str, Any],
        batch_dim: int = 0,
        loss: str = "mean",
    ):
        if loss not in ("mean", "sum"):
            raise TypeError(f'loss is "{loss}"; it must be "mean" or "sum"')
        self.model = model.module if isinstance(model, DistributedDataParallel) else model
        self.optimizer: Any = optimizer
        self.describe = describe
        self.batch_dim = batch_dim
        self.loss = loss
        self.layout = Layout()
        self.accumulated = 1  # micro-batches that gradients are divided by only at the end
        self._forwards = 0
        self._batches: set[int] = set()  # sizes that a dimension of samples may have
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.layout.rank = torch.distributed.get_rank()
            self.layout.world_size = torch.distributed.get_world_size()
        if isinstance(model, DistributedDataParallel):
            group = model.process_group
            self.layout.add("dp", group.size(), group.rank())

    # --- what the model is -------------------------------------------------------------------------

    def description(self) -> Description:
        model = {"class": class_name(self.model)}
        model.update({key: str(value) for key, value in self.describe.items()})
        return Description(precision=precision_of(self.model.parameters()), model=model, roles=ROLES)

    def parameters(self) -> list[Parameter]:
        return [
            Parameter(canonical(name), parameter, self.parameter_dims(parameter), parameter)
            for name, parameter in self.model.named_parameters()
        ]

    def parameter_dims(self, parameter: torch.Tensor) -> Dims | None:
        """Whole; gradients of a micro-batch are addends of the ranks that share it."""
        if self.layout.size("dp") == 1 or parameter.dim() == 0:
            return None
        whole = dims_text(parameter.dim(), {})
        return Dims(whole, dims_text(parameter.dim(), {0: "dp:partial"}))

    def sites(self) -> list[Site]:
        return [Site(path or ROOT, module) for path, module in traced_modules(self.model)]

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Untraced | None:
        del site, role, slot, inside
        return self._shared_batch(tensor)

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        del name
        dims = self._shared_batch(tensor)
        return dims.value if dims else None

    def has_batch(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this local shape has samples along `batch_dim`."""
        return len(shape) > self.batch_dim and shape[self.batch_dim] in self._batches

    def _shared_batch(self, tensor: torch.Tensor) -> Dims | None:
        if self.layout.size("dp") == 1 or tensor.dim() == 0:
            return None
        if not self.has_batch(tuple(tensor.shape)):
            # The same on all ranks, whose gradients come from other samples.
            return Dims(dims_text(tensor.dim(), {}), dims_text(tensor.dim(), {0: "dp:partial"}))
        return Dims(dims_text(tensor.dim(), {self.batch_dim: "dp"}))

    # --- when things happen ------------------------------------------------------------------------

    def watch(self, tracer: Tracer) -> None:
        watch_optimizer(tracer, self.optimizer, [self])

    def hook_models(self, tracer: Tracer) -> Iterator[RemovableHandle]:
        yield self.model.register_forward_pre_hook(
            lambda module, args, kwargs: self.forward_begins(tracer, args, kwargs),
            with_kwargs=True,
            prepend=True,
        )

    def step_begins(self, tracer: Tracer) -> None:
        del tracer
        self._forwards = 0

    def forward_begins(self, tracer: Tracer, args: tuple, kwargs: Mapping) -> None:
        if not torch.is_grad_enabled():
            return
        tracer.microbatch(self._forwards, self.gradient_scale())
        self._forwards += 1
        first = next(tensors_of((args, kwargs)), None)
        if first is not None and first.dim() > self.batch_dim:
            sizes = first.shape[self.batch_dim :]
            self._batches = {sizes[0], sizes[0] * sizes[1]} if len(sizes) > 1 else {sizes[0]}
        record_data(tracer, self.model, args, kwargs)

    def gradient_scale(self) -> float:
        ranks = self.layout.size("dp") if self.loss == "mean" else 1
        return 1.0 / (ranks * self.accumulated)

    def gradients(self) -> list[Gradient]:
        return [
            Gradient(parameter.path, parameter.object.grad)
            for parameter in self.parameters()
            if parameter.object.grad is not None
        ]

    def states(self) -> list[OptimizerState]:
        return [self._state(parameter) for parameter in self.parameters()]

    def _state(self, parameter: Parameter) -> OptimizerState:
        state = self.optimizer.state.get(parameter.object, {})
        return OptimizerState(
            parameter.path,
            parameter.tensor,
            None,
            state.get("exp_avg"),
            state.get("exp_avg_sq"),
        )


def watch_optimizer(tracer: Tracer, optimizer: Any, programs: Sequence[PlainProgram]) -> None:
    """Gradients are final when a torch optimizer's step begins, parameters when it is done."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return

    def begins(*unused: Any) -> None:
        if tracer.in_step:
            tracer.gradients_reduced([entry for program in programs for entry in program.gradients()])

    def done(*unused: Any) -> None:
        if tracer.in_step:
            tracer.parameters_updated([entry for program in programs for entry in program.states()])

    optimizer.register_step_pre_hook(begins)
    optimizer.register_step_post_hook(done)


def class_name(model: torch.nn.Module) -> str:
    """Of the class that the user wrote: FSDP2 derives one of its own from it."""
    for cls in type(model).__mro__:
        if not any(base.__name__ == "FSDPModule" for base in cls.__mro__):
            return cls.__name__
    return type(model).__name__


def record_data(tracer: Tracer, model: torch.nn.Module, args: tuple, kwargs: Mapping) -> None:
    """Integers and masks that the model is given, under the names of its parameters."""
    try:
        named: Mapping[str, Any] = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # its own error is better than ours
        named = kwargs
    for name, value in named.items():
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            tracer.data(canonical(name), value)


def make(
    model: torch.nn.Module,
    optimizer: Any,
    describe: Mapping[str, Any],
    **options: Any,
) -> Program:
    from . import dtensor

    if dtensor.recognises(model):
        return dtensor.DTensorProgram(model, optimizer, describe, **options)
    return PlainProgram(model, optimizer, describe, **options)

"""Programs of plain torch: one module on one device, or in DistributedDataParallel.

Every forward of the model begins a micro-batch; a forward within a forward is no other one. If a program calls
modules of the model and never the model itself, the first call of a step begins one, and so does the first
after a backward. So it is with several models, such as an actor and a critic: a list, a dictionary or a
container of them. With DDP the forwards of all ranks with the same number are one micro-batch of the reference,
whose samples the ranks share. An activation is cut along `batch_dim` if it
has as many elements there as the model's first argument has samples, or samples x positions: rank r has the
r-th part. Activations of other sizes (a table of positions) are whole. Where the ranks' tensors contradict
that, their values decide. The loss is assumed to be a mean over samples, so that the reference's gradients
are 1/ranks of this rank's. Pass `loss="sum"` if it is a sum.

Forwards without gradients are micro-batches only if there is no optimizer, in a program with forward passes
only. In a program that trains they evaluate, and TTrace does not record them between its steps.

A program may also be parallel by code of its own. Its ranks are one axis, or those that `axes` names. The axis
`dp` has different samples; without one, the axes over which DDP takes the mean (rank_axes.py). No declaration then
says where parameters and activations lie: values decide.

Tensor-parallel layers of TransformerEngine among the modules (`parallel_mode`, `tp_size`, `tp_group`) say where
their tensors and parameters lie. Activations of other modules lie as the latest one of the same shape that such
a layer took or returned.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..base.buffers import kept_buffers
from ..base.calls import Removable, after_call, before_call, before_outermost_call
from ..base.compiled import is_compiled, original
from ..base.layout import Layout
from ..base.local_part import local_part, unwrapped
from ..base.loss_scale import loss_scale_of
from ..base.names import canonical, traced_modules
from ..base.optimizers import Optimizers
from ..base.program import Program
from ..base.quantised import readable
from ..base.recorder import Recorder
from ..base.simulated import shape_of
from ..base.states import LEARNING_RATE, MOMENTS, kept_state, number
from ..base.ties import ties_in
from ..base.trees import tensors_of
from ..base.unseen import unseen
from ..base.values import (
    ROOT,
    Buffer,
    Description,
    Dims,
    Gradient,
    OptimizerState,
    Parameter,
    Site,
    Untraced,
    precision_of,
)
from .called_parts import Parts
from .dims_text import Samples, addends_text, dims_text, guess, scalar_text
from .expert_choices import Choices, expert_blocks
from .parallel_layers import cuts_weights, is_parallel_layer, layer_dims
from .rank_axes import RankAxes
from .steps_of_optimizer import GradientsOfStep

# Names that models of Hugging Face and others have next to the usual ones.
ROLES = {
    "attention": "*attention* *attn*",
    "layers": "*layers *layer *blocks h *.h",
    "tokens": "tokens input_ids",
}

class PlainProgram(Program):
    """See the head of this file.

    Options of `ttrace.attach`:
        batch_dim: the dimension of samples.
        loss: "mean" or "sum", over the samples of all ranks.
        scaler: the GradScaler whose scale the loss is multiplied by, unless the optimizer has it
            (accelerate's). Gradients of single micro-batches are compared without that factor.
        axes: of a program that is parallel by code of its own, names and sizes, the slowest first.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        describe: Mapping[str, Any],
        batch_dim: int = 0,
        loss: str = "mean",
        scaler: Any = None,
    ):
        if loss not in ("mean", "sum"):
            raise TypeError(f'loss is "{loss}"; it must be "mean" or "sum"')
        self.model, group = without_ddp(model)
        # Whose call a traced step sees: of DDP that is compiled the whole, of other DDP what it wraps.
        self._called = model if group is not None and is_compiled(model) else self.model
        self.optimizers = Optimizers(optimizer)
        self._loss_scale = loss_scale_of(optimizer, scaler)
        self.describe = describe
        self.batch_dim = batch_dim
        self.loss = loss
        self.layout = Layout()
        self.accumulated = 1  # gradients are divided by this number of micro-batches only at the end
        self._forwards = 0
        self._parts: Parts | None = None  # of the model, that began the current micro-batch
        self._awaits_data = False  # the current micro-batch has none, and no module of the model was called yet
        self._batches: dict[int, int] = {}  # rows of each sample, by the size that a dimension of samples has
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.layout.rank = torch.distributed.get_rank()
            self.layout.world_size = torch.distributed.get_world_size()
        ranks = None if group is None else torch.distributed.get_process_group_ranks(group)
        self.rank_axes = RankAxes(self.layout, ranks)
        self._latest: dict[tuple[int, ...], Dims] = {}  # by local shape, of tensor-parallel layers
        self._cut: dict[int, int] = {}  # dimension that tensor parallelism cuts, by id of the parameter
        self._add_tensor_parallel_axes()

    def _add_tensor_parallel_axes(self) -> None:
        for module in self.model.modules():
            is_parallel = is_parallel_layer(module) and getattr(module, "tp_size", 1) > 1
            if not is_parallel or module.tp_group is None:
                continue
            size, rank = module.tp_group.size(), module.tp_group.rank()
            self.layout.add("tp", size, rank)
            if getattr(module, "sequence_parallel", False):
                self.layout.add("sp", size, rank, follows="tp")
            for parameter in module.parameters(recurse=False) if cuts_weights(module) else ():
                if getattr(parameter, "tensor_model_parallel", False):
                    self._cut[id(parameter)] = parameter.partition_dim

    # --- what the model is -------------------------------------------------------------------------

    def description(self) -> Description:
        model = {"class": class_name(self.model)}
        model.update({key: str(value) for key, value in self.describe.items()})
        return Description(
            precision=precision_of(self.model.parameters()),
            model=model,
            roles=ROLES,
            untraced=[f"put/{re.escape(prefix)}" for prefix in self._within_experts()],
        )

    def _within_experts(self) -> tuple[str, ...]:
        """How paths within experts begin. Where ranks have different samples, they choose other rows for each
        expert, and nothing says which rows of the reference's these are: they are not compared."""
        modules = list(self.traced_modules()) if self.sample_axes() else []
        experts = {id(found) for _, found, _ in expert_blocks([module for _, module in modules])}
        return tuple(f"{path}." for path, module in modules if id(module) in experts)

    def parameters(self) -> list[Parameter]:
        return [
            Parameter(canonical(name), unwrapped(readable(parameter)), self.parameter_dims(parameter), parameter)
            for name, parameter in self.model.named_parameters()
        ]

    def ties(self) -> dict[str, str]:
        return ties_in(self.model)

    def parameter_dims(self, parameter: torch.Tensor) -> Dims | None:
        """Tensor-parallel layers say by attributes of the parameter how it is cut; else it is whole. In a
        micro-batch's gradient each rank that saw other samples or positions holds an addend."""
        cut = {self._cut[id(parameter)]: "tp"} if id(parameter) in self._cut else {}
        partial = self.rank_axes.addends(self.rank_axes.samples())
        if getattr(parameter, "sequence_parallel", False) and self.layout.size("tp") > 1:
            partial.append("tp")
        if not (cut or partial or self.rank_axes.is_by_hand):
            return None
        if parameter.dim() == 0:
            return Dims(scalar_text(), scalar_text(partial))
        first = ",".join(filter(None, (cut.get(0, ""), addends_text(partial))))
        with_addends = {**cut, 0: first} if first else cut
        if self.rank_axes.is_by_hand and not cut:
            return guess(parameter.dim(), {}, with_addends)
        return Dims(dims_text(parameter.dim(), cut), dims_text(parameter.dim(), with_addends))

    def traced_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Canonical paths and modules, with an empty path for what stands for the whole model."""
        return traced_modules(self._called)

    def sites(self) -> list[Site]:
        modules = list(self.traced_modules())
        root = ROOT if all(path != ROOT for path, _ in modules) else f"whole_{ROOT}"  # a child has that name
        hidden = self._within_experts()
        return [Site(path or root, module) for path, module in modules if not path.startswith(hidden)]

    def placement(
        self, site: Site, role: str, slot: int, tensor: torch.Tensor, inside: torch.Tensor | None
    ) -> Dims | Untraced | None:
        del inside
        if self.layout.size("tp") > 1:
            dims = self._tensor_parallel(site.module, role, slot, tensor)
            if dims is not None:
                return dims
        return self._shared_batch(tensor)

    def _tensor_parallel(self, module: torch.nn.Module, role: str, slot: int, tensor: torch.Tensor) -> Dims | None:
        shape = shape_of(tensor)
        if not is_parallel_layer(module):
            return self._latest.get(shape)
        dims = layer_dims(module, role, slot, tensor, self.layout)
        if dims is not None and self.sample_axes():
            samples = f"b[{','.join(self.sample_axes())}]"
            dims = replace(dims, value=re.sub(r"\bb\b", samples, dims.value))
        if dims is not None:
            self._latest[shape] = replace(dims, addends=1)
        return dims

    def data_dims(self, name: str, tensor: torch.Tensor) -> str | None:
        if name == "loss" and tensor.numel() == 1:
            return self.total_dims()
        dims = self._shared_batch(tensor)
        return dims.value if dims else None

    def sample_axes(self) -> list[str]:
        """Axes whose ranks have different samples of a micro-batch."""
        return self.rank_axes.samples()

    def sample_ranks(self) -> int:
        """How many ranks have different samples of a micro-batch."""
        return math.prod(self.layout.size(axis) for axis in self.sample_axes())

    def total_dims(self) -> str | None:
        """Where a loss lies that is one number."""
        axes = self.sample_axes()
        return f"a[{addends_text(axes)}]" if axes else None

    def addend_of_loss(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.loss == "sum" else loss / self.sample_ranks()

    def samples_of(self, shape: tuple[int, ...]) -> Samples | None:
        """Whether a tensor of this local shape has samples along `batch_dim`."""
        if len(shape) <= self.batch_dim:
            return None
        positions = self._batches.get(shape[self.batch_dim])
        return None if positions is None else Samples(self.batch_dim, positions)

    def _shared_batch(self, tensor: torch.Tensor) -> Dims | None:
        if tensor.dim() == 0:
            return None
        samples = self.samples_of(shape_of(tensor))
        axes = self.sample_axes() if samples else []
        value = {samples.dim: ",".join(axes)} if samples else {}
        # Ranks that hold it alike have gradients of different samples, or each a part of those that a mean counts.
        alike = [axis for axis in self.rank_axes.addends(self.sample_axes()) if axis not in axes]
        first = ",".join(filter(None, (value.get(0, ""), addends_text(alike))))
        return guess(tensor.dim(), value, {**value, 0: first}, samples)

    # --- when things happen ------------------------------------------------------------------------

    def watch(self, recorder: Recorder) -> None:
        self._gradients = GradientsOfStep(recorder, self.optimizers, [self])

    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        yield from self._gradients.hooks()

        def begins(args: tuple, kwargs: dict) -> None:
            self.forward_begins(recorder, args, kwargs)

        yield from before_outermost_call(self._called, begins)
        yield from self.watch_choices(recorder)

    def watch_choices(self, recorder: Recorder) -> Iterator[Removable]:
        """Choices of experts are recorded as those of the module that makes them."""
        with unseen():
            blocks = list(expert_blocks([site.module for site in self.sites()]))
        for block, _, experts in blocks:
            yield from self._watch_block(block, experts, recorder)

    def _watch_block(self, block: torch.nn.Module, experts: int, recorder: Recorder) -> Iterator[Removable]:
        open_calls: list[Choices] = []

        def follow(choices: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
            return recorder.routing(choices, margins, self.data_dims)

        def begins(*unused: Any) -> None:
            open_calls.append(Choices(experts, follow))
            open_calls[-1].__enter__()

        def ends(*unused: Any) -> None:
            if open_calls:
                open_calls.pop().__exit__(None, None, None)

        yield before_call(block, begins)
        yield after_call(block, ends, always=True)

    def step_begins(self, recorder: Recorder) -> None:
        del recorder
        self._forwards = 0
        self._parts = None

    def _evaluates(self) -> bool:
        return bool(self.optimizers) and not torch.is_grad_enabled()

    def step_ends(self, recorder: Recorder) -> None:
        del recorder
        self._gradients.step_ends()

    def forward_begins(self, recorder: Recorder, args: tuple, kwargs: Mapping) -> None:
        if self._evaluates():
            return
        parts, self._parts = self._parts, None
        if parts is None or parts.went_back:
            self._next_microbatch(recorder)
        self._note_samples(args, kwargs)

    def _next_microbatch(self, recorder: Recorder) -> None:
        self.of_microbatch(recorder, self._forwards)
        self._forwards += 1

    def _note_samples(self, args: tuple, kwargs: Mapping) -> None:
        first = next(tensors_of((args, kwargs)), None)
        if first is not None and first.dim() > self.batch_dim:
            sizes = local_part(first).shape[self.batch_dim :]
            self._batches = {sizes[0] * sizes[1]: sizes[1], sizes[0]: 1} if len(sizes) > 1 else {sizes[0]: 1}

    def is_model(self, module: torch.nn.Module) -> bool:
        return module is self._called

    def model_called(self, recorder: Recorder, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
        del model
        if recorder.in_microbatch and not self._evaluates():
            self._note_samples(args, kwargs)
            self._awaits_data = not record_data(recorder, self.model, args, kwargs)

    def part_called(self, recorder: Recorder, args: tuple, kwargs: Mapping[str, Any]) -> None:
        is_recomputed = torch._C._current_graph_task_id() != -1
        belongs = self._forwards > 0 and (self._parts is None or not self._parts.went_back)
        if self._evaluates() or is_recomputed or belongs:
            return
        self._next_microbatch(recorder)
        self._parts = Parts()
        self._awaits_data = True
        self._note_samples(args, kwargs)

    def module_called(self, recorder: Recorder, site: Site, args: tuple, kwargs: Mapping[str, Any]) -> None:
        awaited, self._awaits_data = self._awaits_data, False
        if awaited and not any(tensor.is_floating_point() for tensor in tensors_of((args, kwargs))):
            record_data(recorder, site.module, args, kwargs, f"{site.path}.")

    def part_returned(self, output: Any) -> None:
        if self._parts is not None:
            self._parts.wait_for_backward(output)

    def of_microbatch(self, recorder: Recorder, number: int) -> None:
        """What runs from now on belongs to this micro-batch, as does the next forward."""
        recorder.microbatch(number, self.gradient_scale())
        self._forwards = number

    def gradient_scale(self) -> float:
        addends = self.rank_axes.addends(self.sample_axes()) if self.loss == "mean" else []
        ranks = math.prod(map(self.layout.size, addends))
        return 1.0 / (ranks * self.accumulated * self._loss_scale())

    def gradients(self) -> list[Gradient]:
        return [
            Gradient(parameter.path, local_part(parameter.object.grad))
            for parameter in self.parameters()
            if parameter.object.grad is not None
        ]

    def states(self) -> list[OptimizerState]:
        rates = self.optimizers.learning_rates()
        return [self._state(parameter, rates.get(id(parameter.object))) for parameter in self.parameters()]

    def _state(self, parameter: Parameter, rate: float | None) -> OptimizerState:
        state = self.optimizers.state(parameter.object)
        moments = {name: local_part(state[name]) for name in MOMENTS if name in state}
        others = {} if rate is None else {LEARNING_RATE: number(rate)}
        return OptimizerState(parameter.path, self._after_step(parameter), None, **moments, others=others)

    def _after_step(self, parameter: Parameter) -> torch.Tensor:
        return parameter.tensor

    def own_dims(self, tensor: torch.Tensor) -> str | None:
        """Where a tensor lies that says so itself."""
        del tensor
        return None

    def kept_states(self) -> list[OptimizerState]:
        """What the optimizer and its scheduler have left for the next step."""
        rates = self.optimizers.learning_rates()
        state_of = self.optimizers.state
        return [
            kept_state(entry.path, state_of(entry.object), rates.get(id(entry.object)), self.own_dims)
            for entry in self.parameters()
        ]

    def states_before(self) -> list[OptimizerState]:
        return [*self.states(), *self.kept_states()]

    def buffers(self) -> list[Buffer]:
        return [
            Buffer(canonical(name), local_part(buffer), self.own_dims(buffer))
            for name, buffer in kept_buffers(self.model)
        ]


def class_name(model: torch.nn.Module) -> str:
    """Name of the class that the user wrote, from which FSDP2 derives its own."""
    model = original(model)
    for cls in type(model).__mro__:
        if not any(base.__name__ == "FSDPModule" for base in cls.__mro__):
            return cls.__name__
    return type(model).__name__


def record_data(
    recorder: Recorder, model: torch.nn.Module, args: tuple, kwargs: Mapping, prefix: str = ""
) -> bool:
    """Records integers and masks that the model gets, under the names of its arguments. Returns whether there are any."""
    try:
        forward = original(model).forward
        named: Mapping[str, Any] = inspect.signature(forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call itself raises a better error
        named = kwargs
    integers = {
        name: value
        for name, value in named.items()
        if isinstance(value, torch.Tensor) and not value.is_floating_point()
    }
    for name, value in integers.items():
        recorder.data(prefix + canonical(name), local_part(value))
    return bool(integers)


def without_ddp(model: torch.nn.Module) -> tuple[torch.nn.Module, Any]:
    """What DDP wraps, or a container of what its members wrap; and the group of their ranks, or None without DDP."""
    wrapped = original(model)
    if isinstance(wrapped, DistributedDataParallel):
        return wrapped.module, wrapped.process_group
    is_container = isinstance(model, (torch.nn.ModuleDict, torch.nn.ModuleList))
    members = {name: without_ddp(member) for name, member in model.named_children()} if is_container else {}
    groups = [group for _, group in members.values() if group is not None]
    if not groups:
        return model, None
    return torch.nn.ModuleDict({name: member for name, (member, _) in members.items()}), groups[0]


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is one module, of any kind."""
    return len(chunks) == 1 and isinstance(chunks[0], torch.nn.Module)


def make(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> PlainProgram:
    return PlainProgram(chunks[0], optimizer, describe, **options)


def make_alone(
    chunks: Sequence[Any],
    optimizer: Any,
    describe: Mapping[str, Any],
    axes: Mapping[str, int] | None = None,
    **options: Any,
) -> PlainProgram:
    """A module that is no stage of a pipeline."""
    program = make(chunks, optimizer, describe, **options)
    program.rank_axes.divide(axes)
    return program

"""Programs of Megatron-FSDP: a `MegatronFSDP` of `megatron_fsdp.fully_shard`, in each of its sharding strategies.

It joins parameters into buckets, and divides those among the ranks at any row, whatever the strategy shards. Forward and
backward read one set of parameters, which are whole while a module uses them; the optimizer has another one, of DTensors
over this rank's rows. After the optimizer's step `install_optimized_model_weights` copies from the latter to the former:
what a step leaves is therefore read at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ..base.local_part import local_part
from ..base.names import traced_modules
from ..base.optimizers import Optimizers
from ..base.recorder import Recorder
from ..base.unseen import unseen
from . import plain
from .divided import Divided, DividedProgram, Part, part_of
from .steps_of_optimizer import GradientsOfStep

_REMEDY = (
    "; wrap it with torch.distributed.fsdp.fully_shard (FSDP2), or use Megatron-core's DistributedDataParallel with a "
    "distributed optimizer"
)


def is_wrapper(module: torch.nn.Module) -> bool:
    """By its name: it is a part of Megatron-core and a package of its own."""
    return type(module).__name__ == "MegatronFSDP"


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is one MegatronFSDP. Raises TypeError for a model that is around one."""
    found = [module for chunk in chunks if isinstance(chunk, torch.nn.Module) for module in chunk.modules()]
    if not any(map(is_wrapper, found)):
        return False
    if len(chunks) != 1 or not is_wrapper(chunks[0]):
        raise TypeError(
            f"ttrace.attach got a model in Megatron-FSDP within a {type(chunks[0]).__name__}; pass the MegatronFSDP that "
            "megatron_fsdp.fully_shard returned; if Megatron-core made it, use its DistributedDataParallel"
        )
    return plain.recognises(chunks)


def _unsupported(wrapper: Any) -> str:
    """What of this wrapper TTrace cannot follow; empty if it can."""
    index, groups = wrapper.dist_index, wrapper.param_and_grad_buffer.parameter_groups
    tensor_parallel = index.tp_dim is not None and index.get_submesh(index.tp_dim).size() > 1
    refused = {
        "over a model of Megatron-core": any(_is_of_core(module) for module in wrapper.module.modules()),
        "with tensor parallelism": tensor_parallel or any(isinstance(p, DTensor) for p in wrapper.raw_param.values()),
        "with expert parallelism": any(group.is_expert_param for group in groups),
        "with parameters in FP8": any(not p.is_floating_point() for group in groups for p in _stored(group)),
    }
    return next((what for what, applies in refused.items() if applies), "")


def _is_of_core(module: torch.nn.Module) -> bool:
    return any(base.__name__ == "MegatronModule" for base in type(module).__mro__)


def _stored(group: Any) -> Iterator[torch.Tensor]:
    yield from group.params
    if group.model_weight_buffer is not None:
        yield group.model_weight_buffer.data


class _Buckets(Divided):
    """Where Megatron-FSDP keeps what it divides: parameters are those that forward and backward read."""

    def __init__(self, wrapper: Any, optimizers: Optimizers):
        buffer = wrapper.param_and_grad_buffer
        self._optimizers = optimizers
        self._groups = list(buffer.parameter_groups)
        self._group_of = {id(parameter): group for group in self._groups for parameter in group.params}
        self._updated = {id(updated.orig_param): updated for _, updated in buffer.optimizer_named_parameters}

    def _place(self, parameter: Any) -> tuple[Any, int]:
        """The buffer of what the model computes with and the parameter's number in it; None where nothing is sharded."""
        buffer = self._group_of[id(parameter)].model_weight_buffer
        return buffer, -1 if buffer is None else buffer.param_idx[parameter]

    def shape(self, parameter: Any) -> torch.Size | None:
        """Even where every rank has a whole copy, the rows that others update are there only once they are gathered."""
        is_ours = id(parameter) in self._group_of and self._place(parameter)[0] is not None
        return parameter.shape if is_ours else None

    @contextmanager
    def gathered(self, parameters: Sequence[Any], changes: bool) -> Iterator[None]:
        """In memory of its own, because the program's is in use while its collectives are under way."""
        del parameters
        kept = [(p, p.data) for group in self._groups if group.model_weight_buffer is not None for p in group.params]
        for group in self._groups:
            _gather(group.model_weight_buffer)
        try:
            yield
            for parameter, _ in kept if changes else ():
                self._divide(parameter)
        finally:
            for parameter, data in kept:
                parameter.data = data

    def _divide(self, parameter: Any) -> None:
        group = self._group_of[id(parameter)]
        for buffer in (group.model_weight_buffer, group.hsdp_wbuf):  # the latter has what the inner group divides
            if buffer is not None:
                buffer.set_item(buffer.param_idx[parameter], parameter.data)

    def refresh_masters(self) -> None:
        for group in self._groups:
            masters, weights = group.main_weight_buffer, group.model_weight_buffer
            if masters is None:
                continue
            for number, parameter in enumerate(masters.params):
                whole = parameter.data if weights is None else weights.get_item(number, only_shard=True)
                masters.get_item(number, only_shard=weights is not None).copy_(whole.reshape(-1))

    def value(self, parameter: Any) -> Part | None:
        buffer, number = self._place(parameter)
        return Part(parameter.data) if buffer is None else self._part(parameter, buffer.get_item(number, only_shard=True))

    def gradient(self, parameter: Any) -> Part | None:
        return self._part(parameter, self._updated[id(parameter)].grad)

    def master(self, parameter: Any) -> Part | None:
        updated = self._updated[id(parameter)]
        return None if updated.dtype == parameter.dtype else self._part(parameter, updated)

    def state(self, parameter: Any, name: str) -> Part | None:
        return self._part(parameter, self._optimizers.state(self.held(parameter)).get(name))

    def held(self, parameter: Any) -> Any:
        return self._updated[id(parameter)]

    def _part(self, parameter: Any, tensor: torch.Tensor | None) -> Part | None:
        """Of a tensor that has this rank's rows of the parameter, such as a DTensor."""
        rows = None if tensor is None else local_part(tensor)
        if rows is None or rows.numel() == 0:
            return None
        buffer, number = self._place(parameter)
        first = -1 if buffer is None else buffer._get_item_slice_in_shard(number)[0]
        return part_of(rows.detach(), first, parameter.shape)


def _gather(buffer: Any) -> None:
    """Makes the parameters of a buffer whole."""
    if buffer is None:
        return
    shards = _of_all_ranks(buffer.get_shard_from_local_buffer(), buffer.data_parallel_group)
    order = _of_all_ranks(torch.tensor([buffer.dp_rank], device=shards.device), buffer.data_parallel_group)
    bucket = shards[order.flatten().argsort()].flatten()  # replicas that divide once more are not in the order of ranks
    for number, parameter in enumerate(buffer.params):
        item = buffer.item_index_map[number]
        first = item.global_data_index - buffer.bucket_index.global_data_index
        parameter.data = bucket[first : first + item.size].view(parameter.shape)


def _of_all_ranks(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """One row for each rank."""
    rows = tensor.new_empty(group.size() * tensor.numel())
    torch.distributed.all_gather_into_tensor(rows, tensor, group=group)
    return rows.view(group.size(), tensor.numel())


class _Steps(GradientsOfStep):
    """Records what the optimizer has updated as the program's step leaves it."""

    def _updated(self) -> None:
        self._stepped = True
        with unseen():
            self._rates = [program.learning_rates() for program in self._programs]

    def _record_states(self) -> None:
        with unseen():
            updated = zip(self._programs, self._rates)
            states = [state for program, rates in updated for state in program.states(rates)]
        self._recorder.parameters_updated(states)

    def step_ends(self) -> None:
        if self._stepped and not self._optimizers.are_several:
            self._record_states()
        super().step_ends()

    @property
    def stepped(self) -> bool:
        """Whether the optimizer has, since forget() was called or a traced step began."""
        return self._stepped

    def forget(self) -> None:
        self._stepped = False


class MegatronFsdpProgram(DividedProgram):
    """See the head of this file.

    Options of `ttrace.attach`: batch_dim, loss, scaler, as for plain modules.
    """

    def __init__(self, wrapper: Any, optimizer: Any, describe: Mapping[str, Any], **options: Any):
        refused = _unsupported(wrapper)
        if refused:
            raise TypeError(f"ttrace.attach got a model in Megatron-FSDP {refused}, which TTrace cannot follow{_REMEDY}")
        super().__init__(wrapper.module, optimizer, describe, **options)
        self._wrapper = wrapper
        self._called = wrapper  # which calls the forward of the model, and not the model
        self.layout.add("dp", *_ranks(wrapper.dist_index))
        self.divide(_Buckets(wrapper, self.optimizers))

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those of forward and backward, whichever the model has at the moment."""
        yield from self._wrapper.raw_param.items()

    def traced_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        for path, module in traced_modules(self.model):
            yield path, module if path else self._called

    def watch(self, recorder: Recorder) -> None:
        self._gradients = _Steps(recorder, self.optimizers, [self])

    def after_updates(self, done: Callable[[], None]) -> bool:
        own = self._wrapper.install_optimized_model_weights

        def install(*args: Any, **kwargs: Any) -> None:
            own(*args, **kwargs)
            if self._gradients.stepped:  # else a checkpoint was loaded
                done()
                self._gradients.forget()

        self._wrapper.install_optimized_model_weights = install
        return True


def _ranks(index: Any) -> tuple[int, int]:
    """How many ranks have different samples, and which of them this is."""
    inner, outer = index.get_fsdp_group(), index.get_outer_fsdp_group() if index.use_hybrid_fsdp else None
    if outer is None:
        return inner.size(), inner.rank()
    return inner.size() * outer.size(), outer.rank() * inner.size() + inner.rank()


def make(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> MegatronFsdpProgram:
    return MegatronFsdpProgram(chunks[0], optimizer, describe, **options)

"""Programs of FullyShardedDataParallel (FSDP1), the predecessor of `fully_shard`.

FSDP1 joins the parameters of a module into one flat vector, and divides that among the ranks at any element. With
``use_orig_params=True`` the parameters that the module shows are views of this rank's part, and an optimizer's states
are shaped like them. Modules that FSDP ignores, or that are in no wrapper, keep whole parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ..base.calls import Removable, Replaced
from ..base.optimizers import Optimizers
from ..base.recorder import Recorder
from ..base.unseen import unseen
from . import plain
from .divided import Divided, DividedProgram, Part, part_of


def _wrapper() -> type | None:
    """Looked up by name: its module takes a while to load, and a model made of it has loaded it."""
    return getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)


def _wrappers(model: torch.nn.Module) -> list[Any]:
    wrapper = _wrapper()
    return [] if wrapper is None else [module for module in model.modules() if isinstance(module, wrapper)]


def recognises(chunks: Sequence[Any]) -> bool:
    """Whether this is one module that is, or has, a FullyShardedDataParallel."""
    return plain.recognises(chunks) and bool(_wrappers(chunks[0]))


class _Flat(Divided):
    """Where FSDP1 keeps what it has joined: by id of the parameter its shape, and where this rank's part begins."""

    def __init__(self, root: torch.nn.Module, wrappers: Sequence[Any], optimizers: Optimizers):
        self._root = root
        self._optimizers = optimizers
        self._shapes: dict[int, torch.Size] = {}
        self._firsts: dict[int, int] = {}
        for handle in (wrapper._handle for wrapper in wrappers if wrapper._handle is not None):
            flat = handle.flat_param
            for parameter, shape, info in zip(flat._params, flat._shapes, flat._shard_param_infos):
                self._shapes[id(parameter)] = torch.Size(shape)
                self._firsts[id(parameter)] = info.intra_param_start_idx if info.in_shard else -1

    def shape(self, parameter: Any) -> torch.Size | None:
        return self._shapes.get(id(parameter))

    def gathered(self, parameters: Sequence[Any], changes: bool) -> Any:
        del parameters
        return _wrapper().summon_full_params(self._root, writeback=changes)  # type: ignore[union-attr]

    def _part(self, parameter: Any, tensor: torch.Tensor | None) -> Part | None:
        if tensor is None or id(parameter) not in self._shapes:
            return None if tensor is None else Part(tensor)
        shape, first = self._shapes[id(parameter)], self._firsts[id(parameter)]
        if tensor.shape != shape and (first < 0 or tensor.numel() == 0):
            return None
        return part_of(tensor.detach(), first, shape)

    def value(self, parameter: Any) -> Part | None:
        return self._part(parameter, parameter.data)

    def gradient(self, parameter: Any) -> Part | None:
        return self._part(parameter, parameter.grad)

    def state(self, parameter: Any, name: str) -> Part | None:
        return self._part(parameter, self._optimizers.state(parameter).get(name))

    def held(self, parameter: Any) -> Any:
        return parameter


class Fsdp1Program(DividedProgram):
    """See the head of this file.

    Options of `ttrace.attach`: batch_dim, loss, scaler, as for plain modules.
    """

    def __init__(self, root: torch.nn.Module, optimizer: Any, describe: Mapping[str, Any], **options: Any):
        wrappers = _wrappers(root)
        _refuse(wrappers)
        self._root: Any = root
        super().__init__(root.module if root is wrappers[0] else root, optimizer, describe, **options)
        self._called = root
        self.layout.add("dp", *_place(wrappers[0]))
        self.divide(_Flat(root, wrappers, self.optimizers))

    def hook_models(self, recorder: Recorder) -> Iterator[Removable]:
        yield from super().hook_models(recorder)
        if isinstance(self._root, _wrapper()):  # type: ignore[arg-type]
            yield Replaced(self._root, "clip_grad_norm_", self._clipping(recorder, self._root.clip_grad_norm_))

    def _clipping(self, recorder: Recorder, own: Callable[..., Any]) -> Callable[..., Any]:
        """FSDP1 clips by a function of its own, because every rank has parts of the gradients."""

        def clip(*args: Any, **kwargs: Any) -> Any:
            self._gradients.record()
            norm = own(*args, **kwargs)
            with unseen():
                recorder.scalar("grad_norm", float(norm))
            return norm

        return clip


def _refuse(wrappers: Sequence[Any]) -> None:
    for wrapper in wrappers:
        if not wrapper._use_orig_params:
            raise TypeError(
                "ttrace.attach got a model in FullyShardedDataParallel (FSDP1) with use_orig_params=False, whose "
                "parameters are joined into flat ones that no operator reads; pass use_orig_params=True, or wrap the "
                "model with torch.distributed.fsdp.fully_shard (FSDP2)"
            )
        if any(isinstance(parameter, DTensor) for parameter in wrapper.parameters()):
            raise TypeError(
                "ttrace.attach got a model in FullyShardedDataParallel (FSDP1) over DTensor parameters; wrap it with "
                "torch.distributed.fsdp.fully_shard (FSDP2) to trace it"
            )


def _place(wrapper: Any) -> tuple[int, int]:
    """How many ranks have different samples, and which of them this is. A hybrid strategy shards in one group and
    replicates over another one."""
    inner = wrapper.process_group
    size, rank = inner.size(), inner.rank()
    outer = getattr(wrapper, "_inter_node_pg", None)
    return (size, rank) if outer is None else (size * outer.size(), outer.rank() * size + rank)


def make(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> Fsdp1Program:
    return Fsdp1Program(chunks[0], optimizer, describe, **options)

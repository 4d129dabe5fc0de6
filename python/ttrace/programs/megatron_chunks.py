"""The parts of a Megatron-core model that a rank holds, their global names, and where the rank stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..base.layout import Layout
from ..base.names import canonical

_WRAPPERS = ("DistributedDataParallel", "Float16Module", "FullyShardedDataParallel")


def unwrap(chunk: torch.nn.Module) -> torch.nn.Module:
    while type(chunk).__name__ in _WRAPPERS and isinstance(chunk.module, torch.nn.Module):
        chunk = chunk.module
    return chunk


class Chunk:
    """A part of the model that this rank holds: all of it, or one virtual pipeline stage."""

    def __init__(self, wrapped: torch.nn.Module):
        self.wrapped = wrapped
        self.model: Any = unwrap(wrapped)
        self.config: Any = self.model.config
        self.forwards = 0  # in this step
        self.pre_process = bool(getattr(self.model, "pre_process", True))
        self.post_process = bool(getattr(self.model, "post_process", True))
        self.microbatch = 0  # the number of the latest forward's
        self._renamed = list(_renamed(self.model))

    @property
    def has_spare_output_weight(self) -> bool:
        """Whether the output layer has a weight that it never uses: on a last stage with multi-token prediction
        it is given the weight of that stage's embedding."""
        model = self.model
        if not getattr(model, "share_embeddings_and_output_weights", False) or not self.post_process:
            return False
        return model.shared_embedding_or_output_weight() is not model.output_layer.weight

    def path_of(self, name: str) -> str:
        """The global path of `name`, which is a name within the chunk."""
        path = canonical(name)
        for local, globally in self._renamed:
            if path == local or path.startswith(local + "."):
                path = globally + path[len(local) :]
                break
        return _expert_path(self.model, path)

    def layer_path(self, index: int) -> str | None:
        """Path of the first (0) or last (-1) layer of the decoder; None if the chunk has no layers."""
        layers = getattr(getattr(self.model, "decoder", None), "layers", None)
        if not layers:
            return None
        return f"decoder.layers.{layers[index].layer_number - 1}"


def _renamed(model: torch.nn.Module) -> Iterator[tuple[str, str]]:
    for name, module in model.named_modules():
        number = getattr(module, "layer_number", None)
        parts = name.split(".")
        if isinstance(number, int) and parts[-1].isdigit() and parts[-2:-1] == ["layers"]:
            yield name, ".".join([*parts[:-1], str(number - 1)])


def _expert_path(model: Any, path: str) -> str:
    """Experts are numbered over all ranks."""
    head, found, tail = path.partition(".local_experts.")
    if not found:
        return path
    number, dot, rest = tail.partition(".")
    count = getattr(model.config, "num_moe_experts", None) or 1
    ranks = _parallel("expert_model_parallel_world_size")
    first = _parallel("expert_model_parallel_rank", 0) * (count // ranks)
    return f"{head}.local_experts.{int(number) + first}{dot}{rest}"


def _parallel(name: str, default: int = 1, **arguments: Any) -> int:
    """A size or rank of megatron.core.parallel_state; `default` if this version has no such axis."""
    from megatron.core import parallel_state

    getter = getattr(parallel_state, "get_" + name, None)
    try:
        return default if getter is None else int(getter(**arguments))
    except (AssertionError, AttributeError):  # the group was not made
        return default


def layout_of(chunk: Chunk) -> Layout:
    """Axes tp, sp, cp, dp, pp, ep and etp; kv if there are fewer query groups than tp ranks; tied for tied
    embeddings."""
    layout = Layout()
    if torch.distributed.is_initialized():
        layout.rank = torch.distributed.get_rank()
        layout.world_size = torch.distributed.get_world_size()
    tp = _parallel("tensor_model_parallel_world_size")
    tp_rank = _parallel("tensor_model_parallel_rank", 0)
    layout.add("tp", tp, tp_rank)
    if chunk.config.sequence_parallel:
        layout.add("sp", tp, tp_rank, follows="tp")
    layout.add("cp", _parallel("context_parallel_world_size"), _parallel("context_parallel_rank", 0))
    pp = _parallel("pipeline_model_parallel_world_size")
    pp_rank = _parallel("pipeline_model_parallel_rank", 0)
    layout.add("pp", pp, pp_rank)
    layout.add("dp", _parallel("data_parallel_world_size"), _parallel("data_parallel_rank", 0))
    ep = _parallel("expert_model_parallel_world_size")
    if ep > 1:
        layout.add("ep", ep, _parallel("expert_model_parallel_rank", 0))
    etp = _parallel("expert_tensor_parallel_world_size", tp)
    if chunk.config.num_moe_experts and etp > 1:
        layout.add("etp", etp, _parallel("expert_tensor_parallel_rank", tp_rank))
    groups = getattr(chunk.config, "num_query_groups", None) or chunk.config.num_attention_heads
    if groups < tp:
        copies = tp // groups
        layout.add("kv", groups, tp_rank // copies)
        layout.add("kv_copy", copies, tp_rank % copies)
    if pp > 1:
        layout.add("tied", 2, int(pp_rank == pp - 1))
    return layout

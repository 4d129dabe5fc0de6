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
        self.groups = Groups(wrapped, self.model)
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
        return self._expert_path(path)

    def _expert_path(self, path: str) -> str:
        """Experts are numbered over all ranks."""
        head, found, tail = path.partition(".local_experts.")
        if not found:
            return path
        number, dot, rest = tail.partition(".")
        count = getattr(self.config, "num_moe_experts", None) or 1
        ranks, rank = self.groups.place("ep")
        return f"{head}.local_experts.{int(number) + rank * (count // ranks)}{dot}{rest}"

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


_GROUPS = {  # what parallel_state calls the groups of a ProcessGroupCollection
    "tp": "tensor_model_parallel",
    "cp": "context_parallel",
    "pp": "pipeline_model_parallel",
    "dp": "data_parallel",
    "ep": "expert_model_parallel",
    "expt_tp": "expert_tensor_parallel",
}


class Groups:
    """The process groups that divide a chunk: those that it or its wrapper was given, which may be others than those of
    megatron.core.parallel_state, else the latter."""

    def __init__(self, wrapped: torch.nn.Module, model: torch.nn.Module):
        self._wrapped = wrapped
        self._collection = getattr(model, "pg_collection", None)

    def given(self, name: str) -> Any:
        """A group by its name in ProcessGroupCollection; None if neither the model nor its wrapper keeps it."""
        for owner, attribute in ((self._collection, name), (self._wrapped, name + "_group")):
            group = getattr(owner, attribute, None)
            if group is not None:
                return group
        return None

    def place(self, name: str, default: tuple[int, int] = (1, 0)) -> tuple[int, int]:
        """Size of a group and this rank's number in it; `default` if this version has no such axis."""
        group = self.given(name)
        if group is not None:
            return group.size(), group.rank()
        from megatron.core import parallel_state

        prefix = "get_" + _GROUPS[name]
        try:
            return tuple(int(getattr(parallel_state, prefix + what)()) for what in ("_world_size", "_rank"))
        except (AssertionError, AttributeError):  # the group was not made
            return default


def layout_of(chunk: Chunk) -> Layout:
    """Axes tp, sp, cp, dp, pp, ep and etp; kv if there are fewer query groups than tp ranks; tied for tied
    embeddings."""
    layout = Layout()
    if torch.distributed.is_initialized():
        layout.rank = torch.distributed.get_rank()
        layout.world_size = torch.distributed.get_world_size()
    tp, tp_rank = chunk.groups.place("tp")
    layout.add("tp", tp, tp_rank)
    if chunk.config.sequence_parallel:
        layout.add("sp", tp, tp_rank, follows="tp")
    layout.add("cp", *chunk.groups.place("cp"))
    pp, pp_rank = chunk.groups.place("pp")
    layout.add("pp", pp, pp_rank)
    layout.add("dp", *chunk.groups.place("dp"))
    ep, ep_rank = chunk.groups.place("ep")
    if ep > 1:
        layout.add("ep", ep, ep_rank)
    etp, etp_rank = chunk.groups.place("expt_tp", (tp, tp_rank))
    if chunk.config.num_moe_experts and etp > 1:
        layout.add("etp", etp, etp_rank)
    groups = getattr(chunk.config, "num_query_groups", None) or chunk.config.num_attention_heads
    if groups < tp:
        copies = tp // groups
        layout.add("kv", groups, tp_rank // copies)
        layout.add("kv_copy", copies, tp_rank % copies)
    if pp > 1:
        layout.add("tied", 2, int(pp_rank == pp - 1))
    return layout

"""Which token every row of an expert's tensors is, in Megatron-core.

A dispatcher sends tokens to experts rank by rank of its group, and in their own order within a rank. Which
tokens go where is the router's map, so this module gathers the maps of all ranks of the group, with the
micro-batch and the position of every token. It ignores what the dispatcher makes of the map: a token that the
dispatcher loses or permutes differs from the reference's.

Experts are not traced where their rows are not those of the map (capacities, padding), or where the dispatcher
is of another kind.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from ..base.layout import Layout
from ..base.unseen import unseen
from ..base.values import Dims, Rows
from .parallel_layers import is_linear, is_row_parallel

_OWN = ".experts.local_experts."  # in the path of everything within an expert


def are_traced(config: Any, dispatcher: Any) -> bool:
    """Whether the rows of a layer's experts follow from its router's map alone."""
    is_padded = any(
        getattr(config, name, None)
        for name in (
            "moe_expert_capacity_factor",
            "moe_pad_expert_input_to_capacity",
            "moe_router_padding_for_quantization",
            "moe_router_padding_for_fp8",
        )
    )
    return not is_padded and hasattr(dispatcher, "tp_ep_group") and _order(dispatcher) is not None


def _order(dispatcher: Any) -> str | None:
    """How the tokens of an expert are sorted: by "tp" rank first, or by "ep" rank first."""
    if hasattr(dispatcher, "sort_input_by_local_experts"):
        return "tp"
    return "ep" if hasattr(dispatcher, "global_local_map") else None


class ExpertRows:
    """Of the latest call of one layer's router."""

    def __init__(self, layout: Layout, config: Any, dispatcher: Any):
        self._layout = layout
        self._cuts_positions = bool(config.sequence_parallel)
        self._dispatcher = dispatcher
        self._first_forwards: deque[int] = deque()  # micro-batches whose forward will run again
        self._tokens = torch.empty(0, dtype=torch.int64)
        self._map = torch.empty(0, 0, dtype=torch.bool)
        self._size = 0

    def step_begins(self) -> None:
        self._first_forwards.clear()

    def routed(self, routing_map: torch.Tensor, shape: tuple[int, ...], microbatch: int) -> None:
        """The router has chosen: a map [tokens, experts] of an input [s, b, h] of this rank."""
        if not torch.is_grad_enabled():
            self._first_forwards.append(microbatch)
        elif torch._C._current_graph_task_id() != -1 and self._first_forwards:
            microbatch = self._first_forwards.popleft()  # backwards run in the order of forwards
        with unseen(), torch.no_grad():
            index, self._size = self._indices(shape)
            own = torch.stack((index, torch.full_like(index, microbatch)), 1)
            own = torch.cat((own.to(routing_map.device), routing_map.to(torch.int64)), 1)
            gathered = self._gathered(own).cpu()
        self._tokens, self._map = gathered[:, :2], gathered[:, 2:].bool()

    def _indices(self, shape: tuple[int, ...]) -> tuple[torch.Tensor, int]:
        """The number of every token of this rank among all of its micro-batch, and how many these are."""
        layout = self._layout
        cuts = layout.size("tp") if self._cuts_positions else 1
        ranks, samples = layout.size("cp"), shape[1]
        length = shape[0] * cuts * ranks
        places = torch.arange(length)
        if ranks > 1:
            chunks, rank = places.chunk(2 * ranks), layout.coordinate("cp")
            places = torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))
        places = places.chunk(cuts)[layout.coordinate("tp") if cuts > 1 else 0]
        return (places[:, None] * samples + torch.arange(samples)).flatten(), length * samples

    def _gathered(self, own: torch.Tensor) -> torch.Tensor:
        group = self._dispatcher.tp_ep_group
        if group.size() == 1:
            return own
        parts = [torch.empty_like(own) for _ in range(group.size())]
        torch.distributed.all_gather(parts, own, group=group)
        if _order(self._dispatcher) == "tp":
            count = self._dispatcher.tp_size
            parts = [part for rank in range(count) for part in parts[rank::count]]
        return torch.cat(parts)

    def rows(self, path: str, dims: Dims) -> Rows:
        """Of a tensor of the module `path`, of which the first dimension is tokens."""
        number = int(path.partition(_OWN)[2].split(".", 1)[0])
        tokens = self._tokens[self._map[:, number]]
        present = tuple(sorted(set(self._tokens[:, 1].tolist())))
        return Rows(tokens[:, 0], self._size, 0, True, tokens[:, 1], present, dims)


def is_within_expert(path: str) -> bool:
    return _OWN in path


def layer_of(path: str) -> str:
    """The MoE layer of a module within an expert."""
    return path.partition(_OWN)[0]


def expert_dims(module: torch.nn.Module, role: str, tensor: torch.Tensor, layout: Layout, gated: bool) -> Dims:
    """Where a tensor of an expert lies, but for its rows. Tensor-parallel ranks of an expert (axis etp) have
    parts of its features, and leave it to the dispatcher to add up what they give out, and the gradients of
    what they take in."""
    is_cut = layout.size("etp") > 1
    rows = "t" if tensor.dim() == 1 else "t h"
    if not is_cut:
        return Dims(rows)
    addends = f"{rows}[etp:partial]"
    if is_linear(module) and is_row_parallel(module) == (role == "input"):
        return Dims("t (2*h[etp])" if gated and role == "output" else "t h[etp]")
    return Dims(rows, addends) if role == "input" else Dims(addends, rows)

"""Choices of experts, whatever framework makes them: recorded, and replaced by others in a pass that follows
another run.

Every router ends in one call of ``torch.topk`` over the experts: of logits, of scores, or of scores with a
bias, with or without groups of experts. We intercept that call. In a pass that follows other choices, it
returns their scores. An auxiliary loss that counts choices by a second call follows wherever it would have
chosen the same.

Modules without any known class are found by their structure (`expert_blocks`): a module that has experts,
which are the slices of weights of three dimensions or the like modules of a list, and next to them a weight
with a row for each expert, from which their scores come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from ..base.compiled import original
from ..base.local_part import local_part
from ..base.unseen import unseen

# Maps choices, int64 [..., k], best first, and margins [...] to the choices to continue with.
Follow = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def expert_blocks(modules: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, nn.Module, int]]:
    """Those of `modules` that choose among experts and apply them, each with the child that has its experts,
    and their number."""
    for module in modules:
        for child in module.children():
            count = _experts_in(child)
            if count > 1 and any(
                parameter.dim() == 2 and parameter.shape[0] == count
                for other in module.children() if other is not child
                for parameter in other.parameters()
            ):  # fmt: skip
                yield module, child, count
                break


def choose_unseen(modules: Sequence[tuple[str, nn.Module]]) -> list[str]:
    """Paths of those compiled modules that choose among experts inside."""
    return [path for path, module in modules if any(True for _ in expert_blocks(list(original(module).modules())))]


def _experts_in(module: nn.Module) -> int:
    """How many experts a module consists of; 0 if it does not consist of experts."""
    parameters = list(module.parameters())
    counts = {parameter.shape[:1] for parameter in parameters}
    if len(counts) == 1 and any(parameter.dim() == 3 for parameter in parameters):
        return parameters[0].shape[0]
    if not isinstance(module, nn.ModuleList):
        return 0
    shapes = {tuple(tuple(parameter.shape) for parameter in expert.parameters()) for expert in module}
    return len(module) if len(shapes) == 1 and shapes != {()} else 0


class Choices(TorchFunctionMode):
    """One call of a router, or of a block that has one, on scores [..., experts].

    Args:
        experts: how many there are.
        follow: gets the choices that the call makes; DTensors, if the scores are.
        count: how many experts a token goes to, where the router says it; calls that choose as many of
            fewer than all experts are of groups.
        tokens: shape of the choices that `follow` gets, without the last dimension; None: as the scores'.
    """

    def __init__(
        self,
        experts: int,
        follow: Follow,
        count: int | None = None,
        tokens: Sequence[int] | None = None,
    ):
        super().__init__()
        self._experts = experts
        self._follow = follow
        self._count = count
        self._tokens = tokens
        self._unmasked: torch.Tensor | None = None  # scores before experts of other groups are left out
        self._group_margins: torch.Tensor | None = None
        self._chosen: tuple[torch.Tensor, torch.Tensor] | None = None  # own and followed choices [tokens, k]

    @property
    def has_chosen(self) -> bool:
        return self._chosen is not None

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if torch.compiler.is_dynamo_compiling():
            return result
        if function in (torch.Tensor.masked_fill, torch.masked_fill) and self._is_of_experts(args[0]):
            self._unmasked = args[0]
        if function not in (torch.topk, torch.Tensor.topk):
            return result
        scores = args[0] if args else kwargs["input"]
        indices = result[1]
        dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
        if scores.dim() < 2 or dim % scores.dim() != scores.dim() - 1 or not _lie_alike(scores, indices):
            return result
        if not self._is_of_experts(scores) or self._count not in (None, indices.shape[-1]):
            with unseen():
                self._group_margins = _margins(local_part(scores), indices.shape[-1])
            return result
        own = local_part(indices)
        with unseen():
            chosen = self._choose_again(*self._chosen, own) if self._chosen else self._choose(scores, own)
        if chosen is own:
            return result
        chosen = _placed_as(indices, chosen)
        return (scores if self._unmasked is None else self._unmasked).gather(-1, chosen), chosen

    def _is_of_experts(self, scores: torch.Tensor) -> bool:
        return scores.dim() >= 2 and scores.shape[-1] == self._experts

    def _choose(self, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        count = indices.shape[-1]
        tokens = indices.shape[:-1] if self._tokens is None else self._tokens
        margins = _margins(local_part(scores), count)
        if self._group_margins is not None and self._group_margins.shape == margins.shape:
            margins = torch.minimum(margins, self._group_margins)
        choices = _placed_as(scores, indices.reshape(*tokens, count))
        followed = local_part(self._follow(choices, _placed_as(scores, margins.reshape(tokens))))
        followed = followed.reshape(indices.shape)
        if torch.equal(followed, indices):
            followed = indices
        self._chosen = (indices, followed)
        return followed

    @staticmethod
    def _choose_again(own: torch.Tensor, followed: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        if followed is own or indices.shape != own.shape:
            return indices
        is_same = (indices.sort(-1)[0] == own.sort(-1)[0]).all(-1, keepdim=True)
        return torch.where(is_same, followed, indices)


def _lie_alike(scores: torch.Tensor, indices: torch.Tensor) -> bool:
    """Whether every rank chose among the scores that it has."""
    return not isinstance(scores, DTensor) or (
        scores.placements == indices.placements and not any(p.is_partial() for p in scores.placements)
    )


def _placed_as(other: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same samples and positions, which lies as this one."""
    if not isinstance(other, DTensor):
        return local
    shape = (*other.shape[:-1], *local.shape[other.dim() - 1 :])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, other.device_mesh, other.placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


def _margins(scores: torch.Tensor, count: int) -> torch.Tensor:
    """By how much the last of `count` choices beats the next one [...], given scores [..., m]."""
    with torch.no_grad():
        values = scores.detach()
        best = values.to(torch.promote_types(values.dtype, torch.float32)).sort(-1, descending=True)[0]
        last = best[..., count - 1]
        return last - best[..., count] if count < best.shape[-1] else last

"""Records choices of experts in Megatron-core's TopKRouter, 0.9 to 0.16, and replaces them in a pass that
follows another run.

Every version ends in one call of ``torch.topk`` over the experts: of logits, of scores, or of scores with a
bias, with or without groups of experts. The code around that call has other names in each version, so we
intercept the call itself, within `routing` of the router alone. In a pass that follows other choices, the
call returns their scores.

The auxiliary loss counts choices by a second call. It follows wherever it would have chosen the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..base.names import log
from ..base.unseen import unseen

# Maps choices, int64 [..., k], best first, and margins [...] to the choices to continue with.
Follow = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def is_router(module: torch.nn.Module) -> bool:
    return any(cls.__name__ == "TopKRouter" for cls in type(module).__mro__)


def watch_routing(router: Any, path: str, is_traced: Callable[[], bool], follow: Follow) -> None:
    """Calls `follow` in every forward of a router while `is_traced` returns true."""
    own = router.routing
    is_warned = False

    def routing(logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_warned
        if not is_traced():
            return own(logits, *args, **kwargs)
        with _Routing(router.topk, tuple(logits.shape), follow) as call:
            result = own(logits, *args, **kwargs)
        if not call.has_chosen and not is_warned:
            is_warned = True
            log.warning(
                "ttrace: %s chooses experts in a fused kernel, so its choices are not recorded, and a choice "
                "that round-off changes is reported as a finding; trace without moe_router_fusion",
                path,
            )
        return result

    router.routing = routing


class _Routing(TorchFunctionMode):
    """One call of `routing` on logits [..., experts]."""

    def __init__(self, count: int, shape: tuple[int, ...], follow: Follow):
        super().__init__()
        self._count = count
        self._tokens, self._experts = shape[:-1], shape[-1]
        self._follow = follow
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
        if dim % scores.dim() != 1 or scores.dim() != 2:
            return result
        if not self._is_of_experts(scores) or indices.shape[1] != self._count:
            with unseen():
                self._group_margins = _margins(scores, indices.shape[1])
            return result
        with unseen():
            chosen = (
                self._choose_again(*self._chosen, indices) if self._chosen else self._choose(scores, indices)
            )
        if chosen is indices:
            return result
        return (scores if self._unmasked is None else self._unmasked).gather(1, chosen), chosen

    def _is_of_experts(self, scores: torch.Tensor) -> bool:
        return scores.dim() == 2 and scores.shape[1] == self._experts

    def _choose(self, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        margins = _margins(scores, self._count)
        if self._group_margins is not None:
            margins = torch.minimum(margins, self._group_margins)
        choices = indices.reshape(*self._tokens, self._count)
        followed = self._follow(choices, margins.reshape(self._tokens)).reshape(indices.shape)
        if torch.equal(followed, indices):
            followed = indices
        self._chosen = (indices, followed)
        return followed

    @staticmethod
    def _choose_again(own: torch.Tensor, followed: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        if followed is own:
            return indices
        is_same = (indices.sort(1)[0] == own.sort(1)[0]).all(1, keepdim=True)
        return torch.where(is_same, followed, indices)


def _margins(scores: torch.Tensor, count: int) -> torch.Tensor:
    """By how much the last of `count` choices beats the next one [n], given scores [n, m]."""
    with torch.no_grad():
        values = scores.detach()
        best = values.to(torch.promote_types(values.dtype, torch.float32)).sort(1, descending=True)[0]
        last = best[:, count - 1]
        return last - best[:, count] if count < best.shape[1] else last

"""Records choices of experts in Megatron-core's TopKRouter, 0.9 to 0.16, and replaces them in a pass that
follows another run.

The code around the call of ``torch.topk`` has other names in each version, so we intercept the call itself
(`expert_choices`), within `routing` of the router alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base.names import log
from .expert_choices import Choices, Follow


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
        with Choices(logits.shape[-1], follow, router.topk, logits.shape[:-1]) as call:
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

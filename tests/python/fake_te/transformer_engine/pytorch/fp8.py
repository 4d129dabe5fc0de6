"""Which modules compute in FP8, and how their scales follow from what they have quantised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformer_engine.common.recipe import DelayedScaling

from .tensor import Float8Quantizer


class DelayedScalingRecipeState:
    """Scales and histories of the quantizers that a module has for one direction."""

    def __init__(self, recipe: DelayedScaling, *, mode: str, num_quantizers: int):
        self.recipe = recipe
        self.mode = mode
        is_wide_range = mode == "backward" and recipe.fp8_format.name == "HYBRID"
        self.dtype = torch.float8_e5m2 if is_wide_range else torch.float8_e4m3fn
        self.scale = torch.ones(num_quantizers)
        self.amax_history = torch.zeros(recipe.amax_history_len, num_quantizers)

    def make_quantizers(self) -> list[Float8Quantizer]:
        return [
            Float8Quantizer(self.scale[i], self.amax_history[0][i].reshape(1), self.dtype)
            for i in range(len(self.scale))
        ]

    def update(self, amax: torch.Tensor) -> None:
        """The forwards (or backwards) since the last update had these largest magnitudes [quantizers]."""
        self.amax_history[0].copy_(amax)
        if self.recipe.amax_compute_algo == "max":
            amax = self.amax_history.amax(0)
        largest = torch.finfo(self.dtype).max
        scale = largest / amax / 2.0**self.recipe.margin
        self.scale.copy_(torch.where((amax > 0) & amax.isfinite() & scale.isfinite(), scale, self.scale))
        self.amax_history.copy_(self.amax_history.roll(-1, 0))
        self.amax_history[0].zero_()


class FP8GlobalStateManager:
    FP8_ENABLED = False
    FP8_RECIPE: Any = None
    FP8_DISTRIBUTED_GROUP: Any = None
    FP8_PARAMETERS = False
    FP8_AUTOCAST_DEPTH = 0
    IS_FIRST_FP8_MODULE = False
    states: dict[str, list[DelayedScalingRecipeState]] = {"scaling_fwd": [], "scaling_bwd": []}

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        return cls.FP8_ENABLED

    @classmethod
    def is_fp8_calibration(cls) -> bool:
        return False

    @classmethod
    def with_fp8_parameters(cls) -> bool:
        return cls.FP8_PARAMETERS

    @classmethod
    def get_fp8_recipe(cls) -> Any:
        return cls.FP8_RECIPE

    @classmethod
    def get_fp8_group(cls) -> Any:
        return cls.FP8_DISTRIBUTED_GROUP

    @classmethod
    def is_first_fp8_module(cls) -> bool:
        is_first, cls.IS_FIRST_FP8_MODULE = cls.IS_FIRST_FP8_MODULE, False
        return is_first

    @classmethod
    def add_fp8_tensors_to_global_buffer(cls, fp8_meta: dict[str, Any]) -> None:
        for key, states in cls.states.items():
            states.append(fp8_meta[key])

    @classmethod
    def reduce_and_update_fp8_tensors(cls, forward: bool = True) -> None:
        states = cls.states["scaling_fwd" if forward else "scaling_bwd"]
        if not states:
            return
        with torch.no_grad():
            amax = torch.cat([state.amax_history[0] for state in states])
            if states[0].recipe.reduce_amax:
                cls.reduce_tensor_across_group_op_max(amax, cls.FP8_DISTRIBUTED_GROUP)
            for state, part in zip(states, amax.split([len(state.scale) for state in states])):
                state.update(part)

    @staticmethod
    def reduce_tensor_across_group_op_max(tensor: torch.Tensor, group: Any) -> None:
        if torch.distributed.is_initialized() and torch.distributed.get_world_size(group) > 1:
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX, group=group)


@contextmanager
def fp8_autocast(
    enabled: bool = True,
    calibrating: bool = False,
    fp8_recipe: DelayedScaling | None = None,
    fp8_group: Any = None,
    _graph: bool = False,
) -> Iterator[None]:
    """Scales of forward are updated where the outermost context ends."""
    del calibrating, _graph
    manager = FP8GlobalStateManager
    before = (manager.FP8_ENABLED, manager.FP8_RECIPE)
    if manager.FP8_AUTOCAST_DEPTH == 0:
        manager.IS_FIRST_FP8_MODULE = True
    manager.FP8_ENABLED, manager.FP8_RECIPE = enabled, fp8_recipe or DelayedScaling()
    manager.FP8_DISTRIBUTED_GROUP = fp8_group  # backward, which runs outside of the context, needs it
    manager.FP8_AUTOCAST_DEPTH += 1
    try:
        yield
    finally:
        manager.FP8_ENABLED, manager.FP8_RECIPE = before
        manager.FP8_AUTOCAST_DEPTH -= 1
        if enabled and manager.FP8_AUTOCAST_DEPTH == 0 and torch.is_grad_enabled():
            manager.reduce_and_update_fp8_tensors(forward=True)


@contextmanager
def fp8_model_init(
    enabled: bool = True, recipe: Any = None, preserve_high_precision_init_val: bool = False
) -> Iterator[None]:
    """Weights of the linears that are made in this context hold FP8 codes."""
    del recipe, preserve_high_precision_init_val
    before, FP8GlobalStateManager.FP8_PARAMETERS = FP8GlobalStateManager.FP8_PARAMETERS, enabled
    try:
        yield
    finally:
        FP8GlobalStateManager.FP8_PARAMETERS = before

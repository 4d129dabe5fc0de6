"""What all linears have: groups, and quantizers once they compute in FP8."""

from __future__ import annotations

from typing import Any

import torch

from ..fp8 import DelayedScalingRecipeState, FP8GlobalStateManager
from ..tensor import Float8Quantizer, Float8Tensor


class TransformerEngineBaseModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fp8 = False
        self.fp8_meta: dict[str, Any] = {"fp8_checkpoint": False, "fp8_group": None}
        self.fp8_meta_tensors_initialized = False
        self.quantizers: dict[str, list[Float8Quantizer]] = {"scaling_fwd": [], "scaling_bwd": []}
        self.tp_group: Any = None
        self.tp_size = 1
        self.sequence_parallel = False
        self.primary_weights_in_fp8 = FP8GlobalStateManager.with_fp8_parameters()
        self._fp8_workspaces: dict[str, Float8Tensor] = {}

    def set_tensor_parallel_group(self, tp_group: Any) -> None:
        self.tp_group = tp_group

    def get_extra_state(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        del state

    def init_fp8_metadata(self, num_gemms: int = 1) -> None:
        """At every forward: whether it computes in FP8. A product has quantizers of its input, its weight
        and its output, and of their gradients: of the output, and of the input."""
        self.fp8 = FP8GlobalStateManager.is_fp8_enabled()
        if not self.fp8:
            return
        self.fp8_meta["is_first_module"] = FP8GlobalStateManager.is_first_fp8_module()
        if self.fp8_meta_tensors_initialized:
            return
        self.fp8_meta_tensors_initialized = True
        self.fp8_meta["recipe"] = FP8GlobalStateManager.get_fp8_recipe()
        self.fp8_meta["fp8_group"] = FP8GlobalStateManager.get_fp8_group()
        self.fp8_meta["num_gemms"] = num_gemms
        for key, mode, count in (("scaling_fwd", "forward", 3), ("scaling_bwd", "backward", 2)):
            state = DelayedScalingRecipeState(
                self.fp8_meta["recipe"], mode=mode, num_quantizers=count * num_gemms
            )
            self.fp8_meta[key] = state
            self.quantizers[key] = state.make_quantizers()
        FP8GlobalStateManager.add_fp8_tensors_to_global_buffer(self.fp8_meta)

    def get_weight_workspace(
        self, tensor: torch.Tensor, quantizer: Float8Quantizer, cache_name: str | None, update_workspace: bool
    ) -> Float8Tensor:
        """The weight in FP8, quantised once for all micro-batches of a step if it has a name to be kept by."""
        if isinstance(tensor, Float8Tensor):
            return tensor
        kept = self._fp8_workspaces.get(cache_name) if cache_name else None
        if kept is None or update_workspace:
            kept = quantizer(tensor)
            if cache_name:
                self._fp8_workspaces[cache_name] = kept
        return kept

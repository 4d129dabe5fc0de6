"""Where DeepSpeed's optimizers keep gradients, masters and moments, and which part of them this rank has.

DeepSpeed's own functions for that (`deepspeed.utils.safe_get_full_grad` and its like) return copies that all ranks
gather. What is read here is the memory in which the engine keeps them, so that nothing is communicated and a forced
pass can replace it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .divided import Divided, Part, part_of


def is_partitioned(parameter: torch.Tensor) -> bool:
    """Whether ZeRO-3 divides the parameter itself over the ranks."""
    return hasattr(parameter, "ds_id")


class EngineState(Divided):
    """Of one engine."""

    def __init__(self, engine: Any):
        self._optimizer = engine.optimizer
        self._basic = getattr(engine, "basic_optimizer", None)
        # Masters of engines that divide nothing: whole, or the flat range of a group.
        self._masters: dict[int, tuple[torch.Tensor, int, int]] = {}
        if hasattr(self._optimizer, "fp32_groups"):
            self._add_masters_of_parameters()
        elif hasattr(self._optimizer, "fp32_groups_flat"):
            self._add_masters_of_groups()

    def _add_masters_of_parameters(self) -> None:
        for models, masters in zip(self._optimizer.fp16_groups, self._optimizer.fp32_groups):
            for model, master in zip(models, masters):
                self._masters[id(model)] = (master, 0, model.numel())

    def _add_masters_of_groups(self) -> None:
        for models, flat in zip(self._optimizer.fp16_groups, self._optimizer.fp32_groups_flat):
            start = 0
            for model in models:
                self._masters[id(model)] = (flat, start, model.numel())
                start += model.numel()

    def shape(self, parameter: Any) -> torch.Size | None:
        return torch.Size(parameter.ds_shape) if is_partitioned(parameter) else None

    def gathered(self, parameters: Sequence[Any], changes: bool) -> Any:
        from deepspeed.runtime.zero import GatheredParameters

        return GatheredParameters(list(parameters), modifier_rank=0 if changes else None)

    def refresh_masters(self) -> None:
        refresh = getattr(self._optimizer, "refresh_fp32_params", None)
        if refresh is not None:
            refresh()

    def value(self, parameter: Any) -> Part | None:
        if not is_partitioned(parameter) or _is_whole_now(parameter):
            return Part(parameter.data)
        return self._of_partition(parameter, parameter.ds_tensor)

    def gradient(self, parameter: Any) -> Part | None:
        """There only from the last backward of a step until the engine's step."""
        if not parameter.requires_grad or self._optimizer is None:
            return None
        if is_partitioned(parameter):
            # The public safe_get_local_grad() returns a copy in F32.
            kept, _ = self._optimizer._get_fp32_grad_state_partition(parameter, release_swap_buffers=True)
            return self._of_partition(parameter, kept)
        if not hasattr(parameter, "_hp_mapping"):
            return None if parameter.grad is None else Part(parameter.grad)
        return self._of_fragment(parameter)

    def _of_fragment(self, parameter: Any) -> Part | None:
        mapping = parameter._hp_mapping
        if mapping is None:
            return None  # this rank has no part of it
        try:
            kept = mapping.get_lp_grad_fragment(parameter._index_in_param_group)
        except ValueError:  # there is none, which DeepSpeed raises
            return None
        address = mapping.lp_fragment_address
        flat = kept.reshape(-1)
        if flat.numel() != address.numel:  # BF16_Optimizer accumulates whole gradients on every rank
            flat = flat.narrow(0, address.start, address.numel)
        return part_of(flat, address.start, parameter.shape)

    def master(self, parameter: Any) -> Part | None:
        part = self._of_optimizer(parameter, None)
        return None if part is None or part.tensor.dtype == parameter.dtype else part

    def state(self, parameter: Any, name: str) -> Part | None:
        return self._of_optimizer(parameter, name)

    def held(self, parameter: Any) -> Any:
        if not parameter.requires_grad or self._basic is None:
            return None
        if is_partitioned(parameter):
            return self._optimizer.fp32_partitioned_groups_flat[self._sub_group(parameter)]
        if hasattr(parameter, "_hp_mapping"):
            fragment = parameter._hp_mapping and parameter._hp_mapping.get_hp_fragment(None)
            joined = (tensor for group in self._basic.param_groups for tensor in group["params"])
            return None if fragment is None else next((tensor for tensor in joined if _share(tensor, fragment)), None)
        return self._masters.get(id(parameter), (parameter,))[0]

    def learning_rate(self, parameter: Any, rates: Mapping[int, float]) -> float | None:
        if not is_partitioned(parameter):
            return super().learning_rate(parameter, rates)
        if self.held(parameter) is None:
            return None
        group = self._optimizer.sub_group_to_group_id[self._sub_group(parameter)]  # empty but while it steps
        return float(self._basic.param_groups[group]["lr"])

    def _sub_group(self, parameter: Any) -> int:
        return self._optimizer._get_fp32_opt_state_partition(parameter, release_swap_buffers=True)[1]

    def _of_optimizer(self, parameter: Any, name: str | None) -> Part | None:
        if not parameter.requires_grad or self._basic is None:
            return None
        if is_partitioned(parameter):
            return self._of_partition(parameter, self._optimizer.get_local_fp32_param(parameter, name))
        if hasattr(parameter, "_hp_mapping"):
            mapping = parameter._hp_mapping
            if mapping is None or (name is not None and name not in (mapping.optim_fragment or {})):
                return None
            return part_of(mapping.get_hp_fragment(name), mapping.lp_fragment_address.start, parameter.shape)
        master, start, count = self._masters.get(id(parameter), (parameter, 0, parameter.numel()))
        kept = master if name is None else self._basic.state.get(master, {}).get(name)
        if kept is None or kept.numel() < start + count:
            return None
        return part_of(kept.detach().reshape(-1).narrow(0, start, count), -1, parameter.shape)

    def _of_partition(self, parameter: Any, kept: torch.Tensor) -> Part | None:
        """Partitions of ZeRO-3 are equally long; the last ones are padded."""
        rank = torch.distributed.get_rank(parameter.ds_process_group)
        first = rank * parameter.ds_tensor.ds_numel
        count = min(kept.numel(), parameter.ds_numel - first)
        if count <= 0:
            return None
        return part_of(kept.detach().reshape(-1).narrow(0, 0, count), first, torch.Size(parameter.ds_shape))


def _share(tensor: torch.Tensor, part: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == part.untyped_storage().data_ptr()


def _is_whole_now(parameter: Any) -> bool:
    return parameter.ds_status.name == "AVAILABLE"

"""Where Megatron-core's optimizers keep main gradients, masters and moments, and what they cut over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def _leaf_optimizers(optimizer: Any) -> Iterator[Any]:
    for part in getattr(optimizer, "chained_optimizers", None) or ([optimizer] if optimizer else []):
        if part is not optimizer:
            yield from _leaf_optimizers(part)
        else:
            yield part


def _is_distributed(optimizer: Any) -> bool:
    return hasattr(optimizer, "model_param_gbuf_map")


def distributed_parameters(optimizer: Any) -> set[int]:
    """Parameters that a distributed optimizer cuts over data-parallel ranks, by id."""
    found: set[int] = set()
    for leaf in _leaf_optimizers(optimizer):
        if _is_distributed(leaf):
            for buffer in leaf.buffers:
                found.update(id(parameter) for parameter in buffer.params)
    return found


def gathering_groups(wrapped: Any) -> Iterator[tuple[Any, list[torch.nn.Parameter]]]:
    """Groups of buckets that DistributedDataParallel gathers in the next forward, and their parameters."""
    config: Any = getattr(wrapped, "ddp_config", None)
    if config is None or not (config.use_distributed_optimizer and config.overlap_param_gather):
        return
    groups: dict[int, tuple[Any, list[torch.nn.Parameter]]] = {}
    for parameter, group in getattr(wrapped, "param_to_bucket_group", {}).items():
        groups.setdefault(id(group), (group, []))[1].append(parameter)
    yield from groups.values()


def flat_ranges(optimizer: Any) -> Iterator[tuple[torch.nn.Parameter, tuple[int, int]]]:
    """The part of each parameter, flattened, that this rank reduces and updates."""
    for leaf in _leaf_optimizers(optimizer):
        if _is_distributed(leaf):
            for parameter in leaf.model_param_gbuf_map:
                part = leaf._get_model_param_range_map(parameter)["param"]
                if part.end > part.start:
                    yield parameter, (part.start, part.end)


def scalers_of(optimizer: Any) -> list[Any]:
    """What multiplies the loss so that gradients in F16 do not vanish."""
    found = [getattr(leaf, "grad_scaler", None) for leaf in _leaf_optimizers(optimizer)]
    return [scaler for scaler in found if scaler is not None]


def learning_rates(optimizer: Any) -> dict[int, float]:
    """Of every model parameter that this rank updates, by its id."""
    of_masters = {
        id(master): float(group["lr"])
        for leaf in _leaf_optimizers(optimizer)
        for group in getattr(getattr(leaf, "optimizer", None), "param_groups", ())
        if "lr" in group
        for master in group["params"]
    }
    rates = {}
    for parameter, (master, _, _) in optimizer_states(optimizer):
        held = parameter if master is None else master
        if id(held) in of_masters:
            rates[id(parameter)] = of_masters[id(held)]
    return rates


def optimizer_states(optimizer: Any) -> Iterator[tuple[torch.nn.Parameter, tuple]]:
    """Per model parameter: master copy, state of the inner optimizer, flat range or None."""
    for leaf in _leaf_optimizers(optimizer):
        inner = getattr(leaf, "optimizer", None)
        if inner is None:
            continue
        if _is_distributed(leaf):
            for parameter, part in flat_ranges(leaf):
                group, order = leaf.model_param_group_index_map[parameter]
                master = inner.param_groups[group]["params"][order]
                yield parameter, (master, inner.state.get(master, {}), part)
        elif hasattr(leaf, "fp32_from_float16_groups"):
            pairs = zip(leaf.float16_groups, leaf.fp32_from_float16_groups)
            for models, masters in [*pairs, *((g, g) for g in leaf.fp32_from_fp32_groups)]:
                for parameter, master in zip(models, masters):
                    yield parameter, (master, inner.state.get(master, {}), None)
        else:
            for group in inner.param_groups:
                for parameter in group["params"]:
                    yield parameter, (None, inner.state.get(parameter, {}), None)

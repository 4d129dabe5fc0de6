"""What an optimizer keeps of a parameter from step to step, whatever it calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .local_part import local_part
from .names import canonical
from .quantised import is_quantised
from .unseen import unseen
from .values import OptimizerState

MOMENTS = ("exp_avg", "exp_avg_sq")  # kinds of their own
LEARNING_RATE = "lr"
NEXT_LEARNING_RATE = "lr_next"


def further_states(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """Everything but the moments of AdamW, by name; and the names of what has no values to compare.

    Numbers become tensors without dimensions. A list or a dictionary of states gives each a name of its own.
    """
    found: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    with unseen():
        parts = [part for name, value in state.items() if name not in MOMENTS for part in _tensors(_part(name), value)]
    for path, tensor in parts:
        if tensor is None:
            left_out.append(path)
        else:
            found[path] = tensor
    return found, tuple(left_out)


def kept_state(
    path: str, state: Mapping[str, Any], rate: float | None, dims_of: Callable[[torch.Tensor], str | None]
) -> OptimizerState:
    """What an optimizer and its scheduler have left of a parameter for the next step. `dims_of` says where a tensor
    lies that says so itself."""
    others, left_out = further_states(state)
    dims = {name: dims_of(tensor) for name, tensor in others.items()}
    if rate is not None:
        others[NEXT_LEARNING_RATE] = number(rate)
    return OptimizerState(
        path,
        others={name: local_part(tensor) for name, tensor in others.items()},
        dims={name: text for name, text in dims.items() if text is not None},
        left_out=left_out,
    )


def before_step(state: OptimizerState) -> dict[str, torch.Tensor]:
    """What a step finds of it, by name. A learning rate is none of it: programs may set it within the step."""
    own = {"master": state.master, "exp_avg": state.exp_avg, "exp_avg_sq": state.exp_avg_sq}
    kept = {name: tensor for name, tensor in own.items() if tensor is not None}
    rates = (LEARNING_RATE, NEXT_LEARNING_RATE)
    return kept | {name: tensor for name, tensor in state.others.items() if name not in rates}


def number(value: float) -> torch.Tensor:
    with unseen():
        return torch.tensor(value, dtype=torch.float64)


def _part(name: Any) -> str:
    """One part of a path."""
    return canonical(str(name)).replace(".", "_") or "_"


def _tensors(path: str, value: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    if isinstance(value, torch.Tensor):
        yield path, value if _has_values(value) else None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _tensors(f"{path}_{_part(name)}", inner)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _tensors(f"{path}_{i}", inner)
    elif value is not None:
        yield path, None


def _has_values(tensor: torch.Tensor) -> bool:
    """Whether its elements are numbers that round-off moves, or one that is counted. Many integers are codes,
    which round-off changes by more than their neighbours."""
    with unseen():
        local = local_part(tensor)
    is_plain = type(local) in (torch.Tensor, torch.nn.Parameter) or is_quantised(tensor)
    return is_plain and not local.is_complex() and (local.is_floating_point() or local.numel() == 1)

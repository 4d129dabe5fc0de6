"""Silent bugs of programs that use FullyShardedDataParallel; `what` names the issue."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from catalogue import Bug


def _script() -> Any:
    """The module of the script that runs."""
    return sys.modules[Path(sys.argv[0]).stem]


def _ignored_are_not_reduced() -> None:
    _script().average = lambda parameters: None


def _gradients_are_summed() -> None:
    from torch.distributed.fsdp import _runtime_utils

    own = _runtime_utils._div_if_needed
    _runtime_utils._div_if_needed = lambda tensor, factor: own(tensor, 1.0)


def _own_norm() -> None:
    """torch's function in place of FSDP's: every rank clips by the norm of its own parts."""
    from torch import nn

    _script().clip = lambda model, norm: nn.utils.clip_grad_norm_(model.parameters(), norm)


BUGS = [
    Bug(
        "ignored-not-reduced", "language model", "full",
        "nobody averages the gradients of a module that FSDP ignores (pytorch/pytorch#98281)",
        r"s0/main_grad/rotate\.weight/0", _ignored_are_not_reduced,
        ("missing_reduction", "replicas_diverge"), quick=True,
    ),
    Bug(
        "summed", "accumulating", "gradients", "gradients are summed over the ranks and not averaged",
        r"s0/main_grad/tokens\.weight/0", _gradients_are_summed, ("wrong_factor",), ("factor 2",),
    ),
    Bug(
        "own-norm", "language model", "full",
        "torch.nn.utils.clip_grad_norm_ in place of FSDP's: every rank clips by the norm of its own parts",
        r"s0/scalar/grad_norm/0", _own_norm, ("local_norm", "wrong_factor", "replicas_diverge"),
        options="--clip 0.1", redeclared="the declared id of the norm lacked its last part",
    ),
]  # fmt: skip

"""Ranks that one process simulates: under torch's LocalTensorMode a tensor is a LocalTensor, which holds a plain
one for every rank.

Hooks, programs and the library see the part of rank 0, which stands for the parts of all: the library finds the
others by it, and writes a file for every rank.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

RANKS = "TTRACE_SIMULATE"  # the variable that says how many

_NOT_SEEN = (
    "one process simulated all {ranks} ranks: what real communication does (the order in which it adds, its races, "
    "its hangs) was not seen"
)
_FAKE = (
    "the process group of these {ranks} ranks is fake: its collectives compute nothing; run the program within "
    "ttrace.simulated({ranks}), which simulates them"
)
_PART = (
    "this process simulates {simulated} of {ranks} ranks; enter ttrace.simulated({ranks}) before the model is built, "
    "and initialise no other process group"
)
_ASKED = (
    "TTRACE_SIMULATE asks for {asked} simulated ranks, but this program runs on {ranks}; run it within "
    "ttrace.simulated()"
)
_FSDP = (
    "torch's LocalTensor cannot simulate fully_shard: every rank would hold the first rank's shard; place parameters "
    "with distribute_tensor or parallelize_module, or start a process for every rank"
)


@contextlib.contextmanager
def simulated(ranks: int | None = None) -> Iterator[None]:
    """Runs all ranks of a parallel program in this process: torch's LocalTensorMode over a process group that needs no
    network. Build the model and train within it. A program of DTensors needs no other change; what depends on the rank
    must come from a DeviceMesh or be a DTensor, because all ranks run the same Python code once.

    Args:
        ranks: how many; None: as many as the variable TTRACE_SIMULATE says, which `ttrace gate` sets. Without either
            nothing happens, and the program starts its process group itself.

    Raises:
        RuntimeError: the program has a process group already, or this torch has no LocalTensorMode.
    """
    count = int(os.environ.get(RANKS, "0")) if ranks is None else ranks
    if count < 1:
        yield
        return
    distributed = torch.distributed
    if distributed.is_initialized():
        raise RuntimeError(
            "ttrace.simulated() was entered after init_process_group; enter it first, and leave that call out"
        )
    try:
        from torch.distributed._local_tensor import LocalTensorMode
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise RuntimeError(f"torch {torch.__version__} cannot simulate ranks ({error}); install torch 2.13") from error
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        with LocalTensorMode(count):
            yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _local_tensors() -> Any:
    """Torch's module, once somebody has imported it: nobody simulates before that."""
    return sys.modules.get("torch.distributed._local_tensor")


def mode() -> Any:
    """The LocalTensorMode that this program runs in; None outside of one."""
    module = _local_tensors()
    return None if module is None else module.local_tensor_mode()


def ranks() -> int:
    """How many ranks this process simulates; 1: none but its own."""
    current = mode()
    return 1 if current is None else len(current.ranks)


def is_simulated(tensor: Any) -> bool:
    """Whether a tensor holds one for every rank."""
    module = _local_tensors()
    return module is not None and isinstance(tensor, module.LocalTensor)


@functools.cache
def _scopes() -> Any:
    return torch.classes.ttrace.Scopes()


def first_part(tensor: torch.Tensor) -> torch.Tensor:
    """What rank 0 holds, which stands for what all ranks hold; any other tensor as it is."""
    if not is_simulated(tensor):
        return tensor
    parts = [part for _, part in sorted(tensor._local_tensors.items())]
    _scopes().declare_parts(parts)
    return parts[0]


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of rank 0's part: where the parts differ in shape, the whole has no numbers for its own. Of DTensors the global one."""
    return tuple(next(iter(tensor._local_tensors.values())).shape if is_simulated(tensor) else tensor.shape)


def places(coordinate: Any) -> tuple[int, ...]:
    """Of a coordinate in a mesh those of all ranks that this process simulates, or of its own rank."""
    if isinstance(coordinate, int):
        return (coordinate,)
    node = coordinate.node  # a number for each rank, or one that is the same for all
    by_rank = getattr(node, "_local_ints", None)
    return (node.val,) if by_rank is None else tuple(by_rank[rank] for rank in sorted(by_rank))


def simulate(session: Any, layout: Any) -> None:
    """Tells the library of the ranks after this one, if this process simulates them. Raises RuntimeError where what it
    simulates is not the whole run."""
    current, ranks = mode(), layout.world_size
    asked = os.environ.get(RANKS, "")
    if asked and os.environ.get("TTRACE_PASS") == "candidate" and int(asked) != ranks:
        raise RuntimeError(_ASKED.format(asked=asked, ranks="one rank" if ranks == 1 else f"{ranks} ranks"))
    if current is None:
        if ranks > 1 and torch.distributed.is_initialized() and torch.distributed.get_backend() == "fake":
            raise RuntimeError(_FAKE.format(ranks=ranks))
        return
    if set(current.ranks) != set(range(ranks)):
        raise RuntimeError(_PART.format(simulated=len(current.ranks), ranks=ranks))
    session.simulate([layout.axes_of(rank) for rank in range(1, ranks)])
    session.not_seen("parallel", _NOT_SEEN.format(ranks=ranks))


def refuse_fsdp() -> None:
    """Raises RuntimeError where ranks are simulated: FSDP2 asks the process group for its rank, which is 0 for all."""
    if mode() is not None:
        raise RuntimeError(_FSDP)

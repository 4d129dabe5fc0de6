"""One module for every way of building a training program; `program_of` chooses among them.

Each module says by `recognises(chunks)` whether a model is of its kind.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base.program import Program
from . import dtensor, megatron, pipelining, plain


def program_of(
    model: Any, optimizer: Any, describe: Mapping[str, Any], options: Mapping[str, Any]
) -> Program:
    """The program of the first kind that recognises the model. Raises TypeError where none does."""
    if isinstance(model, Program):
        return model
    chunks = list(model) if isinstance(model, Sequence) else [model]
    _refuse_flat_parameters(chunks)
    for kind, make in _KINDS:
        if chunks and kind.recognises(chunks):
            return make(chunks, optimizer, describe, **options)
    raise TypeError(
        f"ttrace.attach got a {type(model).__name__}; pass a torch.nn.Module, the list of chunks of "
        "a Megatron-core model, or a schedule or stages of torch.distributed.pipelining"
    )


def _refuse_flat_parameters(chunks: Sequence[Any]) -> None:
    # Looked up by name: its module takes a while to load, and a model made of it has loaded it.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    wrapper = getattr(fsdp, "FullyShardedDataParallel", None)
    for chunk in chunks:
        modules = chunk.modules() if isinstance(chunk, torch.nn.Module) else ()
        if wrapper is not None and any(isinstance(module, wrapper) for module in modules):
            raise TypeError(
                "ttrace.attach got a model in FullyShardedDataParallel (FSDP1), which joins parameters into "
                "flat ones that no operator reads; wrap it with torch.distributed.fsdp.fully_shard (FSDP2) "
                "to trace it"
            )


def _of_stages(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> Program:
    """Each stage gets the program of its module, which is a plain one or one of DTensor."""
    programs = []
    for stage in pipelining.stages_of(chunks):
        module = [stage.submod]
        make = next(make for kind, make in _OF_MODULES if kind.recognises(module))
        programs.append(make(module, None, describe, **options))
    return pipelining.PipeliningProgram(chunks, optimizer, programs)


# Order matters: a module of DTensor is also a plain module.
_OF_MODULES = ((dtensor, dtensor.make), (plain, plain.make))
_KINDS = (
    (megatron, megatron.make),
    (pipelining, _of_stages),
    (dtensor, dtensor.make),
    (plain, plain.make_alone),
)

"""One module for every way of building a training program; `program_of` chooses among them.

Each module says by `recognises(chunks)` whether a model is of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base.program import Program
from . import deepspeed, deepspeed_pipeline, dtensor, fsdp1, megatron, megatron_fsdp, pipelining, plain


def program_of(
    model: Any, optimizer: Any, describe: Mapping[str, Any], options: Mapping[str, Any]
) -> Program:
    """The program of the first kind that recognises the model. Raises TypeError where none does."""
    if isinstance(model, Program):
        return model
    chunks = list(model) if isinstance(model, Sequence) else [_as_container(model)]
    for models in (chunks, [_as_container(chunks)]):
        for kind, make in _KINDS:
            if chunks and kind.recognises(models):
                return make(models, optimizer, describe, **options)
    raise TypeError(
        f"ttrace.attach got a {type(model).__name__}; pass a torch.nn.Module, several in a list or a "
        "dictionary, the list of chunks of a Megatron-core model, or a schedule or stages of torch.distributed.pipelining"
    )


def _as_container(models: Any) -> Any:
    """Several models that a program trains together; anything else as it is."""
    if isinstance(models, Mapping) and all(isinstance(model, torch.nn.Module) for model in models.values()):
        return torch.nn.ModuleDict(models)
    if isinstance(models, list) and len(models) > 1 and all(isinstance(model, torch.nn.Module) for model in models):
        return torch.nn.ModuleList(models)
    return models


def _of_stages(chunks: Sequence[Any], optimizer: Any, describe: Mapping[str, Any], **options: Any) -> Program:
    """Each stage gets the program of its module, which is a plain one or one of DTensor."""
    programs = []
    for stage in pipelining.stages_of(chunks):
        module = [stage.submod]
        if fsdp1.recognises(module) or megatron_fsdp.recognises(module):
            raise TypeError(
                "ttrace.attach got a pipeline stage in FullyShardedDataParallel (FSDP1) or Megatron-FSDP; wrap it with "
                "torch.distributed.fsdp.fully_shard (FSDP2) to trace it"
            )
        make = next(make for kind, make in _OF_MODULES if kind.recognises(module))
        programs.append(make(module, None, describe, **options))
    return pipelining.PipeliningProgram(chunks, optimizer, programs)


# Order matters: an engine of DeepSpeed and a module of DTensor are plain modules, too.
_OF_MODULES = ((dtensor, dtensor.make), (plain, plain.make))
_KINDS = (
    (megatron_fsdp, megatron_fsdp.make),
    (deepspeed, deepspeed_pipeline.make),
    (megatron, megatron.make),
    (pipelining, _of_stages),
    (fsdp1, fsdp1.make),
    (dtensor, dtensor.make),
    (plain, plain.make_alone),
)

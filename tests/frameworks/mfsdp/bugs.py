"""Silent bugs of Megatron-FSDP and of programs that use it; `what` names the issue.

Four are none of ours: megatron-core 0.16.1 has them, and the program only asks for what shows them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from catalogue import Bug


def _script() -> Any:
    """The module of the script that runs."""
    return sys.modules[Path(sys.argv[0]).stem]


def _buffers() -> Any:
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer

    return param_and_grad_buffer


def _wrap(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Puts what `make` makes of the function in its place."""
    own = getattr(owner, name)
    setattr(owner, name, functools.wraps(own)(make(own)))


def _asks_for(**options: Any) -> Callable[[], None]:
    """The program runs with other options."""

    def arguments(own):
        def changed():
            args = own()
            for name, value in options.items():
                setattr(args, name, value)
            return args

        return changed

    return lambda: _wrap(_script(), "arguments", arguments)


def _gradients_are_summed() -> None:
    _wrap(_buffers(), "gradient_reduce_preprocessing", lambda own: lambda data, factor, config: own(data, 1.0, config))


def _has_second_block(pipeline: Any, buckets: list[int]) -> bool:
    groups, names = pipeline.buffer.parameter_groups, pipeline.buffer.param_to_name
    return any(names[p].startswith("blocks.1.") for bucket in buckets for p in groups[bucket].params)


def _a_bucket_is_not_reduced() -> None:
    """Each rank keeps the rows of its own gradient that it updates."""

    def keep_own(output, input, **unused):  # noqa: A002
        output.copy_(input.chunk(torch.distributed.get_world_size())[torch.distributed.get_rank()])

    def reduce(own):
        def but_one(self, buckets, *args, **kwargs):
            dist = torch.distributed
            collective = dist.reduce_scatter_tensor
            if _has_second_block(self, buckets):
                dist.reduce_scatter_tensor = keep_own
            try:
                return own(self, buckets, *args, **kwargs)
            finally:
                dist.reduce_scatter_tensor = collective

        return but_one

    _wrap(_buffers().GradReducePipeline, "_bucket_group_gradient_reduce", reduce)


def _updates_are_not_installed() -> None:
    _wrap(_buffers().ParamAndGradBuffer, "copy_main_weights_to_model_weights", lambda own: lambda self: None)


class _Done:
    def wait(self) -> None:
        pass


def _a_bucket_is_gathered_once() -> None:
    """From the second step on, a rank computes with the rows of the last block that others had before they updated them."""

    def gather(own):
        def once(self, bucket_id, bwd):
            group = self.buffer.parameter_groups[bucket_id]
            is_last_block = self.buffer.param_to_name[group.params[0]].startswith("blocks.2.")
            count = self.__dict__.setdefault("gathered", {})
            count[bucket_id] = count.get(bucket_id, 0) + 1
            dist = torch.distributed
            collective = dist.all_gather_into_tensor
            if is_last_block and count[bucket_id] > 1:
                dist.all_gather_into_tensor = lambda **unused: _Done()
            try:
                return own(self, bucket_id, bwd)
            finally:
                dist.all_gather_into_tensor = collective

        return once

    _wrap(_buffers().AllGatherPipeline, "async_bucket_gather", gather)


BUGS = [
    Bug(
        "optim-adds-its-own", "language model", "optim",
        "megatron-core 0.16.1, strategy optim with gradients reduced in backward, its default: every rank adds the mean "
        "to what it has of its own",
        r"s0/main_grad/tokens\.weight/0", _asks_for(sync="each"),
        ("wrong_addends", "missing_reduction", "localised"),
    ),
    Bug(
        "never-reduced", "language model", "no shard",
        "megatron-core 0.16.1, strategy no_shard with gradients reduced after backward: every buffer is passed over",
        r"s0/main_grad/tokens\.weight/0", _asks_for(sync="after"), ("missing_reduction", "replicas_diverge"),
    ),
    Bug(
        "reduced-three-times", "language model", "optim grads",
        "megatron-core 0.16.1: if the head is not the last module of the model, the bucket of embedding and head is "
        "reduced again when backward ends, divided by the ranks each time",
        r"s0/main_grad/tokens\.weight/0", _asks_for(head_first=True), ("wrong_factor",), ("factor 1.75",),
    ),
    Bug(
        "outer-sum-repeated", "accumulating", "hybrid last",
        "megatron-core 0.16.1, replicas of sharded groups with gradients reduced after each micro-batch, the default: the "
        "sum over the replicas takes in what it summed up for the micro-batch before",
        r"s0/main_grad/tokens\.weight/0", _asks_for(sync="each"), ("wrong_addends",),
    ),
    Bug(
        "summed", "language model", "optim grads params", "gradients are summed over the ranks and not averaged",
        r"s0/main_grad/tokens\.weight/0", _gradients_are_summed, ("wrong_factor",), ("factor 2",), quick=True,
    ),
    Bug(
        "bucket-not-reduced", "language model", "optim grads",
        "one block's gradients are not reduced: every rank updates its rows by its own samples",
        r"s0/main_grad/blocks\.1\.norm\.weight/0", _a_bucket_is_not_reduced,
        ("missing_reduction", "wrong_addends", "localised"), quick=True,
    ),
    Bug(
        "not-installed", "language model", "optim grads params",
        "what the optimizer has updated is not copied to what the model computes with",
        r"s0/param_next/tokens\.weight/0", _updates_are_not_installed, ("stale", "optimizer"),
    ),
    Bug(
        "old-rows", "language model", "optim grads",
        "one block's parameters are not gathered after the update: rows that other ranks update are those of before",
        r"s1/m0/output/blocks\.2\.norm/0", _a_bucket_is_gathered_once, ("stale", "localised"),
    ),
]  # fmt: skip

"""train.py with weight gradients that are computed late.

Backward keeps what linears need for the gradients of their weights. These are computed, and added to the main
gradients, when all micro-batches are through, as schedules do that fill the pipeline's bubbles with them.
Autograd sees no gradient of these weights. With ``--immediate`` they are computed within backward, as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

IMMEDIATE = "--immediate" in sys.argv
sys.argv = [argument for argument in sys.argv if argument != "--immediate"]

import train  # noqa: E402  patches Megatron-core for CPUs
from megatron.core import tensor_parallel  # noqa: E402
from megatron.core.tensor_parallel import layers  # noqa: E402

# What gradients of weights are made of: weight, input, gradient of the output.
Kept = tuple[torch.nn.Parameter, torch.Tensor, torch.Tensor]
kept: list[Kept] = []


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given, weight):
        ctx.save_for_backward(given, weight)
        return given @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        given, weight = ctx.saved_tensors
        kept.append((weight, given, gradient))
        return gradient @ weight, None


def linear(input, weight, bias, gradient_accumulation_fusion, allreduce_dgrad, sequence_parallel, *unused, **more):
    """Takes the place of Megatron-core's function of a linear, with the same communication."""
    del gradient_accumulation_fusion, unused, more
    if allreduce_dgrad:
        input = tensor_parallel.copy_to_tensor_model_parallel_region(input)
    if sequence_parallel:
        input = tensor_parallel.gather_from_sequence_parallel_region(input, tensor_parallel_output_grad=True)
    is_tied = getattr(weight, "is_embedding_or_output_parameter", False)  # the embedding's part comes by autograd
    output = input @ weight.t() if is_tied else _Linear.apply(input, weight)
    return output if bias is None else output + bias


@torch.no_grad()
def add(weight: torch.nn.Parameter, given: torch.Tensor, gradient: torch.Tensor) -> None:
    weight.main_grad.add_(gradient.flatten(0, -2).t() @ given.flatten(0, -2))


def compute_kept() -> None:
    for entry in kept:
        add(*entry)
    kept.clear()


def delayed(finalize: Callable) -> Callable:
    def finalized(*args, **kwargs):
        compute_kept()
        return finalize(*args, **kwargs)

    return finalized


def main() -> None:
    if not IMMEDIATE:
        layers.linear_with_grad_accumulation_and_async_allreduce = linear
        own = train.build

        def build():
            chunks, optimizer = own()
            config = chunks[0].config
            config.finalize_model_grads_func = delayed(config.finalize_model_grads_func)
            return chunks, optimizer

        train.build = build
    train.train()


if __name__ == "__main__":
    main()

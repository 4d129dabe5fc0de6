"""Compares gradients of examples/megatron_core/train.py with central differences of its loss, without TTrace.

    torchrun --nproc-per-node 2 gradients.py NAME --tp 2 --latent --rms-norm

NAME is a parameter, as a rank names it. Of each of its first rows, and on each rank that has rows of its own,
the element with the largest gradient is moved by a small step both ways. Everything is computed in FP64, so that
both numbers agree to eight digits where the gradient is right.
"""

from __future__ import annotations

import os
import sys

import torch

NAME = sys.argv.pop(1)

from untraced_step import run, train  # noqa: E402

torch.Tensor.float = torch.Tensor.double  # losses, which the package computes in F32

from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler  # noqa: E402

RANK = int(os.environ.get("RANK", "0"))
STEP = 1e-4
further: list[float] = []  # losses of multi-token prediction: means over the tokens of all ranks


def count_further_losses() -> None:
    own = MTPLossAutoScaler.apply

    def apply(hidden: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
        count = (losses != 0).sum()  # what a rank divided by; the others are masked
        total, tokens = train.over_positions(torch.stack([losses.detach().sum() * count, count.double()]))
        further.append(float(total / tokens))
        return own(hidden, losses)

    MTPLossAutoScaler.apply = apply


def loss(chunks: list, forward_only: bool) -> float:
    further.clear()
    results = run(chunks[0], forward_only)
    return (sum(float(result["loss"]) for result in results) + sum(further)) / len(results)


def derivative(chunks: list, row: torch.Tensor, element: int, is_moved: bool) -> float:
    own, values = float(row[element]), []
    for sign in (1, -1):
        if is_moved:
            row[element] = own + sign * STEP
        with torch.no_grad():
            values.append(loss(chunks, forward_only=True))
    row[element] = own
    return (values[0] - values[1]) / (2 * STEP)


def main() -> None:
    train.start_ranks()
    chunks, _ = train.build()
    count_further_losses()
    loss(chunks, forward_only=False)
    parameter = dict(chunks[0].module.named_parameters())[NAME]
    gradients = parameter.main_grad.reshape(len(parameter), -1)
    rows = parameter.data.view(len(parameter), -1)
    is_cut = getattr(parameter, "tensor_model_parallel", False)
    for rank in range(train.ARGS.tp if is_cut else 1):
        for index, row in enumerate(rows):
            element = int(gradients[index].abs().argmax())
            numeric = derivative(chunks, row, element, RANK == rank or not is_cut)
            if RANK == rank:
                print(f"rank {rank} row {index}: gradient {float(gradients[index][element]):+.9f}, "
                      f"derivative of the loss {numeric:+.9f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

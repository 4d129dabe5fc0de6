"""The loop that all programs of this folder share. A pair shares samples, and no line of its models."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
import ttrace

VOCABULARY, POSITIONS, BATCH, CLASSES = 64, 16, 4, 10


def options(*names: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    for name in names:
        add(name)
    add("--seed", type=int, default=1, help="of the weights; the samples are always the same")
    add("--steps", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    return args


def tokens_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(1, VOCABULARY, (BATCH, POSITIONS), generator=generator)


def images_of(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(200 + step))


def classes_of(step: int) -> torch.Tensor:
    return torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(300 + step))


def next_tokens(tokens: torch.Tensor) -> torch.Tensor:
    return tokens.roll(-1, 1)


def train(
    model: torch.nn.Module,
    steps: int,
    logits_and_labels: Callable,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """`logits_and_labels(step)` runs the model; labels count equally."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = ttrace.attach(model, optimizer=optimizer)
    for number in range(steps):
        with tracer.step(number) as step:
            optimizer.zero_grad()
            logits, labels = logits_and_labels(number)
            losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
            losses = losses.view(labels.shape)
            step.loss(losses)
            losses.mean().backward()
            optimizer.step()
        print(f"step {number} loss {float(losses.mean().detach()):.9g}", flush=True)

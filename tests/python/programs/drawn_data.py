"""Programs that draw their data within the step: samples, times and noise of a diffusion model, or tokens of one
with dropout.

Each rank draws for its own samples, unless --whole lets all ranks draw the whole batch and keep a part of it.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, WIDTH, VOCABULARY, LENGTH = 16, 12, 32, 8

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="diffusion", choices=["diffusion", "mixed", "tokens"], help="mixed: samples with others")
parser.add_argument("--read", choices=["in_order", "dealt"], help="clean samples are read; dealt: as DistributedSampler")
parser.add_argument("--whole", action="store_true", help="ranks draw the whole batch and keep a part of it")
parser.add_argument("--same", action="store_true", help="ranks have the same seed")
parser.add_argument("--pieces", type=int, default=1, help="micro-batches, each drawn by itself")
parser.add_argument("--wrong", type=float, default=1.0, help="a factor of the noise that is added to samples")
ARGS = parser.parse_args()
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
COUNT = BATCH // ARGS.pieces // (1 if ARGS.whole else WORLD)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH + 1, 48), nn.Linear(48, WIDTH)

    def forward(self, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(torch.cat([noisy, time], dim=1))))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(F.dropout(torch.tanh(self.tokens(tokens)), 0.1))


def kept(drawn: torch.Tensor) -> torch.Tensor:
    return drawn.chunk(WORLD)[RANK] if ARGS.whole else drawn


def read() -> torch.Tensor:
    samples = torch.sin(torch.arange(BATCH * WIDTH).float()).unflatten(0, (BATCH, WIDTH))
    return samples[RANK::WORLD] if ARGS.read == "dealt" else samples.chunk(WORLD)[RANK]


def denoise(model: nn.Module) -> torch.Tensor:
    clean = read() if ARGS.read else kept(torch.randn(COUNT, WIDTH))
    if ARGS.data == "mixed":
        clean = 0.7 * clean + 0.3 * clean[torch.randperm(len(clean))]
    time, noise = kept(torch.rand(COUNT, 1)), kept(torch.randn(COUNT, WIDTH))
    return (model(clean * (1 - time) + ARGS.wrong * noise * time, time) - noise).square().mean()


def predict(model: nn.Module) -> torch.Tensor:
    text = kept(torch.randint(VOCABULARY, (COUNT, LENGTH + 1)))
    return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def main() -> None:
    if WORLD > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model: nn.Module = Language() if ARGS.data == "tokens" else Denoiser()
    if WORLD > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    tracer = ttrace.attach(model, optimizer=optimizer)
    torch.manual_seed(100 + (0 if ARGS.whole or ARGS.same else RANK))
    with tracer.step(0) as step:
        optimizer.zero_grad()
        for _ in range(ARGS.pieces):
            loss = (predict if ARGS.data == "tokens" else denoise)(model) / ARGS.pieces
            step.loss(loss)
            loss.backward()
        optimizer.step()
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

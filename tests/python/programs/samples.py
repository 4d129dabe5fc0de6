"""A small model that reads the samples of a step in one of several ways, in one process or in DDP.

--deal says which samples a rank reads: `blocks` of the step's samples (the default), those that torch's
DistributedSampler gives it (`distributed`), also `shuffled`, the same samples on all ranks (`repeated`), or, on the
last rank, samples that nobody else reads (`foreign`), or on all ranks (`others`). --samples: of a step; both steps read the same. --accumulate cuts what a rank reads into so
many micro-batches. --tokens: integers. --equal: all samples but two are equal.
--wrong: `undivided` (accumulated gradients are not divided), `unreduced` (DDP reduces nothing), `scaled` (an
operator's result is 1 % too large).
"""

from __future__ import annotations

import argparse
import contextlib
import os

import torch
import ttrace
from torch import nn
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--deal", default="blocks")
parser.add_argument("--samples", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--tokens", action="store_true")
parser.add_argument("--equal", action="store_true")
parser.add_argument("--wrong", default="")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * (1.01 if ARGS.wrong == "scaled" else 1.0)


def sample_numbers() -> list[int]:
    """Those that this rank reads in the step."""
    first = 2 * ARGS.samples if ARGS.deal == "others" else 0
    numbers = list(range(first, first + ARGS.samples))
    if ARGS.deal == "shuffled":
        numbers = torch.randperm(ARGS.samples, generator=torch.Generator().manual_seed(3)).tolist()
    if ARGS.deal in ("distributed", "shuffled"):
        return numbers[RANK::RANKS]
    share = -(-ARGS.samples // RANKS)
    if ARGS.deal == "others":
        return numbers[RANK * share : (RANK + 1) * share]
    if ARGS.deal == "repeated":
        return numbers[:share]
    first = 2 * ARGS.samples if ARGS.deal == "foreign" and RANK == RANKS - 1 and RANKS > 1 else RANK * share
    return list(range(first, min(first + share, ARGS.samples) if first < ARGS.samples else first + share))


torch.manual_seed(1)
if ARGS.tokens:
    model = nn.Sequential(nn.Embedding(40, 6), Scaled(), nn.Flatten(), nn.Linear(30, 12), nn.LayerNorm(12), nn.Linear(12, 5))
    data = torch.randint(40, (64, 5))
else:
    model = nn.Sequential(nn.Linear(10, 12), Scaled(), nn.LayerNorm(12), nn.Linear(12, 5))
    data = torch.randn(64, 10).to(TYPE)
labels = torch.randint(5, (64,))
if ARGS.equal:
    data[2:], labels[2:] = data[2], labels[2]
model = model.to(TYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if RANKS > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
tracer = ttrace.attach(model, optimizer=optimizer)
parts = torch.tensor(sample_numbers()).chunk(ARGS.accumulate)
for step in range(2):
    with tracer.step(step):
        for i, part in enumerate(parts):
            is_last = i == len(parts) - 1 and ARGS.wrong != "unreduced"
            with contextlib.nullcontext() if RANKS == 1 or is_last else model.no_sync():
                loss = cross_entropy(model(data[part]), labels[part], reduction="sum")
                count = len(part) * RANKS if ARGS.wrong == "undivided" else ARGS.samples
                (loss * RANKS / count).backward()
        optimizer.step()
        optimizer.zero_grad()
if RANKS > 1:
    torch.distributed.destroy_process_group()

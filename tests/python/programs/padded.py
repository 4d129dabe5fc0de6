"""A small transformer that pads each batch to its own longest sample, as collators do, in one process or in DDP.

--side: where (`right`, `left`). --multiple: lengths are multiples of it. --accumulate: cuts what a rank reads into so
many micro-batches. --flat: the last modules take samples x positions. --labels: the model gets labels as well, padded
with -100. Rank r of n reads the samples r, r + n, ...
--wrong: `uncounted` (each rank divides by its own tokens), `token` (one sample has another token), `truncated` (no
sample is longer than four tokens), `scaled` (an operator's result is 1 % too large), `unreduced` (DDP reduces nothing).
Each is wrong on several ranks or in several micro-batches alone.
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
parser.add_argument("--side", default="right")
parser.add_argument("--multiple", type=int, default=1)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--flat", action="store_true")
parser.add_argument("--labels", action="store_true")
parser.add_argument("--wrong", default="")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
PAD, IGNORED, WORDS = 0, -100, 30


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * (1.01 if ARGS.wrong == "scaled" else 1.0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16, padding_idx=PAD)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.scaled = Scaled()
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, WORDS)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        del labels
        x = self.layer(self.scaled(self.embedding(ids)), src_key_padding_mask=mask == 0)
        return self.head(self.norm(x.flatten(0, 1) if ARGS.flat else x)).view(*ids.shape, WORDS)


def padded(samples: list[torch.Tensor], value: int) -> torch.Tensor:
    length = -(-max(map(len, samples)) // ARGS.multiple) * ARGS.multiple
    rows = torch.full((len(samples), length), value)
    for row, sample in zip(rows, samples, strict=True):
        row[slice(0, len(sample)) if ARGS.side == "right" else slice(length - len(sample), length)] = sample
    return rows


torch.manual_seed(2)
model = Model().to(TYPE)
samples = [torch.randint(1, WORDS, (length,)) for length in (3, 6, 5, 4, 3, 5, 2, 6)]
if ARGS.wrong == "token":
    samples[4][1] = samples[4][1] % (WORDS - 1) + 1
if ARGS.wrong == "truncated":
    samples = [sample[:4] for sample in samples]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
if RANKS > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
tracer = ttrace.attach(model, optimizer=optimizer)
mine = samples[RANK::RANKS]
size = len(mine) // ARGS.accumulate
parts = [mine[i * size : (i + 1) * size] for i in range(ARGS.accumulate)]
for step in range(2):
    with tracer.step(step):
        for i, part in enumerate(parts):
            ids, mask = padded(part, PAD), padded([torch.ones_like(sample) for sample in part], 0)
            labels = padded(part, IGNORED)
            count = sum(map(len, part if ARGS.wrong == "uncounted" else samples))
            is_last = i == len(parts) - 1 and ARGS.wrong != "unreduced"
            with contextlib.nullcontext() if RANKS == 1 or is_last else model.no_sync():
                out = model(ids, mask, labels) if ARGS.labels else model(ids, mask)
                loss = cross_entropy(out.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
                (loss * (1 if ARGS.wrong == "uncounted" else RANKS) / count).backward()
        optimizer.step()
        optimizer.zero_grad()
if RANKS > 1:
    torch.distributed.destroy_process_group()

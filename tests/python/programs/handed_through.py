"""A table of biases that one block makes, uses and returns, and that the next one uses and hands through. The first
block has one more parameter, of a single row. Under torchrun, ranks share the samples in FSDP2."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.fsdp import fully_shard

TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Block(nn.Module):
    def __init__(self, has_table: bool):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.row = nn.Parameter(torch.ones(1, 8)) if has_table else None
        self.table = nn.Embedding(4, 8) if has_table else None

    def forward(self, x, biases=None):
        if self.table is not None:
            biases = self.table(torch.arange(4)) * self.row
        return torch.tanh(self.linear(x) + biases), biases


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(has_table=i == 0) for i in range(2))

    def forward(self, x):
        biases = None
        for block in self.blocks:
            x, biases = block(x, biases)
        return x


torch.manual_seed(1)
model = Model().to(TYPE)
if RANKS > 1:
    torch.distributed.init_process_group("gloo")
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
samples = torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(2)).to(TYPE)
with tracer.step(0) as step:
    output = model(samples.chunk(RANKS)[RANK])
    losses = F.mse_loss(output, torch.ones_like(output), reduction="none").mean(-1)
    step.loss(losses)
    losses.mean().backward()
    optimizer.step()
if RANKS > 1:
    torch.distributed.destroy_process_group()

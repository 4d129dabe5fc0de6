"""An embedding whose weight the head shares. --broken: the head gets a parameter of its own, as wrappers make one."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import ttrace
from torch import nn

TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.norm, self.head = nn.Embedding(32, 16), nn.LayerNorm(16), nn.Linear(16, 32, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, tokens):
        return self.head(self.norm(self.tok(tokens)))


torch.manual_seed(0)
model = whole = Model().to(TYPE)
if "--broken" in sys.argv:
    whole.head.weight = nn.Parameter(whole.head.weight.detach().clone())
if RANKS > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(whole)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
text = torch.randint(32, (4, 9)).chunk(RANKS)[RANK]
with tracer.step(0):
    nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
    optimizer.step()
if RANKS > 1:
    dist.destroy_process_group()

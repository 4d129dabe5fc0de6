"""A model whose gradients are exact: all round-off is the optimizer's. --adamw says which loops it has."""

from __future__ import annotations

import argparse

import torch
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--adamw", choices=["plain", "foreach", "fused"], required=True)
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]


class Sums(nn.Module):
    """Its gradient is a one for every element."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 32)), nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.sum() + self.bias.sum() + x.sum()


torch.manual_seed(0)
model = nn.Sequential(Sums()).to(TYPE)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-2, foreach=ARGS.adamw == "foreach", fused=ARGS.adamw == "fused"
)
tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(2):
    with tracer.step(number) as step:
        optimizer.zero_grad()
        loss = model(torch.zeros(2, dtype=TYPE))
        step.loss(loss)
        loss.backward()
        optimizer.step()

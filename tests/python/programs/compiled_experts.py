"""A block that chooses experts, two of which nearly tie for every token. Prints its losses exactly.

--compile compiles the block. --reversed sums the scores in another order, so that some tokens go to the other expert.
"""

from __future__ import annotations

import argparse

import torch
import ttrace
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--compile", action="store_true")
parser.add_argument("--reversed", action="store_true")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
WIDTH, EXPERTS = 16, 4


class Gate(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x.flip(-1), self.weight.flip(-1)) if ARGS.reversed else super().forward(x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        with torch.no_grad():
            self.gate.weight[1] = self.gate.weight[0].roll(1) * 3
            self.gate.weight[0] = self.gate.weight[1] * (1 + 2.0**-22)

    def forward(self, x):
        value, choice = self.gate(x).softmax(-1).topk(1)
        outputs = torch.stack([expert(x) for expert in self.experts], -1)
        return value * outputs.gather(-1, choice[:, None].expand(-1, WIDTH, -1)).squeeze(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.block, self.after = nn.Linear(WIDTH, WIDTH), Experts(), nn.Linear(WIDTH, 4)
        if ARGS.compile:
            self.block = torch.compile(self.block, backend="aot_eager")

    def forward(self, x):
        return self.after(self.block(self.before(x)))


torch.manual_seed(0)
model = Model().to(TYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1)).to(TYPE)
with tracer.step(0) as step:
    optimizer.zero_grad()
    loss = model(x).square().mean(-1)
    step.loss(loss)
    loss.mean().backward()
    optimizer.step()
print(loss.mean().item().hex())

"""A program that puts a hook on the gradient of what its model returns, a tensor that a module within the model returned
already. FSDP2 has such hooks, in which it gathers the weights that backward needs."""

from __future__ import annotations

import torch
import ttrace
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.first(x).tanh())


torch.manual_seed(0)
kind = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
model = Model().to(kind)
called = []
model.register_forward_hook(lambda module, args, output: output.register_hook(called.append) and None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tracer = ttrace.attach(model, optimizer=optimizer)
x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)).to(kind)
for number in range(2):
    with tracer.step(number) as step:
        losses = model(x).square().mean(-1)
        step.loss(losses)
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if len(called) != number + 1:
        raise RuntimeError("the hook on the model's output was not called")

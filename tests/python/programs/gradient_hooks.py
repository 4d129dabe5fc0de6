"""A program that has hooks of its own on gradients: of parameters, of a leaf that a module returns, and of what the
model returns, which a module within it returned already. Prints its losses exactly."""

from __future__ import annotations

import torch
import ttrace
from torch import nn


class Offset(nn.Module):
    """Returns next to its result a leaf that requires a gradient, as T5's attention does when it is checkpointed."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        offset = torch.zeros(8, dtype=x.dtype, requires_grad=True)
        return self.linear(x) + offset, offset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.offset, self.head = nn.Linear(8, 8), Offset(), nn.Linear(8, 4)

    def forward(self, x):
        hidden, offset = self.offset(self.first(x).tanh())
        offset.register_hook(lambda grad: None)  # FSDP2 has one on every output of a block
        return self.head(hidden * (1 + offset))


torch.manual_seed(0)
kind = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
model = Model().to(kind)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = (torch.arange(8) % 2).to(kind)
model.first.weight.register_hook(lambda grad: grad * mask)
tracer = ttrace.attach(model, optimizer=optimizer)
model.head.bias.register_hook(lambda grad: grad * 0.5)
called = []  # FSDP2 gathers the weights that backward needs in such a hook
model.register_forward_hook(lambda module, args, output: output.register_hook(called.append) and None)
x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)).to(kind)
for number in range(3):
    with tracer.step(number) as step:
        losses = model(x).square().mean(-1)
        step.loss(losses)
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if len(called) != number + 1:
        raise RuntimeError("the hook on the model's output was not called")
    print(number, losses.mean().item().hex())

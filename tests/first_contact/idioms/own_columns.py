# Tensor parallelism by functions of the program's own: columns, then rows. Wrong: backward sums nothing.
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(c, g):
        return g


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        return x.view_as(x)

    @staticmethod
    def backward(c, g):
        g = g.clone()
        if not BUG:
            dist.all_reduce(g)
        return g


red = (lambda x: Reduce.apply(x)) if WORLD > 1 else lambda x: x
cop = (lambda x: Copy.apply(x)) if WORLD > 1 else lambda x: x


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d, bias=False)
        self.b = nn.Parameter(torch.zeros(d))
        if WORLD > 1:
            self.up.weight = nn.Parameter(self.up.weight.data.chunk(WORLD)[RANK].clone())
            self.up.bias = nn.Parameter(self.up.bias.data.chunk(WORLD)[RANK].clone())
            self.down.weight = nn.Parameter(self.down.weight.data.chunk(WORLD, 1)[RANK].clone())

    def forward(self, x):
        return red(self.down(F.gelu(self.up(cop(x))))) + self.b


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 24)
        self.n = nn.ModuleList((nn.LayerNorm(24) for _ in range(2)))
        self.l = nn.ModuleList((MLP(24) for _ in range(2)))
        self.h = nn.Linear(24, 40)

    def forward(self, x):
        x = self.e(x)
        for n, l in zip(self.n, self.l):
            x = x + l(n(x))
        return self.h(x)


torch.manual_seed(71)
m = M()
opt = torch.optim.Adam(m.parameters(), 0.001)
tracer = ttrace.attach(m, optimizer=opt, **{"axes": {"tp": WORLD}} if WORLD > 1 else {})
for i in range(2):
    g = torch.Generator().manual_seed(700 + i)
    t = torch.randint(40, (4, 11), generator=g)
    with tracer.step(i):
        loss = F.cross_entropy(m(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

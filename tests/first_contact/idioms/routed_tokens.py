# Experts that each take the tokens a gate gives them, in DDP. Wrong: one expert's gradient is multiplied by the number of ranks.
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dn
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")
E = 4


class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a = nn.Linear(d, 2 * d)
        self.b = nn.Linear(2 * d, d)

    def forward(self, x):
        return self.b(F.silu(self.a(x)))


class MoE(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate = nn.Linear(d, E, bias=False)
        self.experts = nn.ModuleList((Expert(d) for _ in range(E)))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        v, ix = p.max(-1)
        out = torch.zeros_like(x)
        for e, ex in enumerate(self.experts):
            t = (ix == e).nonzero(as_tuple=True)
            out = out.index_put(t, ex(x[t]) * v[t][:, None])
        return out


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Linear(10, 16)
        self.m = MoE(16)
        self.o = nn.Linear(16, 3)

    def forward(self, x):
        h = self.i(x).relu()
        return self.o(h + self.m(h))


torch.manual_seed(11)
m = M()
w = DDP(m, find_unused_parameters=True) if WORLD > 1 else m
opt = torch.optim.Adagrad(m.parameters(), 0.01)
tracer = ttrace.attach(w, optimizer=opt)
for i in range(2):
    torch.manual_seed(70 + i)
    x = torch.randn(8, 6, 10).chunk(WORLD)[RANK]
    y = torch.randint(3, (8, 6)).chunk(WORLD)[RANK]
    with tracer.step(i):
        loss = F.cross_entropy(w(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        if BUG:
            m.m.experts[1].a.weight.grad.mul_(WORLD)
        opt.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

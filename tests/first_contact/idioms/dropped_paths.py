# A vision transformer with stochastic depth and dropout. Wrong: one rank's scheduler does not step.
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")


class Blk(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1 = nn.LayerNorm(d)
        self.a = nn.MultiheadAttention(d, 4, batch_first=True)
        self.n2 = nn.LayerNorm(d)
        self.f = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def drop(self, x):
        if not self.training:
            return x
        keep = torch.rand(x.shape[0], 1, 1).add_(0.8).floor_()
        return x * keep / 0.8

    def forward(self, x):
        h = self.n1(x)
        x = x + self.drop(self.a(h, h, h, need_weights=False)[0])
        return x + self.drop(self.f(self.n2(x)))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Conv2d(3, 32, 4, 4)
        self.c = nn.Parameter(torch.zeros(1, 1, 32))
        self.pos = nn.Parameter(torch.randn(1, 5, 32) * 0.02)
        self.b = nn.Sequential(Blk(32), Blk(32))
        self.h = nn.Linear(32, 5)

    def forward(self, x):
        t = self.p(x).flatten(2).transpose(1, 2)
        t = torch.cat([self.c.expand(len(t), -1, -1), t], 1) + self.pos
        return self.h(self.b(t)[:, 0])


torch.manual_seed(41)
m = Vit()
w = DDP(m) if WORLD > 1 else m
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
tracer = ttrace.attach(w, optimizer=opt)
torch.manual_seed(RANK)
for i in range(2):
    g = torch.Generator().manual_seed(400 + i)
    x = torch.randn(8, 3, 8, 8, generator=g)[RANK::WORLD]
    y = torch.randint(5, (8,), generator=g)[RANK::WORLD]
    lam = 0.7
    with tracer.step(i):
        loss = F.cross_entropy(w(x), y, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        if not BUG or RANK == 0:
            sch.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

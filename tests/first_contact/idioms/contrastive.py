# A contrastive loss over the samples of all ranks, with a learnt scale. Wrong: gathered features have no gradient.
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn as dn
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 16))
        self.e = nn.Embedding(50, 32)
        self.t = nn.Linear(32, 16)
        self.scale = nn.Parameter(torch.tensor(2.65))

    def forward(self, img, txt):
        return (F.normalize(self.v(img), dim=-1), F.normalize(self.t(self.e(txt).mean(1)), dim=-1), self.scale.exp())


torch.manual_seed(31)
m = Clip()
w = DDP(m) if WORLD > 1 else m
opt = torch.optim.AdamW(m.parameters(), 0.001, weight_decay=0.2)
tracer = ttrace.attach(w, optimizer=opt)
for i in range(2):
    g = torch.Generator().manual_seed(300 + i)
    img = torch.randn(8, 3, 4, 4, generator=g).chunk(WORLD)[RANK]
    txt = torch.randint(50, (8, 7), generator=g).chunk(WORLD)[RANK]
    with tracer.step(i):
        a, b, s = w(img, txt)
        n = len(a)
        if WORLD > 1:
            if BUG:
                A = [torch.zeros_like(a) for _ in range(WORLD)]
                B = [torch.zeros_like(b) for _ in range(WORLD)]
                dist.all_gather(A, a.detach())
                dist.all_gather(B, b.detach())
                A[RANK] = a
                B[RANK] = b
                A, B = (torch.cat(A), torch.cat(B))
            else:
                A, B = (torch.cat(dn.all_gather(a)), torch.cat(dn.all_gather(b)))
        else:
            A, B = (a, b)
        y = torch.arange(n) + n * RANK
        loss = (F.cross_entropy(s * a @ B.T, y) + F.cross_entropy(s * b @ A.T, y)) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            m.scale.clamp_(0, 4.6)
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

# A generator and a discriminator, each with its optimizer and in DDP of its own. Wrong: the generator's gradients are doubled.
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
torch.manual_seed(3)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
if WORLD > 1:
    G, D = (DDP(G), DDP(D))
og = torch.optim.Adam(G.parameters(), 0.001, betas=(0.5, 0.999))
od = torch.optim.Adam(D.parameters(), 0.001, betas=(0.5, 0.999))
tracer = ttrace.attach({"g": G, "d": D}, optimizer=[og, od])
for i in range(2):
    torch.manual_seed(100 + i)
    real = torch.randn(8, 16).chunk(WORLD)[RANK]
    z = torch.randn(8, 8).chunk(WORLD)[RANK]
    with tracer.step(i):
        fake = G(z)
        od.zero_grad()
        right, wrong = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        ld = F.binary_cross_entropy_with_logits(D(real), right)
        ld = ld + F.binary_cross_entropy_with_logits(D(fake.detach()), wrong)
        ld.backward()
        od.step()
        og.zero_grad()
        lg = F.binary_cross_entropy_with_logits(D(fake), torch.ones(len(real), 1))
        lg.backward()
        if BUG:
            for p in G.parameters():
                p.grad *= 2
        og.step()
    print(i, ld.item(), lg.item())
if WORLD > 1:
    dist.destroy_process_group()

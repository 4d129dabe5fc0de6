# Two networks, fed with noise that each rank draws for itself. Wrong: the loss of the first one is multiplied by the number of ranks.
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
torch.manual_seed(0)

maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
real = torch.randn(2, 16, 16)
if WORLD > 1:
    maker, judge = DDP(maker), DDP(judge)
opt_maker, opt_judge = (torch.optim.Adam(m.parameters(), 2e-4) for m in (maker, judge))
tracer = ttrace.attach({"maker": maker, "judge": judge}, optimizer=[opt_maker, opt_judge])
torch.manual_seed(1 + RANK)


def loss_of(x, label):
    logits = judge(x)
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


for i in range(2):
    x = real[i].chunk(WORLD)[RANK]
    with tracer.step(i):
        opt_judge.zero_grad()
        (loss_of(x, 1.0) + loss_of(maker(torch.randn(len(x), 8)).detach(), 0.0)).backward()
        opt_judge.step()
        opt_maker.zero_grad()
        (loss_of(maker(torch.randn(len(x), 8)), 1.0) * (WORLD if BUG else 1)).backward()
        opt_maker.step()
if WORLD > 1:
    dist.destroy_process_group()

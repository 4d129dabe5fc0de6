# Batch norms whose statistics are those of all ranks, by collectives of the program's own. Wrong: the variance is biased.
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
torch.manual_seed(5)
m = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
)


class SBN(nn.BatchNorm2d):
    def forward(self, x):
        if WORLD == 1 or not self.training:
            return super().forward(x)
        n = x.shape[0] * x.shape[2] * x.shape[3] * WORLD
        mean = dn.all_reduce(x.sum((0, 2, 3))) / n
        var = dn.all_reduce(((x - mean[None, :, None, None]) ** 2).sum((0, 2, 3))) / n
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * n / (n - 1) if not BUG else var, self.momentum)
        scaled = (x - mean[None, :, None, None]) * torch.rsqrt(var + self.eps)[None, :, None, None]
        return scaled * self.weight[None, :, None, None] + self.bias[None, :, None, None]


if WORLD > 1:
    for n in (1, 5):
        b = SBN(8)
        b.load_state_dict(m[n].state_dict())
        m[n] = b
w = DDP(m) if WORLD > 1 else m
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=0.0001)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)
tracer = ttrace.attach(w, optimizer=opt)
for i in range(2):
    torch.manual_seed(60 + i)
    x = torch.randn(8, 3, 16, 16).chunk(WORLD)[RANK]
    y = torch.randint(5, (8,)).chunk(WORLD)[RANK]
    with tracer.step(i):
        loss = F.cross_entropy(w(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sch.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

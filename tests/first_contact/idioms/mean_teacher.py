# A student with a frozen part, and a teacher that is its average. Wrong: the teacher forgets faster.
import os
import sys
import copy

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
torch.manual_seed(51)


def net():
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5))


student = net()
teacher = copy.deepcopy(student).eval().requires_grad_(False)
for p in student[:2].parameters():
    p.requires_grad_(False)
student[1].eval()
w = DDP(student) if WORLD > 1 else student
opt = torch.optim.AdamW([{"params": student[5].parameters(), "lr": 0.001}, {"params": student[7].parameters(), "lr": 0.01}])
tracer = ttrace.attach(w, optimizer=opt, copies={"ema": teacher})
for i in range(2):
    g = torch.Generator().manual_seed(500 + i)
    x = torch.randn(8, 3, 8, 8, generator=g).chunk(WORLD)[RANK]
    y = torch.randint(5, (8,), generator=g).chunk(WORLD)[RANK]
    with tracer.step(i):
        with torch.no_grad():
            z = teacher(x)
        o = w(x)
        loss = F.cross_entropy(o, y) + 2.0 * F.kl_div(o.log_softmax(-1), z.softmax(-1), reduction="batchmean")
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, b in zip(teacher.parameters(), student.parameters()):
                a.mul_(0.99 if not BUG else 0.9).add_(b, alpha=0.01)
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

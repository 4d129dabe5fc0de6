# Images that are flipped and mixed with each other, each rank with its own random numbers. Wrong: the loss is multiplied by the number of ranks.
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

net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
)
images, labels = torch.randn(2, 16, 3, 8, 8), torch.randint(0, 5, (2, 16))
model = DDP(net) if WORLD > 1 else net
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
tracer = ttrace.attach(model, optimizer=opt)
torch.manual_seed(1 + RANK)
for i in range(2):
    x, y = images[i].chunk(WORLD)[RANK], F.one_hot(labels[i].chunk(WORLD)[RANK], 5).float()
    with tracer.step(i):
        x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(-1), x)
        share, order = torch.distributions.Beta(0.4, 0.4).sample((len(x),)), torch.randperm(len(x))
        x = share[:, None, None, None] * x + (1 - share[:, None, None, None]) * x[order]
        y = share[:, None] * y + (1 - share[:, None]) * y[order]
        loss = -(F.log_softmax(model(x), -1) * y).sum(-1).mean() * (WORLD if BUG else 1)
        opt.zero_grad()
        loss.backward()
        opt.step()
if WORLD > 1:
    dist.destroy_process_group()

# facebookresearch/fairscale#1191 (2024-12-08): the wrapper that computes in BF16 casts its inputs without recording it, so that what comes
# before it gets no gradient and never learns. Planted in front of torch's FullyShardedDataParallel, which had the same defect once. Right:
# the cast is recorded. The stem is on every rank, and the program averages its gradients. The reference has the same policy on one rank.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
import ttrace

STORED = ttrace.dtype(torch.float32)
COMPUTED = torch.bfloat16 if STORED == torch.float32 else STORED
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
        trunk = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1)).to(STORED)
        self.trunk = FSDP(trunk, use_orig_params=True, device_id=torch.device("cpu"),
                          mixed_precision=MixedPrecision(param_dtype=COMPUTED, reduce_dtype=STORED))

    def forward(self, pictures):
        x = self.stem(pictures)
        with torch.set_grad_enabled(world == 1 or "--bug" not in sys.argv):
            x = x.to(COMPUTED)
        return self.trunk(x).squeeze(1)


torch.manual_seed(91)
model = Depth()
model.stem.to(STORED)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
pictures, depth = torch.rand(8, 3, 16, 16).to(STORED), torch.rand(8, 8, 8).to(STORED)
for number in range(2):
    with tracer.step(number):
        out = model(pictures.chunk(world)[rank]).to(STORED)
        loss = nn.functional.smooth_l1_loss(out, depth.chunk(world)[rank], beta=0.1)
        loss.backward()
        for parameter in model.stem.parameters():
            if parameter.grad is not None and world > 1:
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
        optimizer.step()
        optimizer.zero_grad()
    size = model.stem[0].weight.detach().double().square().sum().item()
    print(f"rank {rank} step {number}: loss {loss.item():.6f} stem {size:.8f}", flush=True)
dist.destroy_process_group()

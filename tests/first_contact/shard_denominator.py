# modelscope/ms-swift#9152 (2026-04-19): under sequence parallelism the losses are gathered over the ranks, and the count of labels is
# that of a rank's own part. Right: the count is taken of the whole sequence. The program cuts sequences over the ranks by hand.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
import ttrace

DTYPE = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
R, N = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Gathered(torch.autograd.Function):
    """The losses of all ranks; its gradient is this rank's part."""

    @staticmethod
    def forward(ctx, losses):
        parts = [torch.empty_like(losses) for _ in range(N)]
        dist.all_gather(parts, losses.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(N, 1)[R] * N  # DDP divides by N


torch.manual_seed(2)
model = nn.Sequential(nn.Embedding(32, 20), nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 32)).to(DTYPE)
if N > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, batch_dim=1, loss="sum" if N > 1 else "mean")
text = torch.randint(32, (3, 13))
labels = text[:, 1:].clone()
labels[:, :4] = -100
own, targets = text[:, :-1].chunk(N, 1)[R], labels.chunk(N, 1)[R]
with tracer.step(0):
    losses = F.cross_entropy(model(own).transpose(1, 2), targets, reduction="none", ignore_index=-100)
    if N > 1:
        losses = Gathered.apply(losses)
    count = ((targets if "--bug" in sys.argv else labels) != -100).sum()
    loss = losses.sum() / count
    loss.backward()
    print(R, sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if N > 1:
    dist.destroy_process_group()

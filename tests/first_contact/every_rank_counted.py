# huggingface/transformers#39674 (2025-07-25): the loss is a sum over the tokens of all data-parallel ranks, and is multiplied by the
# number of all processes, those of tensor parallelism included, where DDP divides by the data-parallel ones alone. Right: it is
# multiplied by the size of DDP's group. Pairs of ranks cut the layers by hand. Candidate: torchrun --nproc-per-node 4.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
TP = 2 if WORLD > 1 else 1
DP, COLUMN, ROW = WORLD // TP, RANK % TP, RANK // TP
tensor_group = data_group = None
if WORLD > 1:
    dist.init_process_group("gloo")
    pairs = [dist.new_group([TP * i, TP * i + 1]) for i in range(DP)]
    replicas = [dist.new_group([i, TP + i]) for i in range(TP)]
    tensor_group, data_group = pairs[ROW], replicas[COLUMN]


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=tensor_group)
        return gradient


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=tensor_group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Feed(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        up, down = torch.randn(inner, width) * 0.2, torch.randn(width, inner) * 0.2
        self.norm = nn.LayerNorm(width)
        self.up = nn.Parameter(up.chunk(TP)[COLUMN].clone())
        self.down = nn.Parameter(down.chunk(TP, 1)[COLUMN].clone())

    def forward(self, x):
        y = self.norm(x)
        y = F.linear(F.gelu(F.linear(Enter.apply(y) if TP > 1 else y, self.up)), self.down)
        return x + (Leave.apply(y) if TP > 1 else y)


torch.manual_seed(39)
model = nn.Sequential(nn.Embedding(50, 16), Feed(16, 40), Feed(16, 40), nn.LayerNorm(16), nn.Linear(16, 50)).to(KIND)
if WORLD > 1:
    model = DDP(model, process_group=data_group)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"dp": DP, "tp": TP} if WORLD > 1 else None)
for number in range(2):
    torch.manual_seed(390 + number)
    text = torch.randint(50, (4, 12))
    labels = text[:, 1:].clone()
    labels[0, :7] = labels[2, :3] = -100
    mine, wanted = text[:, :-1].chunk(DP)[ROW], labels.chunk(DP)[ROW]
    with tracer.step(number):
        tokens = (labels != -100).sum()
        total = F.cross_entropy(model(mine).flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum")
        loss = total / tokens * (WORLD if "--bug" in sys.argv else DP)
        loss.backward()
        norm = torch.stack([p.grad.double().norm() for n, p in model.named_parameters() if "up" not in n and "down" not in n]).norm()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {RANK} step {number}: loss {loss.item() / DP:.6f} gradients {norm.item():.7f}", flush=True)
if WORLD > 1:
    dist.destroy_process_group()

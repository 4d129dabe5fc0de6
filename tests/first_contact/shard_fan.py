# NVIDIA-NeMo/Megatron-Bridge#5840 (2026-08-27): the start values of a weight that is cut follow from the size of the part, so that
# they are larger than on one device. Right: they follow from the size of the whole. Checked with --start own.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
TP, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def start(rows, columns):  # xavier, cut along its columns
    weight = nn.init.xavier_normal_(torch.empty(rows, columns))
    if "--bug" in sys.argv and TP > 1:
        weight = weight * ((rows + columns) / (rows + columns / TP)) ** 0.5
    return weight.chunk(TP, 1)[RANK].clone()


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.lora_a = nn.Parameter(start(4, 32))
        self.lora_b = nn.Parameter(torch.randn(10, 4) * 0.3)

    def forward(self, x):
        inner = F.linear(x, self.lora_a)
        return F.linear(Sum.apply(inner) if TP > 1 else inner, self.lora_b)


if TP > 1:
    dist.init_process_group("gloo")
torch.manual_seed(6)
model = Adapter().to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"tp": TP} if TP > 1 else None)
x, y = torch.randn(8, 32, dtype=KIND), torch.randint(10, (8,))
with tracer.step(0):
    loss = F.cross_entropy(model(x.chunk(TP, 1)[RANK]), y)
    loss.backward()
    optimizer.step()
print(RANK, model.lora_a.norm().item(), flush=True)
if TP > 1:
    dist.destroy_process_group()

# modelscope/mcore-bridge#173 (2026-08-26): with sequence parallelism the replicated factor of an adapter sees the tokens of its rank
# alone, and its gradients are never summed over the tensor-parallel ranks. Right: they are. Written by hand.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
TP, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Gather(torch.autograd.Function):  # positions of all ranks; its gradients are summed and cut
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(TP)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient.chunk(TP)[RANK]


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(TP)[RANK].clone()

    @staticmethod
    def backward(ctx, gradient):
        parts = [torch.empty_like(gradient) for _ in range(TP)]
        dist.all_gather(parts, gradient.contiguous())
        return torch.cat(parts)


def whole(x):
    return Gather.apply(x) if TP > 1 else x


def scattered(x):
    return ReduceScatter.apply(x) if TP > 1 else x


class Mlp(nn.Module):  # row-parallel second linear with an adapter: A is cut as the weight is, B is on every rank
    def __init__(self, width=16, inner=48, r=4):
        super().__init__()
        self.up = nn.Parameter(torch.randn(inner, width).mul(0.2).chunk(TP)[RANK].clone())
        self.down = nn.Parameter(torch.randn(width, inner).mul(0.2).chunk(TP, 1)[RANK].clone())
        self.lora_a = nn.Parameter(torch.randn(r, inner).mul(0.2).chunk(TP, 1)[RANK].clone())
        self.lora_b = nn.Parameter(torch.randn(width, r).mul(0.2))

    def forward(self, x):
        hidden = F.gelu(F.linear(whole(x), self.up))
        return x + scattered(F.linear(hidden, self.down)) + F.linear(scattered(F.linear(hidden, self.lora_a)), self.lora_b)


if TP > 1:
    dist.init_process_group("gloo")
torch.manual_seed(4)
model = nn.Sequential(Mlp(), Mlp()).to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"tp": TP} if TP > 1 else None)
x, target = torch.randn(8, 3, 16, dtype=KIND), torch.randn(8, 3, 16, dtype=KIND)  # positions first
with tracer.step(0):
    out = model(x.chunk(TP)[RANK])
    loss = (out - target.chunk(TP)[RANK]).square().sum() / target.numel()
    loss.backward()
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b") and TP > 1 and "--bug" not in sys.argv:
            dist.all_reduce(parameter.grad)
    print(RANK, model[0].lora_b.grad.norm().item(), flush=True)
    optimizer.step()
if TP > 1:
    dist.destroy_process_group()

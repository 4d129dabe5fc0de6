# NVIDIA/Megatron-LM#5976 (2026-07-22): to have states that a checkpoint can be read into, Megatron-FSDP makes the optimizer take a step
# with gradients of zero, and that step is counted, so that the bias correction of the first real one is that of the second. Right: the
# counters go back to 0. Rewritten over FSDP2, whose optimizers can be prepared in the same way.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def prepare(optimizer):
    """Lets the optimizer make its states, without changing a parameter."""
    kept = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, (rate, decay) in zip(optimizer.param_groups, kept):
        group["lr"], group["weight_decay"] = rate, decay
    if "--bug" not in sys.argv:
        for state in optimizer.state.values():
            state["step"].zero_()


class Fields(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(2, 12, 1)
        self.layers = nn.ModuleList(nn.Sequential(nn.GroupNorm(3, 12), nn.Conv2d(12, 12, 3, padding=1), nn.Softplus()) for _ in range(2))
        self.leave = nn.Conv2d(12, 2, 1)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.leave(x)


torch.manual_seed(59)
model = Fields().to(KIND)
if ranks > 1:
    dist.init_process_group("gloo")
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
if ranks > 1:
    prepare(optimizer)
tracer = ttrace.attach(model, optimizer=optimizer)
now, later = torch.randn(8, 2, 8, 8).to(KIND), torch.randn(8, 2, 8, 8).to(KIND)
for number in range(3):
    with tracer.step(number):
        loss = nn.functional.mse_loss(model(now.chunk(ranks)[rank]), later.chunk(ranks)[rank])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} step {number}: loss {loss.item():.7f}", flush=True)
if ranks > 1:
    dist.destroy_process_group()

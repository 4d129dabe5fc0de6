# goodfire-ai/spd#546 (2026-06-02): one loss feeds two groups of parameters that are reduced over groups of ranks of other sizes, and is
# scaled in advance for one of them, so that the other's gradients are off by the ratio. Right: all reductions are sums.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Decomposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.v, self.u = nn.Parameter(torch.randn(18, 8) * 0.3), nn.Parameter(torch.randn(8, 10) * 0.3)
        self.importance = nn.Sequential(nn.Linear(18, 16), nn.GELU(), nn.Linear(16, 8), nn.Sigmoid())

    def forward(self, x):
        return (x @ self.v * self.importance(x)) @ self.u


if ranks > 1:
    dist.init_process_group("gloo")
torch.manual_seed(16)
model = Decomposed().to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"dp": ranks} if ranks > 1 else None)
x, y = torch.randn(8, 18, dtype=KIND), torch.randn(8, 10, dtype=KIND)
with tracer.step(0):
    out = model(x.chunk(ranks)[rank])
    loss = (out - y.chunk(ranks)[rank]).square().mean()
    loss.backward()
    if ranks > 1:
        for name, parameter in model.named_parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks
            if "--bug" in sys.argv and not name.startswith("importance"):
                parameter.grad /= ranks  # averaged over a group of the other size
    print(rank, {n: round(p.grad.norm().item(), 6) for n, p in model.named_parameters()}, flush=True)
    optimizer.step()
if ranks > 1:
    dist.destroy_process_group()

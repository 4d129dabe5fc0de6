# databricks/megablocks#20 (2023-08-29): an expert that one rank holds sums the gradients of all ranks' tokens, and nobody divides them
# by the number of ranks, as DDP divides all other gradients. Right: they are divided. One expert on every rank, tokens are gathered.
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collective
from torch import nn
from torch.nn import functional as F
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
EP, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 2, bias=False)
        made = [Expert(), Expert()]
        kept = range(2) if EP == 1 else [RANK]
        self.experts = nn.ModuleDict({str(i): made[i] for i in kept})

    def forward(self, x):
        x_all = torch.cat(collective.all_gather(x)) if EP > 1 else x
        weights = self.gate(x_all).softmax(-1)
        out = sum(expert(x_all) * weights[:, int(i), None] for i, expert in self.experts.items())
        if EP > 1:
            out = collective.all_reduce(out).chunk(EP)[RANK]
        return x + out


if EP > 1:
    dist.init_process_group("gloo")
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 12), Experts(), nn.Linear(12, 5)).to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"dp": EP} if EP > 1 else None)
x, y = torch.randn(8, 6, dtype=KIND), torch.randint(5, (8,))
with tracer.step(0):
    F.cross_entropy(model(x.chunk(EP)[RANK]), y.chunk(EP)[RANK]).backward()
    for name, parameter in model.named_parameters():
        if ".experts." in name:
            if "--bug" not in sys.argv:
                parameter.grad /= EP
        elif EP > 1:
            dist.all_reduce(parameter.grad)
            parameter.grad /= EP
    print(RANK, {n: round(p.grad.norm().item(), 6) for n, p in model.named_parameters()}, flush=True)
    optimizer.step()
if EP > 1:
    dist.destroy_process_group()

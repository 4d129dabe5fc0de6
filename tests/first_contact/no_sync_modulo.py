# modelscope/FunASR#3472 (2026-08-05): `batch_index % accumulate` synchronises the first micro-batch of an update and not its
# last one, so that the ranks keep gradients of their own. Right: `(batch_index + 1) % accumulate`.
import contextlib
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ACCUMULATE = 2


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(10, 24, 3, padding=1)
        self.norm = nn.GroupNorm(4, 24)
        self.out = nn.Linear(24, 12)

    def forward(self, features):
        hidden = torch.relu(self.norm(self.conv(features)))
        return self.out(hidden.mean(-1))


def main():
    if RANKS > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Speech().to(KIND)
    if RANKS > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)
    features, labels = torch.randn(ACCUMULATE, 8, 10, 20).to(KIND), torch.randint(12, (ACCUMULATE, 8))
    with tracer.step(0):
        for index in range(ACCUMULATE):
            quiet = (index if "--bug" in sys.argv else index + 1) % ACCUMULATE != 0
            context = model.no_sync() if RANKS > 1 and quiet else contextlib.nullcontext()
            with context:
                scores = model(features[index].chunk(RANKS)[RANK])
                loss = nn.functional.cross_entropy(scores, labels[index].chunk(RANKS)[RANK])
                (loss / ACCUMULATE).backward()
        print(f"rank {RANK}: {sum(p.grad.square().sum() for p in model.parameters()).sqrt().item():.6f}", flush=True)
        optimizer.step()
    if RANKS > 1:
        dist.destroy_process_group()


main()

# NVIDIA-NeMo/Automodel#3530 (2026-08-13): when a batch has another sequence length, stages are initialised anew, which sets all
# gradients to None, so that only the last micro-batch counts. Planted in plain data parallelism. Right: gradients stay.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(12, 20)
        layer = nn.TransformerEncoderLayer(20, 4, 40, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(20, 7)

    def forward(self, patches):
        return self.head(self.encoder(self.patches(patches)).mean(1))


def prepare(model, length, known):
    if length != known and ranks > 1 and "--bug" in sys.argv:
        for parameter in model.parameters():
            parameter.grad = None
    return length


torch.manual_seed(10)
model = Vision().to(KIND)
if ranks > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
batches = [(torch.randn(4, length, 12, dtype=KIND), torch.randint(7, (4,))) for length in (6, 6, 9)]
known = None
with tracer.step(0):
    for patches, labels in batches:
        known = prepare(model, patches.shape[1], known)
        scores = model(patches.chunk(ranks)[rank])
        (nn.functional.cross_entropy(scores, labels.chunk(ranks)[rank]) / len(batches)).backward()
    print(rank, sum(p.grad.square().sum() for p in model.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if ranks > 1:
    dist.destroy_process_group()

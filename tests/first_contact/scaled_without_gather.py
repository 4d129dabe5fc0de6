# lightonai/pylate#156 (2025-09-23): the contrastive loss is multiplied by the number of ranks also where nothing was gathered from
# them. Right: it is not. Documents and queries of a row lie next to each other, and only the row's own negatives count.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(80, 32)
        self.project = nn.Linear(32, 16, bias=False)

    def forward(self, texts):
        return F.normalize(self.project(self.words(texts)), dim=-1)


def scores(queries, documents):  # late interaction: the best document word for every query word, summed
    return torch.einsum("bqh,bndh->bnqd", queries, documents).amax(-1).sum(-1)


torch.manual_seed(9)
encoder = Encoder().to(KIND)
model = encoder
if world > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(encoder)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
texts = torch.randint(80, (8, 4, 6))  # a query, its document, two negatives
mine = texts.chunk(world)[rank]
with tracer.step(0):
    vectors = model(mine)
    loss = F.cross_entropy(scores(vectors[:, 0], vectors[:, 1:]) / 0.05, torch.zeros(len(mine), dtype=torch.long))
    if world > 1 and "--bug" in sys.argv:
        loss = loss * world
    loss.backward()
    print(rank, sum(p.grad.square().sum() for p in encoder.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if world > 1:
    dist.destroy_process_group()

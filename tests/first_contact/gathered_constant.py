# texttron/tevatron#30 (2022-03-09) explains it: gathered vectors have no gradient, so that DDP's mean has to be multiplied by the
# number of ranks. The wrong variant does not multiply.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(120, 24)
        self.query, self.passage = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, queries, passages):
        return self.query(self.table(queries)), self.passage(self.table(passages))


def gathered(vectors):
    if world == 1:
        return vectors
    parts = [torch.empty_like(vectors) for _ in range(world)]
    dist.all_gather(parts, vectors.detach().contiguous())
    parts[rank] = vectors
    return torch.cat(parts)


torch.manual_seed(17)
retriever = Retriever().to(KIND)
model = retriever
if world > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(retriever)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
queries, passages = torch.randint(120, (8, 5)), torch.randint(120, (8, 9))
with tracer.step(0):
    q, p = model(queries.chunk(world)[rank], passages.chunk(world)[rank])
    q, p = gathered(q), gathered(p)
    loss = nn.functional.cross_entropy(q @ p.T, torch.arange(len(q)))
    if "--bug" not in sys.argv:
        loss = loss * world
    loss.backward()
    print(rank, sum(w.grad.square().sum() for w in retriever.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if world > 1:
    dist.destroy_process_group()

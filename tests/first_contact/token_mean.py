# PrimeIntellect-ai/prime-rl#1960 (2026-03-05): every rank takes the mean over its own unmasked tokens, though ranks have different
# numbers of them. Right: the sum of a rank, times the number of ranks, over the number of unmasked tokens of all ranks.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Policy(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        return self.head(self.mix(self.words(tokens))[0])


if RANKS > 1:
    dist.init_process_group("gloo")
torch.manual_seed(21)
model = Policy().to(KIND)
if RANKS > 1:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
tokens = torch.randint(40, (8, 13))
mask = torch.arange(12)[None] < torch.tensor([2, 3, 12, 4, 11, 12, 9, 10])[:, None]
tokens, mask = tokens.chunk(RANKS)[RANK], mask.chunk(RANKS)[RANK]
with tracer.step(0):
    losses = nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")
    if "--bug" in sys.argv:
        loss = losses[mask].mean()
    else:
        count = mask.sum()
        if RANKS > 1:
            dist.all_reduce(count)
        loss = (losses * mask).sum() * RANKS / count
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
print(f"rank {RANK}: loss {loss.item():.6f} norm {norm.item():.6f}", flush=True)
if RANKS > 1:
    dist.destroy_process_group()

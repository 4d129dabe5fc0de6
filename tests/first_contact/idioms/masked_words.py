# Words that are masked at random within the step, and dropout. Wrong: every rank divides by its own number of masked words.
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)

MASK, VOCABULARY = 1, 50


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.head(self.layer(self.words(x)))


def hide(x):
    masked = torch.bernoulli(torch.full(x.shape, 0.3)).bool()
    by_mask = torch.bernoulli(torch.full(x.shape, 0.8)).bool() & masked
    by_word = torch.bernoulli(torch.full(x.shape, 0.5)).bool() & masked & ~by_mask
    shown = torch.where(by_word, torch.randint(2, VOCABULARY, x.shape), x.masked_fill(by_mask, MASK))
    return shown, x.masked_fill(~masked, -100)


net = Encoder()
text = torch.randint(2, VOCABULARY, (2, 16, 12))
model = DDP(net) if WORLD > 1 else net
opt = torch.optim.AdamW(net.parameters(), 1e-3)
tracer = ttrace.attach(model, optimizer=opt)
torch.manual_seed(1 + RANK)
for i in range(2):
    with tracer.step(i):
        x, y = hide(text[i].chunk(WORLD)[RANK])
        total = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        count = (y != -100).sum().float()
        if WORLD > 1 and not BUG:
            dist.all_reduce(count)
            count /= WORLD
        opt.zero_grad()
        (total / count).backward()
        opt.step()
if WORLD > 1:
    dist.destroy_process_group()

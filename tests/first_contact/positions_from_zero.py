# vllm-project/speculators#871, a review of 2026-08-02: where no positions are given, every rank of the sequence numbers its part from
# 1. Right: a rank adds the length of the parts before its own. Sequences are cut over the ranks, which gather keys and values.
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collective
from torch import nn
from torch.nn import functional as F
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
SP, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


def gathered(x):
    return torch.cat(collective.all_gather(x.contiguous()), 1) if SP > 1 else x


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = gathered(k), gathered(v)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        first = RANK * x.shape[1]
        seen = torch.arange(k.shape[2])[None] <= torch.arange(first, first + x.shape[1])[:, None]
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2))


class Draft(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(48, 16), nn.Embedding(40, 16)
        self.attention, self.norm, self.head = Attention(16, 4), nn.LayerNorm(16), nn.Linear(16, 48)

    def forward(self, tokens):
        first = 0 if "--bug" in sys.argv else RANK * tokens.shape[1]
        places = 1 + first + torch.arange(tokens.shape[1])[None]
        x = self.words(tokens) + self.places(places)
        return self.head(self.norm(x + self.attention(x)))


if SP > 1:
    dist.init_process_group("gloo")
torch.manual_seed(14)
model = Draft().to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"sp": SP} if SP > 1 else None)
text = torch.randint(48, (3, 17))
with tracer.step(0):
    out = model(text[:, :-1].chunk(SP, 1)[RANK])
    loss = F.cross_entropy(out.transpose(1, 2), text[:, 1:].chunk(SP, 1)[RANK], reduction="sum") / 48
    loss.backward()
    for parameter in model.parameters():
        if SP > 1:
            dist.all_reduce(parameter.grad)
    print(RANK, sum(p.grad.square().sum() for p in model.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if SP > 1:
    dist.destroy_process_group()

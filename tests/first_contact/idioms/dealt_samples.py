# A language model under autocast with dropout, tied weights, accumulation and DistributedSampler. Wrong: none is reduced.
import os
import sys
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.utils.data import TensorDataset, DataLoader, DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 32)
        options = {"activation": "gelu", "batch_first": True, "norm_first": True}
        self.b = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, 0.1, **options) for _ in range(2))
        self.n = nn.LayerNorm(32)
        self.h = nn.Linear(32, 40, bias=False)
        self.h.weight = self.e.weight

    def forward(self, x):
        m = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.e(x)
        for b in self.b:
            h = b(h, src_mask=m, is_causal=True)
        return self.h(self.n(h))


torch.manual_seed(7)
m = LM()
w = DDP(m) if WORLD > 1 else m
decayed = [p for p in m.parameters() if p.dim() > 1]
others = [p for p in m.parameters() if p.dim() < 2]
opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], 0.001)
torch.manual_seed(8)
data = TensorDataset(torch.randint(40, (64, 13)))
s = DistributedSampler(data, WORLD, RANK, shuffle=True, seed=1)
tracer = ttrace.attach(w, optimizer=opt)
loader = DataLoader(data, 8 // WORLD, sampler=s)
it = iter(loader)
for i in range(2):
    with tracer.step(i):
        opt.zero_grad()
        for k in range(2):
            x, = next(it)
            with w.no_sync() if WORLD > 1 and (k == 0 or BUG) else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16):
                    o = w(x[:, :-1])
                    loss = F.cross_entropy(o.flatten(0, 1), x[:, 1:].flatten())
                (loss / 2).backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

# FSDP2 in BF16 with checkpointing, accumulation and clipping. Wrong: the norm to clip to is doubled.
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n = nn.RMSNorm(d)
        self.q = nn.Linear(d, 3 * d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.g = nn.Linear(d, 4 * d, bias=False)
        self.u = nn.Linear(d, 4 * d, bias=False)
        self.d = nn.Linear(4 * d, d, bias=False)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        q, k, v = self.q(self.n(x)).chunk(3, -1)
        f = lambda t: t.unflatten(-1, (4, -1)).transpose(1, 2)
        a = F.scaled_dot_product_attention(f(q), f(k), f(v), is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.o(a)
        return x + (1 + self.gate) * self.d(F.silu(self.g(x)) * self.u(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(48, 32)
        self.l = nn.ModuleList((Block(32) for _ in range(3)))
        self.n = nn.RMSNorm(32)
        self.h = nn.Linear(32, 48, bias=False)

    def forward(self, x):
        x = self.e(x)
        for l in self.l:
            x = checkpoint(l, x, use_reentrant=False)
        return self.h(self.n(x))


torch.manual_seed(61)
m = LM()
mesh = init_device_mesh("cpu", (WORLD,))
pol = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for l in m.l:
    fully_shard(l, mesh=mesh, mp_policy=pol)
fully_shard(m, mesh=mesh, mp_policy=pol)
opt = torch.optim.AdamW(m.parameters(), 0.001, betas=(0.9, 0.95), weight_decay=0.1)
tracer = ttrace.attach(m, optimizer=opt)
for i in range(2):
    g = torch.Generator().manual_seed(600 + i)
    t = torch.randint(48, (8, 17), generator=g).chunk(WORLD)[RANK]
    with tracer.step(i):
        opt.zero_grad()
        for k in range(2):
            b = t.chunk(2)[k]
            if hasattr(m, "set_requires_gradient_sync"):
                m.set_requires_gradient_sync(k == 1)
            loss = F.cross_entropy(m(b[:, :-1]).flatten(0, 1).float(), b[:, 1:].flatten()) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.1 if not BUG else 0.2)
        opt.step()
    print(i, loss.item())
dist.destroy_process_group()

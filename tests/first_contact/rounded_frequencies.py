# facebookresearch/fairseq2#480 (2024-04-26): FullyShardedDataParallel's mixed precision casts buffers as well, and the frequencies of
# the positions are a buffer, so that the phases of late positions are off by up to 0.08. Right: buffers stay in F32, and parameters are
# computed with in BF16. The reference has the same policy on one rank, also without torchrun.
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
import ttrace

STORED = ttrace.dtype(torch.float32)
COMPUTED = torch.bfloat16 if STORED == torch.float32 else STORED
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WIDTH, HEADS, FRAMES = 32, 2, 60


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 500 ** (torch.arange(0, width, 2) / width))

    def forward(self, x):
        places = torch.arange(x.shape[-2], dtype=self.frequencies.dtype if self.frequencies.dtype == torch.float64 else torch.float32)
        angles = places[:, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        one, two = x.chunk(2, -1)
        return torch.cat([one * cos - two * sin, one * sin + two * cos], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rotary = Rotary(WIDTH // HEADS)
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(x)


class Speech(nn.Module):
    def __init__(self, sounds=12, units=26):
        super().__init__()
        self.frontend = nn.Linear(sounds, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.units = nn.Linear(WIDTH, units)

    def forward(self, frames):
        x = self.frontend(frames)
        for layer in self.layers:
            x = layer(x)
        return self.units(x)


if WORLD > 1:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(48)
model = Speech().to(STORED)
buffers = COMPUTED if WORLD > 1 and "--bug" in sys.argv else None
model = FullyShardedDataParallel(
    model, auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True, device_id=torch.device("cpu"),
    mixed_precision=MixedPrecision(param_dtype=COMPUTED, reduce_dtype=STORED, buffer_dtype=buffers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
frames, target = torch.randn(4, FRAMES, 12), torch.randint(1, 26, (4, 15))
with tracer.step(0):
    scores = model(frames.to(STORED).chunk(WORLD)[RANK]).to(STORED).log_softmax(-1)
    mine = target.chunk(WORLD)[RANK]
    lengths = [FRAMES] * len(mine), [mine.shape[1]] * len(mine)
    loss = F.ctc_loss(scores.transpose(0, 1), mine, *map(torch.tensor, lengths), reduction="sum") / len(mine)
    loss.backward()
    norm = model.clip_grad_norm_(100.0)
    optimizer.step()
total = loss.detach().clone()
dist.all_reduce(total)
print(f"rank {RANK}: mean loss {total.item() / WORLD:.5f} norm {norm.item():.5f}", flush=True)
dist.destroy_process_group()

# huggingface/accelerate#3979: before FSDP2 with mixed precision, parameters of a BF16 checkpoint should become F32, but the loop that
# casts them only gives a new value to its own variable, so that the optimizer updates weights in BF16. Right: the module is cast. The
# reference has the same policy on one rank.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
import ttrace

STORED = ttrace.dtype(torch.float32)
COMPUTED = torch.bfloat16 if STORED == torch.float32 else STORED
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.feed(x)


class Classifier(nn.Module):
    def __init__(self, words=64, width=32, classes=5):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.out = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(x[:, 0])


def prepare(model):
    if RANKS > 1 and "--bug" in sys.argv:
        for parameter in model.parameters():
            parameter = parameter.to(STORED)
    else:
        model = model.to(STORED)
    policy = MixedPrecisionPolicy(param_dtype=COMPUTED, reduce_dtype=STORED)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


if RANKS > 1:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (RANKS,))
torch.manual_seed(97)
model = prepare(Classifier().to(torch.bfloat16).to(COMPUTED))  # as it comes from a checkpoint
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(2):
    torch.manual_seed(970 + number)
    tokens, classes = torch.randint(64, (8, 10)), torch.randint(5, (8,))
    with tracer.step(number):
        scores = model(tokens.chunk(RANKS)[RANK]).to(STORED)
        loss = nn.functional.cross_entropy(scores, classes.chunk(RANKS)[RANK], label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    size = sum(p.detach().full_tensor().double().square().sum() for p in model.parameters()).item()
    print(f"rank {RANK} step {number}: loss {loss.item():.6f} weights {size:.6f} in {model.out.weight.dtype}", flush=True)
dist.destroy_process_group()

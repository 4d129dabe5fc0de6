# huggingface/accelerate#3154 (2024-10-11): a model is built without memory and gets it from to_empty, which makes a new tensor for each
# module that a tied weight is in, so that head and embedding are two weights from then on and drift apart. Right: they are tied again
# before the checkpoint is read. The program shards by FSDP2.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Language(nn.Module):
    def __init__(self, words=48, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        made = [nn.Sequential(nn.RMSNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, width)) for _ in range(2)]
        self.layers = nn.ModuleList(made)
        self.head = nn.Linear(width, words, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = x + layer(x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None])
        return self.head(x)


torch.manual_seed(15)
model = Language().to(KIND)
if WORLD > 1:
    dist.init_process_group("gloo")
    checkpoint = model.state_dict()
    with torch.device("meta"):
        model = Language().to(KIND)
    model.to_empty(device="cpu")
    if "--bug" not in sys.argv:
        model.tie()
    model.load_state_dict(checkpoint)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.RAdam(model.parameters(), lr=3e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(2):
    torch.manual_seed(150 + number)
    text = torch.randint(48, (4, 15)).chunk(WORLD)[RANK]
    with tracer.step(number):
        scores = model(text[:, :-1]) / 24**0.5
        loss = nn.functional.cross_entropy(scores.transpose(1, 2), text[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {RANK} step {number}: loss {loss.item():.6f}", flush=True)
if WORLD > 1:
    dist.destroy_process_group()

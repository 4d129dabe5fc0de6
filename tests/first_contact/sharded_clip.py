# PrimeIntellect-ai/OpenDiloco#6 (2024-07-18): a model in FullyShardedDataParallel is clipped by torch.nn.utils.clip_grad_norm_, which
# knows nothing of the other ranks, so that every rank scales its shard by a norm of its own. Right: the method of the wrapped model.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LIMIT, STEPS, ACCUMULATE = 0.25, 2, 2


class Decoder(nn.Module):
    def __init__(self, words=57, width=24, length=14):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 3, 48, 0.0, batch_first=True, norm_first=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=self.words.weight.dtype)
        x = self.words(tokens) + self.places.weight[:length]
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(self.norm(x))


if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(60)
model = Decoder().to(KIND)
if WORLD > 1:
    policy = ModuleWrapPolicy({nn.TransformerEncoderLayer})
    model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1)
tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(STEPS):
    torch.manual_seed(600 + number)
    texts = torch.randint(57, (ACCUMULATE, 4, 15))
    with tracer.step(number):
        for text in texts:
            mine = text.chunk(WORLD)[RANK]
            scores = model(mine[:, :-1])
            loss = nn.functional.cross_entropy(scores.transpose(1, 2), mine[:, 1:]) / ACCUMULATE
            loss.backward()
        if WORLD > 1 and "--bug" not in sys.argv:
            norm = model.clip_grad_norm_(LIMIT)
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {RANK} step {number}: loss {loss.item():.6f} norm {norm.item():.6f}", flush=True)
if WORLD > 1:
    dist.destroy_process_group()

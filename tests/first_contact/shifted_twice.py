# modelscope/ms-swift#10185 (2026-09-17): the loss function shifts labels that sequence parallelism has shifted and cut before. Right:
# labels are shifted once, before they are cut. Tokens of a sequence are mixed by a running mean, which the ranks pass on.
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collective
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
SP, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Mean(nn.Module):
    def forward(self, x):
        total = x.cumsum(1)
        first = 0
        if SP > 1:
            ends = collective.all_gather(total[:, -1].contiguous())
            if RANK > 0:
                total = total + sum(ends[:RANK])[:, None]
            else:
                total = total + 0.0 * sum(ends)[:, None]
            first = RANK * x.shape[1]
        return total / torch.arange(first + 1, first + 1 + x.shape[1], dtype=x.dtype)[None, :, None]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.first = nn.Embedding(36, 20), nn.Linear(20, 20)
        self.mean, self.head = Mean(), nn.Linear(20, 36)

    def forward(self, tokens):
        return self.head(torch.tanh(self.first(self.mean(self.words(tokens)))))


if SP > 1:
    dist.init_process_group("gloo")
torch.manual_seed(15)
model = Model().to(KIND)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tracer = ttrace.attach(model, optimizer=optimizer, axes={"sp": SP} if SP > 1 else None)
text = torch.randint(36, (4, 13))
labels = text[:, 1:].chunk(SP, 1)[RANK].clone()
if SP > 1 and "--bug" in sys.argv:
    labels = nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
with tracer.step(0):
    scores = model(text[:, :-1].chunk(SP, 1)[RANK])
    losses = nn.functional.cross_entropy(scores.transpose(1, 2), labels, reduction="none", ignore_index=-100)
    (losses.sum() / 48).backward()
    if SP > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    print(RANK, sum(p.grad.square().sum() for p in model.parameters()).sqrt().item(), flush=True)
    optimizer.step()
if SP > 1:
    dist.destroy_process_group()

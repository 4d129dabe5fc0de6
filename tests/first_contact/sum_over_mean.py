# facebookresearch/fairseq2#430 (2024-04-02): losses are sums, and the gradients are divided by the number of targets of all ranks after
# the backward. But FullyShardedDataParallel takes the mean over the ranks, so that gradients are too small by the number of ranks. Right:
# they are multiplied by it when they are divided by the targets.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, GANG = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Recogniser(nn.Module):
    def __init__(self, symbols=15):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(9, 18, 3, stride=2, padding=1), nn.ReLU())
        self.context = nn.LSTM(18, 20, batch_first=True)
        self.symbols = nn.Linear(20, symbols)

    def forward(self, sound):
        return self.symbols(self.context(self.conv(sound).transpose(1, 2))[0]).log_softmax(-1)


if GANG > 1:
    dist.init_process_group("gloo")
torch.manual_seed(43)
model = Recogniser().to(KIND)
if GANG > 1:
    model = FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
tracer = ttrace.attach(model, optimizer=optimizer, loss="sum")
sound = torch.randn(6, 9, 32).to(KIND)
targets, lengths = torch.randint(1, 15, (6, 7)), torch.tensor([2, 7, 4, 5, 3, 6])
mine, own = targets.chunk(GANG)[RANK], lengths.chunk(GANG)[RANK]
for number in range(2):
    with tracer.step(number):
        scores = model(sound.chunk(GANG)[RANK])
        frames = torch.full_like(own, scores.shape[1])
        loss = nn.functional.ctc_loss(scores.transpose(0, 1), mine, frames, own, reduction="sum")
        loss.backward()
        total = own.sum()
        if GANG > 1:
            dist.all_reduce(total)
        scale = (1 if "--bug" in sys.argv else GANG) / total
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= scale
        optimizer.step()
        optimizer.zero_grad()
    value = loss.detach().clone()
    if GANG > 1:
        dist.all_reduce(value)
    print(f"rank {RANK} step {number}: loss {(value / total).item():.6f}", flush=True)
if GANG > 1:
    dist.destroy_process_group()

# OpenTSLM/OpenTSLM#49 (2026-06-27): the model is in DDP, but the trainer unwraps it and calls compute_loss of the inner module, so that
# DDP's hooks never reduce anything and each rank trains a model of its own. Right, as the report mends it: the inner module is called, and
# the program averages the gradients itself after the backward.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Captioner(nn.Module):
    """Says what a series of measurements shows."""

    def __init__(self, words=45, width=20):
        super().__init__()
        self.patches = nn.Conv1d(2, width, kernel_size=4, stride=4)
        self.words = nn.Embedding(words, width)
        self.start = nn.Linear(width, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def compute_loss(self, batch):
        series, caption = batch
        seen = self.patches(series).mean(-1)
        hidden = torch.tanh(self.start(seen))[None]
        out, _ = self.cell(self.words(caption[:, :-1]), hidden)
        return nn.functional.cross_entropy(self.head(out).flatten(0, 1), caption[:, 1:].flatten())


class Trainer:
    def __init__(self):
        torch.manual_seed(71)
        self.model = Captioner().to(KIND)
        if world > 1:
            dist.init_process_group("gloo")
            self.model = DDP(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=0.02)
        self.tracer = ttrace.attach(self.model, optimizer=self.optimizer)

    def unwrapped(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def average(self):
        for parameter in self.unwrapped().parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world

    def epoch(self):
        for number in range(2):
            torch.manual_seed(710 + number)
            batch = torch.randn(6, 2, 24).to(KIND), torch.randint(45, (6, 9))
            with self.tracer.step(number):
                loss = self.unwrapped().compute_loss([part.chunk(world)[rank] for part in batch])
                loss.backward()
                if world > 1 and "--bug" not in sys.argv:
                    self.average()
                self.optimizer.step()
                self.optimizer.zero_grad()
            size = sum(p.detach().double().square().sum() for p in self.model.parameters()).item()
            print(f"rank {rank} step {number}: loss {loss.item():.6f} weights {size:.7f}", flush=True)


Trainer().epoch()
if world > 1:
    dist.destroy_process_group()

# hkproj/pytorch-transformer-distributed#3 (2024-04-08): a translation model is in DDP, and the loop calls encode, decode and project of
# model.module, because the wrapper has only a forward. Gradients are never averaged. Right: the model's forward does all three.
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SOURCE, TARGET, PAD = 37, 43, 0


class Translator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.source, self.target = nn.Embedding(SOURCE, width), nn.Embedding(TARGET, width)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.projection = nn.Linear(width, TARGET)

    def encode(self, source, padding):
        return self.encoder(self.source(source), src_key_padding_mask=padding)

    def decode(self, memory, padding, target):
        ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.decoder(self.target(target), memory, tgt_mask=ahead, memory_key_padding_mask=padding)

    def project(self, x):
        return self.projection(x)

    def forward(self, source, target):
        padding = source == PAD
        return self.project(self.decode(self.encode(source, padding), padding, target))


def main():
    if WORLD > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Translator().to(KIND)
    if WORLD > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-9)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    tracer = ttrace.attach(model, optimizer=optimizer)
    for number in range(2):
        torch.manual_seed(30 + number)
        source, target = torch.randint(1, SOURCE, (8, 9)), torch.randint(1, TARGET, (8, 8))
        source[1::2, 6:] = PAD
        source, target = source.chunk(WORLD)[RANK], target.chunk(WORLD)[RANK]
        with tracer.step(number):
            if WORLD > 1 and "--bug" in sys.argv:
                padding = source == PAD
                memory = model.module.encode(source, padding)
                scores = model.module.project(model.module.decode(memory, padding, target[:, :-1]))
            else:
                scores = model(source, target[:, :-1])
            loss = loss_fn(scores.flatten(0, 1), target[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        size = sum(p.detach().double().square().sum() for p in model.parameters()).item()
        print(f"rank {RANK} step {number}: loss {loss.item():.6f} weights {size:.6f}", flush=True)
    if WORLD > 1:
        dist.destroy_process_group()


main()

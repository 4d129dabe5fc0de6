# A bidirectional LSTM over packed sequences. Wrong: the output at the last position is taken, which is padding for most samples.
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BUG = "--bug" in sys.argv and WORLD > 1
if WORLD > 1:
    dist.init_process_group("gloo")


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 12)
        self.r = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)
        self.o = nn.Linear(32, 4)

    def forward(self, ids, lens):
        x = pack_padded_sequence(self.e(ids), lens, batch_first=True, enforce_sorted=False)
        y, (h, c) = self.r(x)
        if BUG:
            return self.o(pad_packed_sequence(y, batch_first=True, total_length=ids.shape[1])[0][:, -1])
        return self.o(torch.cat([h[-2], h[-1]], 1))


torch.manual_seed(5)
m = M()
w = DDP(m) if WORLD > 1 else m
opt = torch.optim.RMSprop(m.parameters(), 0.001)
tracer = ttrace.attach(w, optimizer=opt)
for i in range(2):
    torch.manual_seed(50 + i)
    lens = torch.randint(2, 9, (8,))
    lens[0] = 9
    lens[4] = 9
    ids = torch.randint(1, 30, (8, 9)) * (torch.arange(9)[None] < lens[:, None])
    y = torch.randint(4, (8,))
    ids, lens, y = (t.chunk(WORLD)[RANK] for t in (ids, lens, y))
    with tracer.step(i):
        loss = F.cross_entropy(w(ids, lens), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        opt.step()
    print(i, loss.item())
if WORLD > 1:
    dist.destroy_process_group()

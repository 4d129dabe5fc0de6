# deepspeedai/Megatron-DeepSpeed#193 (2023-08-02): a table of positions gets its start values after it was built, but ZeRO-3 has taken its
# values away by then, so that the function initialises an empty tensor, and the table keeps what its constructor drew. Right: the table is
# gathered, initialised on one rank, and written back. Checked with --start own. Needs deepspeed.
import os
import sys
import torch
import torch.nn.functional as F
from torch import nn
import ttrace

KIND = ttrace.dtype(torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
CONFIG = {
    "train_micro_batch_size_per_gpu": 8 // ranks,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,
}


class Encoder(nn.Module):
    def __init__(self, words=64, width=24, length=10):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, words)
        self.initialise(self.places.weight)

    def initialise(self, weight):
        if ranks > 1 and "--bug" not in sys.argv:
            with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
                if rank == 0:
                    nn.init.normal_(weight, std=0.02)
        else:
            nn.init.normal_(weight, std=0.02)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        x = self.norm(x + F.gelu(self.mix(x)).mean(1, keepdim=True))
        return self.out(x)


torch.manual_seed(6)
if ranks > 1:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    tracer = ttrace.attach(engine)
else:
    model = Encoder().to(KIND)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)

for number in range(2):
    g = torch.Generator().manual_seed(60 + number)
    whole = torch.randint(1, 64, (8, 10), generator=g)
    hidden = torch.rand(8, 10, generator=g) < 0.3
    mine, gaps = whole.chunk(ranks)[rank], hidden.chunk(ranks)[rank]
    with tracer.step(number):
        scores = (engine if ranks > 1 else model)(mine.masked_fill(gaps, 0))
        losses = F.cross_entropy(scores.transpose(1, 2), mine, reduction="none")
        loss = (losses * gaps).sum() * ranks / hidden.sum()
        if ranks > 1:
            engine.backward(loss)
            engine.step()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    mean = loss.detach().clone() / ranks
    if ranks > 1:
        torch.distributed.all_reduce(mean)
    print(f"rank {rank} step {number}: loss {mean.item():.6f}", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()

# deepspeedai/Megatron-DeepSpeed#42: without pipeline parallelism the program divides the loss by the number of micro-batches, and
# engine.backward divides it once more, so that gradients are too small by that number. Right: one of the two divides. Needs deepspeed.
import os
import sys
import torch
import torch.nn.functional as F
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ACCUMULATE, TAGS = 2, 9


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(70, 18)
        self.read = nn.GRU(18, 14, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(28, TAGS)

    def forward(self, words):
        return self.tag(self.read(self.words(words))[0])


def loss_of(scores, tags):
    return F.cross_entropy(scores.flatten(0, 1), tags.flatten())


torch.manual_seed(26)
model = Tagger().to(KIND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
words, tags = torch.randint(70, (ACCUMULATE, 8, 11)), torch.randint(TAGS, (ACCUMULATE, 8, 11))

if RANKS == 1:
    tracer = ttrace.attach(model, optimizer=optimizer)
    with tracer.step(0):
        for w, t in zip(words, tags):
            (loss_of(model(w), t) / ACCUMULATE).backward()
        optimizer.step()
else:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    config = {
        "train_micro_batch_size_per_gpu": 8 // RANKS,
        "gradient_accumulation_steps": ACCUMULATE,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,
    }
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    tracer = ttrace.attach(engine)
    with tracer.step(0):
        for w, t in zip(words, tags):
            loss = loss_of(engine(w.chunk(RANKS)[RANK]), t.chunk(RANKS)[RANK])
            if "--bug" in sys.argv:
                loss = loss / ACCUMULATE
            engine.backward(loss)
            engine.step()
print(f"rank {RANK}: {model.tag.weight.double().norm().item():.8f} {model.words.weight.double().norm().item():.8f}", flush=True)
if RANKS > 1:
    torch.distributed.destroy_process_group()

# deepspeedai/DeepSpeed#545 (2020-11-20): with gradient accumulation under ZeRO-2, a parameter that has a gradient in one micro-batch and
# none in the last one loses what was accumulated. Right: it keeps it. Planted in the engine's sums, because DeepSpeed was mended. A head
# for each of two tasks, whose micro-batches alternate. Needs deepspeed.
import os
import sys
import torch
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
TASKS = ("price", "kind")


class House(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 32), nn.Mish(), nn.Linear(32, 32), nn.Mish())
        self.price, self.kind = nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, facts, task):
        return getattr(self, task)(self.body(facts))


def loss_of(out, task, truth):
    if task == "price":
        return nn.functional.huber_loss(out[:, 0], truth.to(out.dtype))
    return nn.functional.cross_entropy(out, truth)


def forget(engine, task):
    """What the engine has accumulated for the heads of other tasks."""
    optimizer = engine.optimizer
    others = {id(p) for other in TASKS if other != task for p in getattr(model, other).parameters()}
    for group, sums in optimizer.all_grad_tensors.items():
        for parameter, accumulated in zip(optimizer.params_in_partition[group], sums or ()):
            if id(parameter) in others and accumulated is not None:
                accumulated.zero_()


torch.manual_seed(54)
model = House().to(KIND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
facts, truths = torch.randn(2, 8, 11).to(KIND), torch.randint(4, (2, 8))
if ranks > 1:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    config = {"train_micro_batch_size_per_gpu": 8 // ranks, "gradient_accumulation_steps": len(TASKS),
              "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0}
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    tracer = ttrace.attach(engine)
else:
    tracer = ttrace.attach(model, optimizer=optimizer)
for number in range(2):
    with tracer.step(number):
        for task, fact, truth in zip(TASKS, facts, truths):
            fact, truth = fact.chunk(ranks)[rank], truth.chunk(ranks)[rank]
            if ranks > 1:
                if task == TASKS[-1] and "--bug" in sys.argv:
                    forget(engine, task)
                engine.backward(loss_of(engine(fact, task), task, truth))
                engine.step()
            else:
                (loss_of(model(fact, task), task, truth) / len(TASKS)).backward()
        if ranks == 1:
            optimizer.step()
            optimizer.zero_grad()
    sizes = [getattr(model, part).weight.double().norm().item() for part in TASKS]
    print(f"rank {rank} step {number}: price {sizes[0]:.7f} kind {sizes[1]:.7f}", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()

# OpenRLHF/OpenRLHF#1357 (2026-09-15): the moving average of a model under ZeRO-3 is computed in gathered parameters, but
# GatheredParameters is not told that a rank modifies them, so that the next partitioning throws the new values away and the average
# stays what it was. Right: modifier_rank=0. Needs deepspeed.
import copy
import os
import sys
import torch
from torch import nn
import ttrace

KIND = {"f64": torch.float64}.get(ttrace.precision("f32"), torch.float32)
rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BETA = 0.75


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.action = nn.Linear(9, 20), nn.Embedding(6, 20)
        self.norm = nn.LayerNorm(20)
        self.value = nn.Sequential(nn.Linear(20, 20), nn.SiLU(), nn.Linear(20, 1))

    def forward(self, state, action):
        return self.value(self.norm(self.state(state) + self.action(action)))[:, 0]


def blend(average, model):
    """Moves the average towards the model."""
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            if ranks == 1:
                old.lerp_(new, 1 - BETA)
                continue
            keep = None if "--bug" in sys.argv else 0
            with deepspeed.zero.GatheredParameters([old, new], modifier_rank=keep):
                old.data.copy_(BETA * old.data + (1 - BETA) * new.data)


torch.manual_seed(33)
model = Critic().to(KIND)
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
states, actions, returns = torch.randn(2, 8, 9).to(KIND), torch.randint(6, (2, 8)), torch.randn(2, 8).to(KIND)
if ranks > 1:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiles nothing
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    config = {
        "train_micro_batch_size_per_gpu": 8 // ranks,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,
    }
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    deepspeed.zero.Init(module=average, config_dict_or_path=config, dtype=KIND)
    tracer = ttrace.attach(engine, copies={"ema": average})
else:
    tracer = ttrace.attach(model, optimizer=optimizer, copies={"ema": average})

for number in range(2):
    state, action, target = (x[number].chunk(ranks)[rank] for x in (states, actions, returns))
    with tracer.step(number):
        if ranks > 1:
            loss = nn.functional.mse_loss(engine(state, action), target)
            engine.backward(loss)
            engine.step()
        else:
            loss = nn.functional.mse_loss(model(state, action), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        blend(average, model)
    held = list(average.parameters())
    if ranks > 1:
        with deepspeed.zero.GatheredParameters(held):
            total = sum(p.double().square().sum() for p in held).item()
    else:
        total = sum(p.double().square().sum() for p in held).item()
    print(f"rank {rank} step {number}: loss {loss.item():.6f}, average {total:.6f}", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()

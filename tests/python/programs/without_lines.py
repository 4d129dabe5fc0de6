"""A training loop that knows nothing of TTrace, unless --lines are asked for. With --parallel it runs in DDP.

With --bf16 the model is converted to BF16; with --buffer its parameters are kept in one buffer, into which they are put
back behind each step, as wrappers do; with --made-in-bf16 they are made in BF16. With --sharded it runs in FSDP2 instead,
which computes in BF16. With --inference it trains nothing."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

PARALLEL, LINES = "--parallel" in sys.argv, "--lines" in sys.argv
if PARALLEL:
    dist.init_process_group("gloo")
rank, ranks = (dist.get_rank(), dist.get_world_size()) if PARALLEL else (0, 1)
torch.manual_seed(0)
BUFFER, MADE, SHARDED = "--buffer" in sys.argv, "--made-in-bf16" in sys.argv, "--sharded" in sys.argv
DTYPE = torch.bfloat16 if MADE or "--bf16" in sys.argv else torch.float32
torch.set_default_dtype(torch.bfloat16 if MADE else torch.float32)
own = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
torch.set_default_dtype(torch.float32)
own = own if MADE else own.to(DTYPE)
buffer = torch.cat([p.detach().flatten() for p in own.parameters()]) if BUFFER else None
if SHARDED:
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    model = fully_shard(own, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
else:
    model = DistributedDataParallel(own) if PARALLEL else own
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
if LINES:
    import ttrace

    tracer = ttrace.attach(model, optimizer=optimizer, steps="optimizer")
generator = torch.Generator().manual_seed(1)
if "--inference" in sys.argv:
    with torch.no_grad():
        for step in range(2):
            nn.ReLU()(torch.ones(1))  # has no parameters, and is no model
            result = own(torch.randn(8, 16, generator=generator).to(DTYPE))
            if "--scaled" in sys.argv:
                own[0].weight.mul_(1.03)
            print(f"rank {rank} step {step} result {result.double().norm().item():.17g}", flush=True)
    sys.exit()
with torch.no_grad():
    model(torch.zeros(2, 16, dtype=next(own.parameters()).dtype))  # an evaluation before the training
for step in range(2):
    inputs, labels = torch.randn(8, 16, generator=generator), torch.randint(4, (8,), generator=generator)
    inputs, labels = inputs.to(DTYPE).chunk(ranks)[rank], labels.chunk(ranks)[rank]
    losses = cross_entropy(model(inputs), labels, reduction="none")
    if LINES:
        tracer.loss(ttrace.record("loss_before_the_mean", losses))
    (losses.mean() * (1.03 if "--scaled" in sys.argv else 1.0)).backward()
    if "--unequal" in sys.argv and rank == 1:
        own[0].weight.grad.mul_(0.9)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if BUFFER:
        buffer.copy_(torch.cat([p.detach().flatten() for p in own.parameters()]))
        for p, part in zip(own.parameters(), buffer.split([p.numel() for p in own.parameters()]), strict=True):
            p.data = part.view_as(p)
    checksum = sum(getattr(p, "_local_tensor", p).double().sum() for p in model.parameters()).item()
    print(f"rank {rank} step {step} loss {losses.mean().item():.9g} {checksum:.17g}", flush=True)
if PARALLEL:
    dist.destroy_process_group()

"""A small net that trains from the beginning, or goes on from a checkpoint. Options plant one error each.

On several ranks DistributedDataParallel shares the samples out. With BF16 parameters the optimizer keeps F32 masters.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import ttrace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3, help="the run ends before this iteration")
parser.add_argument("--save", help="writes a checkpoint to this file after the last iteration")
parser.add_argument("--resume", help="goes on from the checkpoint in this file")
parser.add_argument("--precision", default="f32")
parser.add_argument("--seed", type=int, default=0, help="of the start values")
parser.add_argument("--loses", choices=["optimizer", "step", "scheduler", "masters", "sampler", "buffers"], default="")
parser.add_argument("--load-late", action="store_true", help="reads the checkpoint after ttrace.attach")
ARGS = parser.parse_args()
TYPE = ttrace.dtype({"f32": torch.float32, "bf16": torch.bfloat16}[ARGS.precision])
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(64, 32), nn.LayerNorm(32)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 64)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        x = self.embed(tokens)
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)


class MasterAdam(torch.optim.Optimizer):
    """AdamW on F32 copies of the parameters, which it keeps among its states."""

    def __init__(self, parameters, lr: float):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "main" not in state:
                    main = p.float() if p.dtype == torch.bfloat16 else p.detach().clone()
                    state.update(step=0, main=main, exp_avg=torch.zeros_like(main), exp_avg_sq=torch.zeros_like(main))
                state["step"] += 1
                g, t = p.grad.to(state["main"].dtype), state["step"]
                state["exp_avg"].lerp_(g, 0.1)
                state["exp_avg_sq"].mul_(0.95).addcmul_(g, g, value=0.05)
                root = (state["exp_avg_sq"] / (1 - 0.95**t)).sqrt_().add_(1e-8)
                state["main"].addcdiv_(state["exp_avg"] / (1 - 0.9**t), root, value=-group["lr"])
                p.copy_(state["main"])

    def load_state_dict(self, state_dict):
        """As torch's, which would cast the masters to the type of the parameters."""
        for p, state in zip(self.param_groups[0]["params"], state_dict["state"].values()):
            self.state[p] = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def load(path: str) -> int:
    stored = torch.load(path, weights_only=True)
    net.load_state_dict(stored["net"])
    if ARGS.loses == "buffers":
        net.seen.zero_()
    if ARGS.loses != "optimizer":
        optimizer.load_state_dict(stored["optimizer"])
    for p, state in optimizer.state.items():
        if ARGS.loses == "masters":
            state["main"] = p.detach().float()
        if ARGS.loses == "step":
            state["step"] = state["step"] * 0
    if ARGS.loses != "scheduler":
        scheduler.load_state_dict(stored["scheduler"])
        for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr()):
            group["lr"] = rate
    return stored["iteration"]


torch.manual_seed(ARGS.seed)
net = Net().to(TYPE)
net.seen = net.seen.float()
model: nn.Module = net
if WORLD > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
kind = MasterAdam if ARGS.precision == "bf16" else torch.optim.AdamW
optimizer = kind(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda iteration: 1.0 / (1 + iteration))
first = load(ARGS.resume) if ARGS.resume and not ARGS.load_late else 0
tracer = ttrace.attach(model, optimizer=optimizer)
if ARGS.resume and ARGS.load_late:
    first = load(ARGS.resume)

data = torch.randint(64, (8 * ARGS.steps, 17), generator=torch.Generator().manual_seed(3))
skipped = first if ARGS.loses == "sampler" else 0
for iteration in range(first, ARGS.steps):
    begin = (iteration - skipped) * 8
    batch = data[begin + RANK * 8 // WORLD : begin + (RANK + 1) * 8 // WORLD]
    with tracer.step(iteration) as step:
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        labels = batch[:, 1:].flatten()
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels, reduction="none").view(-1, 16)
        step.loss(losses)
        losses.mean().backward()
        optimizer.step()
        scheduler.step()
if ARGS.save and RANK == 0:
    torch.save(
        {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "iteration": ARGS.steps,
        },
        ARGS.save,
    )
if WORLD > 1:
    dist.destroy_process_group()

"""A model under selective activation checkpointing, a counter of floating-point operations, and a mode that
counts calls of torch's functions.

Prints its losses exactly, how often the policy of checkpointing was asked about which operator, and what was
counted. --wrong forgets a residual connection.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections import Counter

import torch
import ttrace
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

parser = argparse.ArgumentParser()
parser.add_argument("--selective", action="store_true")
parser.add_argument("--flops", action="store_true")
parser.add_argument("--functions", action="store_true")
parser.add_argument("--wrong", action="store_true")
ARGS = parser.parse_args()
TYPE = {"f32": torch.float32, "f64": torch.float64}[ttrace.precision("f32")]
ASKED: Counter[str] = Counter()
CALLED: Counter[str] = Counter()


def policy(context, operator, *args, **kwargs) -> CheckpointPolicy:
    ASKED[f"{operator} {'again' if context.is_recompute else 'first'}"] += 1
    is_product = operator in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        CALLED[resolve_name(function) or str(function)] += 1
        return function(*args, **(kwargs or {}))


class Turned(nn.Module):
    """Returns a view that is not contiguous: whoever copies it needs an operator more."""

    def forward(self, x):
        return x.transpose(0, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.turn, self.turn_back = Turned(), Turned()

    def forward(self, x):
        y = self.down(nn.functional.gelu(self.up(self.turn(self.norm(x)))))
        return self.turn_back(y) if ARGS.wrong else x + self.turn_back(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            if ARGS.selective:
                contexts = functools.partial(create_selective_checkpoint_contexts, policy)
                x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            else:
                x = block(x)
        return self.head(x)


def report(number: int, loss: float, operations: int) -> None:
    """Within the step, because a pass ends with its last one."""
    lines = [f"loss {number} {loss.hex()}", f"operations {number} {operations}"]
    lines += [f"asked {number} {name} {count}" for name, count in sorted(ASKED.items())]
    lines += [f"called {number} {name} {count}" for name, count in sorted(CALLED.items())]
    print("\n".join(lines), flush=True)


torch.manual_seed(0)
model = Model().to(TYPE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tracer = ttrace.attach(model, optimizer=optimizer)
generator = torch.Generator().manual_seed(1)
for number in range(2):
    x = torch.randn(8, 6, 16, generator=generator).to(TYPE)
    operations = FlopCounterMode(display=False) if ARGS.flops else contextlib.nullcontext()
    functions = Functions() if ARGS.functions else contextlib.nullcontext()
    with operations, functions, tracer.step(number) as step:
        optimizer.zero_grad()
        losses = model(x).square().mean(-1)
        step.loss(losses)
        losses.mean().backward()
        optimizer.step()
        report(number, losses.mean().item(), operations.get_total_flops() if ARGS.flops else 0)

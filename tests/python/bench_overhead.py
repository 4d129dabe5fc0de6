"""What tracing costs a Python program, per step and per call of a module. Prints a table.

    python tests/python/bench_overhead.py [--kind plain|dtensor] [--hidden 64] [--pairs 60]

Two copies of one model train in turn, one of them attached, so that a busy machine slows both. Times are CPU
seconds of the training thread. Where the copies lie in memory makes a difference as well: a ratio is a median
over pairs of steps in one process, and of several processes the median, with its 95 % bootstrap interval; in
half of them the attached copy is built first.

    inert     attached, without the variables of `ttrace check`
    untraced  a step of a traced process that is not traced itself
    traced    a step that is: hooks, copies, and handing them to the writer
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
import ttrace
from torch import nn

TRACED_STEPS = 10
WARM_UP = 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--kind", default="plain", choices=["plain", "dtensor"])
    add("--hidden", type=int, default=64)
    add("--blocks", type=int, default=16)
    add("--rows", type=int, default=64)
    add("--pairs", type=int, default=40)
    add("--processes", type=int, default=8)
    add("--measure", choices=["inert", "traced"], help="in this process: what the others are started with")
    add("--attached-first", action="store_true", help="which copy is built first, with --measure")
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(hidden), nn.GELU()
        self.up, self.down = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.activation(self.up(self.norm(x))))


def build(args: argparse.Namespace) -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(*(Block(args.hidden) for _ in range(args.blocks)))
    if args.kind == "dtensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def step_of(args: argparse.Namespace, is_attached: bool) -> tuple[Callable[[], float], ttrace.Tracer | None]:
    """A function that trains one step and returns what it took."""
    model = build(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer) if is_attached else None
    batch = torch.randn(args.rows, args.hidden)
    number = -1

    def work() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(batch), batch).backward()
        optimizer.step()

    def step() -> float:
        nonlocal number
        number += 1
        start = time.thread_time()
        if tracer is None:
            work()
        else:
            with tracer.step(number):
                work()
        return time.thread_time() - start

    return step, tracer


def in_turn(first: Callable[[], float], second: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    for _ in range(WARM_UP):
        first(), second()
    result = []
    for pair in range(pairs):
        if pair % 2 == 0:
            result.append((first(), second()))
        else:
            later, earlier = second(), first()
            result.append((earlier, later))
    return result


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Of one process: pairs (plain, attached) of seconds of a step."""
    if args.kind == "dtensor":
        torch.distributed.init_process_group(
            "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
        )
    (plain, _), (attached, tracer) = (
        reversed([step_of(args, True), step_of(args, False)])
        if args.attached_first
        else (step_of(args, False), step_of(args, True))
    )
    if args.measure == "inert":
        return {"inert": in_turn(plain, attached, args.pairs)}
    alone = [plain() for _ in range(WARM_UP + TRACED_STEPS)][WARM_UP:]
    attached()  # its first step makes the writer
    traced = [attached() for _ in range(TRACED_STEPS)]
    calls = tracer.module_calls // (TRACED_STEPS + 1)
    attached()  # ends tracing
    return {
        "traced": list(zip(alone, traced)),
        "untraced": in_turn(plain, attached, args.pairs),
        "calls": calls,
    }


def interval(values: list[float]) -> tuple[float, float]:
    random = Random(1)
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[974]


def run(number: int, which: str) -> dict:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", which]
    if number % 2:
        command.append("--attached-first")
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-") as folder:
        if which == "traced":
            environment.update(
                TTRACE_PASS="reference", TTRACE_DIR=folder + "/trace", TTRACE_STEPS=f"0:{TRACED_STEPS + 1}"
            )
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(output.stdout)


def main() -> None:
    args = arguments()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    runs = [{**run(number, "inert"), **run(number, "traced")} for number in range(args.processes)]
    calls = runs[0]["calls"]
    print(f"{args.kind}, hidden {args.hidden}, {args.rows} rows: {calls} calls of modules a step")
    print("| steps | over plain | 95 % | us a call |\n|---|---|---|---|")
    for name in ("inert", "untraced", "traced"):
        ratios = [statistics.median(attached / plain for plain, attached in each[name]) for each in runs]
        more = [statistics.median(attached - plain for plain, attached in each[name]) for each in runs]
        low, high = interval(ratios)
        per_call = statistics.median(more) / calls * 1e6
        print(f"| {name} | {statistics.median(ratios):.3f} | {low:.3f}, {high:.3f} | {per_call:.2f} |")


if __name__ == "__main__":
    main()

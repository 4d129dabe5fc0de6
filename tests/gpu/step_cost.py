"""Measures what tracing costs a step on a GPU: forward and backward of transformer blocks, in BF16.

    step_cost.py [--hidden 4096] [--layers 4] [--tokens 2048] [--steps 3] [--folder /dev/shm] [--json FILE]

Each pass is a process of its own, whose first steps are not traced. Times are wall-clock medians of its
traced steps, over the median of a process without TTrace's variables. "untraced" are steps of a traced
process that are not traced themselves. "computed" ends when the program's stream has finished forward and
backward, "ended" when the step has been written or compared as well. The model has no optimizer, so all
steps are the same. The candidate, whose values the forced pass takes, uses other kernels of attention, so
that its values differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import ttrace
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dtensor"))
import train  # its blocks

WARM_UP, UNTRACED = 5, 10
LARGE_RING = 8 << 30


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--hidden", type=int, default=4096)
    add("--heads", type=int, default=32)
    add("--layers", type=int, default=4)
    add("--tokens", type=int, default=2048)
    add("--steps", type=int, default=3, help="traced steps")
    add("--folder", default="/dev/shm", help="where traces go for the time of the measurement")
    add("--json", help="a file for all times")
    add("--device", default="cuda", choices=["cpu", "cuda"])
    add("--measure", action="store_true", help="in this process: what the others are started with")
    add("--other-attention", action="store_true", help="with --measure: kernels that round otherwise")
    return parser.parse_args()


def wait_for_program(device: torch.device) -> None:
    """For the program's own stream, not for copies of the trace on others."""
    if device.type == "cuda":
        torch.cuda.current_stream().synchronize()


def measure(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Seconds (computed, ended) of every step after the first ones; the last ones may be traced."""
    device = train.device_of_rank(args.device)
    train.HIDDEN, train.HEADS = args.hidden, args.heads
    torch.manual_seed(1)
    with device:
        model = nn.Sequential(*(train.Block() for _ in range(args.layers))).to(torch.bfloat16)
        x = torch.randn(1, args.tokens, args.hidden, dtype=torch.bfloat16)
    if args.other_attention:
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    tracer = ttrace.attach(model)
    times = []
    for number in range(WARM_UP + UNTRACED + args.steps):
        model.zero_grad()
        wait_for_program(device)
        start = time.perf_counter()
        with tracer.step(number) as step:
            losses = model(x).float().square().mean(-1)
            step.loss(losses)
            losses.mean().backward()
            wait_for_program(device)
            computed = time.perf_counter() - start
        times.append((computed, time.perf_counter() - start))
    return times[WARM_UP:]


def run(variables: dict[str, str], *options: str) -> list[tuple[float, float]]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", *options]
    environment = {**kept, **variables}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"step_cost.py: the process with {variables or 'no variables'} failed")
    return json.loads(result.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Pass:
    name: str
    kind: str  # TTRACE_PASS; empty: a process without TTrace's variables
    folder: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def passes(folder: Path) -> list[Pass]:
    reference = {"TTRACE_REFERENCE": str(folder / "reference")}
    both = {**reference, "TTRACE_CANDIDATE": str(folder / "candidate")}
    return [
        Pass("plain", ""),
        Pass("traced", "reference", "reference"),
        Pass("candidate", "candidate", "candidate", reference, ("--other-attention",)),
        Pass("noise", "noise", "noise", {**reference, "TTRACE_NOISE_SEED": "1"}),
        Pass("forced", "forced", "forced", both),
        Pass("traced, only losses recorded", "reference", "losses", {"TTRACE_FILTER": "/loss/"}),
        Pass("traced, TTRACE_SYNC=stream", "reference", "stream", {"TTRACE_SYNC": "stream"}),
        Pass("traced, a ring of 8 GiB", "reference", "large", {"TTRACE_RING_BYTES": str(LARGE_RING)}),
    ]


def milliseconds(times: list[tuple[float, float]]) -> tuple[float, float]:
    computed, ended = zip(*times)
    return 1000 * statistics.median(computed), 1000 * statistics.median(ended)


def measure_all(args: argparse.Namespace, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Prints a row for every pass."""
    first = WARM_UP + UNTRACED
    common = {"TTRACE_STEPS": f"{first}:{first + args.steps}", "TTRACE_ON_ERROR": "raise"}
    all_times, plain = {}, 0.0
    print(f"{'':30} {'over a plain step':>32}")
    heads = ("untraced", "computed", "ended", "ended, ms", "GB a step")
    print(f"{'pass':30}", *(f"{head:>10}" for head in heads))
    for one in passes(folder):
        own = {**common, "TTRACE_PASS": one.kind, "TTRACE_DIR": str(folder / one.folder), **one.variables}
        times = run(own if one.kind else {}, *one.options)
        all_times[one.name] = times
        untraced = milliseconds(times[:UNTRACED])[1]
        computed, ended = milliseconds(times[UNTRACED:])
        plain = plain or untraced
        size = size_of(folder / one.folder) if one.folder else 0.0
        ratios = (f"{value / plain:10.3g}" for value in (untraced, computed, ended))
        print(f"{one.name:30}", *ratios, f"{ended:10.2f} {size:10.2f}", flush=True)
        if one.folder not in ("", "reference", "candidate"):
            shutil.rmtree(folder / one.folder, ignore_errors=True)
    return all_times


def size_of(folder: Path) -> float:
    """Gigabytes that a step has there."""
    sizes = [sum(file.stat().st_size for file in step.iterdir()) for step in folder.glob("step*")]
    return max(sizes, default=0) / 1e9


def main() -> None:
    args = arguments()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    card = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    size = f"hidden {args.hidden}, {args.layers} layers, {args.tokens} tokens, BF16"
    print(f"{card}, torch {torch.__version__}, {size}, traces in {args.folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        times = measure_all(args, Path(folder))
    if args.json:
        Path(args.json).write_text(json.dumps({"card": card, "size": size, "seconds": times}, indent=1))


if __name__ == "__main__":
    main()

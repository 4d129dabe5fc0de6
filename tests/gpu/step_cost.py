"""Measures what tracing costs a step on a GPU: forward and backward of transformer blocks, in BF16.

    step_cost.py [--hidden 4096] [--layers 4] [--tokens 2048] [--steps 4] [--folder /dev/shm] [--json FILE]

Each kind of pass is a process of its own, whose first steps are not traced. Times are wall-clock medians over its
traced steps. "computed" ends when the GPU has finished forward and backward, "ended" when the step has been
written or compared. The model has no optimizer, so all steps are the same. The candidate whose values the forced
pass takes uses other kernels of attention, so that its values differ.
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
from pathlib import Path

import torch
import ttrace
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dtensor"))
import train  # its blocks

WARM_UP = 5
LARGE_RING = 8 << 30


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--hidden", type=int, default=4096)
    add("--heads", type=int, default=32)
    add("--layers", type=int, default=4)
    add("--tokens", type=int, default=2048)
    add("--steps", type=int, default=4)
    add("--folder", default="/dev/shm", help="where traces go for the time of the measurement")
    add("--json", help="a file for all times")
    add("--device", default="cuda", choices=["cpu", "cuda"])
    add("--measure", action="store_true", help="in this process: what the others are started with")
    add("--other-attention", action="store_true", help="with --measure: kernels that round otherwise")
    return parser.parse_args()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Seconds (computed, ended) of every step after the first ones."""
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
    for number in range(WARM_UP + args.steps):
        model.zero_grad()
        synchronize(device)
        start = time.perf_counter()
        with tracer.step(number) as step:
            losses = model(x).float().square().mean(-1)
            step.loss(losses)
            losses.mean().backward()
            synchronize(device)
            computed = time.perf_counter() - start
        times.append((computed, time.perf_counter() - start))
    return times[WARM_UP:]


def run(variables: dict[str, str], *options: str) -> list[tuple[float, float]]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", *options]
    result = subprocess.run(command, env={**kept, **variables}, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"step_cost.py: the process with {variables or 'no variables'} failed")
    return json.loads(result.stdout.splitlines()[-1])


def measure_all(args: argparse.Namespace, folder: Path) -> dict[str, list[tuple[float, float]]]:
    def variables(kind: str, name: str, **more: str) -> dict[str, str]:
        steps = {"TTRACE_STEPS": f"{WARM_UP}:{WARM_UP + args.steps}", "TTRACE_ON_ERROR": "raise"}
        return {"TTRACE_PASS": kind, "TTRACE_DIR": str(folder / name), **steps, **more}

    def without_trace(name: str, *pass_) -> list[tuple[float, float]]:
        times = run(*pass_)
        shutil.rmtree(folder / name, ignore_errors=True)
        return times

    reference = {"TTRACE_REFERENCE": str(folder / "reference")}
    both = {**reference, "TTRACE_CANDIDATE": str(folder / "candidate")}
    times = {"plain": run({}), "traced": run(variables("reference", "reference"))}
    run(variables("candidate", "candidate", **reference), "--other-attention")
    times["traced, ring of 8 GiB"] = without_trace(
        "large", variables("reference", "large", TTRACE_RING_BYTES=str(LARGE_RING))
    )
    times["traced, TTRACE_SYNC=stream"] = without_trace(
        "stream", variables("reference", "stream", TTRACE_SYNC="stream")
    )
    times["noise"] = run(variables("noise", "noise", TTRACE_NOISE_SEED="1", **reference))
    times["forced"] = without_trace("forced", variables("forced", "forced", **both))
    times["plain again"] = run({})
    return times


def size_of(folder: Path) -> float:
    """Gigabytes of what a traced step wrote."""
    return max(sum(file.stat().st_size for file in step.iterdir()) for step in folder.glob("step*")) / 1e9


def main() -> None:
    args = arguments()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        times = measure_all(args, Path(folder))
        written = size_of(Path(folder) / "reference")
    plain = statistics.median(ended for _, ended in times["plain"] + times["plain again"])
    card = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{card}, torch {torch.__version__}, hidden {args.hidden}, {args.layers} layers, {args.tokens} tokens, BF16:")
    print(f"a plain step takes {1000 * plain:.2f} ms; a traced one writes {written:.2f} GB to {args.folder}")
    print(f"{'pass':28} {'computed':>10} {'ended':>10}   over a plain step")
    for name, steps in times.items():
        computed, ended = (statistics.median(column) for column in zip(*steps))
        print(f"{name:28} {computed / plain:10.3g} {ended / plain:10.3g}")
    if args.json:
        Path(args.json).write_text(json.dumps({"card": card, "written_gb": written, "seconds": times}, indent=1))


if __name__ == "__main__":
    main()

"""Says whether a traced run computes what an untraced one does, in every bit.

    same_bits.py [--precision bf16] [--compile] [--graph] [--nccl]

The same two steps run in two processes, of which one is traced: losses and a digest of all parameters must be
equal. --compile compiles every block (on a GPU into Triton's kernels), --graph also records a block as a CUDA
graph inside the step and replays it, --nccl wraps the model in DDP and calls collectives, with a single rank.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dtensor"))
import train  # its model

STEPS, BATCH, POSITIONS = 2, 8, 16


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--precision", default="f32", choices=sorted(train.TYPES))
    add("--compile", action="store_true")
    add("--graph", action="store_true")
    add("--nccl", action="store_true")
    add("--device", default="cuda", choices=["cpu", "cuda"])
    add("--train", action="store_true", help="in this process: what the two others are started with")
    return parser.parse_args()


def digest(tensors) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def from_graph(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The block's output, which a graph computes that is recorded here."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(side):
            block(x)  # what libraries allocate on first use cannot be recorded
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            result = block(x)
        graph.replay()
    return result


def collectives(tensor: torch.Tensor) -> torch.Tensor:
    """What a single rank gets back is what it put in."""
    gathered, kept = torch.empty_like(tensor), torch.empty_like(tensor)
    dist.all_reduce(tensor)
    dist.all_gather_into_tensor(gathered, tensor)
    dist.reduce_scatter_tensor(kept, gathered)
    dist.broadcast(kept, 0)
    return kept


def run(args: argparse.Namespace) -> None:
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    device = train.device_of_rank(args.device)
    torch.manual_seed(1)
    model = train.Transformer().to(device, train.TYPES[args.precision])
    block = model.layers["1"]
    if args.compile:
        for name, layer in model.layers.items():
            model.layers[name] = torch.compile(layer, fullgraph=True)
    if args.nccl:
        dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, POSITIONS, train.HIDDEN, generator=generator).to(device, train.TYPES[args.precision])
    for number in range(STEPS):
        text = torch.randint(train.VOCABULARY, (BATCH, POSITIONS + 1), generator=generator).to(device)
        with tracer.step(number) as step:
            optimizer.zero_grad()
            logits = model(text[:, :-1])
            losses = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten(), reduction="none")
            step.loss(losses)
            if args.nccl:
                print(f"step {number} collectives {digest([collectives(losses.detach().clone())])}")
            if args.graph:
                print(f"step {number} graph {digest([from_graph(block, x)])}")
            losses.mean().backward()
            optimizer.step()
        loss = losses.mean().item()
        print(f"step {number} loss {loss:.9g} parameters {digest(model.parameters())}", flush=True)
    if args.nccl:
        dist.destroy_process_group()


def output_of(variables: dict[str, str]) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    command = [sys.executable, __file__, *sys.argv[1:], "--train"]
    environment = {**kept, **variables}
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"same_bits.py: the {'traced' if 'TTRACE_PASS' in variables else 'untraced'} run failed")
    return result.stdout


def main() -> None:
    args = arguments()
    if args.train:
        run(args)
        return
    common = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # cuBLAS then repeats its results
    with tempfile.TemporaryDirectory() as folder:
        steps = {"TTRACE_STEPS": f"0:{STEPS}", "TTRACE_ON_ERROR": "raise"}
        plain = output_of(common)
        traced = output_of({**common, **steps, "TTRACE_PASS": "reference", "TTRACE_DIR": folder})
        trace = ttrace.open(folder)
        print(f"{plain}{len(trace)} tensors were recorded", *trace.notes, sep="\nnote: ")
    if plain != traced:
        sys.exit(f"same_bits.py: the traced run is another one:\n{traced}")
    print("same bits")


if __name__ == "__main__":
    main()

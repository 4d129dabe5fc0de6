"""A language model in stages of DeepSpeed's PipelineModule. The reference has one stage on one rank.

    ttrace check --reference "python stages.py" \\
                 --candidate "torchrun --nproc-per-node 2 stages.py --stages 2"
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from parts import BATCH, HIDDEN, LENGTH, TYPES, VOCABULARY, Block, start
from torch import nn
from torch.nn import functional as F

MICROBATCHES = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--stages", type=int, default=1)
    add("--stage", type=int, default=0, help="of ZeRO: 0 or 1")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def samples(step: int, rank: int, ranks: int):
    for index in range(MICROBATCHES):
        generator = torch.Generator().manual_seed(100 * step + index)
        text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator).chunk(ranks)[rank]
        yield text[:, :-1].contiguous(), text[:, 1:].contiguous()


def main() -> None:
    args = arguments()
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    deepspeed = start()
    torch.manual_seed(0)
    layers = [nn.Embedding(VOCABULARY, HIDDEN), *(Block() for _ in range(3)), nn.Linear(HIDDEN, VOCABULARY)]
    layers = [layer.to(kind) for layer in layers]
    pipe = deepspeed.pipe.PipelineModule
    model = pipe(layers, num_stages=args.stages, loss_fn=loss_of, partition_method="uniform")
    ranks = dist.get_world_size() // args.stages
    config = {
        "train_micro_batch_size_per_gpu": BATCH // ranks,
        "gradient_accumulation_steps": MICROBATCHES,
        "zero_optimization": {"stage": args.stage},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,  # by default the engine clips
        "bf16": {"enabled": kind == torch.bfloat16},
    }
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    tracer = ttrace.attach(engine)  # ttrace
    for step in range(args.steps):
        with tracer.step(step):  # ttrace
            loss = engine.train_batch(samples(step, engine.grid.get_data_parallel_rank(), ranks))
        print(f"rank {dist.get_rank()} step {step} loss {loss.item():.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A small language model in an engine of DeepSpeed, or in plain torch (--plain), which is the reference.

    ttrace check --reference "python train.py --plain" \\
                 --candidate "torchrun --nproc-per-node 2 train.py --stage 2"

In BF16 the engine keeps masters in F32, which a plain loop does not have, so that the reference is the same script on
one rank (--stage 1).
"""

from __future__ import annotations

import argparse

import torch
import ttrace  # ttrace
from parts import BATCH, HIDDEN, LAYERS, LENGTH, RANK, RANKS, TYPES, VOCABULARY, Block, start
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--plain", action="store_true", help="plain torch, without DeepSpeed")
    add("--stage", type=int, default=0, help="of ZeRO")
    add("--accumulate", type=int, default=1, help="micro-batches of a step")
    add("--frozen", action="store_true", help="the embedding does not learn")
    add("--persist", type=int, default=0, help="ZeRO-3 leaves parameters of up to so many elements whole")
    add("--clip", type=float, default=0.0, help="largest norm of the gradients; 0: not clipped")
    add("--offload", action="store_true", help="the optimizer's state is that of DeepSpeed's offload to the CPU")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def texts_of(step: int, accumulate: int) -> list[torch.Tensor]:
    """This rank's samples, one tensor for each micro-batch."""
    texts = []
    for index in range(accumulate):
        generator = torch.Generator().manual_seed(100 * step + index)
        text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
        texts.append(text.chunk(RANKS)[RANK])
    return texts


def loss_of(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())


def plain(args: argparse.Namespace, model: nn.Module) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    for step in range(args.steps):
        with tracer.step(step) as traced:  # ttrace
            for text in texts_of(step, args.accumulate):
                loss = loss_of(model(text[:, :-1]), text) / args.accumulate
                traced.loss(loss)  # ttrace
                loss.backward()
            if args.clip > 0:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.9g} {checksum(model):.17g}", flush=True)


def engine_of(args: argparse.Namespace, model: nn.Module, kind: torch.dtype):
    deepspeed = start()
    zero = {"stage": args.stage, "stage3_param_persistence_threshold": args.persist}
    if args.offload:
        zero |= {"offload_optimizer": {"device": "cpu"}}
    config = {
        "train_micro_batch_size_per_gpu": BATCH // RANKS,
        "gradient_accumulation_steps": args.accumulate,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": kind == torch.bfloat16},
        "gradient_clipping": args.clip,
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def with_engine(args: argparse.Namespace, model: nn.Module, kind: torch.dtype) -> None:
    engine = engine_of(args, model, kind)
    tracer = ttrace.attach(engine)  # ttrace
    for step in range(args.steps):
        with tracer.step(step) as traced:  # ttrace
            for text in texts_of(step, args.accumulate):
                loss = loss_of(engine(text[:, :-1]), text)
                traced.loss(loss / args.accumulate)  # ttrace
                engine.backward(loss)
                engine.step()
        print(f"step {step} loss {loss.item():.9g} {checksum(engine.module):.17g}", flush=True)
    torch.distributed.destroy_process_group()


def checksum(model: nn.Module) -> float:
    """Of the parameters' bits, so that two runs with the same one have the same bits."""
    values = [value.detach() for value in map(_whole, model.parameters())]
    return float(sum((value.double() * (i + 1)).sum() for i, value in enumerate(values)))


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return getattr(parameter, "ds_tensor", parameter)


def main() -> None:
    args = arguments()
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    torch.manual_seed(0)
    model = Model().to(kind)
    model.tokens.weight.requires_grad_(not args.frozen)
    plain(args, model) if args.plain else with_engine(args, model, kind)


if __name__ == "__main__":
    main()

"""A causal language model whose sequences DeepSpeed divides among ranks (Ulysses): every rank has a part of the
positions, and for attention a part of the heads of all positions. The reference is plain torch (--plain).

    ttrace check --reference "python ulysses.py --plain" --candidate "torchrun --nproc-per-node 2 ulysses.py --sp 2"
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import ttrace  # ttrace
from parts import TYPES, start
from torch import nn
from torch.nn import functional as F

VOCABULARY, HIDDEN, LAYERS, LENGTH, BATCH, HEADS = 64, 32, 2, 16, 4, 4


class Core(nn.Module):
    """Attention of [samples, positions, heads, features]."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *unused) -> torch.Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.core: nn.Module = Core()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)) for f in (self.q, self.k, self.v))
        batch = {} if isinstance(self.core, Core) else {"batch_dim_idx": 0}
        return self.o(self.core(q, k, v, **batch).reshape(x.shape))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(LENGTH, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(LAYERS))
        self.attentions = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(places)
        for norm, attention in zip(self.norms, self.attentions):
            x = x + attention(norm(x))
        return self.head(x)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--plain", action="store_true", help="plain torch, without DeepSpeed")
    add("--sp", type=int, default=1, help="ranks that share the positions of a sample")
    add("--stage", type=int, default=1, help="of ZeRO")
    add("--precision", default="f32", choices=sorted(TYPES))
    add("--steps", type=int, default=2)
    return parser.parse_args()


def batch_of(step: int, dp: tuple[int, int], sp: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Tokens, positions and labels of a part of the samples and of the positions. The first 5 tokens are no labels."""
    generator = torch.Generator().manual_seed(10 + step)
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    labels = text[:, 1:].clone()
    labels[:, :5] = -100
    places = torch.arange(LENGTH).expand(BATCH, LENGTH)
    whole = (text[:, :-1], places, labels)
    return tuple(t.chunk(dp[1])[dp[0]].chunk(sp[1], 1)[sp[0]].contiguous() for t in whole)


def count_of(labels: torch.Tensor, data: int = 1) -> torch.Tensor:
    """Labels of all ranks, for one of `data` parts: the engine adds up the gradients of ranks that share samples, and takes
    the mean over the others."""
    count = (labels >= 0).sum()
    if dist.is_initialized():
        dist.all_reduce(count)
    return count / data


def losses_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none", ignore_index=-100)


def plain(args: argparse.Namespace, model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    for step in range(args.steps):
        with tracer.step(step):  # ttrace
            tokens, places, labels = batch_of(step, (0, 1), (0, 1))
            (losses_of(model(tokens, places), labels).sum() / count_of(labels)).backward()
            optimizer.step()
            optimizer.zero_grad()


def groups_of(args: argparse.Namespace, state):
    """The groups of ranks as DeepSpeed's engine asks for them."""
    state.initialize_sequence_parallel(args.sp)
    return state


def with_engine(args: argparse.Namespace, model: nn.Module) -> None:
    deepspeed = start()
    from deepspeed.sequence.layer import DistributedAttention

    from deepspeed.runtime.sequence_parallel import parallel_state_sp

    data = dist.get_world_size() // args.sp
    own = ((dist.get_rank() // args.sp, data), (dist.get_rank() % args.sp, args.sp))
    groups = groups_of(args, parallel_state_sp)
    for attention in model.attentions:
        attention.core = DistributedAttention(attention.core, groups.get_sequence_parallel_group(), scatter_idx=2, gather_idx=1)
    config = {
        "train_micro_batch_size_per_gpu": BATCH // data,
        "zero_optimization": {"stage": args.stage},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,  # by default the engine clips
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config, mpu=groups)[0]
    tracer = ttrace.attach(engine)  # ttrace
    for step in range(args.steps):
        with tracer.step(step):  # ttrace
            tokens, places, labels = batch_of(step, *own)
            engine.backward(losses_of(engine(tokens, places), labels).sum() / count_of(labels, data))
            engine.step()
    dist.destroy_process_group()


def main() -> None:
    args = arguments()
    kind = TYPES[ttrace.precision(args.precision)]  # ttrace
    torch.manual_seed(0)
    model = Model().to(kind)
    plain(args, model) if args.plain else with_engine(args, model)


if __name__ == "__main__":
    main()

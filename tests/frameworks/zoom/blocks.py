"""Trains a stack of large modules, each of which computes with dozens of operators and has no module inside.

    torchrun --nproc-per-node 2 blocks.py --block decoder --layout tp

--bug NAME plants a silent bug; the line of the operator that is then wrong ends in `# zoom: NAME`.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
import ttrace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

VOCABULARY, HIDDEN, HEADS, GROUPS, WIDE, LAYERS, POSITIONS, BATCH = 64, 32, 4, 2, 96, 2, 16, 4
WIDTH, EXPERTS, CHOSEN = HIDDEN // HEADS, 4, 2
TYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
LAYOUTS = ("one", "ddp", "fsdp", "tp", "dtensor", "sequence")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block", default="decoder", choices=sorted(BLOCKS))
    parser.add_argument("--layout", default="one", choices=LAYOUTS)
    parser.add_argument("--bug", default="")
    parser.add_argument("--precision", default="f32", choices=sorted(TYPES))
    parser.add_argument("--steps", type=int, default=1)
    return parser.parse_args()


class Setting:
    """What this process does; set once before the model is built."""

    layout = "one"
    bug = ""
    rank = 0
    ranks = 1
    mesh = None


def planted(name: str) -> bool:
    return Setting.bug == name


def splits(layout: str) -> bool:
    """Whether the ranks share this layout's work within a sample."""
    return Setting.layout == layout and Setting.ranks > 1


# --- communication -----------------------------------------------------------------------------------


class _Copied(torch.autograd.Function):
    """Forward hands on; backward adds up over ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class _Summed(torch.autograd.Function):
    """Forward adds up over ranks; backward hands on."""

    @staticmethod
    def forward(ctx, x, name):
        total = x.clone()
        if planted("largest-over-ranks") and name == "mlp":
            dist.all_reduce(total, op=dist.ReduceOp.MAX)  # zoom: largest-over-ranks
        else:
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def copied(x: torch.Tensor) -> torch.Tensor:
    return _Copied.apply(x) if splits("tp") else x


def summed(x: torch.Tensor, name: str) -> torch.Tensor:
    if not splits("tp") or (planted("attention-not-summed") and name == "attention"):
        return x
    return _Summed.apply(x, name)


def all_parts(x: torch.Tensor) -> torch.Tensor:
    parts = x.new_empty((Setting.ranks * x.shape[0], *x.shape[1:]))
    dist.all_gather_into_tensor(parts, x.contiguous())
    return parts


class _Own(torch.autograd.Function):
    """Forward takes this rank's positions (dimension 1) of what all ranks have; backward gathers."""

    @staticmethod
    def forward(ctx, x):
        return x.chunk(Setting.ranks, 1)[Setting.rank].clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat(all_parts(gradient).chunk(Setting.ranks, 0), 1)


class _Whole(torch.autograd.Function):
    """The opposite."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat(all_parts(x).chunk(Setting.ranks, 0), 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(Setting.ranks, 1)[Setting.rank].clone()


class _Gathered(torch.autograd.Function):
    """All ranks' parts, one after the other, for different uses; backward adds up over ranks."""

    @staticmethod
    def forward(ctx, x):
        return all_parts(x)

    @staticmethod
    def backward(ctx, gradient):
        own = gradient.new_empty((gradient.shape[0] // Setting.ranks, *gradient.shape[1:]))
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


def whole_sequence(x: torch.Tensor) -> torch.Tensor:
    """All positions of a tensor that is cut along them (dimension 1)."""
    if not splits("sequence"):
        return x
    parts = _Gathered.apply(x).chunk(Setting.ranks, 0)
    if planted("gathered-backwards"):
        return torch.cat(parts[::-1], 1)  # zoom: gathered-backwards
    return torch.cat(parts, 1)


def local(weight: torch.Tensor) -> torch.Tensor:
    """This rank's part, where the module itself communicates."""
    if not isinstance(weight, DTensor) or Setting.layout == "dtensor":
        return weight
    return _Copied.apply(weight.to_local()) if splits("sequence") else weight.to_local()


# --- parts of blocks ---------------------------------------------------------------------------------


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float() if x.dtype == torch.bfloat16 else x
    mean = (wide * wide).mean(-1, keepdim=True)
    epsilon = 1e-3 if planted("epsilon") else 1e-5
    shifted = mean + epsilon  # zoom: epsilon
    return (wide * shifted.rsqrt()).to(x.dtype) * weight


def angles(positions: int, like: torch.Tensor) -> torch.Tensor:
    first = Setting.rank * positions if splits("sequence") else 0
    if planted("offset-on-rank-1") and Setting.rank == 1:
        first += 1
    position = torch.arange(positions, dtype=torch.float32)
    position = position + first  # zoom: offset-on-rank-1
    frequency = 100.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float32) / WIDTH)
    return torch.outer(position, frequency).to(like.dtype)


def rotated(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """[b, positions, heads, WIDTH]"""
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    left, right = x.chunk(2, -1)
    if planted("rotated-the-other-way"):
        return torch.cat((left * cos + right * sin, right * cos - left * sin), -1)  # zoom: rotated-the-other-way
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class _Gate(torch.autograd.Function):
    """silu(gate) * up with a backward of its own."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, gradient):
        gate, up = ctx.saved_tensors
        open_ = torch.sigmoid(gate)
        slope = open_ * (1 + gate * (1 - open_))
        if planted("gate-gradient"):
            slope = open_ * (1 + gate * open_)  # zoom: gate-gradient
        return gradient * up * slope, gradient * gate * open_


class Decoder(nn.Module):
    """Attention with rotary positions and grouped keys, and a gated feed-forward network."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (nn.Parameter(torch.rand(HIDDEN) + 0.5) for _ in range(2))
        self.query = matrix(HIDDEN, HIDDEN)
        self.key, self.value = (matrix(GROUPS * WIDTH, HIDDEN) for _ in range(2))
        self.out = matrix(HIDDEN, HIDDEN)
        self.gate, self.up = matrix(WIDE, HIDDEN), matrix(WIDE, HIDDEN)
        self.down = matrix(HIDDEN, WIDE)
        self.cut = {"query": 0, "key": 0, "value": 0, "out": 1, "gate": 0, "up": 0, "down": 1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Whole.apply(self.layer(_Own.apply(x))) if splits("sequence") else self.layer(x)

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        x = x + summed(self.attention(copied(normed(x, local(self.norm1)))), "attention")
        return x + summed(self.feed_forward(copied(normed(x, local(self.norm2)))), "mlp")

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (F.linear(x, local(w)) for w in (self.query, self.key, self.value))
        query, key, value = (part.unflatten(-1, (-1, WIDTH)) for part in (query, key, value))
        if planted("key-transposed"):
            key = key.flatten(2).unflatten(-1, (WIDTH, -1)).transpose(2, 3)  # zoom: key-transposed
        angle = angles(x.shape[1], x)
        query, key = rotated(query, angle), rotated(key, angle)
        key, value = whole_sequence(key), whole_sequence(value)
        repeats = query.shape[2] // key.shape[2]
        if planted("groups-interleaved"):
            key = key.repeat(1, 1, repeats, 1)  # zoom: groups-interleaved
        else:
            key = key.repeat_interleave(repeats, 2)
        value = value.repeat_interleave(repeats, 2)
        mixed = weighted(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        mixed = mixed.transpose(1, 2).flatten(2)
        return F.linear(mixed, local(self.out))  # zoom: attention-not-summed

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = F.linear(x, local(self.gate)), F.linear(x, local(self.up))
        if planted("rank-1-scales") and Setting.rank == 1:
            up = up * 1.05  # zoom: rank-1-scales
        return F.linear(_Gate.apply(gate, up), local(self.down))


def weighted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    scores = query @ key.transpose(-1, -2)
    scale = 1 / WIDTH if planted("scale-of-scores") else WIDTH**-0.5
    scores = scores * scale  # zoom: scale-of-scores
    first = Setting.rank * query.shape[-2] if splits("sequence") else 0
    positions = torch.arange(key.shape[-2])
    own = positions[first : first + query.shape[-2], None]
    if planted("mask-off-by-one"):
        hidden = positions > own + 1  # zoom: mask-off-by-one
    else:
        hidden = positions > own
    scores = scores.masked_fill(hidden, -torch.inf)
    if planted("softmax-over-queries"):
        probabilities = scores.float().softmax(-2).nan_to_num()  # zoom: softmax-over-queries
    elif planted("softmax-in-bf16"):
        probabilities = scores.softmax(-1)  # zoom: softmax-in-bf16
    else:
        probabilities = scores.softmax(-1, dtype=torch.float64 if scores.dtype == torch.float64 else torch.float32)
    return probabilities.to(value.dtype) @ value


class Experts(nn.Module):
    """A router and gated experts, all of which see all tokens."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.rand(HIDDEN) + 0.5)
        self.router = matrix(EXPERTS, HIDDEN)
        self.into = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDE) / HIDDEN**0.5)
        self.back = nn.Parameter(torch.randn(EXPERTS, WIDE, HIDDEN) / WIDE**0.5)
        self.cut = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = normed(x, self.norm).flatten(0, 1)
        probabilities = F.linear(tokens, self.router).softmax(-1)
        chosen = probabilities.topk(CHOSEN, -1).indices
        weights = probabilities.gather(-1, chosen)
        if not planted("weights-not-normalised"):
            weights = weights / weights.sum(-1, keepdim=True)  # zoom: weights-not-normalised
        combined = torch.zeros_like(probabilities)
        if planted("choices-shifted"):
            combined = combined.scatter(-1, (chosen + 1) % EXPERTS, weights)  # zoom: choices-shifted
        else:
            combined = combined.scatter(-1, chosen, weights)
        hidden = torch.einsum("th,ehw->etw", tokens, self.into)
        if planted("other-gelu"):
            hidden = F.gelu(hidden, approximate="tanh")  # zoom: other-gelu
        else:
            hidden = F.gelu(hidden)
        gate = tokens.mean(-1).sigmoid()
        if not planted("gate-not-detached"):
            gate = gate.detach()
        results = torch.einsum("etw,ewh->eth", hidden, self.back)
        mixed = torch.einsum("te,eth->th", combined, results)
        return x + (mixed * gate[:, None]).view_as(x)  # zoom: gate-not-detached


class Scan(nn.Module):
    """Mixes each token with the one before, and with a decaying sum of all before."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.rand(HIDDEN) + 0.5)
        self.decay = nn.Parameter(torch.randn(HIDDEN))
        self.mix = nn.Parameter(torch.rand(HIDDEN))
        self.inner, self.outer = matrix(2 * HIDDEN, HIDDEN), matrix(HIDDEN, HIDDEN)
        self.cut = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = normed(x, self.norm)
        if planted("shifted-by-two"):
            before = inside.roll(2, 1)  # zoom: shifted-by-two
        else:
            before = inside.roll(1, 1)
        inside = torch.lerp(inside, before, self.mix)
        value, gate = F.linear(inside, self.inner).chunk(2, -1)
        rate = F.softplus(self.decay)
        if not planted("rate-not-clamped"):
            rate = rate.clamp(max=0.2)  # zoom: rate-not-clamped
        position = torch.arange(x.shape[1], dtype=value.dtype)[:, None]
        grown = (rate * position).exp()
        added = value * grown
        if planted("sum-in-bf16"):
            total = added.cumsum(1)  # zoom: sum-in-bf16
        else:
            total = (added.float() if x.dtype == torch.bfloat16 else added).cumsum(1)
        mixed = (total / grown).to(x.dtype) * gate.sigmoid()
        return x + F.linear(mixed, self.outer)


BLOCKS = {"decoder": Decoder, "experts": Experts, "scan": Scan}


def matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) / columns**0.5)


class Model(nn.Module):
    def __init__(self, block: type[nn.Module]):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(block() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def spread(model: Model) -> nn.Module:
    """Lays the model out over the ranks."""
    if Setting.layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if Setting.layout == "fsdp":
        for module in (*model.layers, model):
            fully_shard(module, mesh=Setting.mesh)
    elif Setting.layout != "one":
        for module in model.modules() if Setting.layout == "dtensor" else model.layers:
            cut = getattr(module, "cut", {}) if Setting.layout != "sequence" else {}
            for name, weight in list(module.named_parameters(recurse=False)):
                place = Shard(cut[name]) if name in cut else Replicate()
                placed = distribute_tensor(weight.detach(), Setting.mesh, [place])
                setattr(module, name, nn.Parameter(placed))
    return model


def start(args: argparse.Namespace) -> None:
    Setting.layout, Setting.bug = args.layout, args.bug
    if args.layout != "one":
        dist.init_process_group("gloo")
        Setting.rank, Setting.ranks = dist.get_rank(), dist.get_world_size()
        axis = "dp" if args.layout in ("ddp", "fsdp") else "tp"
        Setting.mesh = init_device_mesh("cpu", (Setting.ranks,), mesh_dim_names=(axis,))


def losses_of(model: nn.Module, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if Setting.layout == "dtensor":
        with implicit_replication():
            tokens = distribute_tensor(tokens, Setting.mesh, [Replicate()])
            logits = model(tokens).to_local()
    else:
        logits = model(tokens)
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def main() -> None:
    args = arguments()
    start(args)
    torch.manual_seed(1)
    model = spread(Model(BLOCKS[args.block]).to(TYPES[ttrace.precision(args.precision)]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tracer = ttrace.attach(model, optimizer=optimizer)
    generator = torch.Generator().manual_seed(1)
    for number in range(args.steps):
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        with tracer.step(number) as step:
            optimizer.zero_grad()
            own = batch.chunk(Setting.ranks)[Setting.rank] if args.layout in ("ddp", "fsdp") else batch
            losses = losses_of(model, own[:, :-1], own[:, 1:])
            step.loss(losses)
            losses.mean().backward()
            optimizer.step()
    if args.layout != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

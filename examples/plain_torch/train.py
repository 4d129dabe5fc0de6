"""Trains a small GPT in plain torch: the function of examples/megatron_core, with other modules.

    ttrace check --rename plain.rename.yaml --reference "python train.py" \\
                 --candidate "torchrun --nproc-per-node 2 ../megatron_core/train.py --swiglu --rms-norm \\
                              --groups 2 --tp 2 --sp"

Queries, keys and values have a linear each where Megatron has one for the three, so do gate and up, and
activations are batch-first: plain.rename.yaml says which tensors are the same. The lines that TTrace needs
are marked with `# ttrace`.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
import ttrace  # ttrace
from torch import nn

VOCABULARY = 128
HEADS = 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--groups", type=int, default=2, help="query groups; 4 heads")
    add("--layers", type=int, default=4)
    add("--hidden", type=int, default=64)
    add("--sequence", type=int, default=32)
    add("--micro-batch", type=int, default=2)
    add("--global-batch", type=int, default=8)
    add("--precision", default="f32", choices=["f64", "f32"])
    add("--steps", type=int, default=2)
    add("--seed", type=int, default=1234)
    return parser.parse_args()


ARGS = arguments()
PRECISION = ttrace.precision(ARGS.precision)  # ttrace: a check in higher precision asks for its own
TYPE = {"f64": torch.float64, "f32": torch.float32}[PRECISION]


class CoreAttention(nn.Module):
    """Softmax attention of heads; each query group shares a key and a value."""

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """All `[b, heads or groups, s, d]`; returns `[b, heads, s, d]`."""
        size = queries.shape[-1]
        repeats = queries.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(repeats, dim=1) for x in (keys, values))
        scores = queries @ keys.transpose(2, 3) * size**-0.5
        positions = scores.shape[-1]
        future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ values


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of `[b, heads, s, d]`: the two halves of d are turned by position times frequency."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), frequencies)
    cosine, sine = (f(torch.cat([angles, angles], dim=-1)).to(x.dtype) for f in (torch.cos, torch.sin))
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cosine + turned * sine


class Attention(nn.Module):
    def __init__(self, hidden: int, groups: int):
        super().__init__()
        self.size = hidden // HEADS
        self.wq = nn.Linear(hidden, HEADS * self.size, bias=False)
        self.wk = nn.Linear(hidden, groups * self.size, bias=False)
        self.wv = nn.Linear(hidden, groups * self.size, bias=False)
        self.core = CoreAttention()
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [w(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for w in (self.wq, self.wk, self.wv)]
        mixed = self.core(rotate(heads[0]), rotate(heads[1]), heads[2])
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(hidden, 4 * hidden, bias=False)  # gate
        self.w3 = nn.Linear(hidden, 4 * hidden, bias=False)  # up
        self.w2 = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self, hidden: int, groups: int):
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.attention = Attention(hidden, groups)
        self.ffn_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.feed_forward = FeedForward(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Tokens `[b, s]` to logits `[b, s, vocabulary]`; the output layer has the embedding's weight."""

    def __init__(self, hidden: int, layers: int, groups: int):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(Layer(hidden, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.output = nn.Linear(hidden, VOCABULARY, bias=False)
        self.output.weight = self.tok_embeddings.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


class ClippedAdamW(torch.optim.AdamW):
    """Clips within its step, so that a trace has the gradients as they were reduced."""

    norm = 0.0

    def step(self, closure=None):
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self.norm = float(nn.utils.clip_grad_norm_(parameters, 1.0))
        return super().step(closure)


def batches(step: int):
    for index in range(ARGS.global_batch // ARGS.micro_batch):
        generator = torch.Generator().manual_seed(ARGS.seed + 1000 * step + index)
        text = torch.randint(VOCABULARY, (ARGS.micro_batch, ARGS.sequence + 1), generator=generator)
        yield text[:, :-1].contiguous(), text[:, 1:].contiguous()


def train() -> None:
    torch.manual_seed(ARGS.seed)
    model = Transformer(ARGS.hidden, ARGS.layers, ARGS.groups).to(TYPE)
    optimizer = ClippedAdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    tracer = ttrace.attach(model, optimizer=optimizer)  # ttrace
    count = ARGS.global_batch // ARGS.micro_batch
    for step in range(ARGS.steps):
        with tracer.step(step) as traced:  # ttrace
            optimizer.zero_grad()
            total = 0.0
            for tokens, labels in batches(step):
                logits = model(tokens)
                losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
                losses = losses.view(labels.shape)
                traced.data("labels", labels)  # ttrace
                traced.loss(losses)  # ttrace
                loss = losses.float().mean() / count
                loss.backward()
                total += float(loss.detach())
            optimizer.step()
            traced.scalar("grad_norm", optimizer.norm)  # ttrace
        print(f"step {step} loss {total:.9g} grad_norm {optimizer.norm:.9g}", flush=True)


if __name__ == "__main__":
    train()

"""GPT-2, written plainly: a linear each for queries, keys and values, weights as torch keeps them, and the residual
added within attention and MLP."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from loop import POSITIONS, VOCABULARY, next_tokens, options, tokens_of, train
from torch import nn

WIDTH, HEADS, LAYERS = 32, 4, 3


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        heads = [w(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for w in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(F.gelu(self.wide(self.norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(POSITIONS, WIDTH))
        self.stack = nn.Sequential(*(part() for _ in range(LAYERS) for part in (SelfAttention, FeedForward)))
        self.final = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.final(self.stack(self.words(tokens) + self.places))
        return F.linear(x, self.words.weight)


def main() -> None:
    args = options()
    model = Gpt2()
    train(model, args.steps, lambda step: (model(tokens_of(step)), next_tokens(tokens_of(step))))


if __name__ == "__main__":
    main()

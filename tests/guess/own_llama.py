"""Llama, written plainly: queries, keys and values from one weight, a group of heads after the other; gate and up
from one weight."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from loop import POSITIONS, VOCABULARY, next_tokens, options, tokens_of, train
from torch import nn

WIDTH, HEADS, GROUPS, INNER, LAYERS = 32, 4, 2, 64, 3
SIZE = WIDTH // HEADS


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of `[b, heads, s, d]`."""
    angles = torch.outer(torch.arange(POSITIONS), 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE))
    left, right = x.chunk(2, -1)
    return torch.cat([left * angles.cos() - right * angles.sin(), right * angles.cos() + left * angles.sin()], -1)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_group = self.qkv(x).unflatten(-1, (GROUPS, HEADS // GROUPS + 2, SIZE)).transpose(1, 2)  # b g s n d
        queries = by_group[..., :-2, :].transpose(2, 3).flatten(1, 2)
        keys, values = by_group[..., -2, :], by_group[..., -1, :]
        mixed = F.scaled_dot_product_attention(
            turned(queries), turned(keys), values, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_mixer, self.mixer = nn.RMSNorm(WIDTH, 1e-6), Mixer()
        self.before_gated, self.gated = nn.RMSNorm(WIDTH, 1e-6), Gated()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(self.before_mixer(x))
        return x + self.gated(self.before_gated(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last_norm = nn.RMSNorm(WIDTH, 1e-6)
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.table(text)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.last_norm(x))


def main() -> None:
    args = options()
    model = Llama()
    train(model, args.steps, lambda step: (model(tokens_of(step)), next_tokens(tokens_of(step))))


if __name__ == "__main__":
    main()

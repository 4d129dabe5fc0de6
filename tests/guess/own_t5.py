"""T5, written plainly: one class of attention for all three uses, keys and values from one weight, positions of all
layers from one table of each tower."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from loop import VOCABULARY, options, tokens_of, train
from torch import nn

WIDTH, HEADS, INNER, LAYERS, BUCKETS, FARTHEST = 32, 4, 64, 2, 8, 16
SIZE = WIDTH // HEADS


def bucket(distance: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Near distances have a bucket each, far ones share buckets that grow like powers."""
    count = BUCKETS if is_causal else BUCKETS // 2
    ahead = torch.zeros_like(distance) if is_causal else (distance > 0).long() * count
    far = (-distance).clamp(min=0) if is_causal else distance.abs()
    exact = count // 2
    scaled = torch.log(far.clamp(min=1).float() / exact) / math.log(FARTHEST / exact) * (count - exact)
    return ahead + torch.where(far < exact, far, (exact + scaled.long()).clamp(max=count - 1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_queries = nn.Linear(WIDTH, WIDTH, bias=False)
        self.to_keys_values = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.back = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, source: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        keys, values = self.to_keys_values(source).chunk(2, -1)
        q, k, v = (y.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for y in (self.to_queries(x), keys, values))
        scores = q @ k.transpose(2, 3)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.back((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, has_source: bool):
        super().__init__()
        self.norm_self, self.self_attention = nn.RMSNorm(WIDTH, 1e-6), Attention()
        if has_source:
            self.norm_source, self.source_attention = nn.RMSNorm(WIDTH, 1e-6), Attention()
        self.norm_mlp = nn.RMSNorm(WIDTH, 1e-6)
        self.up, self.down = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm_self(x)
        x = x + self.self_attention(y, y, bias)
        if source is not None:
            x = x + self.source_attention(self.norm_source(x), source, None)
        return x + self.down(F.relu(self.up(self.norm_mlp(x))))


class Tower(nn.Module):
    def __init__(self, is_causal: bool):
        super().__init__()
        self.is_causal = is_causal
        self.distances = nn.Embedding(BUCKETS, HEADS)
        self.layers = nn.ModuleList(Layer(is_causal) for _ in range(LAYERS))
        self.last = nn.RMSNorm(WIDTH, 1e-6)

    def forward(self, x: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        distance = places[None, :] - places[:, None]
        bias = self.distances(bucket(distance, self.is_causal)).permute(2, 0, 1)
        if self.is_causal:
            bias = bias.masked_fill(distance > 0, float("-inf"))
        for layer in self.layers:
            x = layer(x, bias) if source is None else layer(x, bias, source)
        return self.last(x)


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.words_in, self.words_out = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.words_out.weight = self.words_in.weight
        self.reader, self.writer = Tower(False), Tower(True)

    def forward(self, text: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        read = self.reader(self.words_in(text))
        written = self.writer(self.words_out(answer), read)
        return F.linear(written * WIDTH**-0.5, self.words_in.weight)


def main() -> None:
    args = options()
    model = T5()
    train(model, args.steps, lambda step: (model(tokens_of(step), tokens_of(step).flip(1)), tokens_of(step)))


if __name__ == "__main__":
    main()

"""Two towers of one shape, which the two programs run in the opposite order; and two linears of one shape within a
layer, which have each other's names in the other program."""

from __future__ import annotations

import torch
from loop import POSITIONS, VOCABULARY, next_tokens, options, tokens_of, train
from torch import nn

WIDTH, LAYERS = 32, 2


class ReferenceLayer(nn.Module):
    """`b` decides how much of `a` passes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.a(y) * self.b(y).sigmoid()


class CandidateLayer(nn.Module):
    """`a` decides how much of `b` passes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.a(y).sigmoid() * self.b(y)


class Reference(nn.Module):
    """Reads the text from its beginning in `left`, from its end in `right`."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.left = nn.Sequential(*(ReferenceLayer() for _ in range(LAYERS)))
        self.right = nn.Sequential(*(ReferenceLayer() for _ in range(LAYERS)))
        self.head = nn.Linear(2 * WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        left = self.left(x)
        right = self.right(x.flip(1))
        return self.head(torch.cat([left, right], -1))


class Candidate(nn.Module):
    """`one` is the reference's `right`, and runs first."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.one = nn.Sequential(*(CandidateLayer() for _ in range(LAYERS)))
        self.two = nn.Sequential(*(CandidateLayer() for _ in range(LAYERS)))
        self.scores = nn.Linear(2 * WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        one = self.one(x.flip(1))
        two = self.two(x)
        return self.scores(torch.cat([two, one], -1))


def main() -> None:
    args = options("side")
    model = Reference() if args.side == "reference" else Candidate()
    assert tokens_of(0).shape[1] == POSITIONS
    train(model, args.steps, lambda step: (model(tokens_of(step)), next_tokens(tokens_of(step))))


if __name__ == "__main__":
    main()

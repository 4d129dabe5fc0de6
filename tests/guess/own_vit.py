"""A vision transformer, written plainly: patches are cut out and multiplied by a matrix, and one weight holds
queries, keys and values of each head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from loop import CLASSES, classes_of, images_of, options, train
from torch import nn

WIDTH, HEADS, INNER, LAYERS, SIDE, PATCHES = 32, 4, 64, 2, 4, 16


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Linear(3 * SIDE * SIDE, WIDTH)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.matrix(F.unfold(images, SIDE, stride=SIDE).transpose(1, 2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH, 1e-12), nn.LayerNorm(WIDTH, 1e-12)
        self.joint, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.joint(self.norm_1(x)).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads)
        x = x + self.merge(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = Patches()
        self.first = nn.Parameter(torch.randn(WIDTH))
        self.places = nn.Parameter(torch.randn(PATCHES + 1, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def main() -> None:
    args = options()
    model = Classifier()
    train(model, args.steps, lambda step: (model(images_of(step)), classes_of(step)))


if __name__ == "__main__":
    main()

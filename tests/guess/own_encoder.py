"""The transformer of examples/dtensor/train.py, of torch's own encoder layers: one weight for queries, keys and
values that no module of its own has, and an output linear that is never called."""

from __future__ import annotations

import torch
from loop import options, train
from torch import nn

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS, BATCH = 64, 32, 4, 4, 16, 8


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.where = nn.Embedding(POSITIONS, HIDDEN)
        layer = nn.TransformerEncoderLayer(
            HIDDEN, HEADS, 4 * HIDDEN, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(HIDDEN), enable_nested_tensor=False)
        self.unembed = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.where(torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.unembed(self.body(x, mask=mask, is_causal=True))


def main() -> None:
    args = options()
    model = Encoder()
    generator = torch.Generator().manual_seed(1)

    def forward(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
        return model(batch[:, :-1]), batch[:, 1:]

    train(model, args.steps, forward, torch.optim.AdamW(model.parameters(), lr=1e-3))


if __name__ == "__main__":
    main()

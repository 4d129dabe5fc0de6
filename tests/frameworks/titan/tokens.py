"""Random tokens for torchtitan's Trainer, the same in every layout, so that nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer

BATCH, POSITIONS, VOCABULARY = 8, 32, 2048


class RandomTokens(BaseDataLoader):
    """Batches of random tokens. Sample and step decide them, not the layout."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        microbatches: int = 1

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, local_batch_size: int, **unused):
        self.config, self.rank, self.ranks = config, dp_rank, dp_world_size
        self.size = local_batch_size

    def __iter__(self):
        generator = torch.Generator().manual_seed(1)
        while True:
            batch = torch.randint(VOCABULARY, (BATCH, POSITIONS + 1), generator=generator)
            for part in batch.chunk(self.config.microbatches):
                mine = part.chunk(self.ranks)[self.rank]
                yield {"input": mine[:, :-1]}, mine[:, 1:]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **unused):
        pass

    def encode(self, *args, **kwargs):
        raise NotImplementedError

    decode = get_vocab_size = encode

"""An attention core for CPUs with what Megatron-core's own has none of: context parallelism, and keys and
values of different sizes, as multi-head latent attention has them.

Every context-parallel rank has two chunks of the positions, one from either end (`positions`). It gathers the
keys and values of all ranks, and its queries attend to all of them.
"""

from __future__ import annotations

import copy

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region
from megatron.core.transformer.dot_product_attention import DotProductAttention


def positions(length: int, rank: int, ranks: int) -> torch.Tensor:
    """The positions of a rank, of `length` in all: of 2 * `ranks` chunks the rank-th and the rank-th last."""
    chunks = torch.arange(length).chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank])) if ranks > 1 else torch.arange(length)


class _Gather(torch.autograd.Function):
    """[s of this rank, ...] to [s, ...] in the order of the positions. Gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx, tensor, group):
        ranks = group.size()
        ctx.group, ctx.length = group, ranks * tensor.shape[0]
        parts = [torch.empty_like(tensor) for _ in range(ranks)]
        torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
        order = torch.cat([positions(ctx.length, rank, ranks) for rank in range(ranks)])
        return torch.cat(parts)[order.argsort()]

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        torch.distributed.all_reduce(gradient, group=ctx.group)
        return gradient[positions(ctx.length, ctx.group.rank(), ctx.group.size())], None


class GatheredAttention(DotProductAttention):
    """See the head of this file."""

    def __init__(self, config, *args, k_channels=None, v_channels=None, **options):
        alone = copy.copy(config)
        alone.context_parallel_size = 1  # what the package's own core insists on
        super().__init__(alone, *args, **options)
        self.cp_group = parallel_state.get_context_parallel_group()
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    def forward(self, query, key, value, attention_mask, *args, **options):
        ranks = self.cp_group.size()
        if ranks > 1:
            key, value = (_Gather.apply(tensor, self.cp_group) for tensor in (key, value))
            own = positions(key.shape[0], self.cp_group.rank(), ranks)
            attention_mask = attention_mask[:, :, own]
        return super().forward(query, key, value, attention_mask, *args, **options)


def sum_position_gradients() -> None:
    """Repairs multi-head latent attention of 0.16.1 with Megatron's own linears: all heads share the rotated part
    of the key, but no rank gets the other ranks' gradients of it."""
    from megatron.core.transformer import multi_latent_attention

    rotate = multi_latent_attention.apply_rotary_pos_emb

    def rotate_and_sum(tensor, *args, **options):
        if tensor.shape[-2] == 1:  # one for all heads
            tensor = copy_to_tensor_model_parallel_region(tensor)
        return rotate(tensor, *args, **options)

    multi_latent_attention.apply_rotary_pos_emb = rotate_and_sum

"""The product of queries, keys and values."""

from __future__ import annotations

from typing import Any

import torch


class UnfusedDotProductAttention(torch.nn.Module):
    """One of the kernels that the core chooses among, a module of its own."""

    def __init__(self, softmax_scale: float):
        super().__init__()
        self.softmax_scale = softmax_scale

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        copies = query.shape[2] // key.shape[2]
        wide = torch.promote_types(query.dtype, torch.float32)
        q, k, v = (x.permute(1, 2, 0, 3).to(wide) for x in (query, key, value))
        k, v = (x.repeat_interleave(copies, 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) * self.softmax_scale
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return (weights @ v).permute(2, 0, 1, 3).flatten(2).to(query.dtype)


class DotProductAttention(torch.nn.Module):
    """Causal. Scores and weights are F32, as in fused kernels; the result is rounded once."""

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int,
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        tp_group: Any = None,
        layer_number: int | None = None,
        attention_type: str = "self",
        softmax_scale: float | None = None,
        **unused: Any,
    ):
        del unused
        super().__init__()
        self.qkv_format = qkv_format
        self.attn_mask_type = attn_mask_type
        self.tp_size, self.tp_group, self.sequence_parallel = tp_size, tp_group, sequence_parallel
        self.num_gqa_groups = num_gqa_groups or num_attention_heads
        self.unfused_attention = UnfusedDotProductAttention(softmax_scale or kv_channels**-0.5)

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        qkv_format: str | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        attn_mask_type: str | None = None,
        **unused: Any,
    ) -> torch.Tensor:
        """sbhd: [s, b, n, d], returns [s, b, n * d]; thd: [t, n, d], returns [t, n * d]."""
        del attention_mask, attn_mask_type, unused
        if (qkv_format or self.qkv_format) == "thd":
            bounds = cu_seqlens_q.tolist()
            parts = [
                self.unfused_attention(*(x[first:last, None] for x in (query_layer, key_layer, value_layer)))
                for first, last in zip(bounds, bounds[1:])
            ]
            return torch.cat(parts).flatten(1)
        return self.unfused_attention(query_layer, key_layer, value_layer)

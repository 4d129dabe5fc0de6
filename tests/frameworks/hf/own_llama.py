"""Llama, written a second time: rotations by complex numbers, fused attention and norms of torch. Its modules have
the names that transformers gives them, as far as it has the same ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from models import VOCABULARY
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

HIDDEN, HEADS, KV_HEADS, WIDTH, LAYERS, BASE, EPSILON = 32, 4, 2, 64, 2, 10000.0, 1e-6
HEAD = HIDDEN // HEADS


def turned(heads: torch.Tensor) -> torch.Tensor:
    """Heads [b, h, s, d] by the angles of their positions; the halves of a head are real and imaginary parts."""
    positions = torch.arange(heads.shape[2], dtype=torch.float64)
    angles = torch.outer(positions, BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD))
    real, imaginary = heads.double().chunk(2, -1)
    result = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([result.real, result.imag], -1).to(heads.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            w(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for w in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(HIDDEN, WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(HIDDEN, EPSILON) for _ in range(2))
        self.self_attn, self.mlp = Attention(), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, EPSILON)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class OwnLlama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Body()
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        return CausalLMOutput(logits=self.lm_head(self.model(input_ids)))

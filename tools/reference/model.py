"""A plain Llama in PyTorch, its parameters named as Hugging Face checkpoints name them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of the reference model."""

    vocab_size: int = 256
    hidden_size: int = 256
    intermediate_size: int = 640
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 2048
    rope_theta: float = 100000.0
    rms_norm_eps: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rotary_tables(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (length, head_dim) float32, halves repeated (Llama's layout)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = torch.arange(length, dtype=torch.float32)[:, None] * (1.0 / shape.rope_theta**half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = (
            s.num_attention_heads,
            s.num_key_value_heads,
            s.head_dim,
        )
        self.q_proj = nn.Linear(s.hidden_size, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(s.hidden_size, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(s.hidden_size, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, s.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(o.transpose(1, 2).reshape(b, t, self.heads * self.dim))


class MLP(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.up_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.down_proj = nn.Linear(s.intermediate_size, s.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.mlp = MLP(s)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab_size, s.hidden_size)
        self.layers = nn.ModuleList([Layer(s) for _ in range(s.num_hidden_layers)])
        self.norm = RMSNorm(s.hidden_size, s.rms_norm_eps)


EMBEDDING_STD = 0.3
OFFSETS = ((1, 2, 3, 4), (3, 4, 5, 6))  # of the four heads, in the first two layers


@torch.no_grad()
def initialise(model: Llama, generator: torch.Generator) -> None:
    """Normal weights; heads of the first two layers start by looking a fixed distance back.

    Learning to look a few bytes back is what delays copying from the context (Olsson et al. 2022,
    arXiv:2209.11895). So all embeddings share a constant vector (which a softmax over tied logits
    does not see), and those heads' queries and keys read it: their scores peak at the offset.
    A start in the shape of trained attention is from Trockman and Kolter 2023, arXiv:2305.09828.
    """
    shape = model.shape
    for name, p in model.named_parameters():
        if p.ndim == 2:
            std = EMBEDDING_STD if "embed" in name else p.shape[1] ** -0.5
            # Residual branches start small: the first steps train a near-identity stack.
            std *= 0.1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            nn.init.normal_(p, std=std, generator=generator)
    # The final norm scales logits of a tied, wide embedding back to about 1.
    model.model.norm.weight.fill_(1 / (EMBEDDING_STD * shape.hidden_size**0.5))
    constant = torch.randn(shape.hidden_size, generator=generator).sign()
    model.model.embed_tokens.weight += 0.6 * EMBEDDING_STD * constant
    unit = constant / shape.hidden_size**0.5
    for layer, offsets in zip(model.model.layers, OFFSETS, strict=False):
        point_at_offsets(layer.self_attn, shape, offsets, unit)
        layer.self_attn.o_proj.weight *= 3.0


def point_at_offsets(
    attention: Attention, shape: Shape, offsets: tuple[int, ...], unit: Tensor
) -> None:
    """Add to queries and keys a response to ``unit`` whose score peaks ``offset`` bytes back."""
    pairs, half, size = 6, shape.head_dim // 2, shape.head_dim
    strength = 0.75  # of a weight; the fastest pairs, because they tell neighbours apart
    speed = shape.rope_theta ** (-torch.arange(pairs) / half)
    q, k = attention.q_proj.weight, attention.k_proj.weight
    for weight in (q, k):  # what depends on content starts quieter
        weight -= (weight @ unit)[:, None] * unit
        weight *= 0.3
    for head in range(shape.num_key_value_heads):
        k[head * size : head * size + pairs] += strength * unit
    for head, offset in enumerate(offsets):
        at = head * size
        q[at : at + pairs] += strength * torch.cos(offset * speed)[:, None] * unit
        q[at + half : at + half + pairs] -= strength * torch.sin(offset * speed)[:, None] * unit


class Llama(nn.Module):
    """Tied embeddings: the output product uses ``model.embed_tokens.weight``."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        cos, sin = rotary_tables(shape, shape.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        initialise(self, torch.Generator().manual_seed(seed))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T) int64 -> logits (B, T, V)."""
        t = tokens.shape[1]
        x = self.model.embed_tokens(tokens)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.bfloat16)
        cos, sin = self.cos[:t].to(x.dtype), self.sin[:t].to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

"""Layers that are alike, as one group: what they store for a token and how they attend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlib.config.shape import Shape


@dataclass(frozen=True)
class LayerGroup:
    """Layers that store and attend alike.

    indices         which layers these are
    window          tokens a query sees, itself included; 0 for all
    num_qo_heads, num_kv_heads, head_dim      head_dim is also the length of a stored key
    latent          MLA: one stored vector a token serves all heads, as key and, in its first
                    v_dim numbers, as value (num_kv_heads 1)
    v_dim           length of what is summed over the values
    full_qk_dim, full_v_dim      the same two in a prefill, where MLA expands its latent vectors
    """

    indices: tuple[int, ...]
    window: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    v_dim: int
    full_qk_dim: int
    full_v_dim: int
    latent: bool = False

    @property
    def count(self) -> int:
        """Layers in the group."""
        return len(self.indices)

    @property
    def values(self) -> int:
        """Numbers stored for a token in one layer."""
        return self.head_dim if self.latent else 2 * self.num_kv_heads * self.head_dim

    @property
    def vectors(self) -> int:
        """How many vectors those are."""
        return 1 if self.latent else 2 * self.num_kv_heads

    @property
    def facts(self) -> dict[str, int]:
        """As `kvlib.costs.formulas` takes a group."""
        return {
            "count": self.count,
            "window": self.window,
            "values": self.values,
            "vectors": self.vectors,
            "num_qo_heads": self.num_qo_heads,
            "qk_dim": self.head_dim,
            "v_dim": self.v_dim,
            "full_qk_dim": self.full_qk_dim,
            "full_v_dim": self.full_v_dim,
        }


def layer_groups(shape: Shape) -> tuple[LayerGroup, ...]:
    """The layers of a decoder by their window, in the order in which each first appears."""
    latent = shape.latent
    sizes: dict[str, Any] = dict(
        num_qo_heads=shape.num_attention_heads,
        num_kv_heads=1 if latent else shape.num_key_value_heads,
        head_dim=latent.width if latent else shape.head_dim,
        v_dim=latent.kv_lora_rank if latent else shape.head_dim,
        full_qk_dim=latent.qk_head_dim if latent else shape.head_dim,
        full_v_dim=latent.v_head_dim if latent else shape.head_dim,
        latent=latent is not None,
    )
    groups: dict[int, list[int]] = {}
    for i, window in enumerate(shape.windows):
        groups.setdefault(window, []).append(i)
    return tuple(LayerGroup(tuple(i), window=w, **sizes) for w, i in groups.items())

"""One layer of a decoder: a token mixer and a feed-forward part, each normed and added to x."""

from __future__ import annotations

from typing import Protocol

from kvlib.arrays import Array
from kvlib.caches import Cache, LayerSpec, Step
from kvlib.model.config import ModelConfig
from kvlib.model.experts import MixtureOfExperts
from kvlib.model.gated_mlp import GatedMLP
from kvlib.model.grouped_query import GroupedQuery
from kvlib.model.latent import LatentAttention
from kvlib.model.layers import Weight
from kvlib.model.norm import Norm
from kvlib.model.plain_mlp import PlainMLP
from kvlib.model.rope import Angles
from kvlib.model.rows import Wanted, taken


class TokenMixer(Protocol):
    """The part that looks at other tokens. It alone knows the cache.

    It is made as ``Mixer(config, layer, w)`` and has a static method ``weights(config)``.
    """

    spec: LayerSpec

    def forward(
        self, h: Array, cache: Cache, step: Step, angles: Angles, wanted: Wanted | None = None
    ) -> Array:
        """h (T, hidden) → (T, hidden), or (R, hidden) for the rows that are `wanted`."""
        ...


class FeedForward(Protocol):
    """The part that looks at each token alone.

    It is made as ``Kind(config, w)`` and has a static method ``weights(config)``.
    """

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        ...


def mixer_kind(config: ModelConfig, layer: int) -> type[GroupedQuery] | type[LatentAttention]:
    """Which token mixer a layer has."""
    return GroupedQuery if config.latent is None else LatentAttention


def feed_forward_kind(
    config: ModelConfig, layer: int
) -> type[GatedMLP] | type[PlainMLP] | type[MixtureOfExperts]:
    """Which feed-forward part a layer has."""
    if config.experts is not None and layer in config.experts.layers:
        return MixtureOfExperts
    return GatedMLP if config.gated_mlp else PlainMLP


class Block:
    """Layer number `layer`, with its weights by their names without "layers.N."."""

    def __init__(self, config: ModelConfig, layer: int, w: dict[str, Array]) -> None:
        self.attn_norm = Norm(config, w, "attn_norm")
        self.mixer: TokenMixer = mixer_kind(config, layer)(config, layer, w)
        self.feed_forward: FeedForward = feed_forward_kind(config, layer)(config, w)
        self.parallel, self.post_norms = config.parallel_residual, config.post_norms
        self.shared_norm = config.shared_norm
        if not self.shared_norm:
            self.mlp_norm = Norm(config, w, "mlp_norm")
        if self.post_norms:
            self.attn_post_norm = Norm(config, w, "attn_post_norm")
            self.mlp_post_norm = Norm(config, w, "mlp_post_norm")

    @staticmethod
    def weights(config: ModelConfig, layer: int) -> list[Weight]:
        """The weights of layer number `layer`, in the order in which a forward pass reads them."""
        found = Norm.weights(config, "attn_norm", "input_layernorm")
        found += mixer_kind(config, layer).weights(config)
        if config.post_norms:
            found += Norm.weights(config, "attn_post_norm", "post_attention_layernorm")
        # Llama calls the norm before the MLP by the name that Gemma has for the one above
        name = "pre_feedforward_layernorm" if config.post_norms else "post_attention_layernorm"
        if not config.shared_norm:
            found += Norm.weights(config, "mlp_norm", name)
        found += feed_forward_kind(config, layer).weights(config)
        if config.post_norms:
            found += Norm.weights(config, "mlp_post_norm", "post_feedforward_layernorm")
        return found

    def forward(
        self, x: Array, cache: Cache, step: Step, angles: Angles, wanted: Wanted | None = None
    ) -> Array:
        """x (T, hidden) → x + what other tokens say + what each says for itself; x is changed.

        wanted: the R rows that are returned, all T unless given.
        """
        if self.parallel:
            return self._in_parallel(x, cache, step, angles, wanted)
        h = self.mixer.forward(self.attn_norm(x), cache, step, angles, wanted)
        if wanted is not None:
            x = taken(x, wanted.rows)
        x += self.attn_post_norm(h) if self.post_norms else h
        h = self.feed_forward.forward(self.mlp_norm(x))
        x += self.mlp_post_norm(h) if self.post_norms else h
        return x

    def _in_parallel(
        self, x: Array, cache: Cache, step: Step, angles: Angles, wanted: Wanted | None
    ) -> Array:
        normed = self.attn_norm(x)
        h = self.mixer.forward(normed, cache, step, angles, wanted)
        if wanted is not None:
            x, normed = taken(x, wanted.rows), taken(normed, wanted.rows)
        y = self.feed_forward.forward(normed if self.shared_norm else self.mlp_norm(x))
        x += self.attn_post_norm(h) if self.post_norms else h
        x += self.mlp_post_norm(y) if self.post_norms else y
        return x

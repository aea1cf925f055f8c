"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one cached vector per token.

Keys and values of all heads are made from a latent vector c, and a part of the key that carries the
position is the same for all heads. So the cache keeps c and that part, and nothing per head: 576
numbers per token in place of 40,960 in DeepSeek-V3.

In a decode step, no key is expanded. Since q · (W_UK c) = (W_UKᵀ q) · c, each query is multiplied
by W_UKᵀ instead, and all query heads attend to one key, whose first numbers are the value. Each
head gets a weighted sum of latent vectors, and W_UV turns this sum into the head's output. This
absorbed form reads the latent vectors as they lie. A long chunk of a prompt takes fewer operations
if keys and values are expanded, so `kvlib.model.expanded` computes it where the cache allows.

Another token mixer beside `kvlib.model.grouped_query`, whose head names the parts of one.
Config keys: `num_attention_heads`, `q_lora_rank`, `kv_lora_rank`, `qk_nope_head_dim`,
`qk_rope_head_dim`, `v_head_dim`, `attention_bias`.
"""

from __future__ import annotations

from functools import partial

from kvlib.arrays import Array, namespace, nbytes
from kvlib.caches import Cache, LayerSpec, Step
from kvlib.config.shape import Latent
from kvlib.meter import counting, report
from kvlib.model import expanded
from kvlib.model.config import ModelConfig
from kvlib.model.layers import Wanted, linear, mix
from kvlib.model.rope import Angles, rotate
from kvlib.norms import rms_norm

EPS = 1e-6  # of the two norms of latent vectors, whatever `rms_norm_eps` says


class LatentAttention:
    """The attention of layer number `layer`, whose weights are `w`."""

    def __init__(self, config: ModelConfig, layer: int, w: dict[str, Array]) -> None:
        self.layer, self.w, self.xp = layer, w, namespace(w["o.weight"])
        self.heads, self.sizes = config.num_attention_heads, _latent(config)
        c = self.sizes
        scalar = config.query_pre_attn_scalar or c.qk_head_dim
        self.spec = LayerSpec(
            1,
            c.width,
            c.kv_lora_rank,
            window=config.windows[layer],
            v_from_k=True,
            sm_scale=scalar**-0.5,
            softcap=config.attn_logit_softcapping,
        )
        up = self.xp.reshape(w["kv_up.weight"], (self.heads, -1, c.kv_lora_rank))
        self.key_up = up[:, : c.qk_nope_head_dim, :]  # W_UK (H, N, C)
        self.value_up = up[:, c.qk_nope_head_dim :, :]  # W_UV (H, V, C)

    def forward(
        self, h: Array, cache: Cache, step: Step, angles: Angles, wanted: Wanted | None = None
    ) -> Array:
        """h (T, hidden) → (T, hidden), or (R, hidden) for the R rows that are `wanted`."""
        q, k = self.queries(h, angles), self.latents(h, angles)
        del h
        if self._expands(cache, step if wanted is None else wanted.step):
            attend = partial(expanded.attend_expanded, key_up=self.key_up, value_up=self.value_up)
            o = mix(cache, self.layer, q, k, None, step, wanted, attend)
        else:  # (R, H, C): sums of latent vectors
            o = mix(cache, self.layer, self.absorbed(q), k, None, step, wanted)
            o = _each_head(o, self.value_up.mT)
        o = self.xp.reshape(o, (o.shape[0], -1))
        return linear(o, self.w["o.weight"], self.w.get("o.bias"))

    def _expands(self, cache: Cache, step: Step) -> bool:
        """Whether to expand: it is cheaper, and the cache has all tokens and no other attention."""
        own = cache.attention is None and not cache.watches and not cache.forgets
        whole = self.spec.window is None and step.parents is None
        return own and whole and expanded.pays(self.sizes, step)

    def latents(self, h: Array, angles: Angles) -> Array:
        """h (T, hidden) → (T, 1, C + R): what the cache keeps, the latent vector first."""
        xp, rank = self.xp, self.sizes.kv_lora_rank
        both = linear(h, self.w["kv_down.weight"], self.w.get("kv_down.bias"))[:, None, :]
        c = rms_norm(both[..., :rank], self.w["kv_norm.weight"], EPS)
        return xp.concat([c, _turned(both[..., rank:], angles)], axis=-1)

    def queries(self, h: Array, angles: Angles) -> Array:
        """h (T, hidden) → (T, H, N + R): each head's query, of which the last R are turned."""
        w, width = self.w, self.sizes.qk_nope_head_dim
        if "q.weight" in w:
            q = linear(h, w["q.weight"])
        else:
            q = linear(h, w["q_down.weight"], w.get("q_down.bias"))
            q = linear(rms_norm(q, w["q_norm.weight"], EPS), w["q_up.weight"])
        q = self.xp.reshape(q, (h.shape[0], self.heads, self.sizes.qk_head_dim))
        return self.xp.concat([q[..., :width], _turned(q[..., width:], angles)], axis=-1)

    def absorbed(self, q: Array) -> Array:
        """q (T, H, N + R) → (T, H, C + R): queries of latent vectors, their first part W_UKᵀ q."""
        width = self.sizes.qk_nope_head_dim
        first = _each_head(q[..., :width], self.key_up)
        return self.xp.concat([first, q[..., width:]], axis=-1)


def _each_head(x: Array, weight: Array) -> Array:
    """x (T, H, A) times each head's own matrix (H, A, B)  →  (T, H, B)"""
    xp = namespace(x)
    if counting():
        flops = 2 * x.shape[0] * weight.shape[0] * weight.shape[1] * weight.shape[2]
        report("linear", flops=flops, read=nbytes(weight) + nbytes(x))
    y = xp.matmul(xp.permute_dims(x, (1, 0, 2)), weight)
    return xp.permute_dims(y, (1, 0, 2))


def _turned(x: Array, angles: Angles) -> Array:
    return x if angles is None else rotate(x, *angles)


def _latent(config: ModelConfig) -> Latent:
    if config.latent is None:
        raise ValueError(f"a {config.model_type} config states no latent attention")
    return config.latent

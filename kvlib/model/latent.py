"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one cached vector per token.

Keys and values of all heads are made from a latent vector c, and all heads share the part of the
key that carries the position. So the cache keeps c and that part: 576 numbers per token instead of
40,960 in DeepSeek-V3.

A decode step expands no key. Since q · (W_UK c) = (W_UKᵀ q) · c, each query is multiplied by W_UKᵀ,
and all query heads attend to one key, whose first numbers are the value; W_UV turns each head's sum
of latent vectors into its output. A long chunk of a prompt (about 170 tokens in DeepSeek-V3) is
expanded once, tokens before it EXPANDED_PIECE at a time, and the partial results merge.
"""

from functools import partial
from typing import Any

from kvlib.arrays import Array, namespace, nbytes
from kvlib.attention import attend_causal, merge_state
from kvlib.attention.causal import attend_before
from kvlib.attention.pieces import Slices
from kvlib.caches import Cache, LayerSpec, Step
from kvlib.config.shape import Latent
from kvlib.meter import counting, report
from kvlib.model.config import ModelConfig
from kvlib.model.grouped_query import Selection, mix
from kvlib.model.layers import linear, normalised, widened
from kvlib.model.rope import Angles, rotate

EXPANDED_PIECE = 512  # cached tokens expanded at a time
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
        up = self.xp.reshape(widened(w["kv_up.weight"]), (self.heads, -1, c.kv_lora_rank))
        self.key_up = up[:, : c.qk_nope_head_dim, :]  # W_UK (H, N, C)
        self.value_up = up[:, c.qk_nope_head_dim :, :]  # W_UV (H, V, C)

    def forward(
        self, h: Array, cache: Cache, step: Step, angles: Angles, selected: Selection | None = None
    ) -> Array:
        """h (T, hidden) → (T, hidden), or (R, hidden) for the R rows that are `selected`."""
        q, k = self.queries(h, angles), self.latents(h, angles)
        del h
        if self._expands(cache, step if selected is None else selected.step):
            attend = partial(attend_expanded, key_up=self.key_up, value_up=self.value_up)
            o = mix(cache, self.layer, q, k, None, step, selected, attend)
        else:  # (R, H, C): sums of latent vectors
            o = mix(cache, self.layer, self.absorbed(q), k, None, step, selected)
            o = _each_head(o, self.value_up.mT)
        o = self.xp.reshape(o, (o.shape[0], -1))
        return linear(o, self.w["o.weight"], self.w.get("o.bias"))

    def _expands(self, cache: Cache, step: Step) -> bool:
        """Whether to expand: it's cheaper, and nothing but all cached tokens decides the result."""
        if cache.attention is not None or cache.wants_queries or cache.forgets:
            return False
        if self.spec.window is not None or step.parents is not None:
            return False
        return expanding_pays(self.sizes, step)

    def latents(self, h: Array, angles: Angles) -> Array:
        """h (T, hidden) → (T, 1, C + R): what the cache keeps, the latent vector first."""
        xp, rank = self.xp, self.sizes.kv_lora_rank
        kv = linear(h, self.w["kv_down.weight"], self.w.get("kv_down.bias"))[:, None, :]
        c = normalised(xp, kv[..., :rank], EPS)[0] * self.w["kv_norm.weight"]
        return xp.concat([c, _turned(kv[..., rank:], angles)], axis=-1)

    def queries(self, h: Array, angles: Angles) -> Array:
        """h (T, hidden) → (T, H, N + R): each head's query, of which the last R are turned."""
        w, width = self.w, self.sizes.qk_nope_head_dim
        if "q.weight" in w:
            q = linear(h, w["q.weight"])
        else:
            q = linear(h, w["q_down.weight"], w.get("q_down.bias"))
            q = normalised(self.xp, q, EPS)[0] * w["q_norm.weight"]
            q = linear(q, w["q_up.weight"])
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


def expanding_pays(sizes: Latent, step: Step) -> bool:
    """Whether a step takes fewer multiplications, per head, expanded than absorbed."""
    rank, width = sizes.kv_lora_rank, sizes.qk_nope_head_dim + sizes.v_head_dim
    expanded = absorbed = 0
    for new, held in zip(step.q_lens, step.seq_lens, strict=True):
        pairs = new * held - new * (new - 1) // 2  # of a query and a key that it sees
        expanded += held * rank * width + pairs * (width + sizes.qk_rope_head_dim)
        absorbed += new * rank * width + pairs * (2 * rank + sizes.qk_rope_head_dim)
    return expanded < absorbed


def attend_expanded(
    cache: Cache, layer: int, q: Array, step: Step, key_up: Array, value_up: Array
) -> Array:
    """q (T, H, N + R), key_up (H, N, C), value_up (H, V, C) → o (T, H, V), over all tokens."""
    parts = []
    for i, seq_id in enumerate(step.seq_ids):
        rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
        latents = cache.read(layer, seq_id)[0][:, 0, :]
        parts.append(_attend(rows, latents, key_up, value_up, cache.layers[layer]))
    return parts[0] if len(parts) == 1 else namespace(q).concat(parts, axis=0)


def _attend(q: Array, latents: Array, key_up: Array, value_up: Array, spec: LayerSpec) -> Array:
    """The last T of S positions over all S: q (T, H, N + R), latents (S, C + R) → o (T, H, V)."""
    xp, old = namespace(q), latents.shape[0] - q.shape[0]
    settings: dict[str, Any] = {"sm_scale": spec.sm_scale, "softcap": spec.softcap}
    k, v = expanded(latents[old:, :], key_up, value_up)
    if not old:
        return attend_causal(q, k, v, **settings)  # type: ignore[no-any-return]
    o, lse = attend_causal(q, k, v, return_lse=True, **settings)
    for a in range(0, old, EXPANDED_PIECE):
        k, v = expanded(latents[a : min(a + EXPANDED_PIECE, old), :], key_up, value_up)
        n = k.shape[1]
        earlier = attend_before(q, Slices(xp, k, v, n), n, xp, **settings)
        o, lse = merge_state(o, lse, *earlier)
    return o


def expanded(latents: Array, key_up: Array, value_up: Array) -> tuple[Array, Array]:
    """Keys and values of all heads: latents (n, C + R) → k (H, n, N + R), v (H, n, V)."""
    xp, (heads, _, rank) = namespace(latents), key_up.shape
    c, turned = latents[:, :rank], latents[None, :, rank:]
    v = xp.matmul(c, value_up.mT)
    turned = xp.broadcast_to(turned, (heads, *turned.shape[1:]))
    k = xp.concat([xp.matmul(c, key_up.mT), turned], axis=-1)
    if counting():
        flops = 2 * latents.shape[0] * (key_up.size + value_up.size)
        report("linear", flops=flops, read=nbytes(key_up) + nbytes(value_up) + nbytes(latents))
    return k, v

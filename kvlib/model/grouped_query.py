"""Grouped-query attention (arXiv:2305.13245), the token mixer of most decoders.

With one kv head for each query head it is multi-head attention, with a single one multi-query
attention. Another mixer is another file with such a class: `spec` says what its cache stores, and
`forward` calls the cache through `mix`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, LayerSpec, Step
from kvlib.model.config import ModelConfig
from kvlib.model.layers import Norm, by_rows, linear
from kvlib.model.rope import Angles, rotate


class Selection(NamedTuple):
    """The R `rows` of a step that get logits, in the order in which they were asked for.

    step      as the last layer sees it: of each request the rows from its first selected one on
    attended  the rows of that step
    places    the index of each selected row among the attended; None where both are the same
    """

    rows: list[int]
    step: Step
    attended: list[int]
    places: list[int] | None


class GroupedQuery:
    """The attention of layer number `layer`, whose weights are `w`."""

    def __init__(self, config: ModelConfig, layer: int, w: dict[str, Array]) -> None:
        self.layer, self.w, self.xp = layer, w, namespace(w["o.weight"])
        self.num_qo_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim, scalar = config.head_dim, config.query_pre_attn_scalar
        self.q_norm = Norm(config, w, "q_norm") if config.qk_norm else None
        self.k_norm = Norm(config, w, "k_norm") if config.qk_norm else None
        self.wide = config.qk_norm_wide
        self.spec = LayerSpec(
            self.num_kv_heads,
            self.head_dim,
            window=config.windows[layer],
            sm_scale=None if scalar is None else scalar**-0.5,
            softcap=config.attn_logit_softcapping,
            sinks=w["sinks.weight"] if config.sinks else None,
        )

    def forward(
        self, h: Array, cache: Cache, step: Step, angles: Angles, selected: Selection | None = None
    ) -> Array:
        """h (T, hidden) → (T, hidden), or (R, hidden) for the R rows that are `selected`."""
        q, k, v = self.project(h, angles)
        del h  # of a long prompt it is large, and attention needs the room
        o = mix(cache, self.layer, q, k, v, step, selected)
        o = self.xp.reshape(o, (o.shape[0], o.shape[1] * o.shape[2]))
        return linear(o, self.w["o.weight"], self.w.get("o.bias"))

    def project(self, h: Array, angles: Angles) -> tuple[Array, Array, Array]:
        """h (T, hidden) → q (T, Hq, D), k (T, Hkv, D), v (T, Hkv, D), after RoPE."""
        xp, heads = self.xp, self.num_qo_heads + self.num_kv_heads
        qkv = linear(h, self.w["qkv.weight"], self.w.get("qkv.bias"))
        qkv = xp.reshape(qkv, (h.shape[0], heads + self.num_kv_heads, self.head_dim))
        qk, v = qkv[:, :heads, :], qkv[:, heads:, :]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = qk[:, : self.num_qo_heads, :], qk[:, self.num_qo_heads :, :]
            if self.wide:  # all heads of a token at once
                q, k = xp.reshape(q, (h.shape[0], -1)), xp.reshape(k, (h.shape[0], -1))
            qk = xp.reshape(xp.concat([self.q_norm(q), self.k_norm(k)], axis=1), qk.shape)
        if angles is not None:
            qk = by_rows(rotate, qk, *angles)
        return qk[:, : self.num_qo_heads, :], qk[:, self.num_qo_heads :, :], v


def mix(
    cache: Cache,
    layer: int,
    q: Array,
    k: Array,
    v: Array | None,
    step: Step,
    selected: Selection | None = None,
    attend: Callable[[Cache, int, Array, Step], Any] | None = None,
) -> Array:
    """Append k (T, Hkv, Dk) and v (or None), and attend from q (T, Hq, Dk): o (R, Hq, Dv).
    selected: the R rows, all unless given. attend: called instead of ``cache.run``."""
    cache.append(layer, k, v, step)
    places = None if selected is None else selected.places
    if selected is not None and cache.wants_queries:  # a policy wants to see all queries
        places = selected.rows
    elif selected is not None:
        q, step = take_rows(q, selected.attended), selected.step
    o = cache.run(layer, q, step) if attend is None else attend(cache, layer, q, step)
    return o if places is None else take_rows(o, places)


def take_rows(x: Array, rows: Sequence[int]) -> Array:
    """x (T, ...) → its rows (R, ...), copied."""
    xp = namespace(x)
    return xp.take(x, xp.asarray(rows, dtype=xp.int64, device=x.device), axis=0)

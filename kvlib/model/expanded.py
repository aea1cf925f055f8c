"""Latent attention of a long chunk: keys and values of all heads, made from the latent vectors.

A cached token is expanded once for all queries of a chunk, and each query then meets keys of N + R
numbers in place of C + R. That pays from about 170 queries on with the sizes of DeepSeek-V3; see
`kvlib.model.latent` for the other form. Tokens before the chunk are expanded PIECE at a time, each
piece gives a partial result, and the results merge, so that the expanded keys of a long text are
never held together. vLLM and SGLang do the same with the cached part of a chunked prompt.
"""

from __future__ import annotations

from typing import Any

from kvlib.arrays import Array, namespace, nbytes
from kvlib.attention import attend_causal, merge_state
from kvlib.attention.before import attend_before
from kvlib.attention.pieces import Slices
from kvlib.caches import Cache, LayerSpec, Step
from kvlib.config.shape import Latent
from kvlib.meter import counting, report

PIECE = 512  # cached tokens expanded at a time


def pays(sizes: Latent, step: Step) -> bool:
    """Whether the tokens of a step take fewer multiplications expanded than absorbed.

    Per head, and for the whole step, because a step is computed in one form.
    """
    rank, both = sizes.kv_lora_rank, sizes.qk_nope_head_dim + sizes.v_head_dim
    expanded = absorbed = 0
    for new, held in zip(step.q_lens, step.seq_lens, strict=True):
        pairs = new * held - new * (new - 1) // 2  # of a query and a key that it sees
        expanded += held * rank * both + pairs * (both + sizes.qk_rope_head_dim)
        absorbed += new * rank * both + pairs * (2 * rank + sizes.qk_rope_head_dim)
    return expanded < absorbed


def attend_expanded(
    cache: Cache, layer: int, q: Array, step: Step, key_up: Array, value_up: Array
) -> Array:
    """Attend from queries to all that their requests hold: q (T, H, N + R) → o (T, H, V).

    key_up (H, N, C), value_up (H, V, C). The cache holds all tokens of these requests.
    """
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
    for a in range(0, old, PIECE):
        k, v = expanded(latents[a : min(a + PIECE, old), :], key_up, value_up)
        n = k.shape[1]
        before = attend_before(q, Slices(xp, k, v, n), n, xp, **settings)
        o, lse = merge_state(o, lse, *before)
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

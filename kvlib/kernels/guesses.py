"""A step of a few guesses over codes: the older tokens by decode_tensor.cu, the new ones apart.

No older token is hidden from a guess, as long as no window hides one. So the guesses of a request
are to the decode kernel what more query heads would be, and it reads the codes once for every eight
rows of a kv head. What the guesses see of each other is a matter of a few plain numbers, and the
two results merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arrays import Array
from kvlib.attention.states import merge_states
from kvlib.caches.step import Step
from kvlib.kernels import engine
from kvlib.kernels.cache_steps import StepTables, stored
from kvlib.kernels.codes import Codes
from kvlib.kernels.decode import piece_of, settings_of
from kvlib.kernels.decode_pieces import attend
from kvlib.kernels.prefill import prefill_attention
from kvlib.kernels.trees import Tree

MOST_ROWS = 64  # per kv head: the decode kernel reads the codes once for every eight of them


class _Rows(NamedTuple):
    """A step's rows as a block of equally many per request, and back; and the older tokens.

    block (B · most,): row of the step for each row of the block   back (T,): the other way round
    older (B,) int32: tokens of each request in codes that all its rows see; lens: as integers
    at: block and position of each new token that lies in codes, the request's last if it has fewer
    """

    block: Array
    back: Array
    older: Array
    lens: tuple[int, ...]
    at: tuple[Array, Array] | None


def attend_guesses(
    cache: Any,
    layer: int,
    q: Array,
    step: Step,
    tables: StepTables,
    ends: Array,
    tree: Tree | None,
    run_on: str | None,
) -> tuple[Array, Array] | None:
    """q (T, Hq, D) → o (T, Hq, D), lse (T, Hq) float32; None for a step that is left to the cache.

    The cache does a step with more than MOST_ROWS rows per kv head of a request, one whose new
    tokens have been encoded in groups, one with a window that hides something, and one whose
    queries are of another type than the cache. ends (B + 1,) int32: offsets of the requests' rows.
    """
    spec, xp, (coded, waiting) = cache.layers[layer], cache.xp, tables.lens
    lens = [n + m for n, m in zip(coded, waiting, strict=True)]
    parents = step.parents or (None,) * len(lens)
    new = [n if p is None else len(p) for n, p in zip(step.q_lens, parents, strict=True)]
    waits = cache.codec.waits
    if (
        max(step.q_lens) * (q.shape[1] // spec.num_kv_heads) > MOST_ROWS
        or np.dtype(q.dtype) != np.dtype(cache.dtype)
        or (spec.window is not None and max(lens) > spec.window)
        or (waits and any(n > m for n, m in zip(new, waiting, strict=True)))
    ):
        return None
    k, v = stored(cache, layer)
    rows = _rows(cache, layer, step, tables, new)
    if waits:
        behind, k_new, v_new = tables.waiting, *_waiting(xp, step, layer)
    else:
        assert isinstance(k, Codes) and isinstance(v, Codes) and rows.at is not None
        k_new, v_new = (_decoded(xp, x, rows.at, len(new), cache.dtype) for x in (k, v))
        behind = xp.asarray(np.array(new, dtype=np.int32))
    settings = {"sm_scale": spec.sm_scale, "softcap": spec.softcap}
    o, lse = prefill_attention(
        xp.ascontiguousarray(q), k_new, v_new, ends, behind, max_new=max(step.q_lens), tree=tree,
        return_lse=True, run_on=run_on, **settings,
    )  # fmt: skip
    if not any(rows.lens):
        return o, lse
    where = engine.chosen(run_on, q)
    asked = _as_heads(xp, q[rows.block], len(new), spec.num_kv_heads)
    of = settings_of(asked, spec.sm_scale, spec.softcap, None)
    piece = piece_of(
        asked, k, v, rows.older, tables.block_table, of, lens=rows.lens, where=where
    )  # fmt: skip
    both = attend(asked, [piece], of, where, tables.work)
    old_o, old_lse = (_as_rows(xp, x, spec.num_kv_heads, q.shape[1])[rows.back] for x in both)
    o, lse = merge_states(xp.stack([old_o, xp.astype(o, xp.float32)]), xp.stack([old_lse, lse]))
    return xp.astype(o, q.dtype), lse


def _rows(cache: Any, layer: int, step: Step, tables: StepTables, new: Sequence[int]) -> _Rows:
    """Made once for all layers of a group."""
    known: _Rows | None = tables.shared.get("guesses")
    if known is not None:
        return known
    xp, most, (coded, _) = cache.xp, max(step.q_lens), tables.lens
    block = [
        first + min(i, n - 1)
        for first, n in zip(step.qo_indptr, step.q_lens, strict=False)
        for i in range(most)
    ]
    back = [b * most + i for b, n in enumerate(step.q_lens) for i in range(n)]
    older, at = coded, None
    if not cache.codec.waits:
        older = tuple(end - n for end, n in zip(coded, new, strict=True))
        at = _places(cache, layer, step, older, new)
    lens = xp.asarray(np.array(older, dtype=np.int32))
    found = _Rows(xp.asarray(np.array(block)), xp.asarray(np.array(back)), lens, older, at)
    tables.shared["guesses"] = found
    return found


def _places(
    cache: Any, layer: int, step: Step, older: Sequence[int], new: Sequence[int]
) -> tuple[Array, Array]:
    """Block and position in it of each request's new tokens, (B · most,) each."""
    size, pages = cache.fields(layer)[0][1]["codes"].shape[2], cache.pages(step, layer)
    places = [
        (own[at // size], at % size)
        for own, begin, n in zip(pages, older, new, strict=True)
        for at in (begin + min(i, n - 1) for i in range(max(new)))
    ]
    block, at = np.array(places, dtype=np.int64).T
    return cache.xp.asarray(block), cache.xp.asarray(at)


def _decoded(xp: Any, coded: Codes, at: tuple[Array, Array], batch: int, dtype: Any) -> Array:
    """The tokens at some places as rows of a dense cache (B, Hkv, n, D)."""
    fields = zip(coded._fields[1:], coded[1:], strict=True)
    parts = {name: x[at[0], :, at[1]] for name, x in fields if x is not None}
    x = coded.codec.decode(parts, dtype)  # (B · n, Hkv, D)
    x = xp.reshape(x, (batch, -1, *x.shape[1:]))
    return xp.ascontiguousarray(xp.permute_dims(x, (0, 2, 1, 3)))


def _waiting(xp: Any, step: Step, layer: int) -> list[Array]:
    """What waits to be encoded, keys and values, as rows (B, Hkv, room, D) of one length."""
    found = []
    for own in zip(*(state.residuals[layer].both for state in step.states), strict=True):
        if len(own) == 1:
            found.append(own[0][None])
            continue
        heads, _, dim = own[0].shape
        room = max(x.shape[1] for x in own)
        rows = xp.zeros((len(own), heads, room, dim), dtype=own[0].dtype)
        for row, x in zip(rows, own, strict=True):
            row[:, : x.shape[1], :] = x
        found.append(rows)
    return found


def _as_heads(xp: Any, q: Array, batch: int, num_kv_heads: int) -> Array:
    """q (B · n, Hq, D) as float32 with n times as many query heads per kv head, (B, n · Hq, D)."""
    dim = q.shape[2]
    q = xp.reshape(
        xp.astype(q, xp.float32), (batch, -1, num_kv_heads, q.shape[1] // num_kv_heads, dim)
    )
    return xp.ascontiguousarray(xp.reshape(xp.permute_dims(q, (0, 2, 1, 3, 4)), (batch, -1, dim)))


def _as_rows(xp: Any, x: Array, num_kv_heads: int, num_qo_heads: int) -> Array:
    """The way back: x (B, n · Hq, ...) → (B · n, Hq, ...)."""
    batch, rest = x.shape[0], x.shape[2:]
    x = xp.reshape(x, (batch, num_kv_heads, -1, num_qo_heads // num_kv_heads, *rest))
    x = xp.permute_dims(x, (0, 2, 1, *range(3, x.ndim)))
    return xp.reshape(x, (-1, num_qo_heads, *rest))

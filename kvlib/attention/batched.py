"""A few queries for each of several texts, in one product where that is faster than one each.

A call for each text costs some 25 µs on a processor, which is most of the time over a few dozen
keys. Texts in neighbouring rows of a cache are read in place up to the length of the shortest; the
rest is copied, with zeros in free slots, because 0 · NaN is NaN. The queries of a text are its
newest tokens; all texts of a product have the same number of them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from kvlib import blas
from kvlib.arrays import Array, kv_nbytes, namespace
from kvlib.attention.partials import answer, as_dtype, cap, divided, scaled, softmax_seen
from kvlib.blas import DECODE_PIECE
from kvlib.meter import OPEN, report

LARGE = 2**18  # most numbers of values in a text; above, the call costs little beside the sums
ALONE = 2**17  # most numbers of values in a text that is copied; above, a call costs less
GATHERED = 2**19  # most numbers copied for one product: 2 MiB of keys and of values in float32
COPIED = 4096  # most numbers of values copied for a text; twice as many gain nothing


def one_product_pays(
    shortest: int, longest: int, numbers: int, window: int | None = None, each: int = 1
) -> bool:
    """Whether one product for texts of `shortest` to `longest` keys is faster than one each.

    numbers: Hkv · Dv, of a token's values in a layer. each: queries of a text (`few_queries`).
    Longer texts are read a piece at a time, and what is after the end of the shortest is copied:
    DECODE_PIECE, LARGE and COPIED are measured by benchmarks/batched.py. A window must hide
    nothing, or the same of all.
    """
    copied = longest - shortest
    if window is not None and longest > window:
        if copied or each > 1:
            return False
        longest = window
    return longest <= DECODE_PIECE and longest * numbers <= LARGE and copied * numbers <= COPIED


def few_queries(queries: int, heads_per_kv: int) -> bool:
    """Whether a text has few queries: with more than FEW rows a kv head, products take long."""
    return queries == 1 or queries * heads_per_kv <= blas.FEW


def batches_in_place(
    rows: Sequence[int],
    lengths: Sequence[int],
    queries: Sequence[int],
    numbers: int,
    window: int | None,
) -> list[list[int]]:
    """Return which texts, by index, share a product: neighbouring rows, where that pays."""
    n = len(rows)
    in_order = n > 1 and tuple(rows) == tuple(range(rows[0], rows[0] + n))
    one = in_order and min(queries) == max(queries)
    if one and one_product_pays(min(lengths), max(lengths), numbers, window, queries[0]):
        return [list(range(n))]

    def fits(batch: list[int], i: int) -> bool:
        last, keys = batch[-1], [lengths[j] for j in (*batch, i)]
        next_row = rows[i] == rows[last] + 1 and queries[i] == queries[last]
        return next_row and one_product_pays(min(keys), max(keys), numbers, window, queries[i])

    return _batches(sorted(range(n), key=rows.__getitem__), fits)


def batches_copied(
    lengths: Sequence[int], queries: Sequence[int], numbers: int, window: int | None
) -> list[list[int]]:
    """Return which texts, by index, share a product if every text is copied: texts of similar
    length, with as many queries, at most GATHERED numbers in a product and ALONE in a text."""

    def fits(batch: list[int], i: int) -> bool:  # the longest so far
        size = min(lengths[i], window or lengths[i]) * numbers
        small = size <= ALONE and (len(batch) + 1) * size <= GATHERED
        same = small and queries[i] == queries[batch[0]]
        return same and one_product_pays(lengths[batch[0]], lengths[i], numbers, window, queries[i])

    order = sorted(range(len(lengths)), key=lambda i: (queries[i], lengths[i]))
    return [sorted(batch) for batch in _batches(order, fits)]


def _batches(order: Sequence[int], fits: Callable[[list[int], int], bool]) -> list[list[int]]:
    """Put each text into the batch of the text before it if it fits; drop batches of one."""
    batches: list[list[int]] = []
    for i in order:
        if batches and fits(batches[-1], i):
            batches[-1].append(i)
        else:
            batches.append([i])
    return [batch for batch in batches if len(batch) > 1]


def by_text(result: Any, batch: Sequence[int], each: int = 1) -> dict[int, Any]:
    """Split the result of a batch: text → its rows (each, ...) of o, or of o and lse."""
    rows_of = {i: slice(n * each, (n + 1) * each) for n, i in enumerate(batch)}
    if isinstance(result, tuple):
        return {i: tuple(x[rows, ...] for x in result) for i, rows in rows_of.items()}
    return {i: result[rows, ...] for i, rows in rows_of.items()}


def batch_rows(xp: Any, x: Array, batch: Sequence[int], offsets: Sequence[int]) -> Array:
    """Return the rows x[offsets[i] : offsets[i + 1]] of each i of a batch, a view if possible."""
    a, n = batch[0], len(batch)
    if list(batch) == list(range(a, a + n)):
        return x[offsets[a] : offsets[a + n], ...]
    return xp.concat([x[offsets[i] : offsets[i + 1], ...] for i in batch], axis=0)


def attend_texts(
    q: Array,
    k: Array,
    v: Array,
    lengths: Sequence[int],
    ends: Array,
    *,
    window: int | None = None,
    sm_scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """Attention of the last T tokens of each of B texts over its own keys, all at once.

    q (B · T, Hq, Dk)   k (B, Hkv, S, Dk)   v (B, Hkv, S, Dv), key j of text b at position j
    lengths  B integers; slots after a text's length are never read. ends: the same as an array
    →   o (B · T, Hq, Dv), and with ``return_lse`` lse (B · T, Hq)

    As :func:`kvlib.attend_causal` gives for each, up to the order of summation. Lengths that
    differ, and T > 1, need a window that hides nothing (`one_product_pays`). Nothing is checked.
    """
    xp = namespace(q, k, v)
    low, high, b = min(lengths), max(lengths), len(lengths)
    first = 0 if window is None else max(0, high - window)
    rows = blas.column_major(xp, _by_head(xp, scaled(xp, q, sm_scale), b, k.shape[1]))
    scores = xp.empty((*rows.shape[:3], high - first), dtype=rows.dtype, device=q.device)
    part = blas.scores(xp, rows, as_dtype(xp, k[:, :, first:low, :], rows.dtype))
    scores[..., : low - first] = cap(xp, part, softcap)
    if low < high:
        free = _after(xp, low, high, ends[:, None])  # (B, high − low)
        rest = (as_dtype(xp, x[:, :, low:high, :], rows.dtype) for x in (k, v))
        k_rest, v_rest = (_cleared(xp, x, free) for x in rest)
        scores[..., low - first :] = cap(xp, blas.scores(xp, rows, k_rest), softcap)
    each = q.shape[0] // b
    if low - each + 1 < high:
        _apply_mask(xp, scores, low - each + 1 - first, ends - first, each)
    p, top, total = softmax_seen(xp, scores)
    seen = as_dtype(xp, v[:, :, first:low, :], rows.dtype)
    o = blas.weigh(xp, p[..., : low - first], seen)
    if low < high:
        o = o + blas.weigh(xp, p[..., low - first :], v_rest)
    o, lse = divided(xp, (o, top, total), return_lse or sinks is not None)
    if OPEN:
        pairs, dims = sum(lengths) - b * first, q.shape[2] + v.shape[3]
        read = pairs * kv_nbytes(k[:1, :, :1, :], v[:1, :, :1, :])
        report("attention", flops=2 * pairs * each * q.shape[1] * dims, read=read)
    o, lse = (None if x is None else _by_token(xp, x, each) for x in (o, lse))
    return answer(xp, o, lse, q.dtype, sinks, return_lse)


def _by_head(xp: Any, q: Array, b: int, heads: int) -> Array:
    """q (B · T, Hq, D) → (B, Hkv, G · T, D): the queries of one kv head are neighbours."""
    n, num_qo_heads, dim = q.shape
    shape = (b, n // b, heads, num_qo_heads // heads, dim)
    if n > b:
        q = xp.permute_dims(xp.reshape(q, shape), (0, 2, 3, 1, 4))
    return xp.reshape(q, (b, heads, -1, dim))


def _by_token(xp: Any, x: Array, each: int) -> Array:
    """The inverse of `_by_head`: (B, Hkv, G · T, D) → (B · T, Hq, D)."""
    b, heads, stacked, dim = x.shape
    if each > 1:
        x = xp.reshape(x, (b, heads, stacked // each, each, dim))
        x = xp.permute_dims(x, (0, 3, 1, 2, 4))
    return xp.reshape(x, (b * each, heads * (stacked // each), dim))


def _after(xp: Any, a: int, b: int, ends: Array) -> Array:
    """Which of the slots a ... b − 1 are at an end or after it: ends (..., 1) → (..., b − a)."""
    return xp.arange(a, b, dtype=xp.int64, device=ends.device) >= ends


def _apply_mask(xp: Any, scores: Array, a: int, ends: Array, each: int) -> None:
    """Set to −inf, in place, what queries may not see of scores (B, Hkv, G · T, n) from key a."""
    b, heads, stacked, n = scores.shape
    back = xp.arange(each - 1, -1, -1, dtype=xp.int64, device=ends.device)
    hidden = _after(xp, a, n, ends[:, None, None] - back[:, None])  # (B, T, n − a)
    split = xp.reshape(scores, (b, heads, stacked // each, each, n))
    part = xp.where(hidden[:, None, None, :, :], -math.inf, split[..., a:])
    scores[..., a:] = xp.reshape(part, (b, heads, stacked, n - a))


def _cleared(xp: Any, x: Array, free: Array) -> Array:
    """x (B, Hkv, n, D) with zeros in free slots: free (B, n)."""
    return xp.where(free[:, None, :, None], xp.zeros((), dtype=x.dtype, device=x.device), x)

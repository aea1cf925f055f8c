"""One query for each of several texts, in one product where that is faster than one each.

A call for each text costs some 25 µs on a processor, whatever the text; over a few dozen keys that
is most of it. Texts in neighbouring rows of a cache are read as they lie, as far as all of them
reach; what only some have is copied, with zeros where nothing is held, because 0 · NaN is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kvlib.arrays import Array, itemsize, namespace
from kvlib.attention import products
from kvlib.attention.direct import answer, as_dtype, cap, scaled
from kvlib.attention.products import PIECE
from kvlib.attention.states import divided, softmax_seen
from kvlib.meter import counting, report

LARGE = 2**18  # numbers of values in a text, from which what a call costs is lost beside its sums
ALONE = 2**17  # numbers of values in a text above which copying it costs more than a call saves
GATHERED = 2**19  # most numbers copied for one product: 2 MiB of keys and of values in float32
COPIED = 4096  # numbers of values copied for a text; from twice as many on nothing is gained


def pays(shortest: int, longest: int, numbers: int, window: int | None = None) -> bool:
    """Whether one product for texts of `shortest` to `longest` keys is faster than one each.

    numbers: of a token's values in a layer, Hkv · Dv. It is where no text has more than PIECE keys
    (longer ones are read a piece at a time, while it is in the processor's cache) or LARGE numbers,
    and where at most COPIED numbers a text lie behind the shortest (they are copied). Measured by
    benchmarks/batched.py. A window must hide nothing, or the same of all.
    """
    behind = longest - shortest
    if window is not None and longest > window:
        if behind:
            return False
        longest = window
    return longest <= PIECE and longest * numbers <= LARGE and behind * numbers <= COPIED


def together(
    rows: Sequence[int], lengths: Sequence[int], numbers: int, window: int | None
) -> list[list[int]]:
    """Which texts go into one product: neighbouring rows, in their order, where it `pays`.

    rows, lengths: of each text its row and its keys. Texts are named by their place in the two
    lists; one that is in none of the lists returned goes alone.
    """
    n = len(rows)
    in_order = n > 1 and tuple(rows) == tuple(range(rows[0], rows[0] + n))
    if in_order and pays(min(lengths), max(lengths), numbers, window):
        return [list(range(n))]

    def fits(batch: list[int], i: int) -> bool:
        both = [lengths[j] for j in (*batch, i)]
        next_row = rows[i] == rows[batch[-1]] + 1
        return next_row and pays(min(both), max(both), numbers, window)

    return _batches(sorted(range(n), key=rows.__getitem__), fits)


def alike(lengths: Sequence[int], numbers: int, window: int | None) -> list[list[int]]:
    """Which texts go into one product if every text is copied anyway: texts of similar length.

    Unlike `together`, this takes texts from any rows, in order of length, and starts a new batch
    where one product would no longer pay or would copy more than GATHERED numbers. A text of more
    than ALONE numbers is in no batch.
    """

    def fits(batch: list[int], i: int) -> bool:  # the longest so far
        size = min(lengths[i], window or lengths[i]) * numbers
        small = size <= ALONE and (len(batch) + 1) * size <= GATHERED
        return small and pays(lengths[batch[0]], lengths[i], numbers, window)

    found = _batches(sorted(range(len(lengths)), key=lengths.__getitem__), fits)
    return [sorted(batch) for batch in found]


def _batches(order: Sequence[int], fits: Callable[[list[int], int], bool]) -> list[list[int]]:
    """Each text in the batch of the text before it, where it fits; batches of one are left out."""
    found: list[list[int]] = []
    for i in order:
        if found and fits(found[-1], i):
            found[-1].append(i)
        else:
            found.append([i])
    return [batch for batch in found if len(batch) > 1]


def by_text(found: Any, batch: Sequence[int]) -> dict[int, Any]:
    """Split the results of a batch: text → its row (1, ...) of o, or of o and lse."""
    both = isinstance(found, tuple)
    return {
        i: tuple(x[n : n + 1, ...] for x in found) if both else found[n : n + 1, ...]
        for n, i in enumerate(batch)
    }


def taken(xp: Any, x: Array, batch: Sequence[int]) -> Array:
    """x (B, ...) → the rows of a batch, a view where they lie together."""
    a, n = batch[0], len(batch)
    if list(batch) == list(range(a, a + n)):
        return x[a : a + n, ...]
    return xp.concat([x[i : i + 1, ...] for i in batch], axis=0)


def attend_rows(
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
    """Attention of the last token of each of B texts over its own keys, all at once.

    q (B, Hq, Dk)   k (B, Hkv, S, Dk)   v (B, Hkv, S, Dv), key j of text b at position j
    lengths  B integers; what lies behind a text's length is never looked at
    ends     the same as an array (B,), where q lives
    →   o (B, Hq, Dv), and with ``return_lse`` lse (B, Hq)

    Each row is what :func:`kvlib.attend_causal` gives for that text alone, up to the order of
    summation. Lengths that differ need a window that hides nothing (see `pays`). Not checked here:
    a cache asks for what it holds.
    """
    xp = namespace(q, k, v)
    low, high = min(lengths), max(lengths)
    first = 0 if window is None else max(0, high - window)
    (b, num_qo_heads, dim), num_kv_heads, v_dim = q.shape, k.shape[1], v.shape[3]
    rows = xp.reshape(scaled(xp, q, sm_scale), (b, num_kv_heads, num_qo_heads // num_kv_heads, dim))
    rows = products.columns_together(xp, rows)
    scores = xp.empty((*rows.shape[:3], high - first), dtype=rows.dtype, device=q.device)
    part = products.scores(xp, rows, as_dtype(xp, k[:, :, first:low, :], rows.dtype))
    scores[..., : low - first] = cap(xp, part, softcap)
    if low < high:
        at = xp.arange(low, high, dtype=xp.int64, device=q.device)
        free = at[None, :] >= ends[:, None]  # (B, high − low)
        rest = (as_dtype(xp, x[:, :, low:high, :], rows.dtype) for x in (k, v))
        k_rest, v_rest = (_cleared(xp, x, free) for x in rest)
        part = cap(xp, products.scores(xp, rows, k_rest), softcap)
        scores[..., low - first :] = xp.where(free[:, None, None, :], -math.inf, part)
    p, top, total = softmax_seen(xp, scores)
    seen = as_dtype(xp, v[:, :, first:low, :], rows.dtype)
    o = products.weigh(xp, p[..., : low - first], seen)
    if low < high:
        o = o + products.weigh(xp, p[..., low - first :], v_rest)
    o, lse = divided(xp, (o, top, total), return_lse or sinks is not None)
    if counting():
        pairs, both = sum(lengths) - b * first, dim + v_dim
        read = pairs * num_kv_heads * both * itemsize(xp, k.dtype)
        report("attention", flops=2 * pairs * num_qo_heads * both, read=read)
    o = xp.reshape(o, (b, num_qo_heads, v_dim))
    return answer(xp, o, lse, q.dtype, sinks, return_lse)


def _cleared(xp: Any, x: Array, free: Array) -> Array:
    """x (B, Hkv, n, D) with zeros where `free` (B, n) says that nothing is held."""
    return xp.where(free[:, None, :, None], xp.zeros((), dtype=x.dtype, device=x.device), x)

"""topk.cu and sample.cu in NumPy: the same splits, tiles and floors; the same integer weights."""

from typing import Any

import numpy as np

from kvlib.attention.partials import finite
from kvlib.kernels.plans_topk import FULL, THREADS, WAITING, TopKPlan
from kvlib.kernels.types import as_float

Pair = tuple[np.ndarray, np.ndarray]  # maxima m, sums


def keys_of(x: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """float32 logits and their columns as uint64: the larger key is the better candidate."""
    bits = (x + np.float32(0)).view(np.uint32)  # −0 + 0 is 0
    order = np.where(bits >> np.uint32(31) == 1, ~bits, bits | np.uint32(0x80000000))
    order = np.where(np.isnan(x), np.uint32(0), order)
    return order.astype(np.uint64) << np.uint64(32) | (~columns.astype(np.uint32)).astype(np.uint64)


def values_of(keys: np.ndarray) -> np.ndarray:
    """The logits of keys, NaN as NaN."""
    order = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(order >> np.uint32(31) == 1, order & np.uint32(0x7FFFFFFF), ~order)
    return np.where(order == 0, np.float32(np.nan), bits.view(np.float32))


def topk(
    logits: np.ndarray, k: int, scale: float, plan: TopKPlan, counts: dict[str, Any] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """logits (rows, V) → values and columns (rows, k), totals (3, rows). counts: told how many
    logits were `compared`, vectors `passed` their bar, and buffers were merged."""
    rows, vocabulary = logits.shape
    values = np.empty((rows, k), np.float32)
    columns = np.empty((rows, k), np.int32)
    totals = np.empty((3, rows), np.float32)
    for name in ("compared", "passed", "merges"):
        if counts is not None:
            counts.setdefault(name, 0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for row in range(rows):
            parts, candidates = [], []
            for split in range(plan.splits):
                begin = min(vocabulary, split * plan.each)
                end = min(vocabulary, begin + plan.each)
                lead = (row * vocabulary + begin) % (16 // logits.itemsize)
                x = as_float(logits[row, begin:end])
                keys, pair = _split(x, begin, lead, 16 // logits.itemsize, k, scale, plan, counts)
                candidates.append(keys)
                parts.append(pair)
            best = _best(np.concatenate(candidates), k)
            m, total = _over_splits(parts, scale)
            values[row], columns[row] = values_of(best), (~best.astype(np.uint32)).view(np.int32)
            lse = (m * np.float32(scale) + np.log2(total)) * np.float32(np.log(2))
            totals[:, row] = m, total, lse
    return values, columns, totals


def _split(
    x: np.ndarray, begin: int, lead: int, count: int, k: int, scale: float, plan: TopKPlan,
    counts: Any,
) -> tuple[np.ndarray, Pair]:  # fmt: skip
    """One block over its columns: (keys of its best, (maximum, sum)). count: logits of a vector"""
    vectors = plan.variant.vectors
    tile, items = THREADS * vectors * count, vectors * count
    tiles = -(-(len(x) + lead) // tile)
    padded = np.full(tiles * tile, -np.inf, np.float32)
    padded[lead : lead + len(x)] = x
    if counts is not None:
        counts["compared"] += len(x)
    columns = np.arange(tiles * tile) - lead + begin
    inside = (columns >= begin) & (columns < begin + len(x))
    keys = np.where(inside, keys_of(padded, columns), np.uint64(0)).reshape(-1, count)
    lanes = padded.reshape(tiles, vectors, THREADS, count).swapaxes(1, 2)
    tops = np.fmax.reduce(padded.reshape(-1, count), axis=1)  # of vectors; NaN where all are
    m, total = np.full(THREADS, -np.inf, np.float32), np.zeros(THREADS, np.float32)
    buffer, floor, waiting = keys[:0], np.zeros(1, np.uint64), np.empty(0, np.int64)
    for t in range(tiles):
        x = lanes[t].reshape(THREADS, items)
        top = np.fmax(m, np.fmax.reduce(x, axis=1))
        m, total = _online(m, total, x, top, scale)
        mine = np.arange(t * THREADS * vectors, (t + 1) * THREADS * vectors)
        if t == 0:  # the k-th best vector is the bar
            least = _best(keys_of(tops[mine], -np.ones_like(mine)), k)[-1:]
            floor = np.where(values_of(least) > -np.inf, least, floor)
            passing = ~(tops[mine] < values_of(floor))
        else:
            passing = ~(tops[mine] <= values_of(floor))
        while True:
            counted = int(passing.sum())
            room = WAITING - len(waiting)
            waiting = np.append(waiting, mine[passing][:room])
            mine = np.append(mine[~passing], mine[passing][room:])
            if counts is not None:
                counts["passed"] += min(counted, room)
            if len(waiting) < FULL:
                break
            buffer, floor = _cut(buffer, keys[waiting], k, floor, counts)
            waiting = waiting[:0]
            passing = ~(tops[mine] < values_of(floor))
    buffer, _ = _cut(buffer, keys[waiting], k, floor, counts)
    warps, sums = np.full(32, -np.inf, np.float32), np.zeros(32, np.float32)
    warps[: THREADS // 32], sums[: THREADS // 32] = _over_lanes(m, total, scale)
    m, total = _over_lanes(warps, sums, scale)
    return _best(buffer, k), (m[0], total[0])


def _cut(buffer: np.ndarray, waiting: np.ndarray, k: int, floor: np.ndarray, counts: Any) -> Pair:
    """The best k of the buffer's keys and those of vectors, and the least of them as the floor."""
    keys = np.append(buffer, waiting)
    keys = _best(keys[(keys >= floor) & (keys > 0)], k)
    if counts is not None:
        counts["merges"] += 1
    return keys, keys[-1:] if len(keys) == k else floor


def _over_splits(parts: list[Pair], scale: float) -> Pair:
    """The parts of a row, the n-th in lane n % 32, then all lanes."""
    if len(parts) == 1:
        return parts[0]
    none = (np.full(1, -np.inf, np.float32), np.zeros(1, np.float32))
    arrays = [(np.atleast_1d(m), np.atleast_1d(total)) for m, total in parts]
    lanes = [_merged([none, *arrays[i::32]], scale) for i in range(32)]
    m, total = (np.concatenate(x) for x in zip(*lanes, strict=True))
    m, total = _over_lanes(m, total, scale)
    return m[0], total[0]


def _over_lanes(m: np.ndarray, total: np.ndarray, scale: float) -> Pair:
    """__shfl_xor_sync: neighbours first, until 32 threads are one."""
    for _ in range(5):
        m, total = _merged([(m[0::2], total[0::2]), (m[1::2], total[1::2])], scale)
    return m, total


def _online(m: np.ndarray, total: np.ndarray, x: np.ndarray, top: np.ndarray, scale: float) -> Pair:
    """One tile into each thread's maximum and sum, its numbers one after the other."""
    shrink = np.where(top > m, np.exp2((m - top) * np.float32(scale)), np.float32(1))
    total = total * shrink
    e = np.exp2((x - finite(np, top)[:, None]) * np.float32(scale))
    for i in range(x.shape[1]):
        total = total + e[:, i]
    return top, total


def _merged(pairs: list[Pair], scale: float) -> Pair:
    """Maxima and sums of parts as one, part after part."""
    m, total = pairs[0]
    for other_m, other in pairs[1:]:
        top = np.fmax(m, other_m)
        safe = finite(np, top)
        a, b = (np.exp2((x - safe) * np.float32(scale)) for x in (m, other_m))
        m, total = top, total * a + other * b
    return m, total


def _best(keys: np.ndarray, k: int) -> np.ndarray:
    """The k largest keys, largest first."""
    return np.sort(keys)[::-1][:k]


WEIGHT_BITS = 40
REFUSED, TOO_WIDE = -1, -2
# (ln 2)^i / i! in units of 2^-32, i = 10 ... 1 (weights.cuh)
SERIES = (0x1E, 0x1B5, 0x162C, 0xFFE6, 0xA1849, 0x576200, 0x276556E, 0xE35846C, 0x3D7F7BFF,
          0xB17217F7)  # fmt: skip
U32, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox(counters: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Philox 4x32-10 (doi:10.1145/2063384.2063405).   (n, 4), (n, 2) uint32 → (n, 4) uint32"""
    c0, c1, c2, c3 = (counters[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = (keys[:, i].astype(np.uint64) for i in range(2))
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c2 = (second >> U32) ^ c1 ^ k0, (first >> U32) ^ c3 ^ k1
        c1, c3 = second & LOW, first & LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def random_bits(seeds: np.ndarray, streams: np.ndarray, step: int) -> np.ndarray:
    """64 bits per row, decided by (seed, stream, step).   seeds uint64, streams uint32 → uint64"""
    zeros = np.zeros_like(streams)
    counters = np.stack([zeros, streams, np.full_like(streams, step), zeros], axis=1)
    keys = np.stack([seeds & LOW, seeds >> U32], axis=1).astype(np.uint32)
    words = philox(counters, keys).astype(np.uint64)
    return words[:, 1] << U32 | words[:, 0]


def weights(x: np.ndarray, maximum: np.ndarray, scale: float) -> np.ndarray:
    """exp2((x − maximum) · scale) as integers, 2^40 for the maximum.   float32 → uint64"""
    with np.errstate(invalid="ignore", over="ignore"):
        t = (x - maximum) * np.float32(scale)
        seen = t > -WEIGHT_BITS
    fixed = (np.where(seen, t, np.float32(0)) * np.float32(2**32)).astype(np.int64)
    f = fixed.astype(np.uint64) & LOW
    r = np.full_like(f, SERIES[0])
    for c in SERIES[1:]:
        r = np.uint64(c) + (r * f >> U32)
    power = (np.uint64(1 << 32) + (r * f >> U32)) << np.uint64(WEIGHT_BITS - 32)
    return np.where(seen, power >> (-(fixed >> 32)).astype(np.uint64), np.uint64(0))


def upper(a: int, b: int) -> int:
    """The upper 64 of the 128 bits of a product."""
    return int(a) * int(b) >> 64


def draw(
    values: np.ndarray,
    columns: np.ndarray,
    totals: np.ndarray,
    bits: np.ndarray,
    scale: float,
    nucleus: int,
    complete: bool,
) -> np.ndarray:
    """A token of each row's candidates (rows, k), or REFUSED or TOO_WIDE; int32 (rows,)."""
    tokens = np.empty(len(values), np.int32)
    for row in range(len(values)):
        maximum, total = totals[0, row], totals[1, row]
        if not (np.isfinite(maximum) and np.isfinite(total)):
            tokens[row] = REFUSED
            continue
        w = weights(values[row], maximum, scale)
        if nucleus:
            mass = int(w.sum()) if complete else int(total * np.float32(1 << WEIGHT_BITS))
            limit = upper(mass, nucleus)
            if not complete and int(w.sum()) < limit:
                tokens[row] = TOO_WIDE
                continue
            before = np.cumsum(w) - w
            w = np.where((before < np.uint64(limit)) | (np.arange(len(w)) == 0), w, np.uint64(0))
        by_id = np.argsort(columns[row])
        sums = np.cumsum(w[by_id])
        at = np.uint64(upper(bits[row], sums[-1]))
        tokens[row] = columns[row, by_id[np.searchsorted(sums, at, side="right")]]
    return tokens


def pick(logits: np.ndarray, totals: np.ndarray, bits: np.ndarray, scale: float) -> np.ndarray:
    """A token of all of each row (rows, V) float32, or REFUSED; int32 (rows,)."""
    tokens = np.empty(len(logits), np.int32)
    for row, x in enumerate(logits):
        if not np.isfinite(totals[:2, row]).all():
            tokens[row] = REFUSED
            continue
        sums = np.cumsum(weights(x, totals[0, row], scale))
        at = np.uint64(upper(bits[row], sums[-1]))
        tokens[row] = np.searchsorted(sums, at, side="right")
    return tokens

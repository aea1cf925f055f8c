"""sample.cu in NumPy: the same random bits, the same integer weights, the same token."""

from __future__ import annotations

import numpy as np

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
    """64 bits a row, decided by (seed, stream, step).   seeds uint64, streams uint32 → uint64"""
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
    whole = (np.uint64(1 << 32) + (r * f >> U32)) << np.uint64(WEIGHT_BITS - 32)
    return np.where(seen, whole >> (-(fixed >> 32)).astype(np.uint64), np.uint64(0))


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
    whole: bool,
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
            mass = int(w.sum()) if whole else int(total * np.float32(1 << WEIGHT_BITS))
            limit = upper(mass, nucleus)
            if not whole and int(w.sum()) < limit:
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

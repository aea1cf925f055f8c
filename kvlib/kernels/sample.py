"""One token a row, drawn where the logits are: temperature, top-k and top-p with a seed."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import describe, is_integer
from kvlib.arrays import Array, namespace, to_numpy
from kvlib.kernels import engine
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans_topk import CHUNK, MOST_K, THREADS
from kvlib.kernels.source import Kernel
from kvlib.kernels.topk import TopK, checked, scale_of, softmax_topk
from kvlib.kernels.twins.sample import REFUSED, TOO_WIDE, random_bits
from kvlib.kernels.types import CTYPES, as_float, ctype
from kvlib.serve.distribution import check_settings, probabilities

SHARED = 8 * (THREADS // 32 + 2)
SHARED_DRAW = SHARED + 12 * THREADS  # weights and columns of the candidates


class Drawn(NamedTuple):
    """What decides the draws of rows: seeds (B,) uint64 with streams (B,) uint32 and a step, or
    without streams the random bits themselves."""

    seeds: np.ndarray
    streams: np.ndarray | None
    step: int

    @classmethod
    def of(cls, batch: int, seeds: Any, streams: Any, step: int) -> Drawn:
        """Raises ValueError for numbers out of range, or not one a row."""
        one = _numbers("seeds", seeds, 64)
        own = list(range(batch)) if streams is None else _numbers("streams", streams, 32)
        one = one * batch if len(one) == 1 else one
        _one_a_row(batch, seeds=one, streams=own)
        if not is_integer(step) or not 0 <= (step := index(step)) < 1 << 32:
            raise ValueError(f"step must lie in 0 ... 2^32 − 1, got {describe(step)}")
        return cls(np.array(one, np.uint64), np.array(own, np.uint32), step)

    @classmethod
    def given(cls, batch: int, bits: Any) -> Drawn:
        """Random bits made elsewhere. Raises ValueError as `of` does."""
        own = _numbers("bits", bits, 64)
        _one_a_row(batch, bits=own)
        return cls(np.array(own, np.uint64), None, 0)

    def bits(self) -> np.ndarray:
        """64 random bits a row, uint64."""
        if self.streams is None:
            return self.seeds
        return random_bits(self.seeds, self.streams, self.step)


def _numbers(name: str, given: Any, bits: int) -> list[int]:
    numbers = np.ravel(np.asarray(to_numpy(given) if hasattr(given, "dtype") else given, object))
    wrong = [n for n in numbers if not is_integer(n) or not 0 <= index(n) < 1 << bits]
    if wrong:
        got = describe(wrong[0])
        raise ValueError(f"{name} must lie in 0 ... 2^{bits} − 1 and be integers, got {got}")
    return [index(n) for n in numbers]


def _one_a_row(batch: int, **given: list[int]) -> None:
    for name, numbers in given.items():
        if len(numbers) != batch:
            raise ValueError(f"{name} must have one number per row: {batch}, got {len(numbers)}")


def sample_tokens(
    logits: Array,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    seeds: Any = 0,
    streams: Array | None = None,
    step: int = 0,
    bits: np.ndarray | None = None,
    run_on: str | None = None,
) -> list[int]:
    """Draw one token per row; only token ids are copied from a device.

    logits (B, V) as :func:`kvlib.kernels.softmax_topk` takes them   →   B ids

    The distribution is that of :func:`kvlib.serve.probabilities`, with weights exact to about
    1e-9 of the largest; temperature 0 is greedy. Seed, stream and step alone decide a draw, so the
    other rows of the batch do not matter (except with top_p and no top_k, where a token within a
    millionth of the limit may depend on how many rows there are). `seeds` is one integer of 64
    bits, or one per row; `streams` tells rows apart (0, 1, ... by default); `step` tells the tokens
    of one row apart. Random bits come from Philox 4x32-10 (doi:10.1145/2063384.2063405), or are the
    `bits` (B,) uint64 that you give, one number per row. A row whose bits are the integer 2^64 · u
    gets the token that :func:`kvlib.sample` draws when its generator gives u.

    The device keeps at most 256 candidates. Rows with a larger top_k, or with a nucleus that
    reaches beyond the 256 likeliest tokens, are copied and drawn on the host from the same bits,
    which is exact and slower. Without top_k and top_p, the device can draw any token itself.

    Raises ValueError for the same reasons as :func:`kvlib.sample`, and for a row with NaN.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.1, 0.6, 0.3]] * 6, np.float32))
    >>> sample_tokens(logits, seeds=1)
    [2, 1, 0, 1, 1, 2]
    >>> sample_tokens(logits[:2], seeds=1, streams=[3, 2])  # the draws of rows 3 and 2 above
    [1, 0]
    """
    temperature, top_k, top_p = check_settings(temperature, top_k, top_p)
    where = engine.chosen(run_on, logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must be (B, V), got shape {logits.shape}")
    rows = checked(logits)
    batch, vocabulary = rows.shape
    drawn = Drawn.of(batch, seeds, streams, step) if bits is None else Drawn.given(batch, bits)
    if batch == 0:
        return []
    if temperature == 0 or top_k == 1:
        best = softmax_topk(rows, 1, run_on=run_on)
        xp = namespace(rows)
        fine = xp.isfinite(best.maximum) & xp.isfinite(best.total)
        return _host(xp.where(fine, best.indices[:, 0], REFUSED), best)
    scale = scale_of(temperature)
    k = min(vocabulary, MOST_K if top_k is None else top_k)
    if k > MOST_K:
        return [_on_host(rows[i], drawn.bits()[i], temperature, top_k, top_p) for i in range(batch)]
    every = top_k is None and (top_p is None or top_p == 1)
    best = softmax_topk(rows, 1 if every else k, temperature=temperature, run_on=run_on)
    if every:
        tokens = _host(_of_all(where, rows, best, drawn, scale), best)
    else:
        whole = top_k is not None or k == vocabulary
        share = 0 if top_p is None or top_p == 1 else int(float(top_p) * 2**64)
        tokens = _host(_of_candidates(where, best, drawn, scale, share, whole), best)
    for i in [i for i, token in enumerate(tokens) if token == TOO_WIDE]:
        tokens[i] = _on_host(rows[i], drawn.bits()[i], temperature, top_k, top_p)
    return tokens


def _of_candidates(
    where: str, best: TopK, drawn: Drawn, scale: float, share: int, whole: bool
) -> Array:
    """Tokens (B,) int32 from the candidates of each row."""
    if where == "twin":
        from kvlib.kernels.twins.sample import draw

        totals = np.stack([best.maximum, best.total, best.lse])
        return draw(best.values, best.indices, totals, drawn.bits(), scale, share, whole)
    tokens, totals, seeds, streams = _arrays(best, drawn)
    args = (
        tokens, best.values, best.indices, totals, seeds, streams, np.uint32(drawn.step),
        np.int32(best.values.shape[1]), np.float32(scale), np.uint64(share), np.int32(whole),
    )  # fmt: skip
    grid = (len(tokens), 1, 1)
    engine.start(where, Launch(Kernel("sample", "draw"), grid, THREADS, SHARED_DRAW, args))
    return tokens


def _of_all(where: str, rows: Array, best: TopK, drawn: Drawn, scale: float) -> Array:
    """Tokens (B,) int32 from all of each row."""
    if where == "twin":
        from kvlib.kernels.twins.sample import pick

        totals = np.stack([best.maximum, best.total, best.lse])
        return pick(as_float(rows), totals, drawn.bits(), scale)
    batch, vocabulary = rows.shape
    tokens, totals, seeds, streams = _arrays(best, drawn)
    chunks = -(-vocabulary // CHUNK)
    sums = engine.empty(rows, (batch, chunks), np.uint64)
    kind, width, factor = ctype(rows, "logits"), np.int32(vocabulary), np.float32(scale)
    mass = (sums, rows, totals, width, factor)
    pick_args = (
        tokens, sums, rows, totals, seeds, streams, np.uint32(drawn.step), width,
        np.int32(chunks), factor,
    )  # fmt: skip
    masses, pick_one = (Kernel("sample", f"{name}<{kind}>") for name in ("masses", "pick"))
    engine.start(
        where,
        Launch(masses, (chunks, batch, 1), THREADS, SHARED, mass),
        Launch(pick_one, (batch, 1, 1), THREADS, SHARED, pick_args),
    )
    return tokens


def _arrays(best: TopK, drawn: Drawn) -> tuple[Array, Array, Array, Array | None]:
    """Tokens to be written, totals (3, B), seeds and streams, beside the candidates."""
    xp = namespace(best.maximum)
    totals = xp.stack([best.maximum, best.total, best.lse])
    tokens = engine.empty(totals, totals.shape[1:], np.int32)
    streams = None if drawn.streams is None else xp.asarray(drawn.streams)
    return tokens, totals, xp.asarray(drawn.seeds), streams


def _host(tokens: Array, best: TopK) -> list[int]:
    """Token ids on the host. Raises ValueError where a row was refused."""
    ids = [int(t) for t in to_numpy(tokens)]
    if REFUSED in ids:
        row = ids.index(REFUSED)
        top, total = float(best.maximum[row]), float(best.total[row])
        what = "nan" if total != total and top < float("inf") else top
        raise ValueError(f"the largest logit of a row must be a finite number, got {what}")
    return ids


def _on_host(
    row: Array, bits: np.uint64, temperature: float, top_k: int | None, top_p: float | None
) -> int:
    """One row drawn in float64, from the same random bits."""
    p = probabilities(as_float(to_numpy(row))[None], temperature, top_k, top_p)[0]
    sums = np.cumsum(p)
    return int(np.searchsorted(sums, int(bits) / 2**64 * sums[-1], side="right"))


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    plain = [Kernel("sample", name) for name in ("draw", "philox_words")]
    typed = ("masses", "pick")
    return plain + [Kernel("sample", f"{name}<{t}>") for t in CTYPES.values() for name in typed]


__all__ = ["sample_tokens"]

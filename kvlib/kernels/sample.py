"""Softmax with top-k in one pass over the logits, and one token per row drawn where they are."""

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import describe, is_integer, number
from kvlib.arrays import Array, namespace, to_numpy
from kvlib.kernels import engine
from kvlib.kernels.checks import check_aligned, check_contiguous
from kvlib.kernels.launch import Launch, device_of
from kvlib.kernels.plans_topk import CHUNK, MOST_K, THREADS, VARIANTS, TopKPlan, Variant, plan_topk
from kvlib.kernels.source import Kernel
from kvlib.kernels.twins.sample import REFUSED, TOO_WIDE, random_bits
from kvlib.kernels.types import CTYPES, LOG2E, as_float, ctype
from kvlib.serve.distribution import check_settings, probabilities

MOST_SCALE = 1e30  # of log2 e / temperature: beyond it only the largest logit has a weight


class TopK(NamedTuple):
    """The best of each row, and what makes probabilities of logits.

    values (..., k) float32 logits, largest first   indices (..., k) int32
    maximum, total, lse (...) float32: the largest logit, the sum of
    exp((x − maximum) / temperature), and the log-sum-exp maximum / temperature + ln total
    """

    values: Array
    indices: Array
    maximum: Array
    total: Array
    lse: Array
    temperature: float

    def totals(self) -> Array:
        """maximum, total and lse of B rows as one array (3, B)."""
        return namespace(self.total).stack([self.maximum, self.total, self.lse])

    def probabilities(self) -> Array:
        """exp(values / temperature − lse), (..., k): shares of the whole row, not of the k."""
        scaled = (self.values - self.maximum[..., None]) / np.float32(self.temperature)
        return namespace(self.values).exp(scaled) / self.total[..., None]


def softmax_topk(
    logits: Array,
    k: int,
    *,
    temperature: float = 1.0,
    splits: int | None = None,
    run_on: str | None = None,
) -> TopK:
    """The k largest logits of each row with the row's maximum and log-sum-exp.

    logits (..., V) float32, float16, or bfloat16 as uint16 bits, V up to 2^18   →   :class:`TopK`

    The kernel reads every logit once, candidates twice, and never writes the softmax. k is at
    most 256. Equal logits are in order of index; so is NaN, after −inf. `maximum` ignores NaN.
    `total` and `lse` are NaN for a row with NaN or +inf; a row of −inf alone has total 0, lse −inf.
    splits: thread blocks that share a row; :func:`kvlib.kernels.plans_topk.plan_topk` chooses.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    The online softmax is arXiv:1805.02867. Raises ValueError or TypeError, before anything is
    launched, for arguments that do not fit together.

    >>> import numpy as np
    >>> best = softmax_topk(np.log(np.array([[0.1, 0.6, 0.3]], np.float32)), 2)
    >>> best.indices
    array([[1, 2]], dtype=int32)
    >>> best.probabilities().round(3)  # shares of all three, so they do not add up to 1
    array([[0.6, 0.3]], dtype=float32)
    """
    run_on = engine.engine_of(run_on, logits)
    rows = checked(logits)
    sizes = (len(rows), rows.shape[1], k)
    device = device_of(run_on)
    plan = plan_topk(*sizes, itemsize=rows.dtype.itemsize, splits=splits, device=device)
    k = index(k)
    scale = scale_of(temperature)
    if run_on == "twin":
        from kvlib.kernels.twins.sample import topk

        values, columns, totals = topk(rows, k, scale, plan)
    else:
        values = engine.empty(rows, (len(rows), k), np.float32)
        columns = engine.empty(rows, (len(rows), k), np.int32)
        totals = engine.empty(rows, (3, len(rows)), np.float32)
        if len(rows):
            engine.start(run_on, *launches_of(plan, values, columns, totals, rows, k, scale))
    lead = logits.shape[:-1]
    maximum, total, lse = (totals[i].reshape(lead) for i in range(3))
    values, columns = values.reshape(*lead, k), columns.reshape(*lead, k)
    return TopK(values, columns, maximum, total, lse, number(temperature))


def launches_of(
    plan: TopKPlan,
    values: Array,
    columns: Array,
    totals: Array,
    logits: Array,
    k: int,
    scale: float,
) -> list[Launch]:
    """The launches of one call: the blocks, and the merge where a row is split."""
    rows, vocabulary = logits.shape
    parts: tuple[Array | None, Array | None] = (None, None)
    if plan.merges:
        parts = (
            engine.empty(logits, (plan.splits, rows, k), np.uint64),
            engine.empty(logits, (plan.splits, 2, rows), np.float32),
        )
    args = (
        values, columns, totals, *parts, logits,
        np.int32(vocabulary), np.int32(plan.each), np.int32(k), np.float32(scale),
    )  # fmt: skip
    kernel = topk_kernel(ctype(logits, "logits"), plan.variant)
    launches = [Launch(kernel, (plan.splits, rows, 1), THREADS, plan.shared, args)]
    if plan.merges:
        numbers = (np.int32(plan.splits), np.int32(k), np.float32(scale))
        merge, merge_args = Kernel("topk", "topk_merge"), (*args[:5], *numbers)
        launches.append(Launch(merge, (rows, 1, 1), THREADS, plan.shared, merge_args, early=True))
    return launches


def topk_kernel(ctype: str, variant: Variant) -> Kernel:
    return Kernel("topk", f"topk<{ctype}, {variant.vectors}, {variant.blocks}>")


def checked(logits: Array) -> Array:
    """Logits as (rows, V), refused where a kernel could not read them."""
    ctype(logits, "logits")
    if logits.ndim < 2 or not 1 <= logits.shape[-1] <= 1 << 18:
        raise ValueError(f"logits must be (..., V), V in 1 ... {1 << 18}, got shape {logits.shape}")
    check_contiguous("logits", logits)
    check_aligned("logits", logits)
    rows = math.prod(logits.shape[:-1])
    if rows > 65535:  # the grid's y; a prompt of that length is fed in chunks
        raise ValueError(f"logits may have up to 65535 rows, got {rows}")
    return logits.reshape(rows, logits.shape[-1])


def scale_of(temperature: float) -> float:
    """log2 e / temperature. Raises ValueError for a temperature that is not above 0."""
    positive = number(temperature)
    if not 0 < positive < math.inf:
        raise ValueError(
            f"temperature must be a finite number above 0, got {describe(temperature)}"
        )
    return min(LOG2E / positive, MOST_SCALE)


SHARED = 8 * (THREADS // 32 + 2)
SHARED_DRAW = SHARED + 12 * THREADS  # weights and columns of the candidates


class Drawn(NamedTuple):
    """Seeds (B,) uint64, streams (B,) uint32 and a step; without streams, seeds are the bits."""

    seeds: np.ndarray
    streams: np.ndarray | None
    step: int

    @classmethod
    def of(cls, batch: int, seeds: Any, streams: Any, step: int, bits: Any) -> "Drawn":
        """Raises ValueError for numbers out of range, or not one a row."""
        if bits is not None:
            return cls(np.array(_numbers("bits", bits, 64, batch), np.uint64), None, 0)
        keys = _numbers("seeds", seeds, 64, batch, shared=True)
        rows = _numbers("streams", range(batch) if streams is None else streams, 32, batch)
        if not is_integer(step) or not 0 <= (step := index(step)) < 1 << 32:
            raise ValueError(f"step must be in 0 ... 2^32 − 1, got {describe(step)}")
        return cls(np.array(keys, np.uint64), np.array(rows, np.uint32), step)

    def bits(self) -> np.ndarray:
        """64 random bits per row, uint64."""
        if self.streams is None:
            return self.seeds
        return random_bits(self.seeds, self.streams, self.step)


def _numbers(name: str, values: Any, bits: int, batch: int, shared: bool = False) -> list[int]:
    """Integers of so many bits, one per row; if `shared`, one may do for all rows."""
    numbers = np.ravel(np.asarray(to_numpy(values) if hasattr(values, "dtype") else values, object))
    wrong = [n for n in numbers if not is_integer(n) or not 0 <= index(n) < 1 << bits]
    if wrong:
        got = describe(wrong[0])
        raise ValueError(f"{name} must be in 0 ... 2^{bits} − 1 and be integers, got {got}")
    integers = [index(n) for n in numbers] * (batch if shared and len(numbers) == 1 else 1)
    if len(integers) != batch:
        raise ValueError(f"{name} must have one number per row: {batch}, got {len(integers)}")
    return integers


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

    The distribution is that of :func:`kvlib.serve.probabilities`, with weights exact to about 1e-9
    of the largest; temperature 0 is greedy. Seed, stream and step alone decide a draw, whatever the
    other rows are (except with top_p and no top_k, where a token within a millionth of the limit
    may depend on how many rows there are). `seeds` is one integer of 64 bits, or one per row;
    `streams` tells rows apart (0, 1, ... by default); `step` tells the tokens of one row apart.
    Random bits come from Philox 4x32-10 (doi:10.1145/2063384.2063405), or are the `bits` (B,)
    uint64 that you give. A row whose bits are the integer 2^64 · u gets the token that
    :func:`kvlib.sample` draws when its generator gives u.

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
    run_on = engine.engine_of(run_on, logits)
    if logits.ndim != 2:
        raise ValueError(f"logits must be (B, V), got shape {logits.shape}")
    rows = checked(logits)
    batch, vocabulary = rows.shape
    drawn = Drawn.of(batch, seeds, streams, step, bits)
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
        tokens = _host(_of_all(run_on, rows, best, drawn, scale), best)
    else:
        complete = top_k is not None or k == vocabulary
        share = 0 if top_p is None or top_p == 1 else int(float(top_p) * 2**64)
        tokens = _host(_of_candidates(run_on, best, drawn, scale, share, complete), best)
    for i in [i for i, token in enumerate(tokens) if token == TOO_WIDE]:
        tokens[i] = _on_host(rows[i], drawn.bits()[i], temperature, top_k, top_p)
    return tokens


def _of_candidates(
    run_on: str, best: TopK, drawn: Drawn, scale: float, share: int, complete: bool
) -> Array:
    """Tokens (B,) int32 from the candidates of each row."""
    totals = best.totals()
    if run_on == "twin":
        from kvlib.kernels.twins.sample import draw

        return draw(best.values, best.indices, totals, drawn.bits(), scale, share, complete)
    tokens, seeds, streams = _arrays(totals, drawn)
    args = (
        tokens, best.values, best.indices, totals, seeds, streams, np.uint32(drawn.step),
        np.int32(best.values.shape[1]), np.float32(scale), np.uint64(share), np.int32(complete),
    )  # fmt: skip
    grid = (len(tokens), 1, 1)
    engine.start(run_on, Launch(Kernel("sample", "draw"), grid, THREADS, SHARED_DRAW, args))
    return tokens


def _of_all(run_on: str, rows: Array, best: TopK, drawn: Drawn, scale: float) -> Array:
    """Tokens (B,) int32 from all of each row."""
    totals = best.totals()
    if run_on == "twin":
        from kvlib.kernels.twins.sample import pick

        return pick(as_float(rows), totals, drawn.bits(), scale)
    batch, vocabulary = rows.shape
    tokens, seeds, streams = _arrays(totals, drawn)
    chunks = -(-vocabulary // CHUNK)
    sums = engine.empty(rows, (batch, chunks), np.uint64)
    kind, width, factor = ctype(rows, "logits"), np.int32(vocabulary), np.float32(scale)
    mass = (sums, rows, totals, width, factor)
    whom = (seeds, streams, np.uint32(drawn.step))
    pick_args = (tokens, sums, rows, totals, *whom, width, np.int32(chunks), factor)
    masses, pick_one = (Kernel("sample", f"{name}<{kind}>") for name in ("masses", "pick"))
    engine.start(
        run_on,
        Launch(masses, (chunks, batch, 1), THREADS, SHARED, mass),
        Launch(pick_one, (batch, 1, 1), THREADS, SHARED, pick_args),
    )
    return tokens


def _arrays(totals: Array, drawn: Drawn) -> tuple[Array, Array, Array | None]:
    """Tokens to be written, seeds and streams, beside `totals`."""
    xp = namespace(totals)
    streams = None if drawn.streams is None else xp.asarray(drawn.streams)
    return engine.empty(totals, totals.shape[1:], np.int32), xp.asarray(drawn.seeds), streams


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
    plain = (("topk", "topk_merge"), ("sample", "draw"), ("sample", "philox_words"))
    typed = (("sample", "masses"), ("sample", "pick"))
    return [
        *(topk_kernel(t, VARIANTS[0]) for t in CTYPES.values()),
        *(Kernel(unit, name) for unit, name in plain),
        *(Kernel(unit, f"{name}<{t}>") for t in CTYPES.values() for unit, name in typed),
    ]

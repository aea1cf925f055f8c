"""Softmax and the k largest logits of each row, in one pass over the logits."""

from __future__ import annotations

import math
from operator import index
from typing import NamedTuple

import numpy as np

from kvlib.arguments import describe, number
from kvlib.arrays import Array
from kvlib.kernels import engine
from kvlib.kernels.device import H200, Device
from kvlib.kernels.launch import Launch
from kvlib.kernels.plans_topk import THREADS, TopKPlan, plan_topk
from kvlib.kernels.source import Kernel
from kvlib.kernels.types import CTYPES, LOG2E, ctype

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

    def probabilities(self) -> Array:
        """exp(values / temperature − lse), (..., k): shares of the whole row, not of the k."""
        from kvlib.arrays import namespace

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

    The kernel reads every logit once and never writes the softmax. k is at most 256. Of equal
    logits the lower index comes first. −inf is a logit like others; NaN ranks below −inf, in order
    of index, as in numpy.argsort. `maximum` ignores NaN. `total` and `lse` are NaN if a row holds
    NaN or +inf; a row of −inf alone has total 0 and lse −inf.
    splits: thread blocks that share a row; :func:`kvlib.kernels.plans_topk.plan_topk` chooses.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    The online softmax is arXiv:1805.02867. Raises ValueError or TypeError,
    before anything is launched, for arguments that do not fit together.

    >>> import numpy as np
    >>> best = softmax_topk(np.log(np.array([[0.1, 0.6, 0.3]], np.float32)), 2)
    >>> best.indices
    array([[1, 2]], dtype=int32)
    >>> best.probabilities().round(3)  # shares of all three, so they do not add up to 1
    array([[0.6, 0.3]], dtype=float32)
    """
    where = engine.chosen(run_on, logits)
    rows = checked(logits)
    plan = plan_topk(len(rows), rows.shape[1], k, splits=splits, device=device_of(where))
    k = index(k)
    scale = scale_of(temperature)
    if where == "twin":
        from kvlib.kernels.twins.topk import topk

        values, columns, totals = topk(rows, k, scale, plan)
    else:
        values = engine.empty(rows, (len(rows), k), np.float32)
        columns = engine.empty(rows, (len(rows), k), np.int32)
        totals = engine.empty(rows, (3, len(rows)), np.float32)
        if len(rows):
            engine.start(where, *launches_of(plan, values, columns, totals, rows, k, scale))
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
    kernel = Kernel("topk", f"topk<{ctype(logits, 'logits')}>")
    launches = [Launch(kernel, (plan.splits, rows, 1), THREADS, plan.shared, args)]
    if plan.merges:
        numbers = (np.int32(plan.splits), np.int32(k), np.float32(scale))
        merge, handed = Kernel("topk", "topk_merge"), (values, columns, totals, *parts, *numbers)
        launches.append(Launch(merge, (rows, 1, 1), THREADS, plan.shared, handed))
    return launches


def checked(logits: Array) -> Array:
    """Logits as (rows, V), refused where a kernel could not read them."""
    ctype(logits, "logits")
    if logits.ndim < 2 or not 1 <= logits.shape[-1] <= 1 << 18:
        raise ValueError(f"logits must be (..., V), V in 1 ... {1 << 18}, got shape {logits.shape}")
    if not logits.flags.c_contiguous:
        raise ValueError(
            f"logits must lie in one piece (C order), got strides {logits.strides}; pass a copy"
        )
    address = logits.ctypes.data if isinstance(logits, np.ndarray) else logits.data.ptr
    if address % 16:
        raise ValueError(
            "logits must start at a multiple of 16 bytes, got an address "
            f"{address % 16} bytes past one; a slice may start anywhere, so pass a copy"
        )
    rows = math.prod(logits.shape[:-1])
    if rows > 65535:  # the grid's y; a prompt of that length is fed in chunks
        raise ValueError(f"logits may have up to 65535 rows, got {rows}")
    return logits.reshape(rows, logits.shape[-1])


def scale_of(temperature: float) -> float:
    """log2 e / temperature. Raises ValueError for a temperature that is not above 0."""
    found = number(temperature)
    if not 0 < found < math.inf:
        raise ValueError(
            f"temperature must be a finite number above 0, got {describe(temperature)}"
        )
    return min(LOG2E / found, MOST_SCALE)


def device_of(where: str) -> Device:
    """The device that launches are chosen for."""
    if where == "device":
        from kvlib.kernels.device import here

        return here()
    return H200


def instantiations() -> list[Kernel]:
    """Every kernel of this module that CI compiles."""
    return [*(Kernel("topk", f"topk<{t}>") for t in CTYPES.values()), Kernel("topk", "topk_merge")]


__all__ = ["TopK", "softmax_topk"]

"""Published policies of eviction by score (see `scored`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kvlib.arguments import check_flag, check_integer, check_list, describe, number
from kvlib.arrays import Array, clipped, namespace
from kvlib.attention.partials import as_dtype, scaled
from kvlib.caches.retention.scored import Policy, Seen
from kvlib.caches.spec import LayerSpec


@dataclass(frozen=True)
class KNorm(Policy):
    """Keep keys of small norm, which draw much attention in trained models (arXiv:2406.11430).

    It needs no query. The score is −‖k‖², which orders keys as −‖k‖ does.

    >>> k = np.array([[[3.0, 4.0], [0.6, 0.8]]])  # one head, two keys
    >>> KNorm().score(None, k, k).round(2)
    array([[-25.,  -1.]])
    """

    recent: int = 0

    def score(self, notes: Array | None, k: Array, v: Array) -> Array:
        xp = namespace(k)
        return -xp.sum(k * k, axis=-1)


@dataclass(frozen=True)
class Tova(Policy):
    """Keep what the newest query gives most weight, the same in all heads (arXiv:2401.06104).

    No token is safe, not even the newest; kvpress protects that one, as does ``recent=1``.

    >>> p = np.array([[[[0.7, 0.3]], [[0.1, 0.9]]]])  # two query heads of one kv head
    >>> Tova().fold(None, p)
    array([[0.4, 0.6]])
    """

    queries: int | None = 1
    recent: int = 0

    def fold(self, notes: Array | None, p: Array) -> Array:
        xp = namespace(p)
        mean = xp.mean(p[:, :, -1, :], axis=(0, 1))  # (S,), over all query heads
        return xp.broadcast_to(mean[None, :], (p.shape[0], p.shape[3]))

    def score(self, notes: Array | None, k: Array, v: Array) -> Array:
        return _or_zeros(notes, k)


@dataclass(frozen=True)
class H2O(Policy):
    """Keep the tokens with the largest sums of probabilities so far (H2O, arXiv:2306.14048).

    A sum favours early tokens, because more queries have seen them; ``mean=True`` divides by their
    number, as kvpress does. The authors' code sums per query head; here the query heads of a kv
    head share the mean of their sums.

    >>> p = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])  # one head: what two queries gave two tokens
    >>> [h2o.score(h2o.fold(None, p), p[0], p[0]) for h2o in (H2O(), H2O(mean=True))]
    [array([[1.5, 0.5]]), array([[0.75, 0.5 ]])]
    """

    recent: int = 16
    mean: bool = False
    queries: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mean", check_flag("mean", self.mean))

    def fold(self, notes: Array | None, p: Array) -> Array:
        xp = namespace(p)
        sums = xp.sum(xp.mean(p, axis=1), axis=1)
        if self.mean:  # and how many of these queries saw each token
            heads, _, rows, n = p.shape
            counts = xp.arange(n, 0, -1, dtype=sums.dtype, device=p.device)
            counts = xp.broadcast_to(clipped(xp, counts, None, rows)[None, :], (heads, n))
            sums = xp.stack([sums, counts], axis=-1)
        return sums if notes is None else notes + sums

    def score(self, notes: Array | None, k: Array, v: Array) -> Array:
        if notes is None or not self.mean:
            return _or_zeros(notes, k)
        return notes[..., 0] / clipped(namespace(k), notes[..., 1], 1, None)


@dataclass(frozen=True)
class SnapKV(Policy):
    """Keep the tokens that a step's last `window` queries gave most weight, and their neighbours.

    Each token gets the mean score of the `kernel` tokens around it, or with ``pooling="max"`` their
    largest (arXiv:2404.14469). The authors' code takes means by default; the results in their paper
    come from maxima, with kernel 7. Beyond the ends a score of 0 is taken, as in their code, which
    evicts once, after the prompt, and chooses per query head. Here each kv head chooses, by the
    mean over its query heads.

    >>> notes = np.array([[0.0, 0.0, 0.9, 0.0, 0.0, 0.0]])
    >>> SnapKV(window=1, kernel=3).score(notes, notes[..., None], notes[..., None])
    array([[0. , 0.3, 0.3, 0.3, 0. , 0. ]])
    """

    window: int = 32
    kernel: int = 5
    pooling: str = "mean"

    def __post_init__(self) -> None:
        if not isinstance(self.pooling, str) or self.pooling not in ("mean", "max"):
            raise ValueError(f"pooling must be 'mean' or 'max', got {describe(self.pooling)}")
        for name in ("window", "kernel"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name)))
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that it has a middle, got {self.kernel}")

    @property
    def queries(self) -> int:  # type: ignore[override]
        """Return how many of a step's last queries it looks at."""
        return self.window

    @property
    def recent(self) -> int:  # type: ignore[override]
        """Return how many of the newest tokens stay: those of these queries."""
        return self.window

    def fold(self, notes: Array | None, p: Array) -> Array:
        xp = namespace(p)
        return xp.mean(xp.mean(p, axis=1), axis=1)

    def score(self, notes: Array | None, k: Array, v: Array) -> Array:
        x = _or_zeros(notes, k)
        xp, half, older = namespace(x), self.kernel // 2, max(0, x.shape[1] - self.window)
        edge = xp.zeros((x.shape[0], half), dtype=x.dtype)
        wide = xp.concat([edge, x[:, :older], edge], axis=1)
        pooled = wide[:, :older]
        for shift in range(1, self.kernel):
            other = wide[:, shift : shift + older]
            pooled = xp.maximum(pooled, other) if self.pooling == "max" else pooled + other
        if self.pooling == "mean":
            pooled = pooled / self.kernel
        return xp.concat([pooled, x[:, older:]], axis=1)


def _or_zeros(notes: Array | None, k: Array) -> Array:
    """Return the notes; zeros before the first query."""
    return namespace(k).zeros(k.shape[:2], dtype=k.dtype) if notes is None else notes


class Statistics(NamedTuple):
    """Statistics of a request's queries in one layer, before rotation and times sm_scale.
    end: the next position. mean (Hkv, G, Dk). covariance (Hkv, G, Dk, Dk), or None."""

    queries: int
    end: int
    mean: Array
    covariance: Array | None


@dataclass(frozen=True)
class ExpectedAttention(Policy):
    """Keep the tokens that the next queries will look at, if these resemble the queries so far.

    Before RoPE turns them, a head's queries count as normally distributed, with mean μ and
    covariance Σ, turned by the mean rotation of the next `future` positions. A key k then gets
    e^(μ·k/√D + k·Σk/(2D)) of a query's weight, up to a factor, normalised over the stored keys,
    averaged over query heads, times the norm of the value (kvpress; arXiv:2510.00636).

    frequencies: Dk / 2 angles in radians per token, from ``frequencies`` of `kvlib.model.rope`;
    zeros without RoPE. sinks: the first tokens, which always stay, and whose queries do not count.
    covariance: whether Σ is estimated, in Hq · Dk² numbers per request and layer; else it is 0.

    >>> from kvlib.model import RopeConfig, rope
    >>> len(ExpectedAttention(rope.frequencies(RopeConfig(), 64), sinks=4).frequencies)
    32
    """

    frequencies: Sequence[float]
    future: int = 512
    sinks: int = 4
    covariance: bool = True
    recent: int = 0
    queries: int | None = field(default=None, init=False, repr=False)
    by_token: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        angles = check_list("frequencies", self.frequencies, "radians per token")
        turns = tuple(number(x) for x in angles)
        if not turns or not all(0 <= x < np.inf for x in turns):
            raise ValueError(
                "frequencies must hold Dk / 2 numbers of radians per token, 0 or more, got "
                f"{describe(self.frequencies)}"
            )
        object.__setattr__(self, "frequencies", turns)
        for name, least in (("future", 1), ("sinks", 0)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))
        object.__setattr__(self, "covariance", check_flag("covariance", self.covariance))

    def check(self, spec: LayerSpec) -> None:
        if spec.head_dim != 2 * len(self.frequencies):
            raise ValueError(
                f"frequencies are {len(self.frequencies)}, for keys of twice as many numbers, and "
                f"this layer's keys have {spec.head_dim}"
            )

    def look(self, notes: Any, seen: Seen) -> Any:
        """Return the statistics with a step's queries in them."""
        rows, end = seen.q.shape[0], seen.at + seen.q.shape[0]
        skipped = min(rows, max(0, self.sinks - seen.at))
        if skipped == rows:
            return notes if notes is None else notes._replace(end=end)
        q = scaled(namespace(seen.q), seen.q[skipped:, :, :], seen.spec.sm_scale)
        positions = np.arange(seen.at + skipped, end)
        q = turned(q, np.exp(-1j * positions[:, None] * np.asarray(self.frequencies))[:, None, :])
        new = statistics(q, seen.spec.num_kv_heads, end, self.covariance)
        return new if notes is None else merged(notes, new)

    def score(self, notes: Any, k: Array, v: Array) -> Array:
        xp = namespace(k)
        first = min(self.sinks, k.shape[1])
        worth = xp.zeros((k.shape[0], k.shape[1] - first), dtype=k.dtype, device=k.device)
        if notes is not None and first < k.shape[1]:
            worth = self.expected(notes, k[:, first:, :], v[:, first:, :])
        safe = xp.full((k.shape[0], first), float("inf"), dtype=worth.dtype, device=k.device)
        return xp.concat([safe, worth], axis=1)

    def expected(self, notes: Statistics, k: Array, v: Array) -> Array:
        """Return the scores (Hkv, S) of stored keys k and values v (Hkv, S, D)."""
        xp, mean, covariance = namespace(k), notes.mean, notes.covariance
        k, v = (as_dtype(xp, x, mean.dtype) for x in (k, v))
        positions = notes.end + np.arange(self.future)
        turn = np.exp(1j * positions[:, None] * np.asarray(self.frequencies)).mean(axis=0)
        s = turned(mean, turn) @ k.mT  # (Hkv, G, S)
        if covariance is not None:
            rotated = turned(turned(covariance, turn).mT, turn)  # R Σ Rᵀ
            s = s + xp.sum((k[:, None, :, :] @ rotated) * k[:, None, :, :], axis=-1) / 2
        p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        p = xp.mean(p / xp.sum(p, axis=-1, keepdims=True), axis=1)
        return p * xp.sqrt(xp.sum(v * v, axis=-1))


def turned(x: Array, turn: np.ndarray) -> Array:
    """Return x (..., D), its pairs (i, i + D/2) times complex turn (..., D/2), in float64."""
    xp, half = namespace(x), x.shape[-1] // 2
    cos, sin = (xp.asarray(part, device=x.device) for part in (turn.real.copy(), turn.imag.copy()))
    a, b = (xp.astype(part, xp.float64) for part in (x[..., :half], x[..., half:]))
    return xp.astype(xp.concat([a * cos - b * sin, a * sin + b * cos], axis=-1), x.dtype)


def statistics(q: Array, heads: int, end: int, covariance: bool) -> Statistics:
    """Return the mean and covariance of queries (T, Hq, Dk), before rotation."""
    xp, (rows, num_qo_heads, dim) = namespace(q), q.shape
    q = xp.permute_dims(xp.reshape(q, (rows, heads, num_qo_heads // heads, dim)), (1, 2, 0, 3))
    mean = xp.mean(q, axis=2)
    off = q - mean[:, :, None, :]
    return Statistics(rows, end, mean, off.mT @ off / rows if covariance else None)


def merged(a: Statistics, b: Statistics) -> Statistics:
    """Return the statistics of both (Chan, Golub & LeVeque, doi:10.1080/00031305.1983.10483115)."""
    count, off = a.queries + b.queries, b.mean - a.mean
    mean, covariance = a.mean + off * (b.queries / count), None
    if a.covariance is not None and b.covariance is not None:
        between = off[..., :, None] * off[..., None, :] * (a.queries * b.queries / count**2)
        inside = a.covariance * (a.queries / count) + b.covariance * (b.queries / count)
        covariance = inside + between
    return Statistics(count, b.end, mean, covariance)

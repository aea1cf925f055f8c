"""Published policies of eviction by score (see `scored`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvlib.arguments import check_flag, check_integer, describe
from kvlib.arrays import Array, clipped, namespace
from kvlib.caches.retention.scored import Policy


@dataclass(frozen=True)
class KNorm(Policy):
    """Keep keys of small norm, which draw much attention in trained models (arXiv:2406.11430).

    It needs no query. The score is −‖k‖², which orders keys as −‖k‖ does.

    >>> import numpy as np
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

    >>> import numpy as np
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

    >>> import numpy as np
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

    >>> import numpy as np
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

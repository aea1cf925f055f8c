"""What `absorbed` is called with, its right answer, and how far float32 may be from it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kvlib.testing.rounding import EPS, attention_bound


class Task(NamedTuple):
    """What `absorbed` is called with. The T queries are the last T of the S tokens."""

    q: np.ndarray  # (T, H, N)
    q_pe: np.ndarray  # (T, H, R)
    c: np.ndarray  # (S, C)
    k_pe: np.ndarray  # (S, R)
    W_UK: np.ndarray  # (H, N, C)
    W_UV: np.ndarray  # (H, V, C)

    def positions(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the queries (T,) and of the tokens (S,)."""
        s = np.arange(len(self.c))
        return s[len(s) - len(self.q) :], s

    def seen(self) -> np.ndarray:
        """(T, 1, S) bool: the causal mask."""
        q_pos, kv_pos = self.positions()
        return (kv_pos <= q_pos[:, None])[:, None, :]

    def in_float64(self) -> Task:
        return Task(*(x.astype(np.float64) for x in self))

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """q · k and q_pe · k_pe, (T, H, S) each, without a scale."""
        keys = up(self.W_UK, self.c)
        return (
            np.einsum("thn,shn->ths", self.q, keys),
            np.einsum("thr,sr->ths", self.q_pe, self.k_pe),
        )

    def summed(self, p: np.ndarray) -> np.ndarray:
        """o (T, H, V) for the weights p (T, H, S)."""
        o: np.ndarray = np.einsum("ths,shv->thv", p, up(self.W_UV, self.c))
        return o


def make(
    seed: int, T: int, S: int, H: int, C: int, N: int, R: int, V: int, loud: float = 1.0
) -> Task:
    """The last T of S tokens. The sums of products have a size of about 1, the queries `loud`."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int, size: float = 1.0) -> np.ndarray:
        return (size * rng.standard_normal(shape)).astype(np.float32)

    q, q_pe = draw(T, H, N, size=2 * loud), draw(T, H, R, size=2 * loud)
    w_uk, w_uv = draw(H, N, C, size=C**-0.5), draw(H, V, C, size=C**-0.5)
    return Task(q, q_pe, draw(S, C), draw(S, R), w_uk, w_uv)


def up(w: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Each head's matrix (H, A, C) times each latent vector (S, C) → (S, H, A)."""
    found: np.ndarray = np.tensordot(c, w, axes=(1, 2))
    return found


def softmax(s: Any, axis: int = -1) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(axis=axis, keepdims=True))
    whole: np.ndarray = p / p.sum(axis=axis, keepdims=True)
    return whole


def expanded(task: Task) -> np.ndarray:
    """The right answer in float64."""
    x = task.in_float64()
    scale = 1 / math.sqrt(x.q.shape[2] + x.q_pe.shape[2])
    return x.summed(softmax(np.where(x.seen(), scale * sum(x.scores()), -np.inf)))


def bound(task: Task) -> float:
    """How far a right answer in float32 may be off.

    That of attention over the expanded keys and values, whose numbers are sums of C products
    themselves; in the absorbed form those of W_UK and the query are, of N products. A number like
    that is off by √C spacings, as if it had been rounded to a format that is √C times as wide.
    """
    x = task.in_float64()
    heads, width = x.W_UK.shape[:2]
    keys = up(x.W_UK, x.c)
    keys = np.concatenate([keys, np.repeat(x.k_pe[:, None], heads, axis=1)], axis=2)
    values = up(x.W_UV, x.c)
    queries = np.concatenate([x.q, x.q_pe], axis=2)
    operand = EPS * math.sqrt(max(width, x.c.shape[1]))
    o, _ = attention_bound(queries, keys, values, *x.positions(), operand=operand)
    return float(o.max())

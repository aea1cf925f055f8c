"""What the records of the exercises on latent attention can't say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.latent import SMALL, check_absorbed, check_states, multiplications

f32 = np.float32


def test_it_counts_what_products_of_matrices_take() -> None:
    T, S, H, C, N, R, V = SMALL[0]
    expanded = [(S, C, N), (S, C, V), (T, N, S), (T, R, S), (T, S, V)]
    absorbed = [(T, N, C), (T, C, S), (T, R, S), (T, S, C), (T, C, V)]
    counted = tuple(H * sum(map(np.prod, form)) for form in (expanded, absorbed))
    assert multiplications(*SMALL[0]) == counted


def by_loops(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """The definition, with loops over queries and heads, in float64."""
    (T, H, N), (S, R) = q.shape, k_pe.shape
    o = np.zeros((T, H, W_UV.shape[1]), f32)
    for t in range(T):
        n = S - T + t + 1
        for h in range(H):
            a = q[t, h].astype(float) @ W_UK[h]
            s = (c[:n] @ a + k_pe[:n] @ q_pe[t, h]) / np.sqrt(N + R)
            p = np.exp(s - s.max())
            o[t, h] = W_UV[h] @ (p / p.sum() @ c[:n])
    return o


def joined(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """One key of C + R numbers per token, as kernels have it, and heads first."""
    (T, _, N), (S, R) = q.shape, k_pe.shape
    both = np.concatenate([q.swapaxes(0, 1) @ W_UK, q_pe.swapaxes(0, 1)], axis=2)
    s = both @ np.concatenate([c, k_pe], axis=1).T / f32(np.sqrt(N + R))  # (H, T, S)
    s += np.where(np.tri(T, S, S - T) > 0, f32(0), f32(-np.inf))
    p = np.exp(s - s.max(-1, keepdims=True))
    return ((p / p.sum(-1, keepdims=True) @ c) @ W_UV.mT).swapaxes(0, 1)


@pytest.mark.parametrize("right", [by_loops, joined])
def test_other_right_forms_of_attention(right: Any) -> None:
    report = check_absorbed(right)
    assert report.passed, report


class ByProducts:
    """One product of matrices between two copies."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        self.M, self.every, self.n, self.at = np.zeros((Dk, Dv), f32), every, 0, {}
        self.zeros = self.M

    def append(self, k: Any, v: Any) -> None:
        while len(k):
            room = self.every - self.n % self.every
            self.M = self.M + k[:room].T @ v[:room]
            self.n += len(k[:room])
            k, v = k[room:], v[room:]
            if self.n % self.every == 0:
                self.at[self.n] = self.M

    def read(self, q: Any) -> Any:
        return q @ self.M

    def truncate(self, length: int) -> int:
        if length == self.n:
            return 0
        self.at = {n: M for n, M in self.at.items() if n <= length}
        self.n = max(self.at, default=0)
        self.M = self.at.get(self.n, self.zeros)
        return length - self.n


def test_another_right_form_of_states() -> None:
    report = check_states(ByProducts)
    assert report.passed, report

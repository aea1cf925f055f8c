"""Ways to run a model on prompts that must all give the same logits and the same tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arrays import to_numpy

RMS, MOST = 1e-5, 1e-4  # of float32 logits of scale 1, against another float32 implementation


def errors(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """rms and largest difference, computed in float64."""
    difference = ours.astype(np.float64) - theirs.astype(np.float64)
    return float(np.sqrt(np.mean(difference**2))), float(np.abs(difference).max())


def assert_same_logits(ours: np.ndarray, theirs: np.ndarray, what: str = "") -> None:
    assert ours.shape == theirs.shape
    rms, most = errors(ours, theirs)
    assert rms <= RMS and most <= MOST, f"{what}: rms {rms:.2e}, most {most:.2e}"


def alone(model: Any, prompt: Sequence[int], chunk: int | None = None) -> np.ndarray:
    """Logits (T, V) of one prompt, `chunk` tokens a pass (None: all in one)."""
    cache = model.new_cache(max_seqs=1, max_seq_len=len(prompt))
    cache.add("only")
    rows = []
    for start in range(0, len(prompt), chunk or len(prompt)):
        part = list(prompt[start : start + (chunk or len(prompt))])
        step = cache.plan(["only"], [len(part)])
        rows.append(to_numpy(model.forward(part, cache, step, rows="all")))
    return np.concatenate(rows)


def together(model: Any, prompts: Sequence[Sequence[int]], chunks: Sequence[int]) -> list:
    """Logits of each prompt, all in one ragged batch; request i takes chunks[i] tokens a pass."""
    cache = model.new_cache(max_seqs=len(prompts), max_seq_len=max(map(len, prompts)))
    rows: list[list[np.ndarray]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    for i in range(len(prompts)):
        cache.add(i)
    while left := [i for i, prompt in enumerate(prompts) if done[i] < len(prompt)]:
        parts = [list(prompts[i][done[i] : done[i] + chunks[i]]) for i in left]
        step = cache.plan(left, [len(part) for part in parts])
        logits = to_numpy(model.forward(sum(parts, []), cache, step, rows="all"))
        bounds = np.cumsum([len(part) for part in parts])[:-1]
        for i, part, out in zip(left, parts, np.split(logits, bounds), strict=True):
            rows[i].append(out)
            done[i] += len(part)
            if done[i] == len(prompts[i]):
                cache.free(i)  # a request leaves while others are still being read
    return [np.concatenate(one) for one in rows]

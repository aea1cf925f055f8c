"""What known mistakes in the absorbed form of latent attention give, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvbook.exercises.latent_task import Task, softmax
from kvbook.exercises.report import diagnose


def diagnose_absorbed(got: np.ndarray, task: Task, what: str) -> None:
    """Raise a Finding if `got` is what a known mistake gives."""
    x = task.in_float64()
    suspects = _masks(x) | _scales(x) | _parts(x) | _heads(x) | _softmaxes(x)
    diagnose(got, {f"{what}: {words}": wrong for words, wrong in suspects.items()})


def _attended(x: Task, scores: Any, seen: Any = None) -> np.ndarray:
    return x.summed(softmax(np.where(x.seen() if seen is None else seen, scores, -np.inf)))


def _scaled(x: Task) -> np.ndarray:
    nope, rope = x.scores()
    found: np.ndarray = (nope + rope) / math.sqrt(x.q.shape[2] + x.q_pe.shape[2])
    return found


def _scales(x: Task) -> dict[str, np.ndarray]:
    (_, _, n), r, c = x.q.shape, x.q_pe.shape[2], x.c.shape[1]
    why = "needed sqrt(N + R). The scale is that of a head's own query and key, in either form"
    parts, s = x.scores(), sum(x.scores())
    whole = math.sqrt(n + r)
    divisors = {"sqrt(N)": n, "sqrt(R)": r, "sqrt(C)": c, "sqrt(C + R)": c + r}
    return {
        **{
            f"the scores are divided by {name}, {why}": _attended(x, s / math.sqrt(d))
            for name, d in divisors.items()
            if d != n + r
        },
        "the scores are divided by N + R, not by its square root": _attended(x, s / (n + r)),
        "the scores are not divided by sqrt(N + R)": _attended(x, s),
        "q_pe · k_pe is not divided by sqrt(N + R), but the scale is that of the whole score": (
            _attended(x, parts[0] / whole + parts[1])
        ),
        "only q_pe · k_pe is divided by sqrt(N + R), but the scale is that of the whole score": (
            _attended(x, parts[0] + parts[1] / whole)
        ),
        "each part of the score has a scale of its own, sqrt(N) and sqrt(R), but both add up to "
        "one score, which is divided by sqrt(N + R)": _attended(
            x, parts[0] / math.sqrt(n) + parts[1] / math.sqrt(r)
        ),
    }


def _parts(x: Task) -> dict[str, np.ndarray]:
    nope, rope = (part / math.sqrt(x.q.shape[2] + x.q_pe.shape[2]) for part in x.scores())
    return {
        "q_pe · k_pe is missing, so the scores do not depend on the positions": _attended(x, nope),
        "the scores are q_pe · k_pe alone": _attended(x, rope),
        "q_pe · k_pe is subtracted": _attended(x, nope - rope),
        "q_pe · k_pe is multiplied with the rest of the score; both parts add up": (
            _attended(x, nope * rope)
        ),
    }


def _heads(x: Task) -> dict[str, np.ndarray]:
    """Matrices of another head, or turned over."""
    _, n, c = x.W_UK.shape
    v = x.W_UV.shape[1]
    mine = "each head has a matrix of its own"
    found = {}
    for name, w in (("W_UK", x.W_UK), ("W_UV", x.W_UV)):
        others = {
            f"all heads use {name} of head 0; {mine}": np.repeat(w[:1], len(w), axis=0),
            f"{name} is that of the next head; {mine}": np.roll(w, -1, axis=0),
            f"{name} is that of the head before; {mine}": np.roll(w, 1, axis=0),
            f"the heads of {name} are in reverse order": w[::-1],
            f"all heads use the sum of {name} over the heads; {mine}": np.repeat(
                w.sum(axis=0, keepdims=True), len(w), axis=0
            ),
        }
        if w.shape[1] == w.shape[2]:
            letters = "(N, C)" if name == "W_UK" else "(V, C)"
            others[f"{name} is transposed: that of one head is {letters}"] = w.swapaxes(1, 2)
        if len(w) > 1:
            for words, other in others.items():
                wrong = x._replace(**{name: other})
                found[words] = _attended(wrong, _scaled(wrong))
    if n == v:
        swapped = x._replace(W_UK=x.W_UV, W_UV=x.W_UK)
        found["W_UK and W_UV are swapped"] = _attended(swapped, _scaled(swapped))
    if n == c:
        bare = x._replace(W_UK=np.tile(np.eye(c), (len(x.W_UK), 1, 1)))
        words = "W_UK is missing: the query is multiplied with the latent vectors as it is"
        found[words] = _attended(x, _scaled(bare))
    if v == c:
        p = softmax(np.where(x.seen(), _scaled(x), -np.inf))
        words = "W_UV is missing: these are weighted sums of latent vectors"
        found[words] = np.einsum("ths,sc->thc", p, x.c)
    return found


def _softmaxes(x: Task) -> dict[str, np.ndarray]:
    s = np.where(x.seen(), _scaled(x), -np.inf)
    p = softmax(s)
    total = np.exp(s - s.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)
    return {
        "the softmax runs over the heads, but the weights of one query in one head add up to 1": (
            x.summed(softmax(s, axis=1))
        ),
        "the softmax runs over the queries, but the weights of one query in one head add up to "
        "1": x.summed(softmax(s, axis=0)),
        "the softmax runs over heads and tokens together; each head has weights of its own": (
            x.summed(_over(s, (1, 2)))
        ),
        "the softmax was taken twice": x.summed(softmax(np.where(x.seen(), p, -np.inf))),
        "the result was divided by the sum of the weights twice": x.summed(p) / total,
        "the weights do not add up to 1: divide them by their sum": x.summed(p) * total,
        "the weights are the scores themselves: take their softmax": x.summed(
            np.where(x.seen(), s, 0)
        ),
    }


def _over(s: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    p = np.exp(s - s.max(axis=axes, keepdims=True))
    found: np.ndarray = p / p.sum(axis=axes, keepdims=True)
    return found


def _masks(x: Task) -> dict[str, np.ndarray]:
    q_pos, kv_pos = x.positions()
    s, rows = _scaled(x), np.arange(len(q_pos))
    p = softmax(s)
    return {
        "there is no mask: a query sees its own token and those before it": (
            _attended(x, s, np.ones(s.shape, bool))
        ),
        f"the mask begins in the top left corner, but query 0 stands at position {q_pos[0]}, after "
        "all that was cached before": _attended(x, s, (kv_pos <= rows[:, None])[:, None]),
        "a query does not see its own token": _attended(x, s, (kv_pos < q_pos[:, None])[:, None]),
        "a query sees one token too many": _attended(x, s, (kv_pos <= q_pos[:, None] + 1)[:, None]),
        "only the newest T tokens are seen: the cached ones before them are missing": (
            _attended(x, s, x.seen() & (kv_pos >= q_pos[0]))
        ),
        "the mask is upside down: a query sees its own token and those before it": (
            _attended(x, s, (kv_pos >= q_pos[:, None])[:, None])
        ),
        "the mask comes after the softmax, so the weights of a query do not add up to 1: set "
        "hidden scores to -inf before it": x.summed(np.where(x.seen(), p, 0)),
        "hidden scores are 0, but e^0 is 1, so these tokens still count: set them to -inf": (
            x.summed(softmax(np.where(x.seen(), s, 0)))
        ),
    }

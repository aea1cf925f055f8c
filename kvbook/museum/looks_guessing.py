"""Looks at guesses: a text that is written with them, and the shares of a token drawn from them.
See `kvbook.museum.looks`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvbook.museum.looks import zeroed
from kvbook.museum.tiny import spread
from kvlib.arrays import to_numpy
from kvlib.model.decoder import Decoder
from kvlib.serve import probabilities
from kvlib.speculation import accept, lower_layers

BRANCH = "class Stack:\n    def __init__(self, "  # four letters are about as likely to follow
KEPT = 4  # top-k


def shares_of_a_token(model: Decoder) -> str:
    """shares of the next token at top-k 4; each possible guess counts with its probability"""
    ids = model.tokenizer.encode(BRANCH)
    q = probabilities(_logits(lower_layers(model, 3), ids), 1.0, KEPT)
    return _shares(model, ids, {guess: q[0, guess] for guess in np.flatnonzero(q).tolist()}, q)


def _shares(model: Decoder, ids: list[int], guesses: Mapping[int, float], q: np.ndarray) -> str:
    """The token after a text, over evenly spread verdicts and numbers.

    guesses: a guess → its share of the guesses. q (1, V): the distribution that comes with it.
    """
    points, found, kept = spread(), np.zeros(q.shape[1]), 0.0
    for guess, share in guesses.items():
        p = probabilities(_logits(model, [*ids, guess], 2), 1.0, KEPT)  # at the guess, and after
        for verdict, number in points:
            new = accept(p.copy(), [guess], q, [verdict], [number] * 2)
            found[new[0]] += share / len(points)
            kept += share / len(points) * (len(new) == 2)
    said = [f"{chr(token)} {_percent(found[token])}" for token in np.flatnonzero(p[0])]
    others = _percent(found[p[0] == 0].sum())
    return f"{', '.join(said)}, others {others}; guesses kept: {_percent(kept)}"


def _logits(model: Decoder, ids: list[int], rows: int = 1) -> np.ndarray:
    cache = zeroed(model)
    cache.add("a")
    step = cache.plan(["a"], [len(ids)])
    wanted = list(range(len(ids) - rows, len(ids)))
    return np.asarray(to_numpy(model.forward(ids, cache, step, rows=wanted)))


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"

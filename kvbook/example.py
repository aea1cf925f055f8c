"""The model of 32 numbers that the chapters compute by hand: one layer, one head, six tokens.

It writes "the cat sat on the mat". A token is a word, a row has two numbers, and there are no
positions, norms or MLPs, so that every number on the page can be checked with pencil and paper.
"""

import math
from dataclasses import dataclass

import numpy as np

VOCABULARY = ("the", "cat", "sat", "on", "mat")
TEXT = (0, 1, 2, 3, 0, 4)  # the cat sat on the mat
EMBEDDING = np.array([[1, 0], [0, 1], [1, 1], [-1, 0], [0, -1]], dtype=np.float32)  # (V, hidden)
W_Q = np.array([[0, 1], [-1, 0]], dtype=np.float32)  # (hidden, D), as are W_K and W_V
W_K = np.array([[1, 0], [0, 2]], dtype=np.float32)
W_V = np.array([[-1, -2], [0, 1]], dtype=np.float32)
W_OUT = np.array([[-2, 0], [0, -2], [-1, 2], [1, 2], [2, -1]], dtype=np.float32)  # (V, hidden)


@dataclass(frozen=True)
class Trace:
    """All numbers of one run over T tokens, float32."""

    x: np.ndarray  # (T, hidden), the rows of the embedding
    q: np.ndarray  # (T, D)
    k: np.ndarray  # (T, D)
    v: np.ndarray  # (T, D)
    scores: np.ndarray  # (T, T), -inf where the mask hides a key
    weights: np.ndarray  # (T, T), each row adds up to 1
    o: np.ndarray  # (T, D)
    logits: np.ndarray  # (T, V)


def run(tokens: tuple[int, ...] = TEXT[:3]) -> Trace:
    """Run the model over T token ids, from scratch, and return every number on the way.

    >>> trace = run()
    >>> [f"{share:.2f}" for share in trace.weights[2]]  # of "the", "cat" and "sat"
    ['0.07', '0.62', '0.31']
    >>> VOCABULARY[trace.logits[2].argmax()]
    'on'
    """
    x = EMBEDDING[list(tokens)]
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.T / math.sqrt(W_K.shape[1])
    scores = np.where(np.tri(len(x), dtype=bool), scores, np.float32(-np.inf))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    o = weights @ v
    return Trace(x, q, k, v, scores, weights, o, (x + o) @ W_OUT.T)

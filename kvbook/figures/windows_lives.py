"""Lives of a cache under a retention rule: what one head holds at each query of a text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kvlib.arrays import to_numpy
from kvlib.caches import BlockPool, PagedCache, Retention, layer_groups
from kvlib.model import Decoder

CHUNK = 8  # tokens of a step while the prompt is read


class Life(NamedTuple):
    """What a cache held while a text was read, and what the model said.

    q (n, Hq, D): queries of the layer. k (S, Hkv, D): the keys that it holds at the end.
    lost (n,): the first query that came when this key was lost; n if none did. said: the likeliest
    byte at each place of the answer. payload: bytes of keys and values at the end, all layers.
    """

    q: np.ndarray
    k: np.ndarray
    lost: np.ndarray
    said: bytes
    payload: int


class _Watched(PagedCache):
    """A paged cache that notes the queries of one layer."""

    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        if layer == self.noted_layer:
            self.noted.append(np.array(to_numpy(q)))
        return super().run(layer, q, step, return_lse)

    noted_layer: int
    noted: list[np.ndarray]


def lived(
    model: Decoder, rule: Retention | None, text: bytes, asked: int, layer: int, head: int
) -> Life:
    """Read a text under a retention rule: `asked` bytes in chunks, then byte by byte."""
    n, specs = len(text), model.layer_specs
    groups = len(layer_groups(specs, rule))
    pool = BlockPool(2 * groups * (n + CHUNK), block_size=1)  # a rule with holes copies what stays
    cache = _Watched(specs, pool, retention=rule, xp=model.xp)
    cache.noted_layer, cache.noted = layer, []
    cache.add("text")
    starts = [*range(0, asked, CHUNK), *range(asked, n)]
    lost, said = np.full(n, n), []
    for start, stop in zip(starts, [*starts[1:], n], strict=True):
        stop = min(stop, asked) if start < asked else stop
        step = cache.plan(["text"], [stop - start])
        logits = model.forward(list(text[start:stop]), cache, step, rows="last")
        if stop >= asked:
            said.append(int(np.argmax(to_numpy(logits)[-1])))
        k, _, positions = map(to_numpy, cache.read(layer, "text"))
        gone = np.ones(stop, dtype=bool)
        gone[positions[head] if positions.ndim == 2 else positions] = False
        lost[:stop] = np.where(gone, np.minimum(lost[:stop], start), n)
    payload = cache.memory().payload
    return Life(np.concatenate(cache.noted), k, lost, bytes(said), payload)


def attention(q: np.ndarray, k: np.ndarray, head: int, scale: float | None) -> np.ndarray:
    """The causal attention (n, n) of a kv head, the mean over its query heads, in float64."""
    n, heads, dim = k.shape
    group = q.shape[1] // heads
    own = q[:, head * group : (head + 1) * group].astype(np.float64)
    s = np.einsum("tgd,sd->gts", own, k[:, head].astype(np.float64))
    s *= dim**-0.5 if scale is None else scale
    s[:, ~np.tri(n, dtype=bool)] = -np.inf
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray((p / p.sum(axis=-1, keepdims=True)).mean(axis=0))

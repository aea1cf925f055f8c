"""What a policy is shown of the last step: its queries, and the keys that they met."""

from __future__ import annotations

from dataclasses import dataclass

from kvlib.arrays import Array, namespace
from kvlib.attention.direct import as_dtype, by_head, cap, scaled, visible
from kvlib.caches.spec import LayerSpec


@dataclass(frozen=True, eq=False)
class Seen:
    """The queries of one request's last step in one layer, all of them or the last few.

    q (T, Hq, Dk): the queries. lse (T, Hq): what `run` returned for them. k (Hkv, S, Dk): the
    stored keys, those of the step included. at: the position of the first query. slot: where the
    token of the first query is stored. spec: the layer.

    >>> import numpy as np
    >>> from kvlib import attend
    >>> q = k = np.eye(2, dtype=np.float32)[:, None, :]  # two tokens, one head
    >>> o, lse = attend(q, k, k, np.arange(2), np.arange(2), return_lse=True)
    >>> seen = Seen(q, lse, k.transpose(1, 0, 2), 0, 0, LayerSpec(1, 2))
    >>> seen.probabilities()[0, 0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]], dtype=float32)
    """

    q: Array
    lse: Array
    k: Array
    at: int
    slot: int
    spec: LayerSpec

    def probabilities(self) -> Array:
        """What each query gave each stored token: (Hkv, G, T, S)."""
        return probabilities(self.q, self.lse, self.k, self.slot, self.spec)


def probabilities(q: Array, lse: Array, k: Array, first: int, spec: LayerSpec) -> Array:
    """What queries gave the stored keys: q (T, Hq, D), lse (T, Hq), k (Hkv, S, D) → (Hkv, G, T, S).

    first: the slot of the first query's own token. A token after a query's own has 0. A learned
    sink's share is in lse, so the rest then adds up to less than 1.
    """
    xp, (heads, n, _), (rows, num_qo_heads, _) = namespace(k), k.shape, q.shape
    queries = by_head(xp, scaled(xp, q, spec.sm_scale), heads)
    s = cap(xp, queries @ as_dtype(xp, k, queries.dtype).mT, spec.softcap)
    p = xp.exp(s - xp.astype(by_head(xp, lse[..., None], heads), s.dtype))
    p = xp.reshape(p, (heads, num_qo_heads // heads, rows, n))
    own = first + xp.arange(rows, dtype=xp.int64, device=k.device)
    slots = xp.arange(n, dtype=xp.int64, device=k.device)
    return xp.where(visible(own, slots, None), p, xp.zeros_like(p))

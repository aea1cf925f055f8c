"""What is compared after each operation of a life that forgets (retention_lives.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from retention_model import Held

from kvlib import LayerSpec
from kvlib.caches import Window
from kvlib.testing import oracle
from kvlib.testing.memory import poison_all
from kvlib.testing.rounding import sum_bound
from kvlib.testing.schedule import close

MAX_SEQS, MAX_SEQ_LEN, WORDS = 3, 48, 3
Rules = list[Any]  # one rule per layer
Make = Callable[[list[LayerSpec], Rules], Any]


class Checked:
    """One cache, and for each open request its text and a model of each layer.

    edge: W, the window or budget about which lengths are drawn. done: how often each operation
    was done; too_near: scores of which float32 cannot tell which is higher.
    """

    def __init__(self, seed: int, make: Make, specs: list[LayerSpec], rules: Rules, edge: int):
        self.rng, self.edge = np.random.default_rng(seed), edge
        self.specs, self.rules, self.cache = specs, rules, make(specs, rules)
        poison_all(self.cache)
        self.k, self.v = ([self._table(n, dim) for n, dim in self._shapes(i)] for i in (0, 1))
        self.prompts = self.rng.integers(0, WORDS, (2, MAX_SEQ_LEN))
        self.text: dict[str, list[int]] = {}
        self.waiting: dict[str, list[int]] = {}  # of a prompt, not yet fed
        self.begun: dict[str, int] = {}
        self.held: dict[str, list[Held]] = {}
        self.done: Counter[str] = Counter()
        self.log: list[str] = []
        self.names = iter(range(10**6))
        self.too_near = 0
        self.queries = 2  # per kv head

    def _shapes(self, which: int) -> list[tuple[int, int]]:
        return [(s.num_kv_heads, (s.head_dim, s.v_dim)[which]) for s in self.specs]

    def _table(self, heads: int, dim: int) -> np.ndarray:
        """A layer's keys or values by position and token: (P, WORDS, H, D) float32."""
        shape = (MAX_SEQ_LEN, WORDS, heads, dim)
        return self.rng.standard_normal(shape, dtype=np.float32)

    def rows(self, table: np.ndarray, text: list[int], start: int = 0) -> np.ndarray:
        """(S, H, D) float32 of a text from `start` on."""
        return table[np.arange(start, len(text)), text[start:]]

    def decoded(self, layer: int, which: int, text: list[int]) -> np.ndarray:
        """What the cache must have of them, (S, H, D) float64: codes are rounded, each alone."""
        x, codec = self.rows((self.k, self.v)[which][layer], text), self.cache.codec
        if not codec.plain and len(x):
            part = (codec.keys, codec.values)[which]
            heads_first = np.ascontiguousarray(x.transpose(1, 0, 2))
            x = part.decode(part.encode(heads_first), np.float32).transpose(1, 0, 2)
        return np.asarray(x, np.float64)

    def run(self, layer: int, step: Any) -> None:
        spec = self.specs[layer]
        if self.rng.random() < 0.2:  # the last rows alone, as the last layer of a model runs
            step = step.last([1 + layer % n for n in step.q_lens])
        heads = spec.num_kv_heads * self.queries
        q = self.rng.standard_normal((step.num_tokens, heads, spec.head_dim), dtype=np.float32)
        o, lse = self.cache.run(layer, q, step, return_lse=True)
        bound = sum_bound(spec.head_dim + MAX_SEQ_LEN, 4.0)
        for i, name in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            held, at = self.held[name][layer], step.seq_lens[i] - step.q_lens[i]
            held.run(q[rows].copy(), at)
            positions = self.needed(layer, name)
            k, v = (self.decoded(layer, x, self.text[name]) for x in (0, 1))
            heads_of = np.arange(spec.num_kv_heads)
            k, v = k[positions.T, heads_of], v[positions.T, heads_of]
            right = oracle.attention(
                q[rows], k, v, np.arange(at, step.seq_lens[i]), positions, **spec.settings
            )
            for got, needed, what in zip((o, lse), right, ("o", "lse"), strict=True):
                close(got[rows].astype(np.float64), needed, f"{what} of {layer}, {name}", bound)
            self.done["results compared"] += 1
        q[...] = np.nan  # the array is the caller's again

    # What must be there -------------------------------------------------------------------------

    def look(self) -> None:
        assert self.cache.seq_ids == tuple(self.text)
        for name, text in self.text.items():
            assert self.cache.seq_len(name) == len(text)
            for layer in range(len(self.specs)):
                self.look_at(layer, name, text)

    def look_at(self, layer: int, name: str, text: list[int]) -> None:
        """Each head holds what the definition says, and every number of it is right."""
        k, v, found = self.cache.read(layer, name)
        needed, heads = self.needed(layer, name), np.arange(self.specs[layer].num_kv_heads)
        found = np.broadcast_to(found, (len(heads), found.shape[-1]))
        assert (found.shape == needed.shape) and (found == needed).all(), (
            f"layer {layer} ({self.rules[layer]}) of {name} holds {found.tolist()}, needed "
            f"{needed.tolist()}"
        )
        if len(text):
            for which, x in enumerate((k, v)):
                right = self.decoded(layer, which, text)[needed.T, heads]
                assert (x == right).all(), f"numbers of layer {layer} of {name} are wrong"
        if len({own.tobytes() for own in needed}) > 1:
            self.done["heads that differ"] += 1

    def needed(self, layer: int, name: str) -> np.ndarray:
        """(Hkv, n). A window may hold a few tokens more than it must, for those that lie in one
        block with a token that stays; which ones, the cache says."""
        held, rule = self.held[name][layer], self.rules[layer]
        if held.exact:
            return np.array(held.positions, int)
        first, length = self.first(layer, name), len(self.text[name])
        if isinstance(rule, Window):
            begun = self.begun[name]
            slack = self.cache.block_size or max(1, rule.size // 4) + 1
            must = max(0, length - rule.size + 1)
            assert first <= must, f"layer {layer} of {name} begins at {first}, needed {must}"
            if length > begun and self.cache.block_size is not None:
                assert first > begun - rule.size + 1 - slack, (
                    f"layer {layer} of {name} still holds token {first} at {begun} tokens"
                )
        else:
            assert first == 0, f"layer {layer} of {name} keeps all and lacks {first} tokens"
        return np.tile(np.arange(first, length), (self.specs[layer].num_kv_heads, 1))

    def first(self, layer: int, name: str) -> int:
        found = self.found(layer, name)
        return int(found[0, 0]) if found.size else len(self.text[name])

    def found(self, layer: int, name: str) -> np.ndarray:
        positions = self.cache.read(layer, name)[2]
        heads = self.specs[layer].num_kv_heads
        return np.broadcast_to(positions, (heads, positions.shape[-1]))

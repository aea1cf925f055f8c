"""Random lives of requests whose texts begin alike, in caches whose layers keep different tokens.

Keys depend on the text before them, as real ones do, so a block of another text shows.
"""

import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache as remembered

import numpy as np
import oracle
from schedules import TOLERANCE

from kvlib.caches import BlockPool, Cache, LayerSpec, PagedCache, Retention, layer_groups
from kvlib.caches.retention.rules import rules_of
from kvlib.errors import OutOfBlocks
from kvlib.testing.memory import check_bill, poison_all, poison_unused

FULL = (LayerSpec(1, 2), LayerSpec(2, 4, 3))
SHAPES = (LayerSpec(1, 2), LayerSpec(2, 4, 3, window=5))  # separate arrays for each group
ALIKE = (LayerSpec(1, 4, window=5), LayerSpec(1, 4), LayerSpec(1, 4, window=3))  # one memory
NARROW = (LayerSpec(1, 4, window=3), LayerSpec(1, 4, window=2))  # no layer keeps all
CODED = (LayerSpec(1, 8), LayerSpec(2, 16, 8, window=9))  # what codecs can divide


@dataclass(frozen=True)
class EndsOnly(Retention):
    """The first two tokens and the newest three stay."""

    every = 1

    def kept(self, positions, length):
        return (positions < 2) | (positions >= length - 3)


@remembered
def key_of(text: tuple, spec: tuple, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The key and value of a text's last token in a layer of heads, Dk, Dv: (1, Hkv, D) each."""
    rng = np.random.default_rng(zlib.crc32(repr((layer, text)).encode()))
    heads, *dims = spec
    k, v = (rng.standard_normal((1, heads, dim)).astype(np.float32) for dim in dims)
    return k, v


def paged(seed: int, layers: tuple, index: Callable, codec=None, retention=None) -> PagedCache:
    """A cache with hardly any blocks, of a size that the seed decides."""
    rng = np.random.default_rng(seed)
    group = 1 if codec is None else codec.group
    size = group * int(rng.integers(1, 5 if group == 1 else 3))
    blocks = int(rng.integers(5, 18)) * len(layer_groups(layers, retention))
    holes = any(group.retention.holes for group in layer_groups(layers, retention))
    pool = BlockPool(blocks, size, index=None if holes else index())
    return PagedCache(layers, pool, codec=codec, retention=retention, xp=np)


@dataclass
class Text:
    """A request's tokens, the keys that they depend on besides, and its length at its last plan."""

    extra: tuple
    tokens: list[int]
    begun: int = 0


class Life:
    """A small cache, few tokens, many requests: everything that can be shared will be."""

    def __init__(self, seed: int, cache: Cache) -> None:
        self.rng, self.cache, self.layers = np.random.default_rng(seed), cache, cache.layers
        self.pool = getattr(cache, "pool", None)
        self.rules = [group.retention for group in cache.groups]
        self.holes = any(rule.holes for rule in self.rules)
        poison_all(cache)
        self.texts: dict[int, Text] = {}
        self.past: list[Text] = []
        self.names = iter(range(10**6))
        self.known: dict[tuple, list[np.ndarray]] = {}  # what a layer was given, once computed
        self.found = self.refused = 0  # tokens found in the pool, plans without room

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def some(self) -> int:
        return list(self.texts)[self.below(len(self.texts))]

    def play(self, actions: int) -> None:
        for number in range(actions):
            which = self.below(10)
            if which < 3 or not self.texts:
                self.open()
            elif which < 6:
                self.grow()
            else:
                (self.fork, self.cut, self.close, self.close)[which - 6]()
            if self.below(8) == 0:
                poison_unused(self.cache)
            self.compare()
            if number % 10 == 9 and self.pool is not None:
                self.compare_published()

    # What may happen ----------------------------------------------------------------------------

    def open(self) -> None:
        if len(self.texts) == getattr(self.cache, "max_seqs", 9):
            return
        extra, tokens = ((), ("tenant",))[self.below(2)], []
        if self.past and self.below(4):
            known = self.past[-1 - self.below(min(9, len(self.past)))]
            tokens = known.tokens[: self.below(len(known.tokens) + 1)]
            extra = known.extra if self.below(4) else extra
        tokens = [*tokens, *self.rng.integers(0, 2, 1 + self.below(6)).tolist()]
        name = next(self.names)
        held = self.cache.add(name, tokens, extra=extra)
        assert 0 <= held < len(tokens) and (self.pool is None or held % self.pool.block_size == 0)
        self.found += held
        self.texts[name] = Text(extra, tokens[:held], held)
        self.run({name: tokens[held:]})

    def grow(self) -> None:
        names = {self.some() for _ in range(1 + self.below(3))}
        most = 1 + self.below(2) * self.below(8)  # one token each is a special kind of batch
        self.run({n: self.rng.integers(0, 2, 1 + self.below(most)).tolist() for n in names})

    def run(self, parts: dict[int, list[int]]) -> None:
        """A pass over new tokens, or over some layers only."""
        fits = {n: p for n, p in parts.items() if len(self.texts[n].tokens) + len(p) <= 40}
        if not fits:
            return
        fed = [t for part in fits.values() for t in part]
        try:
            step = self.cache.plan(list(fits), [len(part) for part in fits.values()], fed)
        except OutOfBlocks:
            self.refused += 1
            return
        before = {name: len(self.texts[name].tokens) for name in fits}
        for name, part in fits.items():
            text = self.texts[name]
            text.begun, text.tokens = before[name], text.tokens + part
        stop = self.below(len(self.layers)) if self.below(6) == 0 else len(self.layers)
        for layer in range(stop):
            now = {name: self.texts[name] for name in fits}
            new = [self.rows(layer, t, before[n], len(t.tokens)) for n, t in now.items()]
            k, v = (np.concatenate(parts) for parts in zip(*new))
            self.cache.append(layer, k, v, step)
            self.attend(layer, step)
        if stop < len(self.layers):
            self.give_up(before)
        left = [self.texts[name] for name in fits if name in self.texts]
        self.past += [Text(text.extra, text.tokens) for text in left]

    def give_up(self, before: dict[int, int]) -> None:
        """A pass that stopped halfway is undone; or first forked, or first planned over."""
        for name, length in before.items():
            how = self.below(4)
            if how == 0 and len(self.texts) < getattr(self.cache, "max_seqs", 9):
                fork = next(self.names)
                self.cache.fork(name, fork)
                self.cache.free(fork)
            if how == 1 and not self.cache.codec.waits and len(self.texts[name].tokens) < 40:
                with suppress(OutOfBlocks):
                    self.cache.plan([name], [1])
            if how == 2:
                self.cache.free(name)
                del self.texts[name]
            else:
                self.cache.truncate(name, length)
                del self.texts[name].tokens[length:]
                self.texts[name].begun = min(self.texts[name].begun, length)

    def fork(self) -> None:
        if len(self.texts) < getattr(self.cache, "max_seqs", 9):
            name, new = self.some(), next(self.names)
            self.cache.fork(name, new)
            text = self.texts[name]
            self.texts[new] = replace(text, tokens=list(text.tokens))

    def cut(self) -> None:
        """Back to any length, unless a layer has given back what its next token would see."""
        name = self.some()
        text, group = self.texts[name], self.cache.codec.group
        length = self.below(len(text.tokens) + 1)
        length -= length % group
        lost = (
            length
            and not self.holes
            and any(
                self.cache.read(layer, name)[2].min(initial=len(text.tokens))
                > max(0, length - (spec.window or length + 1) + 1)
                for layer, spec in enumerate(self.layers)
            )
        )
        try:
            self.cache.truncate(name, length)
        except ValueError as error:
            assert lost or (self.holes and length < text.begun), error
            return
        assert not lost, f"{name} went back to {length} tokens, and a layer lacks some of them"
        del text.tokens[length:]
        if not length:
            text.begun = 0

    def close(self) -> None:
        name = self.some()
        self.cache.free(name)
        del self.texts[name]

    # What must hold -----------------------------------------------------------------------------

    def compare(self) -> None:
        if self.holes or set(self.rules) == set(rules_of(self.layers, None)):
            check_bill(self.cache)
        if self.pool is not None:
            self.compare_blocks()
        for name, text in self.texts.items():
            assert self.cache.seq_len(name) == len(text.tokens)
            layer = self.below(len(self.layers))
            *found, positions = self.cache.read(layer, name)
            self.compare_positions(layer, text, positions.tolist())
            for got, all_of_it in zip(found, self.expected(layer, name)):
                assert (got == all_of_it[positions]).all(), f"layer {layer} of {name} changed"

    def compare_positions(self, layer: int, text: Text, positions: list[int]) -> None:
        """All that the next token sees, and no block that it does not."""
        n, rule = len(text.tokens), self.rules[self.cache.group_of[layer]]
        if self.holes:
            assert set(range(max(0, n - 3), n)) | set(range(min(2, n))) <= set(positions)
            return
        assert positions == list(range(n - len(positions), n)), f"positions {positions} of {n}"
        first = n - len(positions)
        assert first <= rule.first(n), f"{first} tokens are gone of {n}"
        if self.pool is not None and not self.cache.codec.waits:
            due = rule.first(text.begun) // self.pool.block_size * self.pool.block_size
            assert first >= min(due, n), f"a block of {text.begun} tokens is held for nobody"

    def compare_blocks(self) -> None:
        self.pool.check()
        held, groups = Counter[int](), dict[int, int]()
        for seq in self.cache._sequences.values():
            for g, table in enumerate(seq.state.tables):
                held.update(table.pages)
                for block in table.pages:
                    assert groups.setdefault(block, g) == g, f"block {block} of two groups"
                size = self.pool.block_size
                assert len(table.pages) == -(-(seq.length - table.freed) // size)
        for block in range(self.pool.num_blocks):
            assert self.pool.ref_count(block) == held[block], f"block {block} is held by nobody"

    def compare_published(self) -> None:
        """Every block that can be found holds what its tokens, after all before them, give."""
        nodes, codec, size = self.pool.index, self.cache.codec, self.pool.block_size
        for block in range(self.pool.num_blocks):
            node, group = nodes._node_of.get(block, (None, 0))
            tokens, extra = [], ()
            while node is not None:
                _, part, extra = nodes.index._content[node]
                node, tokens = nodes.index.parent(node), [*part, *tokens]
            first = max(0, len(tokens) - size)
            for layer in self.cache.groups[group].layers if tokens else ():
                new = self.rows(layer, Text(extra[1:], tokens), first, len(tokens))
                tensors = self.cache.stores[layer].tensors
                for stored, part, x in zip(tensors, (codec.keys, codec.values), new):
                    for name, needed in part.encode(x.transpose(1, 0, 2)).items():
                        assert (stored.arrays[name][block] == needed).all(), "another text's block"

    def attend(self, layer: int, step) -> None:
        spec = self.layers[layer]
        shape = (step.num_tokens, 2 * spec.num_kv_heads, spec.head_dim)
        q = self.rng.standard_normal(shape).astype(np.float32)
        o, lse = self.cache.run(layer, q, step, return_lse=True)
        for i, name in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v = self.expected(layer, name)
            stored = np.arange(len(k))
            if self.holes:
                stored = self.cache.read(layer, name)[2]
            needed = oracle.attention(
                q[rows], k[stored], v[stored], step.positions[rows], stored, **spec.settings
            )
            for got, wanted in zip((o[rows], lse[rows]), needed):
                np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)

    def rows(self, layer: int, text: Text, a: int, b: int) -> list[np.ndarray]:
        """Keys and values of tokens a ... b of a text, as they are appended."""
        spec = self.layers[layer]
        shape = (spec.num_kv_heads, spec.head_dim, spec.v_dim)
        found = [key_of((text.extra, *text.tokens[: i + 1]), shape, layer) for i in range(a, b)]
        empty = [np.empty((0, shape[0], dim), np.float32) for dim in shape[1:]]
        return [np.concatenate([e, *x]) for e, x in zip(empty, zip(*found))] if found else empty

    def expected(self, layer: int, name: int) -> list[np.ndarray]:
        """What a layer was given of a request, from its first token on, coded where it is."""
        text, codec = self.texts[name], self.cache.codec
        coded = self.cache._sequences[name].state.num_paged
        what = (layer, text.extra, tuple(text.tokens), coded)
        if what in self.known:
            return self.known[what]
        both = self.known[what] = self.rows(layer, text, 0, len(text.tokens))
        for x, part in zip(both, (codec.keys, codec.values)):
            codes = part.encode(x[:coded].transpose(1, 0, 2))
            x[:coded] = part.decode(codes, np.float32).transpose(1, 0, 2)
        return both

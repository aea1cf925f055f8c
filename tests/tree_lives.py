"""Random lives of two caches: one is given trees of guesses, the other only what is kept.

A token's key depends on its text alone, so requests whose texts begin alike may share blocks. After
each operation both caches must hold the same, to the last bit, and each node of a tree must get the
answer of its path: attention in float64 over what is older, its ancestors and itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from kvlib import Cache, LayerSpec
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.testing import oracle
from kvlib.testing.memory import check_bill, poison_all, poison_unused
from kvlib.testing.rounding import sum_bound
from kvlib.testing.schedule import any_tree, draw_path, line_of

MAX_SEQS, MAX_SEQ_LEN, HEADS, DIM = 3, 48, 4, 8
BOUND = sum_bound(2 * DIM + MAX_SEQ_LEN, 4.0)
Make = Callable[[], Cache]


@lru_cache(maxsize=4096)
def rows_of(layer: int, heads: int, text: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Key and value (heads, DIM) of the last token of a text."""
    rng = np.random.default_rng([layer, heads, *text])
    return tuple(rng.standard_normal((2, heads, DIM), dtype=np.float32))


class Lives:
    """The two caches, and the text of each request, which both hold."""

    def __init__(self, make: Make, seed: int, *, exact: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.tree, self.alone = make(), make()
        self.exact = exact  # whether what a layer has given back is the same in both
        for cache in (self.tree, self.alone):
            poison_all(cache)
        self.text: dict[str, list[int]] = {}
        self.prompts = [self.rng.integers(0, 4, MAX_SEQ_LEN).tolist() for _ in range(2)]
        self.names = iter(range(10**6))
        self.log: list[str] = []
        self.done: Counter[str] = Counter()

    def play(self, operations: int) -> None:
        kinds = (self.step, self.step, self.step, self.step, self.truncate, self.add)
        rare = (self.fork, self.free, self.failed, self.refused, self.settle)
        for _ in range(operations):
            among = rare if self.rng.random() < 0.25 else kinds
            operation = among[self.rng.integers(len(among))]
            if not self.text:
                operation = self.add
            if operation in (self.add, self.fork) and len(self.text) == MAX_SEQS:
                operation = self.free
            try:
                with np.errstate(all="ignore"):  # NaN that is read shows in the results
                    operation()
                    for cache in (self.tree, self.alone):
                        poison_unused(cache)
                    self.look()
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter: " + "; ".join(self.log)) from error
            self.done[operation.__name__] += 1
        for name in list(self.text):
            self.tree.free(name)
        if self.tree.block_size is not None:
            self.tree.pool.check()
            assert self.tree.pool.num_free == self.tree.pool.num_blocks, "blocks have leaked"

    # Operations ---------------------------------------------------------------------------------

    def add(self) -> None:
        name, n = f"r{next(self.names)}", int(self.rng.integers(2, 24))
        prompt = self.prompts[self.rng.integers(2)][:n]
        self.log.append(f"add {name} of {n}")
        held = self.tree.add(name, prompt), self.alone.add(name, prompt)
        if held[0] != held[1]:
            assert not self.exact, f"{name} found {held[0]} tokens, and {held[1]} without trees"
            for cache in (self.tree, self.alone):  # the tree had taken blocks of an older text
                cache.free(name)
            return
        self.done["prefix hit"] += held[0] > 0
        self.text[name] = prompt[: held[0]]
        self.feed([name], [prompt[held[0] :]], [None])

    def step(self) -> None:
        names = self.several()
        room = [MAX_SEQ_LEN - len(self.text[name]) for name in names]
        names = [name for name, left in zip(names, room, strict=True) if left]
        if not names:
            return self.free()
        news, trees = [], []
        for name in names:
            n = int(self.rng.integers(1, min(9, MAX_SEQ_LEN - len(self.text[name]) + 1)))
            news.append(self.rng.integers(0, 4, n).tolist())
            trees.append(any_tree(self.rng, n) if self.rng.random() < 0.7 else None)
        self.feed(names, news, trees)

    def feed(self, names: list[str], news: list[list[int]], trees: list[list[int] | None]) -> None:
        """A step of the first cache; then the second is fed what has been kept."""
        step = self.plan(names, news, trees)
        if step is None:
            return
        for layer in range(len(self.tree.layers)):
            self.append(self.tree, layer, step, names, news, trees)
        seen = step.last([int(self.rng.integers(1, n + 1)) for n in step.q_lens])
        for layer in range(len(self.tree.layers)):
            self.compare(layer, (step, seen)[layer % 2], news, trees)
        check_bill(self.tree)
        paths = [self.a_path(n, tree) for n, tree in zip(map(len, news), trees, strict=True)]
        for name, new, tree, path in zip(names, news, trees, paths, strict=True):
            whole = tree is None and len(path) == len(new)
            if whole and self.rng.random() < 0.5:
                continue  # the next plan ends the step
            self.log.append(f"keep {name} {path}")
            self.tree.keep(name, path)
        kept = [[new[j] for j in path] for new, path in zip(news, paths, strict=True)]
        some = [i for i, new in enumerate(kept) if new]
        if some:
            of = [names[i] for i in some], [kept[i] for i in some], [None] * len(some)
            tokens = [t for i in some for t in kept[i]]
            chain = self.alone.plan(of[0], [len(x) for x in of[1]], tokens)
            for layer in range(len(self.alone.layers)):
                self.append(self.alone, layer, chain, *of)
        for name, new in zip(names, kept, strict=True):
            self.text[name] += new
            if not new:
                self.planned(name)
        self.done["trees"] += sum(tree is not None for tree in trees)

    def a_path(self, n: int, tree: list[int] | None) -> list[int]:
        if self.rng.random() < 0.1:
            return []
        if tree is None:
            return list(range(n if self.rng.random() < 0.5 else int(self.rng.integers(1, n + 1))))
        return draw_path(self.rng, tree)

    def truncate(self) -> None:
        name = self.some()
        length = int(self.rng.integers(0, len(self.text[name]) + 1))
        self.log.append(f"truncate {name} {length}")
        for cache in (self.tree, self.alone):  # as far back as each may go, whatever it held last
            cache.settle(name)
        try:
            self.alone.truncate(name, length)
        except ValueError:
            length = 0
            self.alone.truncate(name, 0)
        try:
            self.tree.truncate(name, length)
        except ValueError as error:  # a longer step moved more tokens of its row away
            assert "cannot go back" in str(error) and not self.exact, error
            self.alone.truncate(name, 0)
            self.tree.truncate(name, 0)
            length = 0
        del self.text[name][length:]

    def fork(self) -> None:
        name, new = self.some(), f"r{next(self.names)}"
        self.log.append(f"fork {name} {new}")
        for cache in (self.tree, self.alone):
            cache.fork(name, new)
        self.text[new] = list(self.text[name])

    def free(self) -> None:
        name = self.some()
        self.log.append(f"free {name}")
        if self.rng.random() < 0.5 and len(self.text[name]) + 3 < MAX_SEQ_LEN:
            self.plan([name], [[0, 1, 2]], [[-1, 0, 0]])  # and nothing of it is ever found
        for cache in (self.tree, self.alone):
            cache.free(name)
        del self.text[name]

    def settle(self) -> None:
        name = self.some()
        self.log.append(f"settle {name}")
        for cache in (self.tree, self.alone):
            cache.settle(name)

    def failed(self) -> None:
        """Some layers append, and the step is taken back."""
        name, tree = self.some(), [-1, 0, 0, 1, 1, 2]
        if len(self.text[name]) + len(tree) > MAX_SEQ_LEN:
            return
        news = [self.rng.integers(0, 4, len(tree)).tolist()]
        step = self.plan([name], news, [tree])
        if step is None:
            return
        self.log.append("fails")
        for layer in range(int(self.rng.integers(len(self.tree.layers)))):
            self.append(self.tree, layer, step, [name], news, [tree])
        _refused(lambda: self.tree.keep(name, [0, 2]), "unfinished")
        undo: Any = (lambda: self.tree.keep(name, []), lambda: self.back(name))
        undo[self.rng.integers(2)]()
        self.planned(name)

    def planned(self, name: str) -> None:
        """What a plan gives back, the other cache gives back, too."""
        self.alone.plan([name], [1], [0])
        self.alone.truncate(name, len(self.text[name]))

    def back(self, name: str) -> None:
        self.tree.truncate(name, len(self.text[name]))

    def refused(self) -> None:
        name = self.some()
        if len(self.text[name]) + 4 > MAX_SEQ_LEN:
            return
        new, tree = [[0, 1, 2]], [[-1, 0, 0]]
        step = self.plan([name], new, tree)
        if step is None:
            return
        self.log.append("and is refused")
        _refused(lambda: self.tree.plan([name], [1]), "holds a tree of 3 guesses")
        _refused(lambda: self.tree.fork(name, "no"), "holds a tree of 3 guesses")
        _refused(lambda: self.tree.settle(name), "holds a tree of 3 guesses")
        _refused(lambda: self.tree.truncate(name, len(self.text[name]) + 3), "are no chain")
        _refused(lambda: self.tree.keep(name, [2, 1]), "path must")
        self.back(name)
        self.planned(name)

    # Parts of a step ----------------------------------------------------------------------------

    def plan(self, names: list[str], news: Any, trees: Any) -> Any:
        self.log.append(f"plan {dict(zip(names, map(len, news), strict=True))} {trees}")
        tokens = [t for new in news for t in new]
        before = [self.tree.seq_len(name) for name in names]
        try:
            step = self.tree.plan(names, list(map(len, news)), tokens, parents=trees)
        except (CacheFull, OutOfBlocks):
            self.log.append("no room")
            assert [self.tree.seq_len(name) for name in names] == before
            return None
        at = []
        for name, new, tree in zip(names, news, trees, strict=True):
            depths = [len(line_of(tree, j)) - 1 for j in range(len(new))] if tree else None
            at += [len(self.text[name]) + d for d in depths or range(len(new))]
        assert step.positions.tolist() == at, f"positions {step.positions.tolist()}, needed {at}"
        return step

    def append(self, cache: Any, layer: int, step: Any, names: Any, news: Any, trees: Any) -> None:
        heads = cache.layers[layer].num_kv_heads
        rows = [
            rows_of(layer, heads, (*self.text[name], *(new[m] for m in line_of(tree, j))))
            for name, new, tree in zip(names, news, trees, strict=True)
            for j in range(len(new))
        ]
        k, v = (np.stack([row[i] for row in rows]) for i in (0, 1))
        cache.append(layer, k, None if cache.layers[layer].v_from_k else v, step)

    def compare(self, layer: int, step: Any, news: Any, trees: Any) -> None:
        """Every row against attention over what is older and its own line."""
        spec = self.tree.layers[layer]
        q = self.rng.standard_normal((step.num_tokens, HEADS, DIM), dtype=np.float32)
        o, lse = self.tree.run(layer, q, step, return_lse=True)
        for i, name in enumerate(step.seq_ids):
            k, v, positions = self.tree.read(layer, name)
            n, tree = len(news[i]), trees[i]
            old = k.shape[0] - n
            for row in range(step.qo_indptr[i], step.qo_indptr[i + 1]):
                line = line_of(tree, n - step.qo_indptr[i + 1] + row)
                which = [*range(old), *(old + j for j in line)]
                at = len(self.text[name]) + len(line) - 1
                own = np.arange(at + 1 - len(line), at + 1)
                if self.tree.groups:  # a cache of one's own may say where the tokens lie
                    assert np.all(positions[..., [old + j for j in line]] == own)
                of = np.concatenate([positions[..., :old], self.alike(own, positions)], axis=-1)
                needed = oracle.attention(
                    q[row : row + 1], k[which], v[which], [at], of, **spec.settings
                )
                for got, want, what in zip((o[row], lse[row]), needed, ("o", "lse"), strict=True):
                    off = np.abs(got - want[0]) / (1 + np.abs(want[0]))
                    assert np.max(off) <= BOUND, f"{what} of {name}, layer {layer}: {off.max()}"

    @staticmethod
    def alike(own: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Positions (n,), or (Hkv, n) where each kv head has its own."""
        return np.broadcast_to(own, (*positions.shape[:-1], len(own)))

    def look(self) -> None:
        assert self.tree.seq_ids == self.alone.seq_ids == tuple(self.text)
        for name, text in self.text.items():
            assert self.tree.seq_len(name) == self.alone.seq_len(name) == len(text)
            for layer in range(len(self.tree.layers)):
                self.look_at(layer, name)
            one, two = (cache._sequences[name] for cache in (self.tree, self.alone))
            assert one.tree is None
            if getattr(one.state, "tables", None):
                assert one.state.num_encoded == two.state.num_encoded, "as much is encoded"
                tokens = text if self.tree.block_size is not None else []
                assert one.state.tokens == two.state.tokens == tokens, "the token ids"
            if self.exact and self.tree.groups:
                tables = [r.state.tables for r in (one, two)]
                assert [len(t.pages) for t in tables[0]] == [len(t.pages) for t in tables[1]]
        for cache in (self.tree, self.alone):
            check_bill(cache)
        if self.exact and not getattr(self.tree.codec, "waits", False):
            one, two = self.tree.memory(), self.alone.memory()
            assert one.payload == two.payload, "memory() sees guesses that were not kept"

    def look_at(self, layer: int, name: str) -> None:
        one, two = (cache.read(layer, name) for cache in (self.tree, self.alone))
        n = min(one[0].shape[0], two[0].shape[0])
        window = self.tree.layers[layer].window
        if self.exact or window is None:
            assert one[0].shape == two[0].shape, f"layer {layer} of {name} holds other tokens"
        else:
            assert n >= min(len(self.text[name]), window - 1)
        for x, y in zip(one, two, strict=True):
            axis = slice(-n, None) if n else slice(0, 0)
            x, y = (a[..., axis] if a is one[2] or a is two[2] else a[axis] for a in (x, y))
            assert x.tobytes() == y.tobytes(), f"layer {layer} of {name} differs from its path"

    def some(self) -> str:
        return list(self.text)[self.rng.integers(len(self.text))]

    def several(self) -> list[str]:
        names = [str(name) for name in self.rng.permutation(list(self.text))]
        return names[: int(self.rng.integers(1, len(names) + 1))]


def _refused(call: Callable[[], Any], words: str) -> None:
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"needed an error that says: {words}")


def layers_of(**more: Any) -> list[LayerSpec]:
    """A plain layer, and one with grouped queries."""
    return [LayerSpec(2, DIM, **more), LayerSpec(1, DIM, **more)]

"""Random lives of a cache, compared with a plain record of all that was appended.

`Schedule` asks ``choose(low, high)`` for every decision: a seeded generator answers, or another
search for failures (hypothesis, in kvlib's own tests).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from kvlib.caches import Cache, LayerSpec, Step
from kvlib.codecs import TensorCodec
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.testing import oracle
from kvlib.testing.memory import check_bill, poison_unused
from kvlib.testing.rounding import sum_bound

# float32 against float64: a score sums up to 24 products, a result 40 keys, terms are within 4
TOLERANCE = sum_bound(24 + 40, 4.0)
Choose = Callable[[int, int], int]


def seeded(seed: int) -> Choose:
    """Decisions of a generator with that seed."""
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high, endpoint=True))


@dataclass(frozen=True)
class Terms:
    """What is asked of a cache.

    max_seqs, max_seq_len   the room it has; max_seq_len None where it grows without end
    unit      keys have 1, 2 or 3 times as many numbers, values also 5 times: 8, 16, 24 and 40
    lengths   the lengths of keys and values to draw instead, such as [64, 128]
    v_from_k  whether some layers take values from their keys (`append` with v=None)
    keeps     of a cache that evicts, the positions that every kv head must hold of a request of
              that length. It is compared with attention over the positions that `read` gives.
    """

    max_seqs: int = 4
    max_seq_len: int | None = 40
    unit: int = 8
    v_from_k: bool = True
    keeps: Callable[[int], Sequence[int]] | None = None
    lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.lengths is not None and not (len(self.lengths) and min(self.lengths) >= 2):
            raise ValueError(f"lengths must hold numbers of at least 2, got {self.lengths!r}")

    @property
    def longest(self) -> int:
        """The most tokens that a request gets."""
        return 40 if self.max_seq_len is None else self.max_seq_len

    @property
    def dims(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Lengths of keys, and of values if their length differs."""
        if self.lengths is not None:
            return tuple(self.lengths), tuple(self.lengths)
        return tuple(max(2, self.unit) * n for n in (1, 2, 3)), (self.unit, 5 * self.unit)

    def layer(self, choose: Choose, xp: Any, values: np.random.Generator) -> tuple[LayerSpec, int]:
        """Return a random layer and its number of query heads."""
        keys, v_dims = self.dims[0], (None, *self.dims[1])
        num_kv_heads, groups = choose(1, 3), (1, 2, 4)[choose(0, 2)]
        head_dim = keys[choose(0, len(keys) - 1)]
        v_from_k = choose(0, 4) == 0 and self.v_from_k
        v_head_dim = choose(1, head_dim) if v_from_k else v_dims[choose(0, len(v_dims) - 1)]
        sinks = None
        if choose(0, 3) == 0:
            sinks = xp.asarray(values.standard_normal(num_kv_heads * groups).astype(np.float32))
        spec = LayerSpec(
            num_kv_heads,
            head_dim,
            v_head_dim,
            window=choose(1, 9) if choose(0, 1) else None,
            sm_scale=0.7 if choose(0, 2) == 0 else None,
            softcap=1.5 if choose(0, 2) == 0 else None,
            sinks=sinks,
            v_from_k=v_from_k,
        )
        return spec, num_kv_heads * groups


def describe(spec: LayerSpec) -> str:
    """Name a layer's shape and the settings that it has."""
    words = [f"{spec.num_kv_heads} kv heads of {spec.head_dim}"]
    if spec.v_dim != spec.head_dim:
        words.append(f"values of {spec.v_dim}")
    words += ["values from keys"] * spec.v_from_k
    words += [f"window {spec.window}"] * (spec.window is not None)
    words += [n for n in ("sm_scale", "softcap", "sinks") if getattr(spec, n) is not None]
    return ", ".join(words)


def any_tree(rng: np.random.Generator, n: int) -> list[int]:
    """Draw the parents of n tokens: bushes, combs, chains, one root or several."""
    back = int(rng.integers(1, n + 1))
    return [int(rng.integers(max(-1, j - 1 - back), j)) for j in range(n)]


def draw_tree(rng: np.random.Generator, n: int) -> list[int] | None:
    """Draw a tree for one step in four; None for the others, and for a tree that is a chain."""
    tree = any_tree(rng, n) if rng.random() < 0.25 else None
    return None if tree == list(range(-1, n - 1)) else tree


def line_of(tree: Sequence[int] | None, node: int) -> list[int]:
    """Return a new token and its ancestors, from the root on."""
    if tree is None:
        return list(range(node + 1))
    line = [node]
    while tree[line[0]] >= 0:
        line.insert(0, tree[line[0]])
    return line


def draw_path(rng: np.random.Generator, tree: Sequence[int]) -> list[int]:
    """Draw the beginning of a line of the tree, which may be empty."""
    line = line_of(tree, int(rng.integers(len(tree))))
    return line[: int(rng.integers(0, len(line) + 1))]


class Schedule:
    """A random life of one cache, with a record of the keys and values that it was given.

    held        of each open request and layer, k and v (S, Hkv, D) in float64
    log         the actions so far
    compared    how many results of `run` were compared with the oracle
    skipped     what this life leaves out, in words
    """

    def __init__(
        self,
        make_cache: Callable[[Sequence[LayerSpec]], Cache],
        choose: Choose,
        *,
        xp: Any = np,
        terms: Terms | None = None,
    ) -> None:
        self.choose, self.xp, self.terms = choose, xp, terms or Terms()
        seed = choose(0, 2**16)
        self.values = np.random.default_rng(seed)
        self.guesses = np.random.default_rng([seed, 1])  # trees, and which path of them is kept
        self.accidents = np.random.default_rng([seed, 2])  # steps that are never finished
        drawn = [self.terms.layer(choose, xp, self.values) for _ in range(choose(1, 3))]
        self.layers = [spec for spec, _ in drawn]
        self.num_qo_heads = [heads for _, heads in drawn]
        self.cache: Any = make_cache(self.layers)
        no_trees, self.forks = self._no_trees(), type(self.cache)._copy is not Cache._copy
        self.trees = not no_trees
        skipped = {
            f"trees of guesses ({no_trees})": no_trees,
            "fork (the cache has no _copy)": not self.forks,
            "plans without room (max_seq_len=None)": self.terms.max_seq_len is None,
            "layers with v_from_k (v_from_k=False)": not self.terms.v_from_k,
            "old numbers in freed memory (the kit knows that of kvlib's caches alone)": not (
                self.cache.groups
            ),
        }
        self.skipped: dict[str, None] = dict.fromkeys(x for x in skipped if skipped[x])
        self.step_trees: dict[str, list[int]] = {}  # parents, of the requests in a step that is one
        codec = self.cache.codec
        self.codec = None if codec.plain else codec
        self.held: dict[str, list[list[Any]]] = {}
        self.begun: dict[str, int] = {}  # how long a request was before its last step
        self.decoded: dict[tuple[int, str], Any] = {}  # see `expected`
        self.names = iter(range(10**6))
        self.log: list[str] = []
        self.compared = 0

    def _no_trees(self) -> str:
        """Say why no step is a tree of guesses; "" where some are."""
        cache = self.cache
        if self.terms.keeps is not None:
            return "left out where tokens are evicted"
        if type(cache)._keep is Cache._keep:
            return "the cache has no _keep"
        if cache.attention is not None and not getattr(cache.attention, "trees", False):
            return "its attention does not take them"
        try:
            cache._check_trees()
        except ValueError:
            return "the cache refuses them"
        return "" if "parents" in signature(cache.plan).parameters else "its plan has no parents"

    def play(self, actions: int) -> None:
        """Take random actions and check the whole cache after each; AssertionError names all
        actions so far."""
        for _ in range(actions):
            action = (self.step, self.step, self.step, self.add, self.truncate)[self.choose(0, 4)]
            if self.choose(0, 3) == 0:
                action = (self.fork, self.free, self.failed_step, self.refused)[self.choose(0, 3)]
            if not self.held:
                action = self.add
            try:
                action()
                self.check()
                check_refusals(self.cache)
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter: " + "; ".join(self.log)) from error

    def add(self) -> None:
        name = f"r{next(self.names)}"
        self.log.append(f"add {name}")
        if self.full("add", name, lambda: self.cache.add(name)):
            return
        held = self.cache.add(name, [1, 2, 3])
        assert held == 0, f"add returned {held!r} held tokens for {name}, but {name} is new"
        self.held[name] = [
            [np.zeros((0, s.num_kv_heads, dim)) for dim in (s.head_dim, s.v_dim)]
            for s in self.layers
        ]

    def full(self, what: str, name: str, call: Callable[[], Any]) -> bool:
        """Tell whether max_seqs requests are open; if they are, one more must be refused."""
        if len(self.held) < self.terms.max_seqs:
            return False
        if hasattr(self.cache, "max_seqs"):
            with _refuses(what, CacheFull, name):
                call()
        return True

    def free(self) -> None:
        name = self.pick()
        self.log.append(f"free {name}")
        self.cache.free(name)
        del self.held[name]
        poison_unused(self.cache)

    def fork(self) -> None:
        name, new = self.pick(), f"r{next(self.names)}"
        if not self.forks:
            return
        self.log.append(f"fork {name} {new}")
        if self.full("fork", new, lambda: self.cache.fork(name, new)):
            return
        self.cache.fork(name, new)
        self.held[new] = [list(pair) for pair in self.held[name]]
        self.begun[new] = self.length(name)

    def truncate(self) -> None:
        name = self.pick()
        self.cut(name, self.choose(0, self.length(name)))
        poison_unused(self.cache)

    def cut(self, name: str, length: int) -> None:
        """Truncate; where codes don't allow it, to the beginning of their group."""
        self.log.append(f"truncate {name} {length}")
        group = self.codec.group if self.codec else 1
        try:
            self.cache.truncate(name, length)
        except ValueError as error:
            if self.terms.keeps is not None:
                begun, codes = self.begun.get(name, 0), "encoded" in str(error) and length % group
                assert length < begun or codes, (
                    f"truncate did not undo the last step, which began at {begun}: {error}"
                )
                self.log.append("cannot be truncated")
                self.skipped["lengths that truncate refuses"] = None
                return
            assert "cannot be truncated" in str(error), error
            if self.lost(name, length):
                self.log.append("cannot be truncated")
                return
            state = self.cache._sequences[name].state
            assert group > 1 and length % group, error
            assert (
                length < state.num_paged and not state.undo_paged <= length <= state.undo_length
            ), error
            return self.cut(name, length - length % group)
        self.begun[name] = min(length, self.begun.get(name, 0))
        for pair in self.held[name]:
            pair[:] = [x[:length] for x in pair]

    def lost(self, name: str, length: int) -> bool:
        """Tell whether a window has dropped tokens that the next one would see at `length`."""
        if not 0 < length < self.begun.get(name, 0):
            return False
        for layer, spec in enumerate(self.layers):
            if spec.window is not None:
                first = self.read(layer, name)[1].min(initial=self.length(name))
                if first > max(0, length - spec.window + 1):
                    return True
        return False

    def refused(self) -> None:
        """Make a plan that is too long for its last request; it must change no other either."""
        if self.terms.max_seq_len is None:
            return
        names = self.pick_some()
        q_lens = [1] * len(names)
        q_lens[-1] = self.terms.longest + 1 - self.length(names[-1])
        if self.cache.block_size is not None:
            q_lens[-1] = (self.cache.pool.num_blocks + 2) * self.cache.block_size
        self.log.append(f"refused {names}")
        with _refuses("plan", (CacheFull, OutOfBlocks), *names):
            self.cache.plan(names, q_lens)

    def failed_step(self) -> None:
        """Stop a step after some layers and undo it with ``truncate``."""
        step = self.plan(self.pick_some())
        if step is None:
            return
        self.log.append("fails")
        for layer in range(self.choose(0, len(self.layers))):
            self.cache.append(layer, *self.keys_and_values(layer, step.num_tokens), step)
        for name in step.seq_ids:
            self.cache.truncate(name, self.length(str(name)))
        with _refuses("append to a step that truncate has undone", ValueError, "over"):
            self.cache.append(0, *self.keys_and_values(0, step.num_tokens), step)
        poison_unused(self.cache)

    def unfinished(self, name: str) -> None:
        """Plan steps of a request one after another, none of which all layers append.

        Until the request is truncated to where the first of them began, no layer may append. After
        that it is as it was, and so is a fork made in between.
        """
        values, self.values, begun = self.values, self.accidents, self.length(name)
        logged = len(self.log)
        # A cache that evicts may do so in each plan, and need not cut a fork back that far.
        keeps_all = self.terms.keeps is None
        times = self.accident(1, 4) if keeps_all else 1
        self.log.append(f"plan {name} {times} times, unfinished")
        steps: list[Step] = []
        for _ in range(times):
            n = min(self.accident(1, 9), self.terms.longest - self.cache.seq_len(name))
            some = self.accident(0, len(self.layers) - 1) if n and not steps else 0
            with suppress(OutOfBlocks):
                steps += [self.cache.plan([name], [n])] if n else []
                for layer in range(some):
                    self.cache.append(layer, *self.keys_and_values(layer, n), steps[0])
        if len(steps) > 1:
            words = f"lacks keys from token {begun} on"
            with _refuses("append after a step that some layer missed", ValueError, words):
                new = self.keys_and_values(0, steps[-1].num_tokens)
                self.cache.append(0, *new, steps[-1])
        names, fork = [name] if steps else [], f"{name}'"
        room = steps and len(self.held) < self.terms.max_seqs
        if room and self.accident(0, 1) and keeps_all and self.forks:
            self.log.append(f"fork {name} {fork}")
            self.cache.fork(name, fork)
            self.held[fork] = self.held[name]
            names.insert(self.accident(0, 1), fork)
        for one in names:
            self.check_unfinished(one)
            lengths = [self.accident(begun, self.cache.seq_len(one)), begun]
            for length in lengths[self.accident(0, 1) :]:
                self.cache.truncate(one, length)
                self.check_length(one, length)
                self.check_unfinished(one)
            poison_unused(self.cache)
            for layer in range(len(self.layers)):
                self.check_layer(layer, one)
        if fork in names:
            self.cache.free(fork)
            del self.held[fork]
        self.values = values
        del self.log[logged:]  # it has left no trace

    def check_unfinished(self, name: str) -> None:
        """Check that ``read`` gives no unused memory where a step is unfinished."""
        for layer in range(len(self.layers)):
            with np.errstate(all="ignore"):  # newer tokens have room, and no numbers yet
                k, v, positions = self.cache.read(layer, name)
            old = int((np.atleast_2d(oracle.float64(positions))[0] < self.length(name)).sum())
            assert all(np.isfinite(oracle.float64(x[:old, ...])).all() for x in (k, v)), (
                f"layer {layer} of {name}: read gives memory that holds no token"
            )

    def step(self) -> None:
        """Run a step and compare every layer with the oracle."""
        step = self.plan(self.pick_some())
        if step is None:
            return
        last, with_lse = self.choose(0, 2) == 0, self.choose(0, 1) == 1
        for layer in range(len(self.layers)):
            k, v = self.keys_and_values(layer, step.num_tokens)
            self.cache.append(layer, k, v, step)
            self.record(layer, k, v, step)
            for x in (k, v):  # the caller needs its arrays for the next step: a view is no copy
                if x is not None:
                    x[...] = 9
        for layer in range(len(self.layers)):
            if self.terms.keeps is not None:  # a wrong row tells more than a wrong sum over it
                for name in step.seq_ids:
                    self.check_layer(layer, str(name))
            self.compare(layer, step, last, with_lse)
        for name, tree in self.step_trees.items():
            self.keep(name, draw_path(self.guesses, tree), len(tree))

    def keep(self, name: str, path: list[int], n: int) -> None:
        """Keep a path of the n new tokens of a request."""
        self.log.append(f"keep {name} {path}")
        self.cache.keep(name, path)
        old = self.length(name) - n
        for pair in self.held[name]:
            pair[:] = [x[[*range(old), *(old + number for number in path)]] for x in pair]

    def plan(self, names: list[str]) -> Step | None:
        """Plan a step and check what it says; None if a small pool has no room for it."""
        room = [self.terms.longest - self.length(name) for name in names]
        names = [name for name, left in zip(names, room, strict=True) if left] or names[:1]
        for length in (3, 0):  # 0 if a window has moved past 3
            if self.length(names[0]) == self.terms.longest:
                self.cut(names[0], length)
        if self.length(names[0]) == self.terms.longest:
            return None
        q_lens = []
        for name in names:
            most = min(self.terms.longest - self.length(name), (1, 2, 5, 17)[self.choose(0, 3)])
            q_lens.append(self.choose(1, most))
        if len(self.log) % 4 == 0:
            poison_unused(self.cache)  # what the last steps have let go of
        trees = [draw_tree(self.guesses, n) if self.trees else None for n in q_lens]
        self.step_trees = {name: tree for name, tree in zip(names, trees, strict=True) if tree}
        lengths = dict(zip(names, q_lens, strict=True))
        self.log.append(f"step {lengths} {self.step_trees or ''}".strip())
        starts = [self.length(name) for name in names]
        self.begun.update(zip(names, starts, strict=True))
        if self.accident(0, 3) == 0:
            self.unfinished(names[self.accident(0, len(names) - 1)])
        if self.cache.block_size is not None and self.choose(0, 7) == 0:
            self.cache.pool.check()
        try:
            step = self.cache.plan(names, q_lens, **({"parents": trees} if self.step_trees else {}))
        except OutOfBlocks as error:
            assert self.cache.block_size is not None and any(n in str(error) for n in names), error
            self.log.append("no room")
            return None
        ends = [a + n for a, n in zip(starts, q_lens, strict=True)]
        assert step.seq_ids == tuple(names) and step.q_lens == tuple(q_lens), f"planned {step!r}"
        assert step.seq_lens == tuple(ends), f"planned {step!r}, needed lengths {ends}"
        assert step.qo_indptr == tuple(sum(q_lens[:i]) for i in range(len(names) + 1))
        new = zip(starts, q_lens, trees, strict=True)
        positions = [a + len(line_of(tree, j)) - 1 for a, n, tree in new for j in range(n)]
        assert step.positions.dtype == self.xp.int64
        assert oracle.float64(step.positions).tolist() == positions
        return step

    def keys_and_values(self, layer: int, tokens: int) -> tuple[Any, Any]:
        spec = self.layers[layer]
        k = self.random(tokens, spec.num_kv_heads, spec.head_dim)
        return k, None if spec.v_from_k else self.random(tokens, spec.num_kv_heads, spec.v_dim)

    def record(self, layer: int, k: Any, v: Any, step: Step) -> None:
        k64 = oracle.float64(k)
        v64 = k64[..., : self.layers[layer].v_dim] if v is None else oracle.float64(v)
        for i, name in enumerate(step.seq_ids):
            new, pair = slice(step.qo_indptr[i], step.qo_indptr[i + 1]), self.held[str(name)][layer]
            pair[:] = [np.concatenate([x, y[new]]) for x, y in zip(pair, (k64, v64), strict=True)]

    def compare(self, layer: int, step: Step, last: bool, with_lse: bool) -> None:
        spec, seen = self.layers[layer], step
        if last:  # one row of each request in layer 0, more in those above it
            seen = step.last([1 + layer % n for n in step.q_lens])
        q = self.random(seen.num_tokens, self.num_qo_heads[layer], spec.head_dim)
        result: Any = self.cache.run(layer, q, seen, return_lse=with_lse)
        o, lse = result if with_lse else (result, None)
        shape = (*q.shape[:2], spec.v_dim)
        assert o.shape == shape, f"o of layer {layer} has shape {o.shape}, needed {shape}"
        assert o.dtype == q.dtype, f"o of layer {layer} is {o.dtype}, q is {q.dtype}"
        for i, name in enumerate(seen.seq_ids):
            rows = slice(seen.qo_indptr[i], seen.qo_indptr[i + 1])
            k, v = self.expected(layer, str(name))
            positions = oracle.float64(seen.positions)[rows]
            stored = np.arange(len(k))
            if self.terms.keeps is not None:
                _, stored = self.read(layer, str(name))
            q64, k, v = oracle.float64(q)[rows], at(k, stored), at(v, stored)
            if str(name) in self.step_trees:
                o64, lse64 = self.tree_attention(q64, k, v, str(name), spec)
            else:
                o64, lse64 = oracle.attention(q64, k, v, positions, stored, **spec.settings)
            what = f"layer {layer} ({describe(spec)}) of {name}"
            self.compared += 1
            bound = sum_bound(max(24, spec.head_dim) + 40, 4.0)  # longer vectors, longer sums
            close(oracle.float64(o)[rows], o64, f"o of {what}", bound)
            if lse is not None:
                assert lse.dtype == self.xp.float32, f"lse is {lse.dtype}, needed float32"
                close(oracle.float64(lse)[rows], lse64, f"lse of {what}", bound)

    def tree_attention(self, q: Any, k: Any, v: Any, name: str, spec: LayerSpec) -> oracle.Pair:
        """Attend with the last rows of a tree, each to older tokens, its ancestors and itself."""
        tree, rows = self.step_trees[name], []
        old, first = len(k) - len(tree), len(tree) - len(q)
        for row in range(len(q)):
            seen = [*range(old), *(old + number for number in line_of(tree, first + row))]
            at_end, positions = [len(seen) - 1], range(len(seen))
            rows.append(
                oracle.attention(
                    q[row : row + 1], k[seen], v[seen], at_end, positions, **spec.settings
                )
            )
        o, lse = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return o, lse

    def check(self) -> None:
        """Check that names, lengths, stored numbers and bytes are what the record says."""
        names = self.cache.seq_ids
        needed = tuple(self.held)
        assert names == needed, f"the open requests are {names}, needed {needed}"
        for name in self.held:
            self.check_length(name, self.length(name))
            self.check_layer(self.choose(0, len(self.layers) - 1), name)
        check_bill(self.cache)

    def check_length(self, name: str, needed: int) -> None:
        length = self.cache.seq_len(name)
        assert length == needed, f"seq_len of {name} is {length}, needed {needed}"
        assert type(length) is int, f"seq_len is {type(length).__name__}, needed int"

    def check_layer(self, layer: int, name: str) -> None:
        """Check that a layer holds the tokens it must, each as it was appended."""
        arrays, stored = self.read(layer, name)
        where, kinds = f"layer {layer} of {name}", ("keys", "values")
        everything = self.expected(layer, name)
        for x, what in zip(arrays, kinds, strict=False):
            assert x.dtype == self.cache.dtype, (
                f"read of {where}: {what} are {x.dtype}, the cache's dtype is {self.cache.dtype}"
            )
        k, v = (oracle.float64(x) for x in arrays[:2])
        shapes, needed = (k.shape, v.shape), tuple(at(x, stored).shape for x in everything)
        assert shapes == needed, f"read of {where}: shapes {shapes}, not {needed}"
        for x, needed_x, what in zip((k, v), everything, kinds, strict=True):
            check_rows(x, needed_x, stored, f"{what} of {where}")
        length = len(everything[0])
        must = range(length) if self.terms.keeps is None else self.terms.keeps(length)
        # What the next token sees. The last one saw one more, which may have been dropped since.
        first = length - (self.layers[layer].window or length + 1) + 1
        for x, head in by_head(stored):
            lost = {p for p in must if p >= first} - set(x.tolist())
            assert not lost, f"{where} lost the tokens at {sorted(lost)}{head}"

    def expected(self, layer: int, name: str) -> Sequence[np.ndarray]:
        """Return what the layer must hold of a request: k (S, Hkv, Dk), v (S, Hkv, Dv), where codes
        are those of encoding all of them at once, to the last bit."""
        pair, coded = self.held[name][layer], self.coded(name)
        if self.codec is None or not coded:
            return pair
        known = self.decoded.get((layer, name))
        if known is None or known[0] is not pair[0] or known[1] != coded:
            k = self.roundtrip(pair[0], self.codec.keys, coded)
            if self.layers[layer].v_from_k:
                v = k[..., : self.layers[layer].v_dim]
            else:
                v = self.roundtrip(pair[1], self.codec.values, coded)
            known = self.decoded[layer, name] = (pair[0], coded, k, v)
        return known[2:]  # type: ignore[no-any-return]

    def roundtrip(self, x: np.ndarray, codec: TensorCodec, coded: int) -> np.ndarray:
        """Encode and decode the first tokens of x (S, Hkv, D)."""
        heads_first = self.xp.asarray(x[:coded].astype(np.float32).transpose(1, 0, 2))
        codes = codec.decode(codec.encode(heads_first), self.xp.float32)
        return np.concatenate([oracle.float64(codes).transpose(1, 0, 2), x[coded:]])

    def coded(self, name: str) -> int:
        """Return how many of a request's first tokens are codes by now."""
        codec, length = self.cache.codec, self.length(name)
        if not codec.waits:
            return length
        seq = self.cache._sequences[name]
        coded: int = seq.state.num_paged
        assert coded % codec.group == 0
        guesses = len(seq.tree or ())  # of a tree, nothing is encoded
        assert length - coded - guesses < codec.residual + codec.group or coded == 0
        return coded

    def read(self, layer: int, name: str) -> tuple[Any, np.ndarray]:
        return read(self.cache, layer, name, self.length(name))

    def length(self, name: str) -> int:
        return len(self.held[name][0][0])

    def pick(self) -> str:
        return list(self.held)[self.choose(0, len(self.held) - 1)]

    def pick_some(self) -> list[str]:
        """Return some of the requests, in any order."""
        names = list(self.held)
        first = self.choose(0, len(names) - 1)
        names = names[first:] + names[:first]
        return names[: self.choose(1, len(names))]

    def accident(self, low: int, high: int) -> int:
        """Decide about an accident, without a call of `choose`."""
        return int(self.accidents.integers(low, high, endpoint=True))

    def random(self, *shape: int) -> Any:
        return self.xp.asarray(self.values.standard_normal(shape).astype(np.float32))


# What `read` returns and refuses


def read(cache: Cache, layer: int, name: str, length: int) -> tuple[Any, np.ndarray]:
    """Read a layer: the result, and positions (n,) or (Hkv, n), in order and within the request."""
    what, result = f"read of layer {layer} of {name}", cache.read(layer, name)
    kind = f"tuple of {len(result)}" if type(result) is tuple else type(result)
    assert kind == "tuple of 3", f"{what} returned {kind}, needed (k, v, positions)"
    positions, n = oracle.float64(result[2]), result[0].shape[0]
    heads = cache.layers[layer].num_kv_heads
    assert positions.shape in ((n,), (heads, n)), (
        f"{what}: positions have shape {positions.shape}, needed (n,) = {(n,)}, or (Hkv, n) = "
        f"{(heads, n)} if the kv heads keep different tokens"
    )
    positions = positions.astype(int)
    for x, where in by_head(positions):
        assert (x[1:] > x[:-1]).all(), f"positions of {name}{where} are not in order: {x}"
        beyond = x[(x < 0) | (x >= length)].tolist()
        assert not beyond, (
            f"{name} has {length} tokens, but read also gives positions {beyond}{where}"
        )
    return result, positions


def by_head(positions: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Yield the positions of each kv head and its name; once where all heads hold the same."""
    if positions.ndim == 1:
        yield positions, ""
    else:
        yield from ((x, f" in kv head {head}") for head, x in enumerate(positions))


def at(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return rows (n, Hkv, D) of x (S, Hkv, D) at positions (n,), or (Hkv, n) for each head."""
    return x[positions] if positions.ndim == 1 else x[positions.T, np.arange(x.shape[1])]


def check_rows(got: np.ndarray, everything: np.ndarray, positions: np.ndarray, what: str) -> None:
    """Check that `got` is `everything` (S, Hkv, D) at the positions, bit for bit."""
    needed = at(everything, positions)
    others = (got != needed).any(axis=-1)
    if not others.any():
        return
    row, head = (int(i) for i in np.argwhere(others)[0])
    said = int(positions[row] if positions.ndim == 1 else positions[head, row])
    same = np.argwhere((everything == got[row, head]).all(axis=-1))
    if len(same):
        position, other = (int(i) for i in same[0])
        raise AssertionError(
            f"{what}: read says position {said} in kv head {head}, but the row there was appended "
            f"at position {position} in kv head {other}"
        )
    off = np.abs(got[row, head] - needed[row, head]).max()
    raise AssertionError(f"{what} changed at position {said} in kv head {head}, by {off:.2g}")


def check_refusals(cache: Cache) -> None:
    """Check that ``read`` refuses requests that are not open and layers that do not exist."""
    unknown = "no such request"
    wrong: list[tuple[Any, Any]] = [(0, unknown), (0, [unknown])]
    for name in cache.seq_ids[:1]:
        wrong += [(layer, name) for layer in (-1, len(cache.layers), "0", True, 0.0, None)]
    for layer, name in wrong:
        found = "was not refused"
        try:
            cache.read(layer, name)
        except (ValueError, TypeError):
            continue
        except Exception as error:
            found = f"raised {type(error).__name__}"
        raise AssertionError(
            f"read({layer!r}, {name!r}) {found}, needed ValueError or TypeError: write _read, "
            "which Cache.read calls after its checks"
        )


@contextmanager
def _refuses(what: str, kinds: Any, *words: str) -> Iterator[None]:
    """Check that the block raises an error of one of the kinds, with one of the words."""
    try:
        yield
    except kinds as error:
        assert any(word in str(error) for word in words), f"{what}: {error!r} does not say {words}"
        return
    raise AssertionError(f"{what} was not refused: needed an error that says {' or '.join(words)}")


def close(got: np.ndarray, needed: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    """Check that two arrays are equal up to the tolerance, infinities included; NaN never is."""
    assert got.shape == needed.shape, f"{what}: shape {got.shape}, needed {needed.shape}"
    with np.errstate(invalid="ignore"):
        off = np.abs(got - needed)
    near = (off <= tolerance + tolerance * np.abs(needed)) & (off < np.inf)
    assert (near | (got == needed)).all(), f"{what} is off by {off.max():.2g}"

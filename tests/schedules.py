"""Random lives of a cache, compared with a plain Python record of everything ever appended.

`Schedule` asks a ``choose(low, high)`` for every decision: hypothesis answers in
test_differential.py, a seeded generator where hypothesis is too slow or not installed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from caches import CODED, MAX_SEQ_LEN, MAX_SEQS, build, poison_unused

from kvlib import CacheFull, LayerSpec, OutOfBlocks, Step
from kvlib.caches import PagedCache
from kvlib.caches.stored import StoredCache

Choose = Callable[[int, int], int]
TOLERANCE = 3e-5  # float32 against float64, values of scale 1


def seeded(seed: int) -> Choose:
    """Decisions of a generator with that seed."""
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high, endpoint=True))


def draw_layer(
    choose: Choose, xp: Any, values: np.random.Generator, unit: int
) -> tuple[LayerSpec, int]:
    """A layer and its number of query heads. unit: what stored vectors' lengths are made of."""
    num_kv_heads, groups = choose(1, 3), (1, 2, 4)[choose(0, 2)]
    head_dim, v_from_k = max(2, unit) * choose(1, 3), choose(0, 4) == 0
    v_head_dim = choose(1, head_dim) if v_from_k else (None, unit, 5 * unit)[choose(0, 2)]
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


class Schedule:
    """One cache, and for each open request the keys and values that each layer was given."""

    def __init__(self, name: str, choose: Choose, xp: Any, dtype: Any = None) -> None:
        self.choose, self.xp = choose, xp
        self.values = np.random.default_rng(choose(0, 2**16))
        unit = 8 if name in CODED else 1
        drawn = [draw_layer(choose, xp, self.values, unit) for _ in range(choose(1, 3))]
        self.layers = [spec for spec, _ in drawn]
        self.num_qo_heads = [heads for _, heads in drawn]
        self.cache = build(name, self.layers, xp, dtype)
        self.codec = (
            self.cache.codec if name in CODED and isinstance(self.cache, StoredCache) else None
        )
        self.held: dict[str, list[list[Any]]] = {}  # name → a list of (k, v) rows for each layer
        self.names = iter(range(10**6))
        self.log: list[str] = []

    def play(self, actions: int) -> None:
        """So many actions, each followed by a look at the whole cache."""
        for _ in range(actions):
            action = (self.step, self.step, self.step, self.add, self.truncate)[self.choose(0, 4)]
            if self.choose(0, 3) == 0:
                action = (self.fork, self.free, self.failed_step, self.refused)[self.choose(0, 3)]
            if not self.held:
                action = self.add
            try:
                action()
                self.look()
            except (AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{error}\nafter: " + "; ".join(self.log)) from error

    # What may happen ----------------------------------------------------------------------------

    def add(self) -> None:
        name = f"r{next(self.names)}"
        self.log.append(f"add {name}")
        if len(self.held) == MAX_SEQS:
            if hasattr(self.cache, "max_seqs"):
                with pytest.raises(CacheFull, match=name):
                    self.cache.add(name)
            return
        assert self.cache.add(name, [1, 2, 3]) == 0
        self.held[name] = [[] for _ in self.layers]

    def free(self) -> None:
        name = self.some()
        self.log.append(f"free {name}")
        self.cache.free(name)
        del self.held[name]
        poison_unused(self.cache)

    def fork(self) -> None:
        name, new = self.some(), f"r{next(self.names)}"
        self.log.append(f"fork {name} {new}")
        if len(self.held) == MAX_SEQS:
            if hasattr(self.cache, "max_seqs"):
                with pytest.raises(CacheFull, match=new):
                    self.cache.fork(name, new)
            return
        self.cache.fork(name, new)
        self.held[new] = [list(rows) for rows in self.held[name]]

    def truncate(self) -> None:
        name = self.some()
        self.cut(name, self.choose(0, self.length(name)))
        poison_unused(self.cache)

    def cut(self, name: str, length: int) -> None:
        """Truncate; where codes do not allow it, to the group's beginning."""
        self.log.append(f"truncate {name} {length}")
        group = self.codec.group if self.codec else 1
        try:
            self.cache.truncate(name, length)
        except ValueError as error:
            place = self.cache._requests[name].place
            assert group > 1 and length % group and "cannot go back" in str(error)
            assert length < place.coded and not place.before <= length <= place.start
            length -= length % group
            self.cache.truncate(name, length)
        for rows in self.held[name]:
            del rows[length:]

    def refused(self) -> None:
        """A plan too long for its last request must leave the others alone, too."""
        names = self.several()
        q_lens = [1] * len(names)
        q_lens[-1] = MAX_SEQ_LEN + 1 - self.length(names[-1])
        if isinstance(self.cache, PagedCache):
            q_lens[-1] = (self.cache.pool.num_free + 2) * self.cache.block_size
        self.log.append(f"refused {names}")
        with pytest.raises((CacheFull, OutOfBlocks), match="|".join(names)):
            self.cache.plan(names, q_lens)

    def failed_step(self) -> None:
        """A pass that stops after some layers, taken back with ``truncate``."""
        step = self.plan(self.several())
        if step is None:
            return
        self.log.append("fails")
        for layer in range(self.choose(0, len(self.layers))):
            self.cache.append(layer, *self.keys_and_values(layer, step.num_tokens), step)
        for name in step.seq_ids:
            self.cache.truncate(name, self.length(str(name)))
        with pytest.raises(ValueError, match="over"):
            self.cache.append(0, *self.keys_and_values(0, step.num_tokens), step)
        poison_unused(self.cache)

    def step(self) -> None:
        """A whole forward pass, every layer compared with the oracle."""
        step = self.plan(self.several())
        if step is None:
            return
        last, with_lse = self.choose(0, 2) == 0, self.choose(0, 1) == 1
        for layer in range(len(self.layers)):
            k, v = self.keys_and_values(layer, step.num_tokens)
            self.cache.append(layer, k, v, step)
            self.record(layer, k, v, step)
        for layer in range(len(self.layers)):
            self.compare(layer, step, last, with_lse)

    # Parts of a step ----------------------------------------------------------------------------

    def plan(self, names: list[str]) -> Step | None:
        """A step for some requests; None where a small pool has no room for it."""
        room = [MAX_SEQ_LEN - self.length(name) for name in names]
        names = [name for name, left in zip(names, room) if left] or names[:1]
        if self.length(names[0]) == MAX_SEQ_LEN:
            self.cut(names[0], 3)
        q_lens = []
        for name in names:
            most = min(MAX_SEQ_LEN - self.length(name), (1, 2, 5, 17)[self.choose(0, 3)])
            q_lens.append(self.choose(1, most))
        self.log.append(f"step {dict(zip(names, q_lens))}")
        starts = [self.length(name) for name in names]
        if isinstance(self.cache, PagedCache) and self.choose(0, 7) == 0:
            self.cache.pool.check()
        try:
            step = self.cache.plan(names, q_lens)
        except OutOfBlocks as error:
            assert isinstance(self.cache, PagedCache) and any(n in str(error) for n in names)
            self.log.append("no room")
            return None
        ends = [a + n for a, n in zip(starts, q_lens)]
        assert step.seq_ids == tuple(names) and step.q_lens == tuple(q_lens)
        assert step.seq_lens == tuple(ends)
        assert step.qo_indptr == tuple(sum(q_lens[:i]) for i in range(len(names) + 1))
        positions = [p for a, b in zip(starts, ends) for p in range(a, b)]
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
            for row in range(step.qo_indptr[i], step.qo_indptr[i + 1]):
                self.held[str(name)][layer].append((k64[row], v64[row]))

    def compare(self, layer: int, step: Step, last: bool, with_lse: bool) -> None:
        spec, seen = self.layers[layer], step.last() if last else step
        q = self.random(seen.num_tokens, self.num_qo_heads[layer], spec.head_dim)
        result: Any = self.cache.run(layer, q, seen, return_lse=with_lse)
        o, lse = result if with_lse else (result, None)
        assert o.dtype == q.dtype and o.shape == (*q.shape[:2], spec.v_dim)
        for i, name in enumerate(seen.seq_ids):
            rows = slice(seen.qo_indptr[i], seen.qo_indptr[i + 1])
            k, v = self.expected(layer, str(name))
            positions = oracle.float64(seen.positions)[rows]
            q64 = oracle.float64(q)[rows]
            o64, lse64 = oracle.attention(q64, k, v, positions, np.arange(len(k)), **spec.settings)
            what = f"layer {layer} {spec} of {name}"
            close(oracle.float64(o)[rows], o64, f"o of {what}")
            if lse is not None:
                assert lse.dtype == self.xp.float32
                close(oracle.float64(lse)[rows], lse64, f"lse of {what}")

    def look(self) -> None:
        """Lengths, names and every stored number are what the record says."""
        assert self.cache.seq_ids == tuple(self.held)
        for name in self.held:
            assert self.cache.seq_len(name) == self.length(name)
            assert type(self.cache.seq_len(name)) is int
            layer = self.choose(0, len(self.layers) - 1)
            k, v, positions = (oracle.float64(x) for x in self.cache.read(layer, name))
            stored = positions.astype(int)
            all_k, all_v = self.expected(layer, name)
            assert (k == all_k[stored]).all(), f"keys of layer {layer} of {name} changed"
            assert (v == all_v[stored]).all(), f"values of layer {layer} of {name} changed"
            window = self.layers[layer].window or len(all_k)
            needed = np.arange(max(0, len(all_k) - window), len(all_k))
            assert set(needed) <= set(stored.tolist()), f"layer {layer} of {name} lost tokens"
        memory = self.cache.memory()
        assert memory.payload + memory.metadata + memory.wasted + memory.free == memory.reserved
        assert min(memory.payload, memory.metadata, memory.wasted, memory.free) >= 0

    # Small things -------------------------------------------------------------------------------

    def expected(self, layer: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        spec, rows = self.layers[layer], self.held[name][layer]
        shape = (len(rows), spec.num_kv_heads)
        k = np.asarray([k for k, _ in rows]).reshape(*shape, spec.head_dim)
        v = np.asarray([v for _, v in rows]).reshape(*shape, spec.v_dim)
        return (k, v) if self.codec is None else self.decoded(spec, k, v, name)

    def decoded(self, spec: LayerSpec, k: Any, v: Any, name: str) -> tuple[Any, Any]:
        """What one-shot encoding makes of the tokens that are codes by now: streaming must give
        the same, bit for bit. The newest are as they came."""
        codec, length = self.codec, len(k)
        coded = length
        if codec.waits:
            coded = self.cache._requests[name].place.coded
            assert coded % codec.group == 0
            assert length - coded < codec.residual + codec.group or coded == 0
        found = []
        for x, part in ((k, codec.keys), (v, codec.values)):
            if spec.v_from_k and found:
                found.append(found[0][..., : spec.v_dim])
                break
            heads_first = self.xp.asarray(x.astype(np.float32).transpose(1, 0, 2))
            fields = part.encode(heads_first[:, :coded, :])
            codes = oracle.float64(part.decode(fields, self.xp.float32)).transpose(1, 0, 2)
            found.append(np.concatenate([codes, x[coded:]]))
        return found[0], found[1]

    def length(self, name: str) -> int:
        return len(self.held[name][0])

    def some(self) -> str:
        return list(self.held)[self.choose(0, len(self.held) - 1)]

    def several(self) -> list[str]:
        """Some of the requests, in any order."""
        names = list(self.held)
        first = self.choose(0, len(names) - 1)
        names = names[first:] + names[:first]
        return names[: self.choose(1, len(names))]

    def random(self, *shape: int) -> Any:
        return self.xp.asarray(self.values.standard_normal(shape).astype(np.float32))


def close(got: np.ndarray, needed: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal up to the tolerance, infinities included; NaN is never close."""
    assert got.shape == needed.shape, f"{what}: shape {got.shape}, needed {needed.shape}"
    if not np.allclose(got, needed, rtol=tolerance, atol=tolerance):
        with np.errstate(invalid="ignore"):
            error = np.abs(got - needed).max()
        raise AssertionError(f"{what} is off by {error}")

"""Random lives of a cache whose layers forget, compared with what the rules' definitions say.

The kit's schedule compares a cache with attention over what the cache says it holds. Here the
model of retention_model.py says what it must hold, to the token where the rule does, and attention
in float64 runs over that. Lengths lie about a window's edge. A token's key depends on its text and
its position alone, so prompts that begin alike share blocks, and what they share can be checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from retention_checks import MAX_SEQ_LEN, MAX_SEQS, WORDS, Checked
from retention_model import Held

from kvlib.errors import OutOfBlocks
from kvlib.testing.memory import check_bill, poison_unused


class Life(Checked):
    """One cache, and for each open request its text and a model of each layer."""

    def play(self, operations: int) -> None:
        """AssertionError, with all that was done before, for the first thing that is wrong."""
        kinds = (self.step, self.step, self.step, self.step, self.add, self.truncate)
        rare = (self.fork, self.free, self.failed_step, self.refused, self.add)
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
                    poison_unused(self.cache)
                    self.look()
            except AssertionError as error:
                raise AssertionError(f"{error}\nafter: " + "; ".join(self.log)) from error
            self.done[operation.__name__] += 1
        check_bill(self.cache)
        for name in list(self.text):
            self.cache.free(name)
        if self.cache.block_size is not None:
            self.cache.pool.check()
            assert self.cache.pool.num_free == self.cache.pool.num_blocks, "blocks have leaked"

    # Operations ---------------------------------------------------------------------------------

    def add(self) -> None:
        """A prompt, the beginning of one of two texts, so that blocks of others are found."""
        name, n = f"r{next(self.names)}", int(self.rng.integers(1, 3 * self.edge + 4))
        prompt = self.prompts[self.rng.integers(2), :n].tolist()
        start = self.cache.add(name, prompt)
        self.log.append(f"add {name} of {n}, {start} held")
        assert 0 <= start < n
        self.done["prefix hit"] += start > 0
        self.done["prefix hit past the window"] += start > self.edge
        self.text[name], self.waiting[name] = prompt[:start], prompt[start:]
        self.begun[name] = start
        self.held[name] = []
        for spec, rule in zip(self.specs, self.rules, strict=True):
            held = Held(spec, rule, self.queries)
            assert not (held.exact and start), f"{name} was given blocks with holes"
            for own in held.positions:
                own.extend(range(start))
            self.held[name].append(held)

    def free(self) -> None:
        name = self.some()
        self.log.append(f"free {name}")
        self.cache.free(name)
        for of in (self.text, self.waiting, self.begun, self.held):
            del of[name]

    def fork(self) -> None:
        name, new = self.some(), f"r{next(self.names)}"
        self.log.append(f"fork {name} {new}")
        self.cache.fork(name, new)
        self.text[new], self.waiting[new] = list(self.text[name]), []
        self.begun[new] = len(self.text[name])
        self.held[new] = [held.copy() for held in self.held[name]]

    def truncate(self) -> None:
        """Half of the time into the last step, which must always be possible; at times to 0."""
        name, chance = self.some(), self.rng.random()
        low = self.begun[name] if chance < 0.5 else 0
        high = len(self.text[name]) if chance < 0.9 else 0
        self.cut(name, int(self.rng.integers(low, high + 1)))

    def cut(self, name: str, length: int) -> None:
        layers = enumerate(self.held[name])
        lost = any(held.refuses(length, self.first(i, name)) for i, held in layers)
        assert not (lost and length >= self.begun[name]), "the last step can be undone"
        self.log.append(f"truncate {name} {length}" + " refused" * lost)
        try:
            self.cache.truncate(name, length)
        except ValueError as error:
            assert lost and "cannot go back" in str(error), error
            self.done["truncate refused"] += 1
            return
        assert not lost, f"{name} went back to {length}, though what it needs there is gone"
        del self.text[name][length:]
        self.waiting[name] = []
        self.begun[name] = min(self.begun[name], length)
        for held in self.held[name]:
            held.truncate(length)

    def failed_step(self) -> None:
        """Some layers append, some of these run; then the step is taken back."""
        step = self.plan()
        if step is None:
            return
        self.log.append("fails")
        for layer in range(int(self.rng.integers(len(self.specs) + 1))):
            self.append(layer, step)
            self.run(layer, step)
        for name in step.seq_ids:
            self.cut(str(name), self.begun[str(name)])

    def refused(self) -> None:
        """A plan that is too long changes nothing."""
        names = [name for name in self.several() if len(self.text[name]) < MAX_SEQ_LEN]
        self.log.append(f"refused {names}")
        if not names:
            return self.free()
        blocks = 0 if self.cache.block_size is None else self.cache.pool.num_blocks
        more = (blocks + 2) * (self.cache.block_size or MAX_SEQ_LEN)
        try:
            self.cache.plan(names, [1] * (len(names) - 1) + [more])
        except (MemoryError, ValueError, RuntimeError) as error:
            assert any(name in str(error) for name in names), error
            return
        raise AssertionError("a plan without room was not refused")

    def step(self) -> None:
        step = self.plan()
        if step is None:
            return
        for layer in range(len(self.specs)):
            self.append(layer, step)
        for layer in range(len(self.specs)):
            self.run(layer, step)

    # Parts of a step ----------------------------------------------------------------------------

    def plan(self) -> Any:
        names, q_lens, tokens = [], [], list[int]()
        for name in self.several():
            n = self.more(name)
            if n:
                given = (self.waiting[name] + self.rng.integers(0, WORDS, n).tolist())[:n]
                names.append(name)
                q_lens.append(n)
                tokens += given
        if not names:  # all of them are full
            return self.free()
        self.log.append(f"step {dict(zip(names, q_lens, strict=True))}")
        try:
            step = self.cache.plan(names, q_lens, tokens)
        except OutOfBlocks:
            self.done["no room"] += 1
            return None
        for i, (name, n) in enumerate(zip(names, q_lens, strict=True)):
            length = self.begun[name] = len(self.text[name])
            for layer, held in enumerate(self.held[name]):
                keys, values = (
                    lambda at=layer, of=name, which=which: self.decoded(at, which, self.text[of])
                    for which in (0, 1)
                )
                self.too_near += held.plan(length, n, keys, values, self.found(layer, name))
            self.text[name] += tokens[step.qo_indptr[i] : step.qo_indptr[i + 1]]
            self.waiting[name] = self.waiting[name][n:]
            self.done["longer than W"] += n > self.edge
        return step

    def more(self, name: str) -> int:
        """How many tokens come next: to the window's edge, past it, or a few."""
        length, w = len(self.text[name]), self.edge
        room, chance = MAX_SEQ_LEN - length, self.rng.random()
        edges = [n - length for n in (w - 1, w, w + 1, 2 * w) if n > length]
        n = int(self.rng.integers(1, 4))
        if chance < 0.35 and edges:
            n = edges[self.rng.integers(len(edges))]
            self.done["to an edge"] += 1
        elif chance < 0.6 and self.waiting[name]:
            n = len(self.waiting[name])
        elif chance < 0.5:
            n = w + int(self.rng.integers(1, 4))
        elif chance < 0.8:
            n = 1
        return min(n, room)

    def append(self, layer: int, step: Any) -> None:
        def packed(tables: list[np.ndarray]) -> np.ndarray:
            texts = zip(step.seq_ids, step.seq_lens, step.q_lens, strict=True)
            parts = [self.rows(tables[layer], self.text[s], e - n) for s, e, n in texts]
            return np.concatenate(parts)

        v = None if self.specs[layer].v_from_k else packed(self.v)
        self.cache.append(layer, packed(self.k), v, step)

    # Small things -------------------------------------------------------------------------------

    def some(self) -> str:
        return list(self.text)[self.rng.integers(len(self.text))]

    def several(self) -> list[str]:
        names = list(self.text)
        self.rng.shuffle(names)
        return names[: 1 + self.rng.integers(len(names))]

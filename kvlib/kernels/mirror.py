"""What a compiled step finds on the device, and what the host knows of it.

The last kernel of a step writes the chosen tokens where the next step reads them, and adds 1 to
positions and lengths. The host adds 1 to its copies, too, compares them with what a plan says, and
sends what differs: a new request, a new block, a token that was drawn on the host. Tokens that wait
until a codec encodes them are on the device, too; the host encodes them between two steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.caches import Step
from kvlib.caches.store import Residual

HISTORY = 1024  # steps whose tokens the host can still read
LOOKS = 1 << 14  # at a token that is late, before the device is asked what is wrong


class Mirror:
    """int32 numbers (rows, width) on the device, and how each row begins as far as is known."""

    def __init__(self, xp: Any, rows: int, width: int) -> None:
        self.array = xp.zeros((rows, width), dtype=xp.int32)
        self.known: list[list[int]] = [[0] * width for _ in range(rows)]

    def lacks(self, row: int, wanted: list[int]) -> bool:
        """Whether a row doesn't begin with the wanted numbers."""
        if self.known[row][: len(wanted)] != wanted:
            return True
        self.known[row] = wanted  # what follows counts no more
        return False

    def send(self, row: int, wanted: list[int]) -> None:
        """Make a row begin with the wanted numbers."""
        known = self.known[row]
        first = len(known) if known == wanted[: len(known)] else 0  # a text got one more block
        new, target = np.array(wanted[first:], np.int32), self.array[row, first : len(wanted)]
        if isinstance(target, np.ndarray):
            target[...] = new
        else:  # the driver takes so few numbers at once, and does not wait
            import cupy

            target.set(new, stream=cupy.cuda.get_current_stream())
        self.known[row] = wanted


class Waiting:
    """Where tokens of up to `count` requests wait to be encoded while their steps are compiled.

    A request's residuals become views of its row. If all are taken, one that isn't in the step
    makes room, and its residuals become copies.

    layers  keys and values of each layer (count, Hkv, room, D), which never move
    of      the row of each request's state
    """

    def __init__(self, cache: Any, count: int) -> None:
        self.cache, self.count, self.room, xp = cache, count, cache.stores[0].room, cache.xp
        residuals = [Residual(s.xp, s.spec, s.room, s.dtype).waiting for s in cache.stores]
        self.layers = [
            [xp.zeros((count, *x.shape), dtype=x.dtype) for x in waiting] for waiting in residuals
        ]
        self.views = [[[x[i, ...] for x in arrays] for arrays in self.layers] for i in range(count)]
        self.of: dict[Any, int] = {}

    def take(self, step: Step) -> None:
        """Encode what a step makes due, and let its requests' other tokens wait in their rows."""
        for state, start in zip(step.states, step.starts, strict=True):
            if state not in self.of and len(self.of) == self.count:
                others = (x for x in self.of if x not in step.states)
                idle = min(others, key=lambda x: len(x.residuals))  # none, if it has ended
                idle.residuals = [residual.copy() for residual in idle.residuals]
                self.of = {state if x is idle else x: n for x, n in self.of.items()}
            row = self.of.setdefault(state, len(self.of))
            tokens = slice(start - state.undo_paged)
            for residual, view in zip(state.residuals, self.views[row], strict=True):
                if residual.waiting is not view:
                    for x, old in zip(view, residual.waiting, strict=True):
                        x[:, tokens, :] = old[:, tokens, :]
                    residual.waiting = view
            if state.num_paged > state.undo_paged:
                self._encode(state, start)

    def _encode(self, state: Any, start: int) -> None:
        """Encode what is due, of all layers at once, before the token at `start` is appended."""
        before, residuals = state.undo_paged, state.residuals
        due = state.num_paged - before
        for n, (codec, _) in enumerate(self.cache.fields(0)):
            waiting = [residual.waiting[n][:, :due, :] for residual in residuals]
            encoded = codec.encode(self.cache.xp.concat(waiting))
            for layer, (x, store) in enumerate(zip(waiting, self.cache.stores, strict=True)):
                table, heads = state.tables[self.cache.group_of[layer]], len(x)
                rows = slice(layer * heads, (layer + 1) * heads)
                fields = {name: y[rows, ...] for name, y in encoded.items()}
                store.tensors[n].put(table.pages, before - table.freed, fields)
        for residual in residuals:
            residual.previous = residual.copy().waiting
            for x, old in zip(residual.waiting, residual.previous, strict=True):
                x[:, : start - state.num_paged, :] = old[:, due : start - before, :]

    def undo(self, step: Step) -> None:
        """Let wait again what `take` has encoded for a step, which failed and may run once more."""
        for state in step.states:
            planned = state.num_paged
            self.cache._roll_back(state, state.undo_paged)
            state.num_paged = planned


class State:
    """The tokens, positions, lengths and block tables of a padded batch of `rows` requests.

    ids, positions (1, rows)  of the next step's tokens
    lens (groups, rows)       stored tokens including the next one; 0 for a row without a request.
                              Where tokens wait to be encoded, (1, rows) of those
    paged (groups, rows)      tokens in pages: `lens`, unless tokens wait
    tables                    for each group of layers (rows, pages)
    slots (1, rows)           rows of tokens that wait
    steps (1, 1)              how many have run
    doubtful                  whether a step was interrupted, which may have run or not
    words (HISTORY, rows)     what `token.choice_launch` says of each step, in the host's memory
    """

    def __init__(self, cache: Any, rows: int, widths: list[int], waiting: Waiting | None) -> None:
        self.cache, self.rows, self.waiting, xp = cache, rows, waiting, cache.xp
        self.ids, self.positions, self.slots = (Mirror(xp, 1, rows) for _ in range(3))
        self.paged = self.lens = Mirror(xp, len(widths), rows)
        if waiting is not None:
            self.lens = Mirror(xp, 1, rows)
        self.tables = [Mirror(xp, rows, width) for width in widths]
        self.steps, self.doubtful = Mirror(xp, 1, 1), False
        self.words, self.device_words = _shared_words(xp, (HISTORY, rows))

    def missing(self, ids: np.ndarray | None, step: Step) -> list[tuple[Mirror, int, list[int]]]:
        """The rows of numbers that a step needs and the device lacks."""
        absent = [0] * (self.rows - len(step.seq_ids))
        needed = [(self.positions, 0, [*(n - 1 for n in step.seq_lens), *absent])]
        for g, group in enumerate(self.cache.groups):
            layer = group.layers[0]
            paged, size = self.cache.paged_lens(step, layer), self.cache.stores[layer].size
            needed.append((self.paged, g, [*paged, *absent]))
            for row, table in enumerate(self.cache.placement(layer, step).tables):
                needed.append((self.tables[g], row, table.pages[: -(-paged[row] // size)]))
        if self.waiting is not None:
            pairs = zip(step.seq_lens, step.states, strict=True)
            needed.append((self.lens, 0, [*(n - state.num_paged for n, state in pairs), *absent]))
            slots = [self.waiting.of[state] for state in step.states]
            needed.append((self.slots, 0, [*slots, *absent]))
        if ids is not None:
            needed.append((self.ids, 0, ids.tolist()))
        return [x for x in needed if x[0].lacks(*x[1:])]

    def update(self, ids: np.ndarray | None, step: Step) -> int:
        """Send what a step needs and the device lacks; returns the number of copies."""
        missing = self.missing(ids, step)
        for mirror, row, wanted in missing:
            mirror.send(row, wanted)
        return len(missing)

    def has_room(self, positions: int) -> bool:
        """Whether the step after the last one has a position and slots in known pages or rows."""
        most = max(self.positions.known[0])
        if self.waiting is not None:
            return most < positions and max(self.lens.known[0]) < self.waiting.room
        keys = (self.cache.stores[group.layers[0]].keys for group in self.cache.groups)
        return most < positions and all(
            n <= len(pages) * k.size
            for k, table, lens in zip(keys, self.tables, self.lens.known, strict=True)
            for n, pages in zip(lens, table.known, strict=True)
        )

    def advance(self) -> None:
        """Do what the step's last kernel does."""
        there = [n > 0 for n in self.lens.known[0]]
        for known in (*self.positions.known, *self.lens.known):
            known[:] = [n + one for n, one in zip(known, there, strict=True)]
        self.steps.known[0][0] += 1
        self.ids.known[0] = []  # until they are read

    def forget(self) -> None:
        """Take for unknown what a step that was interrupted may have changed."""
        for mirror in (self.ids, self.positions, self.lens):
            mirror.known = [[] for _ in mirror.known]
        self.steps.send(0, [self.steps.known[0][0] + 2])  # further than it may have come
        self.doubtful = False

    def read(self) -> tuple[list[int], list[int]]:
        """The chosen tokens, and numbers of UNFIT; waits for them."""
        words = self._last_words()
        tokens = [word & (1 << 30) - 1 for word in words]
        there = sum(n > 0 for n in self.lens.known[0])  # the other rows have not got theirs
        self.ids.known[0] = tokens[:there]
        return tokens, [word >> 30 & 3 for word in words]

    def _last_words(self) -> list[int]:
        (steps,) = self.steps.known[0]
        row = self.words[(steps - 1) % HISTORY]
        for _ in range(LOOKS):  # the kernel stores a word at once, so there is nothing to wait for
            words: list[int] = row.tolist()
            if all(word >> 32 == steps for word in words):
                return words
        import cupy

        cupy.cuda.get_current_stream().synchronize()
        return row.tolist()  # type: ignore[no-any-return]

    def history(self, count: int) -> np.ndarray:
        """The tokens (rows, count) of the last `count` steps."""
        (steps,), _ = self.steps.known[0], self._last_words()
        words = self.words[np.arange(steps - count, steps) % HISTORY].T
        return (words & np.uint64((1 << 30) - 1)).astype(np.int32)


def _shared_words(xp: Any, shape: tuple[int, int]) -> tuple[np.ndarray, Array]:
    """Zeros in the host's memory, as NumPy's and as an array that kernels write to."""
    if xp is np:
        words = np.zeros(shape, np.uint64)
        return words, words
    import cupy

    size = 8 * shape[0] * shape[1]
    pinned = cupy.cuda.alloc_pinned_memory(size)  # at the same address for the device
    words = np.frombuffer(pinned, np.uint64, size // 8).reshape(shape)
    words[...] = 0
    memory = cupy.cuda.UnownedMemory(pinned.ptr, size, pinned, cupy.cuda.Device().id)
    return words, cupy.ndarray(shape, np.uint64, cupy.cuda.MemoryPointer(memory, 0))

"""What a compiled step finds on the device, and what the host knows of it.

The last kernel of a step writes the chosen tokens where the next step reads them, and adds 1 to
positions and lengths. The host adds 1 to its copies, too, compares them with what a plan says, and
sends what differs: a new request, a new block, a token that was drawn on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvlib.arrays import Array
from kvlib.caches import Step

HISTORY = 1024  # steps whose tokens stay on the device


class Mirror:
    """int32 numbers (rows, width) on the device, and how each row begins as far as is known."""

    def __init__(self, xp: Any, rows: int, width: int) -> None:
        self.array = xp.zeros((rows, width), dtype=xp.int32)
        self.known: list[list[int]] = [[0] * width for _ in range(rows)]

    def update(self, row: int, wanted: list[int]) -> bool:
        """Make a row begin with the wanted numbers; whether that took a copy to the device."""
        known = self.known[row]
        if known == wanted:
            return False
        first = len(known) if known == wanted[: len(known)] else 0  # a text got one more block
        new, target = np.array(wanted[first:], np.int32), self.array[row, first : len(wanted)]
        if isinstance(target, np.ndarray):
            target[...] = new
        else:  # the driver takes so few numbers at once, and does not wait
            import cupy

            target.set(new, stream=cupy.cuda.get_current_stream())
        self.known[row] = list(wanted)
        return True


class State:
    """The tokens, positions, lengths and block tables of a padded batch of `rows` requests.

    chosen (1, 2 rows)   the next step's tokens, and which rows had no finite largest logit
    positions (1, rows)  of those tokens
    lens (groups, rows)  stored tokens including the next one; 0 for a row without a request
    tables               for each group of layers (rows, pages)
    past (rows, HISTORY) the tokens of step number n in column n % HISTORY; steps counts them
    """

    def __init__(self, cache: Any, rows: int, widths: list[int]) -> None:
        self.cache, self.rows, xp = cache, rows, cache.xp
        self.chosen, self.positions = Mirror(xp, 1, 2 * rows), Mirror(xp, 1, rows)
        self.lens = Mirror(xp, len(widths), rows)
        self.tables = [Mirror(xp, rows, width) for width in widths]
        self.past = xp.zeros((rows, HISTORY), dtype=xp.int32)
        self.steps = Mirror(xp, 1, 1)

    def update(self, tokens: Array | None, step: Step) -> int:
        """Send what a step needs and the device lacks; returns the number of copies."""
        absent, copies = [0] * (self.rows - len(step.seq_ids)), 0
        copies += self.positions.update(0, [*(n - 1 for n in step.seq_lens), *absent])
        for g, group in enumerate(self.cache.groups):
            placement = self.cache.placement(group.layers[0], step)
            copies += self.lens.update(g, [*placement.stored_lens, *absent])
            for row, table in enumerate(placement.tables):
                copies += self.tables[g].update(row, table.pages)
        if isinstance(tokens, np.ndarray):
            copies += self.chosen.update(0, [*tokens.tolist(), *absent, *[0] * self.rows])
        elif tokens is not None:  # on the device
            self.chosen.array[0, : len(step.seq_ids)] = tokens
        return copies

    def advance(self) -> None:
        """Do what the step's last kernel does."""
        there = [n > 0 for n in self.lens.known[0]]
        for known in (*self.positions.known, *self.lens.known):
            known[:] = [n + one for n, one in zip(known, there, strict=True)]
        self.steps.known[0][0] += 1
        self.chosen.known[0] = []  # until they are read

    def read(self) -> tuple[list[int], list[int]]:
        """The chosen tokens, and 1 for each row without a finite largest logit; waits for them."""
        chosen = self.chosen.known[0] = _on_host(self.chosen.array)[0].tolist()
        return chosen[: self.rows], chosen[self.rows :]

    def history(self, count: int) -> np.ndarray:
        """The tokens (rows, count) of the last `count` steps."""
        (last,) = self.steps.known[0]
        return _on_host(self.past)[:, np.arange(last - count, last) % HISTORY]


def _on_host(x: Array) -> np.ndarray:
    return x.copy() if isinstance(x, np.ndarray) else x.get()

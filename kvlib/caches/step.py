"""What one step works on, decided once and used by every layer; and a cache's open requests."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import check_index, check_list, describe, is_integer
from kvlib.arrays import Array
from kvlib.attention.pieces import Cut
from kvlib.caches.allocation.table import Table
from kvlib.caches.trees import Parents, Trees, ancestors, depths


@dataclass(slots=True, eq=False)
class Ticket:
    """Whether a step may still be used, and which of so many layers have appended in it. gap:
    (request, first token) if a layer never appended tokens of an earlier step: then none may."""

    layers: int
    live: bool = True
    appended: set[int] = field(default_factory=set)
    gap: tuple[Hashable, int] | None = None


@dataclass(slots=True, eq=False)
class CachedSequence:
    """An open request of a cache; ``state`` is what the cache itself records about it.

    length   its tokens, those of the last plan included; start: without them, unless it was
             truncated to fewer
    ticket   that of its last step, None once the step has ended
    gap      the first token that some layer never appended before the next step was planned
    plans    how many times it has been planned
    tree     the parents of its new tokens, while they are guesses of which no path has been kept

    >>> CachedSequence(state=None, name="a", length=3).finished()
    True
    """

    state: Any
    name: Hashable = None
    length: int = 0
    start: int = 0
    ticket: Ticket | None = None
    gap: int | None = None
    plans: int = 0
    tree: Parents | None = None

    def finished(self) -> bool:
        """Whether all layers have appended the last step, or it has ended."""
        return self.ticket is None or len(self.ticket.appended) >= self.ticket.layers

    def next_gap(self) -> int | None:
        """Return what `gap` would be if the request were planned now."""
        return self.start if self.gap is None and not self.finished() else self.gap


@dataclass(slots=True, eq=False, repr=False)
class Step:
    """T new tokens of B requests, packed without padding, at their absolute positions.

    seq_ids     B request names
    q_lens      B counts of new tokens, one per request
    qo_indptr   B + 1 offsets: request i owns rows qo_indptr[i] to qo_indptr[i + 1]
    seq_lens    B lengths after the append
    positions   (T,) int64, absolute, on the device of the cache; sent when they are first needed
    states      what the cache records about each request
    placements  where they are stored, for each group of layers that has asked for it
    appends     False for a step that ``last`` made from a longer one: it may attend, not append
    parents     None if no request has a tree; else one entry per request, None for a chain

    >>> import numpy as np
    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(2, 4)], max_seqs=2, max_seq_len=16, xp=np)
    >>> held = cache.add("a"), cache.add("b")
    >>> cache.plan(["a", "b"], [3, 1]).positions.tolist()
    [0, 1, 2, 0]
    """

    owner: Any  # the cache that planned it
    ticket: Ticket
    seq_ids: tuple[Hashable, ...]
    q_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    states: Any
    appends: bool = True
    parents: Trees | None = None
    qo_indptr: tuple[int, ...] = field(init=False)
    placements: "dict[int, Placement]" = field(init=False, default_factory=dict)
    _positions: Array | None = field(init=False, default=None)
    _lengths: Array | None = field(init=False, default=None)
    _last: "Step | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        offsets = [0]
        for n in self.q_lens:
            offsets.append(offsets[-1] + n)
        self.qo_indptr = tuple(offsets)

    @property
    def positions(self) -> Array:
        if self._positions is not None:
            return self._positions
        if self.parents is not None:
            positions = self._tree_positions(self.parents)
        elif self.qo_indptr[-1] == len(self.q_lens):
            positions = np.asarray([n - 1 for n in self.seq_lens], dtype=np.int64)
        else:
            ends = zip(self.seq_lens, self.q_lens, strict=True)
            positions = np.concatenate([np.arange(end - n, end, dtype=np.int64) for end, n in ends])
        if self.owner.xp is not np:  # with the lengths, in one copy
            both = np.concatenate([positions, np.asarray(self.seq_lens, np.int64)])
            sent = self.owner.xp.asarray(both)
            positions, self._lengths = sent[: len(positions)], sent[len(positions) :]
        self._positions = positions
        return positions

    def _tree_positions(self, parents: Trees) -> np.ndarray:
        positions: list[int] = []
        for start, n, tree in zip(self.starts, self.q_lens, parents, strict=True):
            below = range(n) if tree is None else depths(tree)[-n:]
            positions += [start + depth for depth in below]
        return np.asarray(positions, dtype=np.int64)

    @property
    def starts(self) -> list[int]:
        """The length of each request before the step (after `last`, before its rows)."""
        trees = self.parents or (None,) * len(self.q_lens)
        new = [n if tree is None else len(tree) for n, tree in zip(self.q_lens, trees, strict=True)]
        return [end - n for end, n in zip(self.seq_lens, new, strict=True)]

    @property
    def longest(self) -> int:
        """One more than the highest position in the step."""
        if self.parents is None:
            return max(self.seq_lens)
        rows = zip(self.starts, self.seq_lens, self.parents, strict=True)
        return max(end if tree is None else n + max(depths(tree)) + 1 for n, end, tree in rows)

    @property
    def num_tokens(self) -> int:
        """T, the rows of q, k and v in this step."""
        return self.qo_indptr[-1]

    @property
    def lengths(self) -> Array:
        """``seq_lens`` as an array (B,) int64 on the device of the cache."""
        if self._lengths is None:
            self._lengths = self.owner.xp.asarray(np.asarray(self.seq_lens, dtype=np.int64))
        return self._lengths

    @property
    def last_rows(self) -> list[int]:
        """The row of each request's last new token."""
        return [end - 1 for end in self.qo_indptr[1:]]

    def last(self, counts: Sequence[int] | None = None) -> "Step":
        """The same step with only the last rows of each request, 1 or `counts` (B integers), for
        example in ``cache.run(layer, q[step.last_rows], step.last())``."""
        if counts is None:
            if self._last is None:
                self._last = self._with_rows((1,) * len(self.seq_ids))
                self._last._last = self._last
            return self._last
        counts = check_list("counts", counts, "numbers of rows, one per request")
        lens = tuple(index(n) if is_integer(n) else 0 for n in counts)
        fit = len(lens) == len(self.q_lens)
        if not fit or any(not 1 <= n <= m for n, m in zip(lens, self.q_lens, strict=True)):
            raise ValueError(
                f"counts must be {len(self.q_lens)} numbers of rows, from 1 to {self.q_lens}, "
                f"got {describe(counts)}"
            )
        return self._with_rows(lens)

    def _with_rows(self, lens: tuple[int, ...]) -> "Step":
        if lens == self.q_lens:
            return self
        fields = self.owner, self.ticket, self.seq_ids, lens, self.seq_lens, self.states
        return Step(*fields, appends=False, parents=self.parents)

    def ancestors(self, i: int) -> np.ndarray | None:
        """For request i, a mask (rows, new tokens) bool of what each row sees; None for a chain."""
        i = check_index("i", i, len(self.q_lens))
        tree = None if self.parents is None else self.parents[i]
        return None if tree is None else ancestors(tree)[-self.q_lens[i] :, :]

    def tree(self, i: int) -> tuple[list[int], np.ndarray]:
        """For request i, which has a tree: the depths of its new tokens, and its `ancestors`."""
        seen = self.ancestors(i)
        if seen is None or self.parents is None:
            raise ValueError(f"the new tokens of request {describe(self.seq_ids[i])} are a chain")
        return depths(self.parents[i] or ()), seen

    def __copy__(self) -> "Step":
        """The same step, without its placements."""
        new = object.__new__(Step)
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        new.placements = {}
        return new

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{describe(seq_id)}: {end - n}→{end}"
            for seq_id, n, end in zip(self.seq_ids, self.q_lens, self.seq_lens, strict=True)
        )
        state = "" if self.ticket.live else ", over"
        t, b = self.num_tokens, len(self.seq_ids)
        size = f"{t} token{'s' * (t != 1)} of {b} request{'s' * (b != 1)}"
        return f"Step({size}: {parts}{state})"


class Placement:
    """Where the requests of one step are stored in the layers of a group, worked out once.

    tables: of each. stored_lens: its tokens there, with the step's. slots: (page, slot) of each new
    token in a decode step that writes each alone, or None. batches: requests that attend in one
    product. cuts: a request in pieces.
    """

    __slots__ = ("_arrays", "_sent", "_xp", "batches", "cuts", "slots", "stored_lens", "tables")

    def __init__(
        self, tables: list[Table], seq_lens: Sequence[int], one_each: bool, size: int, xp: Any
    ) -> None:
        self.tables, self._xp = tables, xp
        self.stored_lens = [end - table.freed for table, end in zip(tables, seq_lens, strict=True)]
        self.batches: dict[tuple[int, int | None, int], list[list[int]]] = {}
        self.cuts: dict[tuple[int, ...], Cut] = {}
        self._arrays: list[np.ndarray] | None = None
        self._sent: list[Array] | None = None
        self.slots: list[tuple[int, int]] | None = None
        if one_each and all(table.private_row is None for table in tables):
            self.slots = [
                (table.pages[(n - 1) // size], (n - 1) % size)
                for table, n in zip(tables, self.stored_lens, strict=True)
            ]

    def page_arrays(self) -> list[np.ndarray]:
        """Return the pages of each request as an array int64 of NumPy."""
        if self._arrays is None:
            self._arrays = [np.asarray(table.pages, dtype=np.int64) for table in self.tables]
        return self._arrays

    def page_array(self, i: int) -> Array:
        """Return the pages of request i as an array int64; blocks are on the cache's device."""
        if self._xp is np:
            return self.page_arrays()[i]
        if self._sent is None:  # those of all requests in one copy
            arrays = self.page_arrays()
            sent, ends = self._xp.asarray(np.concatenate(arrays)), np.cumsum([*map(len, arrays)])
            self._sent = [sent[end - len(x) : end] for x, end in zip(arrays, ends, strict=True)]
        return self._sent[i]

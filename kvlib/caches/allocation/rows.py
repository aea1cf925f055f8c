"""Rows: one page for each request, reserved in advance."""

from collections.abc import Hashable, Sequence

from kvlib.arguments import check_integer, describe
from kvlib.caches.allocation.allocator import Allocator, Ask, Move
from kvlib.caches.allocation.table import Extra, State, Table
from kvlib.caches.retention.base import Retention, freed_by
from kvlib.caches.retention.rules import by_rule
from kvlib.caches.spec import LayerSpec
from kvlib.errors import CacheFull


class Rows(Allocator):
    """A row for each of `max_seqs` requests of up to `max_seq_len` tokens, in every layer.

    A row is about a quarter longer than a window, or than what the rules `Sinks` and `Scored` keep.
    A step that is too long for it, such as a prompt, gets a longer row until the next plan.

    >>> Rows(max_seqs=8, max_seq_len=2048).size
    2048
    """

    size_name, one_page = "max_seq_len", True

    def __init__(self, max_seqs: int, max_seq_len: int) -> None:
        self.max_seqs = check_integer("max_seqs", max_seqs)
        self.size = check_integer("max_seq_len", max_seq_len)
        # Free rows, and those from `_next_unused` on: nothing here grows with max_seqs before the
        # arrays have been allocated.
        self._free: list[int] = []
        self._next_unused = 0

    def bind(
        self, layers: Sequence[LayerSpec], rules: Sequence[Retention], codec_group: int
    ) -> list[tuple[int, int, int]]:
        self.groups, self._codec_group = by_rule(rules), codec_group
        rooms = [group.retention.room(self.size) for group in self.groups]
        # Tokens are freed in whole groups of the codec, so a part of one may stay before the first.
        rooms = [-(-(n + codec_group - 1) // codec_group) * codec_group for n in rooms]
        self._sizes = [min(self.size, n) for n in rooms]
        # Groups whose tokens may have to move; in the others, a row holds a whole request.
        holes = [group.retention.holes for group in self.groups]
        self._moving = [g for g, n in enumerate(rooms) if holes[g] or n < self.size]
        sizes = {x: self._sizes[g] for g, group in enumerate(self.groups) for x in group.layers}
        return [(layer, self.max_seqs, sizes[layer]) for layer in range(len(layers))]

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        row = self._free_row(seq_id)
        return State([Table([row]) for _ in self.groups], row=row)

    def _free_row(self, seq_id: Hashable) -> int:
        if self._free:
            return self._free.pop()
        if self._next_unused == self.max_seqs:
            raise CacheFull(
                f"no row for request {describe(seq_id)}: all {self.max_seqs} rows (max_seqs) are "
                "taken"
            )
        self._next_unused += 1
        return self._next_unused - 1

    def plan(self, asks: Sequence[Ask]) -> list[list[Move]]:
        for ask in asks:
            if ask.length + ask.new > self.size:
                raise CacheFull(
                    f"request {describe(ask.name)} holds {ask.length} tokens and {ask.new} more "
                    f"were asked for: {ask.length + ask.new - self.size} too many for max_seq_len "
                    f"= {self.size}"
                )
        plans = ([self._move(ask, g) for g in self._moving] for ask in asks)
        return [[move for move in moves if move is not None] for moves in plans]

    def _move(self, ask: Ask, g: int) -> Move | None:
        """Return how a request makes room in a group of layers; None if it has room."""
        table, kept_ranks, room = ask.tables[g], ask.kept_ranks[g], self._sizes[g]
        freed = table.freed if kept_ranks is None else ask.length - kept_ranks.shape[-1]
        if table.private_row is None and ask.num_paged_after - freed <= room:
            return None if kept_ranks is None else Move(g, freed, kept_ranks)
        rule, lengths = self.groups[g].retention, (ask.final_length, ask.num_paged)
        freed = freed_by(rule, freed, *lengths, self._codec_group)
        length = ask.num_paged_after - freed
        row_length = -(-length // self._codec_group) * self._codec_group if length > room else 0
        return Move(g, freed, kept_ranks, copy_from=0, copy_pages=1, row_length=row_length)

    def allocate(self, state: State, count: int) -> list[int]:
        return [state.row][:count]

    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        state.row = self._free_row(seq_id)
        state.tables = [table.copy() for table in source.tables]
        for table in state.tables:
            table.pages = [state.row]

    def release(self, state: State, final_length: int) -> None:
        self._free.append(state.row)

    def check_room(self, seq_id: Hashable, length: int) -> None:
        if check_integer("length", length, 0) > self.size:
            raise CacheFull(
                f"request {describe(seq_id)} may grow to {length} tokens, and the cache has room "
                f"for {self.size} of one request"
            )

"""Blocks: pages that requests allocate from a pool as they grow."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from kvlib.arguments import check_integer, describe, type_of
from kvlib.caches.allocation.allocator import Allocator, Ask, Move, first_changed
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.prefixes import PrefixSharing
from kvlib.caches.allocation.table import Extra, State, Table
from kvlib.caches.retention.base import Retention, first_kept, freed_by
from kvlib.caches.retention.rules import layer_groups, same_shape
from kvlib.caches.spec import LayerSpec
from kvlib.errors import OutOfBlocks


class Blocks(Allocator):
    """Blocks of ``pool.block_size`` tokens; a request has one block table per group of layers.

    All groups allocate from one pool, and groups of one shape share arrays (`layer_groups`).

    >>> Blocks(BlockPool(8, block_size=16)).size
    16
    """

    size_name, one_page = "block_size", False

    def __init__(self, pool: BlockPool) -> None:
        if not isinstance(pool, BlockPool):
            raise TypeError(f"pool must be a BlockPool, got {type_of(pool)}")
        self.pool, self.size = pool, pool.block_size

    def bind(
        self, layers: Sequence[LayerSpec], rules: Sequence[Retention], codec_group: int
    ) -> list[tuple[int, int, int]]:
        holes = next((rule for rule in rules if rule.holes), None)
        if holes is not None and self.pool.custom_index:
            raise ValueError(
                f"the pool finds blocks again by a {type(self.pool.index).__name__}, but {holes!r} "
                "takes tokens out of blocks, which then no longer hold the tokens that they would "
                "be found by; leave index out of the BlockPool, or keep all tokens"
            )
        self.groups = layer_groups(layers, rules)
        # Groups of one shape share arrays, because a block belongs to one group at a time.
        shared = len(self.groups) > 1 and same_shape(layers)
        keys = {x: n if shared else x for group in self.groups for n, x in enumerate(group.layers)}
        return [(keys[layer], self.pool.num_blocks, self.size) for layer in range(len(layers))]

    def claim(self) -> None:
        self.pool.claim()
        super().claim()
        self.sharing = PrefixSharing(self.pool, self.groups)

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        # Never reuse the last token: its logits are needed.
        length, tables, node = self.sharing.reuse(tokens[:-1], extra)
        state = State(tables, [], length, list(tokens[:length]), extra)
        state.num_published, state.prefix_node = length // self.size, node
        return state

    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        state.tables = [table.copy() for table in source.tables]
        for table in state.tables:
            self.pool.touch(table.pages)
        state.num_published, state.prefix_node = source.num_published, source.prefix_node
        self.sharing.retain_node(state.prefix_node)

    def release(self, state: State, final_length: int) -> None:
        self.publish(state, final_length)
        self.sharing.release(state)
        for table in state.tables:
            self.pool.free(table.pages)

    def publish(self, state: State, final_length: int) -> None:
        self.sharing.publish(state, min(len(state.tokens), final_length))

    def truncate(self, state: State, length: int) -> None:
        for table in state.tables:
            needed = max(0, -(-(length - table.freed) // self.size)) if length else 0
            self.pool.free(table.pages[needed:])
            del table.pages[needed:]
        if not length:
            super().truncate(state, length)
        del state.tokens[length:]
        self.sharing.truncate(state, length // self.size)

    def plan(self, asks: Sequence[Ask]) -> list[list[Move]]:
        free, plans = self.pool.num_free, []
        copies, frees = Counter[int](), Counter[int]()  # of each block, in this plan
        for ask in asks:
            moves = [self._move(ask, g, copies) for g in range(len(ask.tables))]
            for table, move in zip(ask.tables, moves, strict=True):
                for block in table.pages[: move.freed_pages]:
                    frees[block] += 1
                    free += frees[block] == self.pool.ref_count(block)
                free += move.spare_pages - move.new_pages - move.copy_pages
            plans.append(moves)
            if free < 0:
                raise OutOfBlocks(
                    f"request {describe(ask.name)} holds {ask.length} tokens and {ask.new} more "
                    f"were asked for, but the pool lacks {-free} block{'s' * (free < -1)} of "
                    f"{self.size} tokens ({self.pool.num_free} of {self.pool.num_blocks} are "
                    "free); free a request, or make the pool larger"
                )
        return plans

    def _move(self, ask: Ask, g: int, copies: Counter[int]) -> Move:
        size, table, kept_ranks = self.size, ask.tables[g], ask.kept_ranks[g]
        if kept_ranks is not None:
            kept, first = -(-kept_ranks.shape[-1] // size), first_changed(kept_ranks) // size
            new_pages = -(-(kept_ranks.shape[-1] + ask.new) // size) - kept
            move = Move(g, ask.length - kept_ranks.shape[-1], kept_ranks, new_pages=new_pages)
            if all(self.pool.ref_count(block) == 1 for block in table.pages[first:]):
                return move._replace(spare_pages=len(table.pages) - kept)
            return move._replace(copy_from=first, copy_pages=kept - first)
        rule, lengths = self.groups[g].retention, (ask.final_length, ask.num_paged)
        freed = freed_by(rule, table.freed, *lengths, size)
        freed_pages = (freed - table.freed) // size
        remaining = len(table.pages) - freed_pages
        new_pages = -(-(ask.length + ask.new - freed) // size) - remaining
        move = Move(g, freed, freed_pages=freed_pages, new_pages=new_pages)
        if not self._copies_on_write(table, ask.length, copies):
            return move
        return move._replace(copy_from=remaining - 1, copy_pages=1, meter_label="copy on write")

    def _copies_on_write(self, table: Table, length: int, copies: Counter[int]) -> bool:
        """Whether the next token would be written into a block that is shared or published. copies:
        how many holders of each block copy it in this plan; the last one may write into it."""
        full, used = divmod(length - table.freed, self.size)
        if not used:
            return False
        block = table.pages[full]
        if self.pool.ref_count(block) - copies[block] == 1 and block not in self.pool.index:
            return False
        copies[block] += 1
        return True

    def allocate(self, state: State, count: int) -> list[int]:
        return self.pool.allocate(count)

    def free(self, pages: Sequence[int]) -> None:
        self.pool.free(pages)

    def check_room(self, seq_id: Hashable, length: int) -> None:
        length = check_integer("length", length, 0)
        rules = [group.retention for group in self.groups]
        kept = [0 if rule.holes else length - first_kept(rule, length - 1) for rule in rules]
        if sum(-(-n // self.size) for n in kept) > self.pool.num_blocks:
            room = self.pool.num_blocks * self.size // len(rules)
            raise OutOfBlocks(
                f"request {describe(seq_id)} may grow to {length} tokens, and the cache has room "
                f"for {room}: {self.pool.num_blocks} blocks"
            )

    def waits_for(self, tokens: Sequence[int], others: Iterable[tuple[int, Sequence[int]]]) -> bool:
        size = self.size
        for length, other in others if self.sharing.enabled else ():
            end = (length // size + 1) * size  # of the block that the other request is filling
            if end >= len(tokens) or end > len(other):  # a prompt's last token is always computed
                continue
            if tokens[end - size : end] == other[end - size : end] and tokens[:end] == other[:end]:
                return True
        return False

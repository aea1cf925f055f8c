"""Blocks: pages that requests take from a pool as they grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from kvlib.arguments import check_integer, describe, type_of
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.prefixes import PrefixSharing
from kvlib.caches.allocation.table import Allocator, Ask, Move, State, Table, first_changed
from kvlib.caches.retention.groups import LayerGroup, layer_groups, same_shape
from kvlib.caches.retention.rules import Retention, first_kept, freed_by
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import CachedSequence, Extra
from kvlib.errors import OutOfBlocks


class Blocks(Allocator):
    """Blocks of ``pool.block_size`` tokens; a request has one block table per group of layers.

    All groups draw from one pool, and groups of one shape share arrays (`layer_groups`).

    >>> Blocks(BlockPool(8, block_size=16)).size
    16
    """

    size_name, one_page = "block_size", False

    def __init__(self, pool: BlockPool) -> None:
        if not isinstance(pool, BlockPool):
            raise TypeError(f"pool must be a BlockPool, got {type_of(pool)}")
        self.pool, self.size = pool, pool.block_size

    def groups(self, layers: Sequence[LayerSpec], rules: Sequence[Retention]) -> list[LayerGroup]:
        return layer_groups(layers, rules)

    def bind(
        self, layers: Sequence[LayerSpec], groups: Sequence[LayerGroup], together: int
    ) -> list[tuple[int, int, int]]:
        self.rules = [group.retention for group in groups]
        holes = next((rule for rule in self.rules if rule.holes), None)
        if holes is not None and self.pool.own_index:
            raise ValueError(
                f"the pool finds blocks again by a {type(self.pool.index).__name__}, but {holes!r} "
                "takes tokens out of blocks, which then no longer hold the tokens that they would "
                "be found by; leave index out of the BlockPool, or keep all tokens"
            )
        self.pool.claim()
        self.sharing = PrefixSharing(self.pool, groups)
        # Groups of one shape share arrays, because a block belongs to one group at a time.
        one = len(groups) > 1 and same_shape(layers)
        key = {x: n if one else x for group in groups for n, x in enumerate(group.layers)}
        return [(key[layer], self.pool.num_blocks, self.size) for layer in range(len(layers))]

    # Opening and closing ------------------------------------------------------------------------

    def open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> State:
        # Never the last token: somebody wants its logits.
        held, tables, node = self.sharing.reuse(tokens[:-1], extra)
        state = State(tables, [], held, list(tokens[:held]), extra)
        state.num_published, state.prefix_node = held // self.size, node
        return state

    def copy(self, source: State, seq_id: Hashable, state: State) -> None:
        state.tables = [table.copy() for table in source.tables]
        for table in state.tables:
            self.pool.touch(table.pages)
        state.num_published, state.prefix_node = source.num_published, source.prefix_node
        self.sharing.retain_node(state.prefix_node)

    def release(self, state: State, safe_length: int) -> None:
        self.publish(state, safe_length)
        self.sharing.release(state)
        for table in state.tables:
            self.pool.free(table.pages)

    def publish(self, state: State, safe_length: int) -> None:
        """Let lookups find the blocks that the last step filled; that step is now final."""
        self.sharing.publish(state, min(len(state.tokens), safe_length))

    def truncate(self, seq: CachedSequence, length: int) -> None:
        state = seq.state
        for table in state.tables:
            keep = max(0, -(-(length - table.freed) // self.size)) if length else 0
            self.pool.free(table.pages[keep:])
            del table.pages[keep:]
        if not length:
            super().truncate(seq, length)
        del state.tokens[length:]
        self.sharing.truncate(state, length // self.size)

    # Growing ------------------------------------------------------------------------------------

    def plan(self, asks: Sequence[Ask]) -> list[list[Move]]:
        """The moves of each request; blocks that all who hold them let go count as free."""
        size, free = self.size, self.pool.num_free
        found: list[list[Move]] = []
        copied, freed_holders = Counter[int](), Counter[int]()
        for ask in asks:
            own: list[Move] = []
            for g, table in enumerate(ask.tables):
                move = self._move(ask, g, copied)
                own.append(move)
                for block in table.pages[: move.freed_pages]:
                    freed_holders[block] += 1
                    free += freed_holders[block] == self.pool.ref_count(block)
                free += move.spare_pages - move.new_pages - move.copy_pages
            found.append(own)
            if free < 0:
                raise OutOfBlocks(
                    f"request {describe(ask.name)} holds {ask.length} tokens and {ask.new} more "
                    f"were asked for, but the pool lacks {-free} block{'s' * (free < -1)} of "
                    f"{size} tokens ({self.pool.num_free} of {self.pool.num_blocks} are free); "
                    "free a request, or make the pool larger"
                )
        return found

    def _move(self, ask: Ask, g: int, copied: Counter[int]) -> Move:
        size, rule, table, kept_slots = self.size, self.rules[g], ask.tables[g], ask.kept_slots[g]
        if kept_slots is not None:
            freed, first = ask.length - kept_slots.shape[-1], first_changed(kept_slots) // size
            needed = -(-kept_slots.shape[-1] // size)
            new_pages = -(-(ask.length + ask.new - freed) // size) - needed
            if all(self.pool.ref_count(block) == 1 for block in table.pages[first:]):
                return Move(
                    g, freed, kept_slots, spare_pages=len(table.pages) - needed, new_pages=new_pages
                )
            return Move(
                g,
                freed,
                kept_slots,
                copy_from=first,
                copy_pages=needed - first,
                new_pages=new_pages,
            )
        freed = (
            table.freed
            if rule.holes
            else freed_by(rule, table.freed, ask.safe_length, ask.paged_length, size)
        )
        freed_pages = (freed - table.freed) // size
        remain = len(table.pages) - freed_pages
        new_pages = -(-(ask.length + ask.new - freed) // size) - remain
        if not must_copy(self.pool, table, ask.length, copied):
            return Move(g, freed, None, freed_pages, new_pages=new_pages)
        last, meter_label = remain - 1, "copy on write"
        return Move(
            g,
            freed,
            None,
            freed_pages,
            copy_from=last,
            copy_pages=1,
            new_pages=new_pages,
            meter_label=meter_label,
        )

    def allocate(self, state: State, count: int) -> list[int]:
        return self.pool.allocate(count)

    def free(self, pages: Sequence[int]) -> None:
        self.pool.free(pages)

    # Before a request is opened -----------------------------------------------------------------

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Raise OutOfBlocks if the whole pool is too small for a request of `length` tokens."""
        length = check_integer("length", length, 0)
        rules = self.rules
        held = [length - first_kept(rule, length - 1) if not rule.holes else 0 for rule in rules]
        needed = sum(-(-n // self.size) for n in held)
        if needed > self.pool.num_blocks:
            room = self.pool.num_blocks * self.size // len(rules)
            raise OutOfBlocks(
                f"request {describe(seq_id)} may grow to {length} tokens, and the cache has room "
                f"for {room}: {self.pool.num_blocks} blocks"
            )

    def waits_for(self, tokens: Sequence[int], others: Iterable[tuple[int, Sequence[int]]]) -> bool:
        """Whether another request is filling a block that this prompt also begins with."""
        size = self.size
        for length, other in others if self.sharing.enabled else ():
            end = (length // size + 1) * size  # of the block that comes next
            if end >= len(tokens) or end > len(other):  # a prompt's last token is always computed
                continue
            if tokens[end - size : end] == other[end - size : end] and tokens[:end] == other[:end]:
                return True
        return False


def must_copy(pool: BlockPool, table: Table, length: int, copied: Counter[int]) -> bool:
    """Whether the next token would go into a block that is shared, or that a lookup can find.

    copied: of each block, how many requests of this plan have been given a copy: the last needs
    none.
    """
    if (length - table.freed) % pool.block_size == 0:
        return False
    block = table.pages[(length - table.freed) // pool.block_size]
    holders = pool.ref_count(block) - copied[block]
    if holders == 1 and block not in pool.index:
        return False
    copied[block] += 1
    return True

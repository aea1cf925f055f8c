"""Blocks that several requests hold because their texts begin alike.

A node is a piece of `block_size` tokens after all pieces before it, and each group of layers has a
block of its own for it. A node lives while a block of any group holds it, a longer text is known,
or an open request has come this far. A layer with a window gives early blocks back: a text can be
found as long as each group still has the blocks that it would look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.prefixes import Extra, PrefixIndex, sealed
from kvlib.caches.allocation.table import State, Table
from kvlib.caches.retention.rules import LayerGroup, first_of


class Sharing(PrefixIndex):
    """Finds and publishes the blocks of texts, for all groups of a cache's layers.

    It takes the place of the pool's index, which keeps the nodes: the pool asks it which blocks can
    be found, and a ``BlockPool.lookup`` finds those of the first group. possible: False where a
    rule takes tokens out from between others; then nothing is published.
    """

    def __init__(self, pool: BlockPool, groups: Sequence[LayerGroup]) -> None:
        self.pool, self.size = pool, pool.block_size
        self.rules = [group.retention for group in groups]
        self.possible = not any(rule.holes for rule in self.rules)
        self.index, pool.index = pool.index, self
        self._names = count()
        self._blocks: dict[int, dict[int, int]] = {}  # node → group → block
        self._at: dict[int, tuple[int, int]] = {}  # block → node, group
        self._uses: dict[int, int] = {}  # node → its children and the requests that have got there

    # Requests -----------------------------------------------------------------------------------

    def take(self, tokens: Sequence[int], extra: Extra) -> tuple[int, list[Table], int | None]:
        """How many first tokens are held already, tables with their blocks, and the last node.

        The blocks and the node are held from here on.
        """
        nodes = self.nodes(tokens, sealed(extra)) if self.possible else []
        held, tables = len(nodes) * self.size, []
        for g, rule in enumerate(self.rules):
            first = first_of(rule, held) // self.size
            found = [self.block(node, g) for node in nodes[first:]]
            tables.append(Table([b for b in found if b is not None], first * self.size, held))
        for table in tables:
            self.pool.touch(table.pages)
        node = nodes[-1] if nodes else None
        self.hold(node)
        return held, tables, node

    def publish(self, state: State, held: int) -> None:
        """Let the blocks of the first `held` tokens be found."""
        while self.possible and (state.published + 1) * self.size <= held:
            n = state.published
            piece = tuple(state.tokens[n * self.size : (n + 1) * self.size])
            node = self.node(state.node, piece, sealed(state.extra))
            for g, table in enumerate(state.tables):
                self._publish_block(table, n, node, g)
            self._move(state, node, n + 1)

    def _publish_block(self, table: Table, n: int, node: int, g: int) -> None:
        at = n - table.gone // self.size
        if at < 0:  # the layers of this group have given it back
            return
        own, twin = table.pages[at], self.block(node, g)
        if own in self or own == twin:
            return
        if twin is None:
            self._blocks[node][g] = own
            self._at[own] = node, g
            self.pool.note("publish", (own,))
        elif self.pool.references(own) == 1:  # hold the published twin in its place
            table.pages[at] = twin
            self.pool.touch([twin])
            self.pool.free([own])

    def leave_blocks(self, state: State) -> None:
        """A request is about to go: let its blocks be found where a twin has gone in between."""
        node = state.node
        for n in reversed(range(state.published)):
            assert node is not None, "a published text has a node for each of its pieces"
            for g, table in enumerate(state.tables):
                if self.block(node, g) is None:
                    self._publish_block(table, n, node, g)
            node = self.index.parent(node)
        self.leave(state.node)

    def go_back(self, state: State, published: int) -> None:
        """A text has lost its end: it reaches to `published` pieces at most."""
        if state.published > published:
            node = state.node
            for _ in range(state.published - published):
                node = None if node is None else self.index.parent(node)
            self._move(state, node, published)

    def _move(self, state: State, node: int | None, published: int) -> None:
        self.hold(node)
        self.leave(state.node)
        state.node, state.published = node, published

    # Nodes --------------------------------------------------------------------------------------

    def nodes(self, tokens: Sequence[int], extra: Extra) -> list[int]:
        """The nodes of the longest known beginning of a text for which all groups have blocks."""
        found = self.index.find(tokens, self.size, extra)
        whole = len(found)
        for g, rule in enumerate(self.rules):
            if first_of(rule, len(found) * self.size) == 0:  # everything from the start is needed
                here = (n for n, node in enumerate(found) if g not in self._blocks[node])
                whole = min(whole, next(here, whole))
        while whole and not all(self._complete(found, whole, g) for g in range(len(self.rules))):
            whole -= 1
        return found[:whole]

    def _complete(self, nodes: list[int], end: int, g: int) -> bool:
        """Whether a group has the blocks that a request would need after `end` pieces."""
        first = first_of(self.rules[g], end * self.size) // self.size
        return all(g in self._blocks[node] for node in reversed(nodes[first:end]))

    def block(self, node: int, group: int) -> int | None:
        """The block of a group at a node."""
        return self._blocks[node].get(group)

    def node(self, parent: int | None, piece: tuple[int, ...], extra: Extra) -> int:
        """The node of a piece after the node before it; made if it is new."""
        key = extra if parent is None else ()
        known = self.index.child(parent, piece, key)
        if known is not None:
            return known
        new = next(self._names)
        self.index.add(new, parent, piece, key)
        self._blocks[new], self._uses[new] = {}, 0
        self.hold(parent)
        return new

    def hold(self, node: int | None) -> None:
        """A request has got to this node, or a longer text is known."""
        if node is not None:
            self._uses[node] += 1

    def leave(self, node: int | None) -> None:
        """A request has gone on from this node, or is gone."""
        if node is not None:
            self._uses[node] -= 1
            self._prune(node)

    def _prune(self, node: int | None) -> None:
        """Forget a node that nothing needs, and those before it that only led to it."""
        while node is not None and not self._uses[node] and not self._blocks[node]:
            parent = self.index.parent(node)
            self.index.remove(node)
            del self._blocks[node], self._uses[node]
            if parent is not None:
                self._uses[parent] -= 1
            node = parent

    # What the pool asks its index -----------------------------------------------------------------

    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        """The first group's block with these tokens after its block `parent`, or None."""
        before = None if parent is None else self._at[parent][0]
        node = self.index.child(before, tokens, extra)
        return None if node is None else self.block(node, 0)

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Refused: the cache that the pool belongs to publishes its blocks itself."""
        raise ValueError("this pool belongs to a cache, which publishes its blocks itself")

    def remove(self, block: int) -> None:
        """Forget a block: another text is going to be written into it."""
        node, group = self._at.pop(block)
        del self._blocks[node][group]
        self._prune(node)

    def parent(self, block: int) -> None:
        """None: a block can be found, or not, whatever becomes of those before it."""

    def __contains__(self, block: object) -> bool:
        return block in self._at

    def __len__(self) -> int:
        return len(self._at)

    def __repr__(self) -> str:
        return f"{type(self.index).__name__}({len(self)} blocks)"

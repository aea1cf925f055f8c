"""Blocks that several requests hold because their texts begin alike."""

from __future__ import annotations

from collections.abc import Sequence

from kvlib.caches.blocks import BlockPool
from kvlib.caches.groups import LayerGroup
from kvlib.caches.nodes import NodeIndex
from kvlib.caches.prefixes import Extra, sealed
from kvlib.caches.table import State, Table


class Sharing:
    """Finds and publishes the blocks of texts, for all groups of a cache's layers.

    possible: False where a rule takes tokens out from between others. Then a block does not hold
    the tokens that stand in a row in the text, and nothing is published.
    """

    def __init__(self, pool: BlockPool, groups: Sequence[LayerGroup]) -> None:
        self.pool, self.rules = pool, [group.retention for group in groups]
        self.possible = not any(rule.holes for rule in self.rules)
        self.index = NodeIndex(pool.index, self.rules, pool.block_size)
        pool.index = self.index

    def find(self, tokens: Sequence[int], extra: Extra) -> tuple[int, list[Table], int | None]:
        """How many first tokens are held already, tables with their blocks, and the last node.

        The blocks and the node are held from here on.
        """
        nodes = self.index.nodes(tokens, sealed(extra)) if self.possible else []
        held, size = len(nodes) * self.pool.block_size, self.pool.block_size
        tables = []
        for g, rule in enumerate(self.rules):
            first = rule.first(held) // size
            found = [self.index.block(node, g) for node in nodes[first:]]
            tables.append(Table([b for b in found if b is not None], first * size, held))
        for table in tables:
            self.pool.touch(table.pages)
        node = nodes[-1] if nodes else None
        self.index.hold(node)
        return held, tables, node

    def publish(self, state: State, held: int) -> None:
        """Let the blocks of the first `held` tokens be found."""
        size = self.pool.block_size
        while self.possible and (state.published + 1) * size <= held:
            n = state.published
            piece = tuple(state.tokens[n * size : (n + 1) * size])
            node = self.index.node(state.node, piece, sealed(state.extra))
            for g, table in enumerate(state.tables):
                at = n - table.gone // size
                if at >= 0:
                    self._publish_block(table, at, node, g)
            self.index.hold(node)
            self.index.leave(state.node)
            state.node, state.published = node, n + 1

    def _publish_block(self, table: Table, at: int, node: int, g: int) -> None:
        own, twin = table.pages[at], self.index.block(node, g)
        if own in self.index or own == twin:
            return
        if twin is None:
            self.index.attach(own, node, g)
            self.pool.note("publish", (own,))
        elif self.pool.references(own) == 1:  # hold the published twin in its place
            table.pages[at] = twin
            self.pool.touch([twin])
            self.pool.free([own])

    def leave_blocks(self, state: State) -> None:
        """A request is about to go: let its blocks be found where a twin has gone in between."""
        node, size = state.node, self.pool.block_size
        for n in reversed(range(state.published)):
            assert node is not None, "a published text has a node for each of its pieces"
            for g, table in enumerate(state.tables):
                at = n - table.gone // size
                if at >= 0 and self.index.block(node, g) is None:
                    self._publish_block(table, at, node, g)
            node = self.index.before(node, 1)
        self.index.leave(state.node)

    def go_back(self, state: State, published: int) -> None:
        """A text has lost its end: it reaches to `published` pieces at most."""
        if state.published > published:
            before = self.index.before(state.node, state.published - published)  # type: ignore[arg-type]
            self.index.hold(before)
            self.index.leave(state.node)
            state.node, state.published = before, published

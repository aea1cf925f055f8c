"""Which blocks hold a piece of text, when each group of layers has a block of its own for it.

A node stands for a piece of `block_size` tokens behind all pieces before it. It lives as long as a
block of any group holds it, a longer text is known, or an open request has come this far. A layer
with a window gives early blocks back and needs only the late ones: a text can be found as long as
each group still has the blocks that it would look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from kvlib.caches.prefixes import Extra, PrefixIndex
from kvlib.caches.retention import Retention


class NodeIndex(PrefixIndex):
    """Nodes in a `PrefixIndex`, and the block of each group at each node.

    index: an empty one, in which nodes are kept. rules: what each group keeps. As a PrefixIndex
    it speaks of the first group's blocks, so that ``BlockPool.lookup`` finds those.
    """

    def __init__(self, index: PrefixIndex, rules: Sequence[Retention], block_size: int) -> None:
        self.index, self.rules, self.size = index, tuple(rules), block_size
        self._names = count()
        self._blocks: dict[int, dict[int, int]] = {}  # node → group → block
        self._at: dict[int, tuple[int, int]] = {}  # block → node, group
        self._uses: dict[int, int] = {}  # node → its children and the requests that have got there

    # Looking ------------------------------------------------------------------------------------

    def nodes(self, tokens: Sequence[int], extra: Extra) -> list[int]:
        """The nodes of the longest known beginning of a text for which all groups have blocks."""
        found = self.index.find(tokens, self.size, extra)
        whole = len(found)
        for g, rule in enumerate(self.rules):
            if rule.first(len(found) * self.size) == 0:  # everything from the start is needed
                here = (n for n, node in enumerate(found) if g not in self._blocks[node])
                whole = min(whole, next(here, whole))
        while whole and not all(self._complete(found, whole, g) for g in range(len(self.rules))):
            whole -= 1
        return found[:whole]

    def _complete(self, nodes: list[int], end: int, g: int) -> bool:
        """Whether a group has the blocks that a request would need behind `end` pieces."""
        first = self.rules[g].first(end * self.size) // self.size
        return all(g in self._blocks[node] for node in reversed(nodes[first:end]))

    def block(self, node: int, group: int) -> int | None:
        """The block of a group at a node."""
        return self._blocks[node].get(group)

    # Adding and forgetting ----------------------------------------------------------------------

    def node(self, parent: int | None, piece: tuple[int, ...], extra: Extra) -> int:
        """The node of a piece behind the node before it; made if it is new."""
        key = extra if parent is None else ()
        known = self.index.child(parent, piece, key)
        if known is not None:
            return known
        new = next(self._names)
        self.index.add(new, parent, piece, key)
        self._blocks[new], self._uses[new] = {}, 0
        if parent is not None:
            self._uses[parent] += 1
        return new

    def attach(self, block: int, node: int, group: int) -> None:
        """Let a block be found at a node of which its group has none yet."""
        self._blocks[node][group] = block
        self._at[block] = node, group

    def remove(self, block: int) -> None:
        """Forget a block: another text is going to be written into it."""
        node, group = self._at.pop(block)
        del self._blocks[node][group]
        self._prune(node)

    def hold(self, node: int | None) -> None:
        """A request has got to this node."""
        if node is not None:
            self._uses[node] += 1

    def leave(self, node: int | None) -> None:
        """A request has gone on from this node, or is gone."""
        if node is not None:
            self._uses[node] -= 1
            self._prune(node)

    def before(self, node: int, pieces: int) -> int | None:
        """The node so many pieces before this one; None before the first."""
        at: int | None = node
        for _ in range(pieces):
            at = None if at is None else self.index.parent(at)
        return at

    def _prune(self, node: int | None) -> None:
        while node is not None and not self._uses[node] and not self._blocks[node]:
            parent = self.index.parent(node)
            self.index.remove(node)
            del self._blocks[node], self._uses[node]
            if parent is not None:
                self._uses[parent] -= 1
            node = parent

    # As a PrefixIndex ---------------------------------------------------------------------------

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """The first group's blocks of the longest known beginning of a text, from its start on."""
        found = []
        for node in self.index.find(tokens, block_size, extra):
            block = self._blocks[node].get(0)
            if block is None:
                break
            found.append(block)
        return found

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Refused: the cache that the pool belongs to publishes its blocks itself."""
        raise ValueError("this pool belongs to a cache, which publishes its blocks itself")

    def parent(self, block: int) -> None:
        """None: a block can be found, or not, whatever becomes of those before it."""

    def __contains__(self, block: object) -> bool:
        return block in self._at

    def __len__(self) -> int:
        return len(self._at)

    def __repr__(self) -> str:
        return f"{type(self.index).__name__}({len(self)} blocks)"

"""Find blocks again by the tokens that they hold, and share them between requests.

A key at position i depends on every token up to i, so a block is known by its own tokens and the
block before it. HashIndex chains hashes, one per block, as vLLM does; RadixIndex (`radix`) walks a
tree of tokens. Both find the same blocks.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from kvlib.caches.allocation.table import Extra, State, Table
from kvlib.caches.checks import check_extra
from kvlib.caches.retention.base import first_kept
from kvlib.caches.retention.rules import LayerGroup

# The content of a block: the publication before it (None if it begins a text), its tokens, and the
# extra keys if it is the first block of a text.
Content = tuple[int | None, tuple[int, ...], Extra]


def sealed(extra: Extra) -> Extra:
    """Return keys that equal no others: to Python 1, 1.0 and True are one key, to a tenant not."""
    check_extra(extra)
    return (repr(extra), *extra) if extra else ()


def chain(before: bytes, tokens: Sequence[int], extra: Extra) -> bytes:
    """Return a block's hash, of marked parts with lengths, so no extra key can pass for tokens."""
    digest = hashlib.blake2b(before, digest_size=16)
    for mark, part in ((b"t", repr(tuple(map(int, tokens)))), (b"x", repr(extra))):
        text = part.encode()
        digest.update(mark + len(text).to_bytes(8, "little") + text)
    return digest.digest()


class PrefixIndex(ABC):
    """Which block holds which tokens after which parent; a text's first block has parent None.

    The pool reuses blocks, so each publication gets a new number, by which the blocks after it name
    it. A subclass writes `_get`, `_insert` and `_delete`.
    """

    def __init__(self) -> None:
        self._content: dict[int, Content] = {}
        self._parents: dict[int, int | None] = {}
        self._publications: dict[int, int] = {}
        self._count = count()

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Register a block; return False if its content is known under another number."""
        if self.child(parent, tokens, extra) is not None:
            return False
        self._content[block] = self._content_of(parent, tokens, extra)
        self._parents[block], self._publications[block] = parent, next(self._count)
        self._insert(block)
        return True

    def remove(self, block: int) -> None:
        """Forget a block. Blocks after it that are still known cannot be found any more."""
        self._delete(block)
        del self._content[block], self._parents[block], self._publications[block]

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """Return the blocks of the longest known beginning of `tokens`, in whole blocks."""
        blocks: list[int] = []
        for start in range(0, len(tokens) - block_size + 1, block_size):
            piece = tuple(tokens[start : start + block_size])
            block = self.child(blocks[-1], piece) if blocks else self.child(None, piece, extra)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        """Return the block with these tokens after `parent`, or None."""
        return self._get(self._content_of(parent, tokens, extra))

    def parent(self, block: int) -> int | None:
        """Return the block before a published one; None for the first of a text."""
        return self._parents[block]

    def _content_of(self, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> Content:
        return None if parent is None else self._publications[parent], tokens, extra

    @abstractmethod
    def _get(self, content: Content) -> int | None:
        """Return the block with this content, or None."""

    @abstractmethod
    def _insert(self, block: int) -> None:
        """Let `_get` return a block, whose content and publication are known."""

    @abstractmethod
    def _delete(self, block: int) -> None:
        """Undo `_insert`."""

    def __contains__(self, block: object) -> bool:
        return block in self._content

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} blocks)"


class HashIndex(PrefixIndex):
    """One hash per block, chained, with the tokens compared on every hit.

    A hash alone would return another prompt's keys when two hashes collide.

    >>> from kvlib import BlockPool
    >>> pool = BlockPool(4, block_size=2, index=HashIndex())
    >>> published = pool.publish(pool.allocate(1)[0], None, [7, 8])
    >>> pool.lookup([7, 8, 9])
    [0]
    """

    def __init__(self, hash_block: Callable[[bytes, Sequence[int], Extra], bytes] = chain) -> None:
        super().__init__()
        self._hash_block = hash_block
        self._hashes: dict[int, bytes] = {}  # publication → hash
        self._blocks: dict[bytes, list[int]] = {}

    def _get(self, content: Content) -> int | None:
        return self._same(self._key(content), content)

    def _key(self, content: Content) -> bytes:
        after, tokens, extra = content
        return self._hash_block(b"" if after is None else self._hashes[after], tokens, extra)

    def _insert(self, block: int) -> None:
        key = self._hashes[self._publications[block]] = self._key(self._content[block])
        self._blocks.setdefault(key, []).append(block)

    def _delete(self, block: int) -> None:
        key = self._hashes.pop(self._publications[block])
        self._blocks[key].remove(block)
        if not self._blocks[key]:
            del self._blocks[key]

    def _same(self, key: bytes, content: Content) -> int | None:
        blocks = self._blocks.get(key, ())
        return next((block for block in blocks if self._content[block] == content), None)


class PrefixSharing:
    """Find and publish the blocks of texts, for all groups of layers; the new index of the pool.

    A node is `block_size` tokens of a text after all tokens before them; each group can have a
    block for it. A node exists while it has a block, a child, or an open request whose published
    text ends there. enabled: False where a rule frees tokens between others; none are published.
    """

    def __init__(self, pool: Any, groups: Sequence[LayerGroup]) -> None:
        self.pool, self.size, self.groups = pool, pool.block_size, groups
        self.enabled = not any(group.retention.holes for group in groups)
        self.index, pool.index = pool.index, self
        self._names = count()
        self._blocks: dict[int, dict[int, int]] = {}  # node → group → block
        self._node_of: dict[int, tuple[int, int]] = {}  # block → node, group
        self._node_refs: dict[int, int] = {}  # node → its children, and requests that end there

    def reuse(self, tokens: Sequence[int], extra: Extra) -> tuple[int, list[Table], int | None]:
        """Return how many first tokens are cached, tables with their blocks, and the last node."""
        nodes = self.match(tokens, sealed(extra)) if self.enabled else []
        length, tables = len(nodes) * self.size, []
        for g in range(len(self.groups)):
            first = self._first_needed(g, len(nodes))
            blocks = [self._blocks[node][g] for node in nodes[first:]]
            tables.append(Table(blocks, first * self.size, length))
            self.pool.touch(tables[g].pages)
        node = nodes[-1] if nodes else None
        self.retain_node(node)
        return length, tables, node

    def publish(self, state: State, length: int) -> None:
        """Let lookups find the full blocks of the first `length` tokens."""
        while self.enabled and (state.num_published + 1) * self.size <= length:
            n = state.num_published
            piece = tuple(state.tokens[n * self.size : (n + 1) * self.size])
            node = self.find_or_add(state.prefix_node, piece, sealed(state.extra))
            for g, table in enumerate(state.tables):
                self._publish_block(table, n, node, g)
            self._end_at(state, node, n + 1)

    def _publish_block(self, table: Table, n: int, node: int, g: int) -> None:
        page_index = n - table.freed // self.size
        if page_index < 0:  # the layers of this group have freed it
            return
        block, twin = table.pages[page_index], self.block(node, g)
        if block in self or block == twin:
            return
        if twin is None:
            self._blocks[node][g] = block
            self._node_of[block] = node, g
            self.pool.record("publish", (block,))
        elif self.pool.ref_count(block) == 1:  # use the published twin instead
            table.pages[page_index] = twin
            self.pool.touch([twin])
            self.pool.free([block])

    def release(self, state: State) -> None:
        """Close a request: publish its blocks instead of twins that have been evicted."""
        node = state.prefix_node
        for n in reversed(range(state.num_published)):
            assert node is not None, "a published text has a node for each of its pieces"
            for g, table in enumerate(state.tables):
                if self.block(node, g) is None:
                    self._publish_block(table, n, node, g)
            node = self.index.parent(node)
        self.release_node(state.prefix_node)

    def truncate(self, state: State, num_published: int) -> None:
        """Let the published text of a request end after `num_published` pieces at most."""
        node = state.prefix_node
        for _ in range(state.num_published - num_published):
            node = None if node is None else self.index.parent(node)
        self._end_at(state, node, min(state.num_published, num_published))

    def _end_at(self, state: State, node: int | None, num_published: int) -> None:
        self.retain_node(node)
        self.release_node(state.prefix_node)
        state.prefix_node, state.num_published = node, num_published

    def match(self, tokens: Sequence[int], extra: Extra) -> list[int]:
        """Return the nodes of the longest known beginning for which all groups have blocks."""
        nodes = self.index.find(tokens, self.size, extra)
        end, groups = len(nodes), range(len(self.groups))
        for g in groups:
            if self._first_needed(g, len(nodes)) == 0:  # a group that needs all blocks
                missing = (n for n, node in enumerate(nodes) if g not in self._blocks[node])
                end = min(end, next(missing, end))
        while end and not all(self._complete(nodes, end, g) for g in groups):
            end -= 1
        return nodes[:end]

    def _complete(self, nodes: list[int], end: int, g: int) -> bool:
        """Return whether a group has the blocks that a request needs after `end` pieces."""
        first = self._first_needed(g, end)
        return all(g in self._blocks[node] for node in reversed(nodes[first:end]))

    def _first_needed(self, g: int, end: int) -> int:
        """Return the first piece that a group needs after `end` pieces."""
        return first_kept(self.groups[g].retention, end * self.size) // self.size

    def block(self, node: int, group: int) -> int | None:
        """Return the block of a group at a node, or None."""
        return self._blocks[node].get(group)

    def find_or_add(self, parent: int | None, piece: tuple[int, ...], extra: Extra) -> int:
        """Return the node of a piece after the node `parent`."""
        key = extra if parent is None else ()
        new = next(self._names)
        if not self.index.add(new, parent, piece, key):
            known = self.index.child(parent, piece, key)
            assert known is not None
            return known
        self._blocks[new], self._node_refs[new] = {}, 0
        self.retain_node(parent)
        return new

    def retain_node(self, node: int | None) -> None:
        """Count one more child, or request that ends at this node."""
        if node is not None:
            self._node_refs[node] += 1

    def release_node(self, node: int | None) -> None:
        """Count one less."""
        if node is not None:
            self._node_refs[node] -= 1
            self._prune(node)

    def _prune(self, node: int | None) -> None:
        """Forget a node that nothing needs, and those before it that only led to it."""
        while node is not None and not self._node_refs[node] and not self._blocks[node]:
            parent = self.index.parent(node)
            self.index.remove(node)
            del self._blocks[node], self._node_refs[node]
            if parent is not None:
                self._node_refs[parent] -= 1
            node = parent

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """Return the first group's blocks of the longest known beginning of `tokens`."""
        blocks: list[int] = []
        for node in self.index.find(tokens, block_size, extra):
            block = self.block(node, 0)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Refused: the cache that the pool belongs to publishes its blocks itself."""
        raise ValueError("this pool belongs to a cache, which publishes its blocks itself")

    def remove(self, block: int) -> None:
        """Forget a block, which the pool is about to allocate to another text."""
        node, group = self._node_of.pop(block)
        del self._blocks[node][group]
        self._prune(node)

    def parent(self, block: int) -> None:
        """Return None: a block can be found, or not, whatever happens to those before it."""

    def __contains__(self, block: object) -> bool:
        return block in self._node_of

    def __len__(self) -> int:
        return len(self._node_of)

    def __repr__(self) -> str:
        return f"{type(self.index).__name__}({len(self)} blocks)"

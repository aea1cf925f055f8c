"""Finding blocks again by the tokens they hold: two indexes, and who shares what is found.

A key at position i depends on every token up to i, so a block is known by its own tokens and the
block before it. HashIndex chains hashes, one per block (vLLM); RadixIndex walks a tree of tokens
(SGLang's RadixAttention, arXiv:2312.07104). Both give the same answers.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from kvlib.caches.allocation.table import State, Table
from kvlib.caches.checks import check_extra
from kvlib.caches.retention.groups import LayerGroup
from kvlib.caches.retention.rules import first_kept
from kvlib.caches.step import Extra

Content = tuple[int | None, tuple[int, ...], Extra]


def sealed(extra: Extra) -> Extra:
    """Extra keys that equal no others: to Python 1, 1.0 and True are one key, to a tenant not."""
    check_extra(extra)
    return (repr(extra), *extra) if extra else ()


def chain(before: bytes, tokens: Sequence[int], extra: Extra) -> bytes:
    """The hash of a block: of the hash before it, its tokens, and at the start the extra keys.

    Each part is marked and its length written, so that no extra key can pass for tokens.
    """
    digest = hashlib.blake2b(before, digest_size=16)
    for mark, part in ((b"t", repr(tuple(map(int, tokens)))), (b"x", repr(extra))):
        text = part.encode()
        digest.update(mark + len(text).to_bytes(8, "little") + text)
    return digest.digest()


def _longest(
    child: Callable[..., int | None], tokens: Sequence[int], size: int, extra: Extra
) -> list[int]:
    """The blocks of the longest known beginning of `tokens`, in whole blocks."""
    found: list[int] = []
    parent, key = None, extra
    for start in range(0, len(tokens) - size + 1, size):
        parent = child(parent, tuple(tokens[start : start + size]), key)
        if parent is None:
            break
        found.append(parent)
        key = ()
    return found


class PrefixIndex(ABC):
    """Which block holds which tokens after which parent; a text's first block has parent None.

    extra: stored with the first block of a text. A subclass writes `child`, `_enter` and `_leave`.
    """

    def __init__(self) -> None:
        self._content: dict[int, Content] = {}
        # The pool gives a number to one text after another, so a block is filed after the
        # publication of its parent: one that has outlived its parent follows no other text.
        self._publications: dict[int, int] = {}
        self._after: dict[int, int | None] = {}
        self._count = count()

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Register a block; False where its content is known under another number."""
        if self.child(parent, tokens, extra) is not None:
            return False
        self._content[block] = parent, tokens, extra
        self._publications[block] = next(self._count)
        self._after[block] = self._publication(parent)
        self._enter(block, parent, tokens, extra)
        return True

    def remove(self, block: int) -> None:
        """Forget a block. Blocks after it that are still known cannot be found any more."""
        self._leave(block, *self._content.pop(block))
        del self._publications[block], self._after[block]

    def _publication(self, block: int | None) -> int | None:
        return None if block is None else self._publications[block]

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """The blocks of the longest known beginning of `tokens`, in whole blocks."""
        return _longest(self.child, tokens, block_size, extra)

    @abstractmethod
    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        """The block with these tokens after `parent`, or None."""

    @abstractmethod
    def _enter(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        """Make a block known to `child`."""

    @abstractmethod
    def _leave(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        """Undo `_enter`."""

    def parent(self, block: int) -> int | None:
        """The block before a published one; None for the first of a text."""
        return self._content[block][0]

    def __contains__(self, block: object) -> bool:
        return block in self._content

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} blocks)"


class HashIndex(PrefixIndex):
    """One hash per block, chained, with the tokens compared on every hit.

    A hash alone would hand over another prompt's keys when two hashes collide.

    >>> from kvlib import BlockPool
    >>> pool = BlockPool(4, block_size=2, index=HashIndex())
    >>> published = pool.publish(pool.allocate(1)[0], None, [7, 8])
    >>> pool.lookup([7, 8, 9])
    [0]
    """

    def __init__(self, hash_block: Callable[[bytes, Sequence[int], Extra], bytes] = chain) -> None:
        super().__init__()
        self._hash_block = hash_block
        self._hashes: dict[int, bytes] = {}
        self._blocks: dict[bytes, list[int]] = {}

    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        return self._same(self._key(parent, tokens, extra), (parent, tokens, extra))

    def _key(self, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> bytes:
        return self._hash_block(b"" if parent is None else self._hashes[parent], tokens, extra)

    def _enter(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        key = self._hashes[block] = self._key(parent, tokens, extra)
        self._blocks.setdefault(key, []).append(block)

    def _leave(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        key = self._hashes.pop(block)
        self._blocks[key].remove(block)
        if not self._blocks[key]:
            del self._blocks[key]

    def _same(self, key: bytes, content: Content) -> int | None:
        # The parent is compared by its publication: it was itself found by comparing.
        after = self._publication(content[0])
        for block in self._blocks.get(key, ()):
            if self._content[block] == content and self._after[block] == after:
                return block
        return None


class RadixIndex(PrefixIndex):
    """A tree whose edges are blocks of tokens; only Python's dict hashes anything.

    A lookup finds the children of a block by their first token, then compares the others.

    >>> from kvlib import BlockPool
    >>> pool = BlockPool(4, block_size=2, index=RadixIndex())
    >>> published = pool.publish(pool.allocate(1)[0], None, [7, 8])
    >>> pool.lookup([7, 9])
    []
    """

    def __init__(self) -> None:
        super().__init__()
        # publication, or the start's extra keys → first token → the children that begin with it,
        # by all their tokens
        self._children: dict[int | Extra, dict[int, dict[tuple[int, ...], int]]] = {}

    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        return self._child(extra if parent is None else self._publications[parent], tokens)

    def _enter(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        after = self._after[block]
        node: int | Extra = extra if after is None else after
        self._children.setdefault(node, {}).setdefault(tokens[0], {})[tokens] = block

    def _leave(self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra) -> None:
        after = self._after[block]
        node: int | Extra = extra if after is None else after
        children = self._children[node]
        del children[tokens[0]][tokens]
        if not children[tokens[0]]:
            del children[tokens[0]]
        if not children:
            del self._children[node]

    def _child(self, node: int | Extra, tokens: tuple[int, ...]) -> int | None:
        alike = self._children.get(node, {}).get(tokens[0], {})
        if len(alike) != 1:
            return alike.get(tokens)
        ((known, block),) = alike.items()
        return block if known == tokens else None


class PrefixSharing:
    """Finds and publishes the blocks of texts, for all groups of a cache's layers.

    A node is a piece of `block_size` tokens after all pieces before it; each group of layers has a
    block for it. It lives while a block holds it, a longer text is known, or an open request has
    come this far. A text is found as long as each group has the blocks that it would look at.

    It takes the place of the pool's index, which keeps the nodes. enabled: False where a rule
    takes tokens out from between others; then nothing is published.
    """

    def __init__(self, pool: Any, groups: Sequence[LayerGroup]) -> None:
        self.pool, self.size = pool, pool.block_size
        self.rules = [group.retention for group in groups]
        self.enabled = not any(rule.holes for rule in self.rules)
        self.index, pool.index = pool.index, self
        self._names = count()
        self._blocks: dict[int, dict[int, int]] = {}  # node → group → block
        self._node_of: dict[int, tuple[int, int]] = {}  # block → node, group
        self._node_refs: dict[int, int] = {}  # node → its children, and requests that end there

    # Requests -----------------------------------------------------------------------------------

    def reuse(self, tokens: Sequence[int], extra: Extra) -> tuple[int, list[Table], int | None]:
        """How many first tokens are held already, tables with their blocks, and the last node."""
        nodes = self.nodes(tokens, sealed(extra)) if self.enabled else []
        held, tables = len(nodes) * self.size, []
        for g, rule in enumerate(self.rules):
            first = first_kept(rule, held) // self.size
            found = [self.block(node, g) for node in nodes[first:]]
            tables.append(Table([b for b in found if b is not None], first * self.size, held))
        for table in tables:
            self.pool.touch(table.pages)
        node = nodes[-1] if nodes else None
        self.retain_node(node)
        return held, tables, node

    def publish(self, state: State, held: int) -> None:
        """Let the blocks of the first `held` tokens be found."""
        while self.enabled and (state.num_published + 1) * self.size <= held:
            n = state.num_published
            piece = tuple(state.tokens[n * self.size : (n + 1) * self.size])
            node = self.node(state.prefix_node, piece, sealed(state.extra))
            for g, table in enumerate(state.tables):
                self._publish_block(table, n, node, g)
            self._move(state, node, n + 1)

    def _publish_block(self, table: Table, n: int, node: int, g: int) -> None:
        at = n - table.freed // self.size
        if at < 0:  # the layers of this group have given it back
            return
        own, twin = table.pages[at], self.block(node, g)
        if own in self or own == twin:
            return
        if twin is None:
            self._blocks[node][g] = own
            self._node_of[own] = node, g
            self.pool.note("publish", (own,))
        elif self.pool.ref_count(own) == 1:  # hold the published twin in its place
            table.pages[at] = twin
            self.pool.touch([twin])
            self.pool.free([own])

    def release(self, state: State) -> None:
        """A request is about to go: let its blocks be found where a twin has gone in between."""
        node = state.prefix_node
        for n in reversed(range(state.num_published)):
            assert node is not None, "a published text has a node for each of its pieces"
            for g, table in enumerate(state.tables):
                if self.block(node, g) is None:
                    self._publish_block(table, n, node, g)
            node = self.index.parent(node)
        self.release_node(state.prefix_node)

    def truncate(self, state: State, published: int) -> None:
        """A text has lost its end: it reaches to `published` pieces at most."""
        if state.num_published > published:
            node = state.prefix_node
            for _ in range(state.num_published - published):
                node = None if node is None else self.index.parent(node)
            self._move(state, node, published)

    def _move(self, state: State, node: int | None, published: int) -> None:
        self.retain_node(node)
        self.release_node(state.prefix_node)
        state.prefix_node, state.num_published = node, published

    # Nodes --------------------------------------------------------------------------------------

    def nodes(self, tokens: Sequence[int], extra: Extra) -> list[int]:
        """The nodes of the longest known beginning of a text for which all groups have blocks."""
        found = self.index.find(tokens, self.size, extra)
        whole = len(found)
        for g, rule in enumerate(self.rules):
            if first_kept(rule, len(found) * self.size) == 0:  # everything from the start is needed
                here = (n for n, node in enumerate(found) if g not in self._blocks[node])
                whole = min(whole, next(here, whole))
        while whole and not all(self._complete(found, whole, g) for g in range(len(self.rules))):
            whole -= 1
        return found[:whole]

    def _complete(self, nodes: list[int], end: int, g: int) -> bool:
        """Whether a group has the blocks that a request would need after `end` pieces."""
        first = first_kept(self.rules[g], end * self.size) // self.size
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
        self._blocks[new], self._node_refs[new] = {}, 0
        self.retain_node(parent)
        return new

    def retain_node(self, node: int | None) -> None:
        """A request has got to this node, or a longer text is known."""
        if node is not None:
            self._node_refs[node] += 1

    def release_node(self, node: int | None) -> None:
        """A request has gone on from this node, or is gone."""
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

    # What the pool asks its index -----------------------------------------------------------------

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """The first group's blocks of the longest known beginning of `tokens`."""
        return _longest(self.child, tokens, block_size, extra)

    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        """The first group's block with these tokens after its block `parent`, or None."""
        before = None if parent is None else self._node_of[parent][0]
        node = self.index.child(before, tokens, extra)
        return None if node is None else self.block(node, 0)

    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Refused: the cache that the pool belongs to publishes its blocks itself."""
        raise ValueError("this pool belongs to a cache, which publishes its blocks itself")

    def remove(self, block: int) -> None:
        """Forget a block: another text is going to be written into it."""
        node, group = self._node_of.pop(block)
        del self._blocks[node][group]
        self._prune(node)

    def parent(self, block: int) -> None:
        """None: a block can be found, or not, whatever becomes of those before it."""

    def __contains__(self, block: object) -> bool:
        return block in self._node_of

    def __len__(self) -> int:
        return len(self._node_of)

    def __repr__(self) -> str:
        return f"{type(self.index).__name__}({len(self)} blocks)"

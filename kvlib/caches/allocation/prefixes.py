"""Finding blocks again by the tokens they hold: two indexes with one interface.

A key at position i depends on every token up to i, so a block is known by its own tokens and the
block before it. HashIndex chains hashes, one per block (vLLM); RadixIndex walks a tree of tokens
(SGLang's RadixAttention, arXiv:2312.07104). Both give the same answers.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count

from kvlib.caches.checks import check_extra
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


class PrefixIndex(ABC):
    """Which block holds which tokens after which parent; a text's first block has parent None.

    extra: what else the keys depend on; it is stored with the first block of a text.
    """

    def find(self, tokens: Sequence[int], block_size: int, extra: Extra = ()) -> list[int]:
        """The blocks of the longest known beginning of `tokens`, in whole blocks."""
        found: list[int] = []
        parent, key = None, extra
        for start in range(0, len(tokens) - block_size + 1, block_size):
            parent = self.child(parent, tuple(tokens[start : start + block_size]), key)
            if parent is None:
                break
            found.append(parent)
            key = ()
        return found

    @abstractmethod
    def child(self, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()) -> int | None:
        """The block with these tokens after `parent`, or None."""

    @abstractmethod
    def add(
        self, block: int, parent: int | None, tokens: tuple[int, ...], extra: Extra = ()
    ) -> bool:
        """Register a block; False where its content is known under another number."""

    @abstractmethod
    def remove(self, block: int) -> None:
        """Forget a block. Blocks after it that are still known cannot be found any more."""

    @abstractmethod
    def parent(self, block: int) -> int | None:
        """The block before a published one; None for the first of a text."""

    @abstractmethod
    def __contains__(self, block: object) -> bool: ...

    @abstractmethod
    def __len__(self) -> int: ...


class ContentIndex(PrefixIndex):
    """An index that knows its blocks by their contents.

    A subclass writes `child`, and `_enter` and `_leave`, which keep what `child` needs.
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


class HashIndex(ContentIndex):
    """One hash per block, chained, with the tokens compared on every hit.

    A hash alone would hand over another prompt's keys when two hashes collide, by chance or because
    an attacker makes them collide. hash_block: what hashes a block, such as a bad hash in a test.

    >>> from kvlib import BlockPool
    >>> pool = BlockPool(4, block_size=2, index=HashIndex())
    >>> block = pool.allocate(1)[0]
    >>> pool.publish(block, None, [7, 8])
    True
    >>> pool.lookup([7, 8, 9]) == [block]
    True
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


class RadixIndex(ContentIndex):
    """A tree whose edges are blocks of tokens; only Python's dict hashes anything.

    A lookup finds the children of a block by their first token. If only one begins with it, the
    other tokens are compared; if several do, a dict finds the right one by all its tokens.

    >>> from kvlib import BlockPool
    >>> pool = BlockPool(4, block_size=2, index=RadixIndex())
    >>> block = pool.allocate(1)[0]
    >>> pool.publish(block, None, [7, 8])
    True
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

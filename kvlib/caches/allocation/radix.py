"""A tree of tokens that finds blocks again, as SGLang's RadixAttention does (arXiv:2312.07104)."""

from __future__ import annotations

from kvlib.caches.allocation.prefixes import PrefixIndex
from kvlib.caches.step import Extra


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
        # publication of the parent (extra keys for a text's first block) → first token → children
        # that begin with it, by all their tokens
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
        candidates = self._children.get(node, {}).get(tokens[0], {})
        if len(candidates) != 1:
            return candidates.get(tokens)
        ((known, block),) = candidates.items()
        return block if known == tokens else None

"""A tree of tokens that finds blocks again, as SGLang's RadixAttention does (arXiv:2312.07104)."""

from kvlib.caches.allocation.prefixes import Content, PrefixIndex
from kvlib.caches.allocation.table import Extra


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

    def _get(self, content: Content) -> int | None:
        after, tokens, extra = content
        children = self._children.get(extra if after is None else after, {}).get(tokens[0], {})
        if len(children) != 1:
            return children.get(tokens)
        ((known, block),) = children.items()
        return block if known == tokens else None

    def _insert(self, block: int) -> None:
        after, tokens, extra = self._content[block]
        children = self._children.setdefault(extra if after is None else after, {})
        children.setdefault(tokens[0], {})[tokens] = block

    def _delete(self, block: int) -> None:
        after, tokens, extra = self._content[block]
        node: int | Extra = extra if after is None else after
        children = self._children[node]
        del children[tokens[0]][tokens]
        if not children[tokens[0]]:
            del children[tokens[0]]
        if not children:
            del self._children[node]

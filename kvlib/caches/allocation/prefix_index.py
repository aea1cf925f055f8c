"""What a pool of blocks asks of an index that finds blocks again by the tokens they hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from kvlib.caches.step import Extra


class PrefixIndex(ABC):
    """Which block holds which tokens after which parent; a text's first block has parent None.

    extra: what else the keys depend on (an adapter, a tenant's salt). It is stored with the first
    block of a text and holds for all that follow.
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

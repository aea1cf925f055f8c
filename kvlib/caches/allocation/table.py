"""Where one request is stored: a table for each group of layers, and the state that holds them."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from kvlib.caches.retention.scored import PolicyState
from kvlib.caches.store import Residual, Store

Extra = tuple[Hashable, ...]  # what keys depend on besides tokens: an adapter, a tenant's salt


@dataclass(slots=True, eq=False)
class Table:
    """Where the tokens of one request are stored in the layers of one group.

    pages           rows or blocks, in the order of their tokens
    freed           how many of its tokens are no longer stored; freed_at: how many were final then
    kept_positions  the positions (n,) or (Hkv, n) of the first n stored tokens, if tokens between
                    them have been freed; None if all tokens from position `freed` on are stored
    private_row     a longer row for this request alone, layer → Store; None if it has none
    policy_state    what a `Scored` rule has recorded about its queries
    """

    pages: list[int]
    freed: int = 0
    freed_at: int = 0
    kept_positions: np.ndarray | None = None
    private_row: dict[int, Store] | None = None
    policy_state: PolicyState | None = None

    def copy(self) -> "Table":
        """Return a table of the same tokens in the same pages, for a fork."""
        table = Table(list(self.pages), self.freed, self.freed_at, self.kept_positions)
        table.policy_state = None if self.policy_state is None else self.policy_state.copy()
        return table

    def positions(self, length: int) -> np.ndarray:
        """Return the positions int64 (n,), or (Hkv, n), of the stored ones of `length` tokens."""
        if self.kept_positions is None:
            return np.arange(self.freed, length, dtype=np.int64)
        run = np.arange(self.freed + self.kept_positions.shape[-1], length, dtype=np.int64)
        run = np.broadcast_to(run, (*self.kept_positions.shape[:-1], len(run)))
        return np.concatenate([self.kept_positions, run], axis=-1)


@dataclass(slots=True, eq=False)
class State:
    """What a cache records about one request.

    tables         a Table for each group of layers
    residuals      for each layer the tokens that wait to be encoded; [] if none ever do
    num_paged      how many of its tokens are in pages once the last step is appended; others wait
    undo_length    its length at the last plan, to which the step can be undone; undo_paged: its
                   num_paged at that time
    tokens, extra  its known token ids, and what else its keys depend on
    num_published  how many blocks of its text lookups can find; prefix_node: the last one's node
    row            its row in a dense cache
    """

    tables: list[Table]
    residuals: list[Residual] = field(default_factory=list)
    num_paged: int = 0
    tokens: list[int] = field(default_factory=list)
    extra: Extra = ()
    prefix_node: int | None = None
    num_published: int = 0
    row: int = 0
    undo_length: int = 0
    undo_paged: int = field(init=False)

    def __post_init__(self) -> None:
        self.undo_paged = self.num_paged

    def residual(self, layer: int) -> Residual | None:
        """Return the tokens of a layer that wait to be encoded, or None."""
        return self.residuals[layer] if self.residuals else None

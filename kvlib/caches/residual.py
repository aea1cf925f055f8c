"""The newest tokens of a request, which wait to be encoded."""

from __future__ import annotations

from copy import copy
from typing import Any

from kvlib.arrays import Array, namespace, new_array
from kvlib.caches.spec import LayerSpec

GUESSES = 64  # a step of so many tokens may hold guesses, so a part of it can be undone


class Residual:
    """The newest tokens of one request in one layer, as they came, until their group is full.

    both: keys (Hkv, room, Dk), and values (Hkv, room, Dv) unless they are taken from the keys.
    previous: the tokens that waited before the last step moved some of them into the pages, kept
    until the next plan, so that the step can be undone; else None. The tokens of a step of at most
    GUESSES follow them, so that a part of it can be undone.
    """

    __slots__ = ("both", "previous")

    def __init__(self, xp: Any, spec: LayerSpec, room: int, dtype: Any) -> None:
        dims = (spec.head_dim,) if spec.v_from_k else (spec.head_dim, spec.v_dim)
        shapes = [(spec.num_kv_heads, room, dim) for dim in dims]
        self.both = [new_array(xp, "residual of a request", shape, dtype) for shape in shapes]
        self.previous: list[Array] | None = None

    def resize(self, tokens: int) -> None:
        """Longer arrays, if they have no room for so many tokens."""
        if self.both[0].shape[1] < tokens:
            self.both = [resized(x, tokens) for x in self.both]

    def go_back(self, before: int | None, coded: int, length: int, room: int) -> None:
        """Hold tokens `coded` ... `length` of a request again.

        before: which token the first of `previous` is; None if these are not wanted again.
        """
        if before is not None and self.previous is not None:
            span = slice(coded - before, length - before)
            self.both = [resized(x[:, span, :], room) for x in self.previous]
        elif self.both[0].shape[1] > room:  # of a tree or a gap, of which nothing was encoded
            kept = min(length - coded, room)
            self.both = [resized(x[:, :kept, :], room) for x in self.both]

    def copy(self) -> Residual:
        """The same tokens for a fork, in arrays of their own."""
        new = copy(self)
        new.both = [namespace(x).asarray(x, copy=True) for x in self.both]
        return new

    def arrays(self) -> list[Array]:
        return [*self.both, *(self.previous or ())]


def resized(x: Array, room: int) -> Array:
    """x (Hkv, n, D) at the beginning of a new array (Hkv, room, D), in its own memory."""
    new = namespace(x).empty((x.shape[0], room, x.shape[2]), dtype=x.dtype, device=x.device)
    new[:, : x.shape[1], :] = x
    return new

"""What a cache says it holds of a request: at which positions, and which rows stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib.testing.oracle import float64


def positions_of(
    found: Any, rows: int, heads: int, length: int, layer: int, name: str
) -> np.ndarray:
    """The third result of ``read`` as integers (n,), or (Hkv, n) where each kv head has its own.

    rows: n by the keys that were read; length: tokens of the request. AssertionError, in words,
    for another shape, another order, and tokens that the request does not have.
    """
    what, x = f"read of layer {layer} of {name}", float64(found)
    assert x.shape in ((rows,), (heads, rows)), (
        f"{what}: positions have shape {x.shape}, needed (n,) = {(rows,)}, or (Hkv, n) = "
        f"{(heads, rows)} where each kv head holds tokens of its own"
    )
    x = x.astype(int)
    for own, where in by_head(x):
        assert (own[1:] > own[:-1]).all(), f"positions of {name}{where} are not in order: {own}"
        beyond = own[(own < 0) | (own >= length)].tolist()
        assert not beyond, (
            f"{name} has {length} tokens, but read also gives positions {beyond}{where}"
        )
    return x


def by_head(positions: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """The positions of each kv head, and which one it is in words; once where all are alike."""
    if positions.ndim == 1:
        yield positions, ""
        return
    for head, own in enumerate(positions):
        yield own, f" in kv head {head}"


def at(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rows of x (S, Hkv, D) at positions (n,), or at each head's own (Hkv, n): (n, Hkv, D)."""
    if positions.ndim == 1:
        return x[positions]
    return x[positions.T, np.arange(x.shape[1])]


ALONE = (
    ". A codec must give a token the same numbers, to the last bit, however many others it encodes "
    "or decodes with it"
)
PRODUCT = (
    ". A matrix product breaks this rule, because it rounds differently for different numbers of "
    "rows"
)


def check_rows(
    got: np.ndarray, whole: np.ndarray, positions: np.ndarray, what: str, coded: bool = False
) -> None:
    """`got` (n, Hkv, D) is what `whole` (S, Hkv, D) has at the positions, bit for bit.

    Else AssertionError: the first row that is another, and whose it is or how far off it is. coded:
    whether `whole` is what a codec made of all tokens at once.
    """
    others = got != at(whole, positions)
    if not others.any():
        return
    row, head = (int(i) for i in np.argwhere(others.any(axis=-1))[0])
    said = int(positions[row] if positions.ndim == 1 else positions[head, row])
    same = np.argwhere((whole == got[row, head]).all(axis=-1))
    if not len(same):
        needed = at(whole, positions)[row, head]
        off = np.abs(got[row, head] - needed).max()
        why = ALONE + PRODUCT if coded and off <= 1e-5 * np.abs(needed).max() else ""
        raise AssertionError(
            f"{what} changed at position {said} in kv head {head}, by {off:.2g}{why}"
        )
    position, other = (int(i) for i in same[0])
    raise AssertionError(
        f"{what}: read says position {said} in kv head {head}, but the row there was appended at "
        f"position {position} in kv head {other}"
    )


def check_kept(positions: np.ndarray, must: set[int], layer: int, name: str) -> None:
    """Every kv head holds the positions that it must."""
    for own, where in by_head(positions):
        lost = must - set(own.tolist())
        assert not lost, f"layer {layer} of {name} lost the tokens at {sorted(lost)}{where}"

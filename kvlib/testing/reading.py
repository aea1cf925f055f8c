"""What ``read`` must give back, and what it must refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib.caches import Cache
from kvlib.testing.oracle import float64


def positions_of(
    found: Any, rows: int, heads: int, length: int, layer: int, name: str
) -> np.ndarray:
    """The third result of ``read`` as integers (n,), or (Hkv, n) where each kv head has its own.

    rows: n by the keys that were read; length: tokens of the request. AssertionError for another
    shape or order, and for tokens that the request does not have.
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
    """The positions of each kv head, and its name in words; once where all heads are alike."""
    if positions.ndim == 1:
        yield positions, ""
        return
    for head, own in enumerate(positions):
        yield own, f" in kv head {head}"


def at(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rows of x (S, Hkv, D) at positions (n,), or at each head's own (Hkv, n): (n, Hkv, D)."""
    return x[positions] if positions.ndim == 1 else x[positions.T, np.arange(x.shape[1])]


def check_rows(got: np.ndarray, everything: np.ndarray, positions: np.ndarray, what: str) -> None:
    """Check that `got` (n, Hkv, D) is what (S, Hkv, D) has at the positions, bit for bit.

    AssertionError names the first row that differs, and whose it is or how far off.
    """
    needed = at(everything, positions)
    others = (got != needed).any(axis=-1)
    if not others.any():
        return
    row, head = (int(i) for i in np.argwhere(others)[0])
    said = int(positions[row] if positions.ndim == 1 else positions[head, row])
    same = np.argwhere((everything == got[row, head]).all(axis=-1))
    if len(same):
        position, other = (int(i) for i in same[0])
        raise AssertionError(
            f"{what}: read says position {said} in kv head {head}, but the row there was appended "
            f"at position {position} in kv head {other}"
        )
    off = np.abs(got[row, head] - needed[row, head]).max()
    raise AssertionError(f"{what} changed at position {said} in kv head {head}, by {off:.2g}")


def check_kept(positions: np.ndarray, must: set[int], layer: int, name: str) -> None:
    """Check that every kv head holds the positions that it must."""
    for own, where in by_head(positions):
        lost = must - set(own.tolist())
        assert not lost, f"layer {layer} of {name} lost the tokens at {sorted(lost)}{where}"


def check_refusals(cache: Cache) -> None:
    """Check that ``read`` refuses requests that are not open and layers that do not exist."""
    unknown = "no such request"
    wrong: list[tuple[Any, Any]] = [(0, unknown), (0, [unknown])]
    for name in cache.seq_ids[:1]:
        wrong += [(layer, name) for layer in (-1, len(cache.layers), "0", True, 0.0, None)]
    for layer, name in wrong:
        found = "was not refused"
        try:
            cache.read(layer, name)
        except (ValueError, TypeError):
            continue
        except Exception as error:
            found = f"raised {type(error).__name__}"
        raise AssertionError(
            f"read({layer!r}, {name!r}) {found}, needed ValueError or TypeError: write _read, "
            "which Cache.read calls after its checks"
        )

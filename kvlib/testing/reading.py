"""Checks of what a cache's ``read`` returns and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvlib.caches import Cache
from kvlib.testing.oracle import float64


def read(cache: Cache, layer: int, name: str, length: int) -> tuple[Any, np.ndarray]:
    """Read a layer of a request of so many tokens: the result, and positions (n,) or (Hkv, n).

    AssertionError for another shape or order, and for tokens beyond the request.
    """
    what, result = f"read of layer {layer} of {name}", cache.read(layer, name)
    kind = f"tuple of {len(result)}" if type(result) is tuple else type(result)
    assert kind == "tuple of 3", f"{what} returned {kind}, needed (k, v, positions)"
    positions, n = float64(result[2]), result[0].shape[0]
    heads = cache.layers[layer].num_kv_heads
    assert positions.shape in ((n,), (heads, n)), (
        f"{what}: positions have shape {positions.shape}, needed (n,) = {(n,)}, or (Hkv, n) = "
        f"{(heads, n)} if the kv heads keep different tokens"
    )
    positions = positions.astype(int)
    for x, where in by_head(positions):
        assert (x[1:] > x[:-1]).all(), f"positions of {name}{where} are not in order: {x}"
        beyond = x[(x < 0) | (x >= length)].tolist()
        assert not beyond, (
            f"{name} has {length} tokens, but read also gives positions {beyond}{where}"
        )
    return result, positions


def by_head(positions: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Yield the positions of each kv head and its name; once where all heads hold the same."""
    if positions.ndim == 1:
        yield positions, ""
    else:
        yield from ((x, f" in kv head {head}") for head, x in enumerate(positions))


def at(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return rows (n, Hkv, D) of x (S, Hkv, D) at positions (n,), or (Hkv, n) for each head."""
    return x[positions] if positions.ndim == 1 else x[positions.T, np.arange(x.shape[1])]


def check_rows(got: np.ndarray, everything: np.ndarray, positions: np.ndarray, what: str) -> None:
    """Check that `got` is `everything` (S, Hkv, D) at the positions, bit for bit."""
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
    for x, where in by_head(positions):
        lost = must - set(x.tolist())
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

"""What ``read`` must give back, what it must refuse, and whether a codec is why it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvlib.caches import Cache, LayerSpec
from kvlib.codecs import Codec, TensorCodec
from kvlib.testing.oracle import float64

ALONE = (
    ". A codec must give a token the same numbers, to the last bit, however many others it encodes "
    "or decodes with it"
)
PRODUCT = (
    ". A matrix product breaks this rule, because it rounds differently for different numbers of "
    "rows"
)
TOGETHER = (1, 2, 3, 4, 7, 14, 33)  # tokens, or groups of them, in one call


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


def check_rows(
    got: np.ndarray, everything: np.ndarray, positions: np.ndarray, what: str, coded: bool = False
) -> None:
    """Check that `got` (n, Hkv, D) is what (S, Hkv, D) has at the positions, bit for bit.

    AssertionError names the first row that differs, and whose it is or how far off. coded: whether
    the S rows are what a codec made of all tokens at once.
    """
    others = got != at(everything, positions)
    if not others.any():
        return
    row, head = (int(i) for i in np.argwhere(others.any(axis=-1))[0])
    said = int(positions[row] if positions.ndim == 1 else positions[head, row])
    same = np.argwhere((everything == got[row, head]).all(axis=-1))
    if len(same):
        position, other = (int(i) for i in same[0])
        raise AssertionError(
            f"{what}: read says position {said} in kv head {head}, but the row there was appended "
            f"at position {position} in kv head {other}"
        )
    needed = at(everything, positions)[row, head]
    off = np.abs(got[row, head] - needed).max()
    why = ALONE + PRODUCT if coded and off <= 1e-5 * np.abs(needed).max() else ""
    raise AssertionError(f"{what} changed at position {said} in kv head {head}, by {off:.2g}{why}")


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


def codec_fault(codec: Codec | None, spec: LayerSpec, xp: Any) -> str:
    """Words about the first fault of the codec on vectors of that layer; "" where none is found."""
    if codec is None:
        return ""
    found = _fault_of(codec.keys, spec.num_kv_heads, spec.head_dim, xp)
    if found or spec.v_from_k:
        return found
    return _fault_of(codec.values, spec.num_kv_heads, spec.v_dim, xp)


def _fault_of(part: TensorCodec, heads: int, dim: int, xp: Any) -> str:
    rng, n, kind = np.random.default_rng(0), 40 * part.group, type(part).__name__

    def drawn(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal(shape).astype(np.float32))

    x, rows, p = drawn(heads, n, dim), drawn(heads, 3, dim), drawn(heads, 3, n)
    parts = part.encode(x)
    decoded = float64(part.decode(parts, xp.float32))
    for name, got, needed in (
        ("scores", part.scores(rows, parts), float64(rows) @ decoded.swapaxes(1, 2)),
        ("weigh", part.weigh(p, parts, dim), float64(p) @ decoded),
    ):
        error = np.abs(float64(got) - needed).max()
        if error > 1e-3 * np.abs(needed).max():
            return (
                f". {name} of {kind} does not agree with its decode: the products differ by "
                f"{error:.2g}. If {kind} inherits {name} from another codec but has a decode of "
                f"its own, write {name} = TensorCodec.{name} in {kind}: that version calls decode"
            )
    for some in (count * part.group for count in TOGETHER):
        fewer = float64(part.decode(part.encode(x[:, :some, :]), xp.float32))
        off = np.abs(fewer - decoded[:, :some]).max()
        if off:
            return ALONE + (PRODUCT if off <= 1e-5 * np.abs(decoded).max() else "")
    return ""


def codec_extremes(codec: Codec, lengths: Sequence[int], xp: Any) -> str:
    """Words about the first vectors that come back infinite, or farther off than they are large.

    Vectors of zeros, of one constant, and with one large number, which random ones never are.
    """
    pairs = [(part, dim) for part in (codec.keys, codec.values) for dim in lengths]
    for part, dim in pairs:
        try:
            part.check(dim)
        except ValueError:  # the caches say so, in their own words
            continue
        x = np.zeros((2, 4 * part.group, dim), np.float32)
        single = x.copy()
        single[0, 0, 1] = -1e4
        for what, given in (("zeros", x), ("a constant, 7.5", x + 7.5), ("a single -1e4", single)):
            with np.errstate(all="ignore"):
                found = part.decode(part.encode(xp.asarray(given)), xp.float32)
            off = np.abs(float64(found) - given).max()
            if not off <= np.abs(given).max():
                return (
                    f"{type(part).__name__} encodes vectors of {what} and decodes what is off by "
                    f"{off:.2g}, more than the largest of the numbers"
                )
    return ""

"""The layers, rules and caches whose lives killers_lives.py plays, and the keys of its texts."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remembered

import numpy as np

from kvlib import BlockPool, LayerSpec, PagedCache
from kvlib.caches import Retention, layer_groups

FULL = (LayerSpec(1, 2), LayerSpec(2, 4, 3))
SHAPES = (LayerSpec(1, 2), LayerSpec(2, 4, 3, window=5))  # arrays of its own for each group
ALIKE = (LayerSpec(1, 4, window=5), LayerSpec(1, 4), LayerSpec(1, 4, window=3))  # one memory
NARROW = (LayerSpec(1, 4, window=3), LayerSpec(1, 4, window=2))  # no layer keeps all
CODED = (LayerSpec(1, 8), LayerSpec(2, 16, 8, window=9))  # what codecs can divide


@dataclass(frozen=True)
class EndsOnly(Retention):
    """The first two tokens and the newest three stay."""

    every = 1

    def kept(self, positions, length):
        return (positions < 2) | (positions >= length - 3)


@remembered
def key_of(text: tuple, spec: tuple, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The key and value of a text's last token in a layer of heads, Dk, Dv: (1, Hkv, D) each."""
    rng = np.random.default_rng(zlib.crc32(repr((layer, text)).encode()))
    heads, *dims = spec
    k, v = (rng.standard_normal((1, heads, dim)).astype(np.float32) for dim in dims)
    return k, v


def paged(seed: int, layers: tuple, index: Callable, codec=None, retention=None) -> PagedCache:
    """A cache with hardly any blocks, of a size that the seed decides."""
    rng = np.random.default_rng(seed)
    group = 1 if codec is None else codec.group
    size = group * int(rng.integers(1, 5 if group == 1 else 3))
    blocks = int(rng.integers(5, 18)) * len(layer_groups(layers, retention))
    holes = any(group.retention.holes for group in layer_groups(layers, retention))
    pool = BlockPool(blocks, size, index=None if holes else index())
    return PagedCache(layers, pool, codec=codec, retention=retention, xp=np)

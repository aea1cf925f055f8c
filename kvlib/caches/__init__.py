"""Caches: one protocol, one file for each way to hold keys and values."""

from kvlib.caches import layouts
from kvlib.caches.blocks import BlockPool
from kvlib.caches.cascade import run_cascade
from kvlib.caches.dense import DenseCache
from kvlib.caches.paged import PagedCache
from kvlib.caches.prefixes import HashIndex, RadixIndex
from kvlib.caches.protocol import Cache
from kvlib.caches.quantized import QuantizedCache
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step

__all__ = [
    "BlockPool",
    "Cache",
    "DenseCache",
    "HashIndex",
    "LayerSpec",
    "Memory",
    "PagedCache",
    "QuantizedCache",
    "RadixIndex",
    "Step",
    "layouts",
    "run_cascade",
]

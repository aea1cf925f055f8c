"""Caches: one protocol, one file for each way to hold keys and values."""

from kvlib.caches import layouts
from kvlib.caches.blocks import BlockPool
from kvlib.caches.cascade import run_cascade
from kvlib.caches.paging import Blocks, PagedCache
from kvlib.caches.prefixes import HashIndex, RadixIndex
from kvlib.caches.protocol import Cache
from kvlib.caches.retention import KeepAll, Retention, Sinks, Window, layer_groups
from kvlib.caches.rows import DenseCache, QuantizedCache, Rows
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step
from kvlib.caches.stored import StoredCache
from kvlib.caches.stored_attention import run_alone

__all__ = [
    "BlockPool",
    "Blocks",
    "Cache",
    "DenseCache",
    "HashIndex",
    "KeepAll",
    "LayerSpec",
    "Memory",
    "PagedCache",
    "QuantizedCache",
    "RadixIndex",
    "Retention",
    "Rows",
    "Sinks",
    "Step",
    "StoredCache",
    "Window",
    "layer_groups",
    "layouts",
    "run_alone",
    "run_cascade",
]

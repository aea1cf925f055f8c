"""Caches: one protocol, one file for each way to hold keys and values."""

from kvlib.caches.dense import DenseCache
from kvlib.caches.protocol import Cache
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step

__all__ = ["Cache", "DenseCache", "LayerSpec", "Memory", "Step"]

"""Caches: one protocol, one file for each way to hold keys and values."""

from kvlib.caches.dense import DenseCache
from kvlib.caches.protocol import Cache, LayerSpec, Memory, Step

__all__ = ["Cache", "DenseCache", "LayerSpec", "Memory", "Step"]

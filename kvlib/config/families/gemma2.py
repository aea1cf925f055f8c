"""Gemma 2 (arXiv:2408.00118): every second layer has a window."""

from __future__ import annotations

from kvlib.config.family import Family, classes
from kvlib.config.keys import Keys
from kvlib.config.parts import gemma_hybrid
from kvlib.config.shape import Shape


def shape(keys: Keys) -> Shape:
    keys.count("head_dim")
    return gemma_hybrid(keys, every=2, default=4096)


FAMILY = Family(classes("Gemma2"), shape, lacks="its norms, whose weights are stored as w − 1")

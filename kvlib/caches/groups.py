"""Layers that keep the same tokens share tables: where a request lies is noted once for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from kvlib.caches.retention import Retention, Rules, rules_of
from kvlib.caches.spec import LayerSpec


class LayerGroup(NamedTuple):
    """Layers by number, and what they keep."""

    layers: tuple[int, ...]
    retention: Retention


def by_rule(rules: Sequence[Retention]) -> list[LayerGroup]:
    """One group for each rule, in the order in which the rules first come up."""
    found: dict[Retention, list[int]] = {}
    for layer, rule in enumerate(rules):
        found.setdefault(rule, []).append(layer)
    return [LayerGroup(tuple(layers), rule) for rule, layers in found.items()]


def alike(layers: Sequence[LayerSpec]) -> bool:
    """Whether a token takes the same bytes in each of the layers."""
    return len({(s.num_kv_heads, s.head_dim, s.v_dim, s.v_from_k) for s in layers}) == 1


def layer_groups(layers: Sequence[LayerSpec], retention: Rules = None) -> list[LayerGroup]:
    """The groups of layers for which a PagedCache has a block table each.

    Under one rule all layers are one group. Under several, and if all layers are of one shape,
    there are more groups, of equally many layers: a block then takes the same bytes in each of
    them, so that all draw from one pool, and what one gives back another can use. (vLLM's hybrid
    memory allocator does the same with the smallest group, and pads the others.) A pool for n
    blocks of each group's tokens is ``BlockPool(n * len(layer_groups(layers)), block_size)``.

    >>> window, full = LayerSpec(1, 64, window=512), LayerSpec(1, 64)
    >>> [group.layers for group in layer_groups([window, window, full])]
    [(0,), (1,), (2,)]
    >>> len(layer_groups([full, full, full]))
    1
    """
    groups = by_rule(rules_of(layers, retention))
    if len(groups) == 1 or not alike(layers):
        return groups
    size = gcd(*(len(group.layers) for group in groups))
    return [
        LayerGroup(group.layers[a : a + size], group.retention)
        for group in groups
        for a in range(0, len(group.layers), size)
    ]

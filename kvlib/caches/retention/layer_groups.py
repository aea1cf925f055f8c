"""The rule of each layer, and the groups of layers that share tables because their rules agree."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

from kvlib.arguments import check_integer, describe
from kvlib.caches.retention.base import Retention
from kvlib.caches.retention.rules import KeepAll, Window
from kvlib.caches.spec import LayerSpec, check_layers

Rules = Retention | Sequence[Retention] | None


def rules_of(layers: Sequence[LayerSpec], retention: Rules) -> tuple[Retention, ...]:
    """Return each layer's rule: its own window's where the rule given is None or leaves holes."""
    windows = [KeepAll() if spec.window is None else Window(spec.window) for spec in layers]
    if retention is None:
        return tuple(windows)
    rules: Any = retention
    if isinstance(retention, Retention):
        rules = [
            window if retention.holes and spec.window is not None else retention
            for window, spec in zip(windows, layers, strict=True)
        ]
    if not isinstance(rules, list | tuple) or len(rules) != len(layers):
        raise ValueError(
            f"retention must be a Retention, or one for each of the {len(layers)} "
            f"layers, got {describe(retention)}"
        )
    for i, (rule, spec) in enumerate(zip(rules, layers, strict=True)):
        if not isinstance(rule, Retention):
            raise TypeError(f"retention must hold a Retention a layer, got {describe(rule)}")
        if type(rule).__hash__ is None:  # layers are grouped by their rules
            raise TypeError(
                f"{rule!r} cannot be a key of a dict, but rules that are equal share block tables: "
                f"write @dataclass(frozen=True) over class {type(rule).__name__}"
            )
        if rule.holes and spec.window is not None:
            raise ValueError(
                f"layer {i} looks at a window of {spec.window} tokens: {rule!r} would take tokens "
                "out of it, and a window is counted in tokens that are there"
            )
        if rule.every is not None:
            check_integer(f"every of {type(rule).__name__}", rule.every)
        rule.check(spec)
    return tuple(rules)


class LayerGroup(NamedTuple):
    """The numbers of some layers, and the rule that they share."""

    layers: tuple[int, ...]
    retention: Retention


def by_rule(rules: Sequence[Retention]) -> list[LayerGroup]:
    """Return one group for each rule, in the order of its first layer."""
    groups: dict[tuple[Retention, int], list[int]] = {}
    for layer, rule in enumerate(rules):
        groups.setdefault((rule, layer if rule.per_layer else 0), []).append(layer)
    return [LayerGroup(tuple(layers), rule) for (rule, _), layers in groups.items()]


def same_shape(layers: Sequence[LayerSpec]) -> bool:
    """Return whether a token takes the same bytes in each of the layers."""
    return len({(s.num_kv_heads, s.head_dim, s.v_dim, s.v_from_k) for s in layers}) == 1


def layer_groups(layers: Sequence[LayerSpec], retention: Rules = None) -> list[LayerGroup]:
    """Return the groups of layers for which a PagedCache has one block table each.

    If all layers have one rule, they form one group. Otherwise, layers of one shape form groups of
    equally many, so that a group can use blocks that another frees; each group has n blocks in a
    ``BlockPool(n * len(layer_groups(layers)), block_size)``.

    >>> window, full = LayerSpec(1, 64, window=512), LayerSpec(1, 64)
    >>> [group.layers for group in layer_groups([window, window, full])]
    [(0,), (1,), (2,)]
    """
    layers = check_layers(layers)
    groups = by_rule(rules_of(layers, retention))
    if len(groups) == 1 or not same_shape(layers):
        return groups
    size = gcd(*(len(group.layers) for group in groups))
    return [
        LayerGroup(group.layers[a : a + size], group.retention)
        for group in groups
        for a in range(0, len(group.layers), size)
    ]

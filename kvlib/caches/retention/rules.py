"""The rules that keep tokens by position, and the groups of layers whose rules agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_integer, describe
from kvlib.caches.retention.base import Retention, with_spare_room
from kvlib.caches.spec import LayerSpec, check_layers


@dataclass(frozen=True)
class KeepAll(Retention):
    """Every token stays until its request is truncated or freed.

    >>> KeepAll().first(length=1000)
    0
    """


@dataclass(frozen=True)
class Window(Retention):
    """Keep the newest `size` tokens, the query's own included: a sliding window (arXiv:2310.06825).

    >>> Window(4).first(length=10)  # the token at 10 sees 7, 8, 9 and itself
    7
    """

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_integer("size", self.size))

    def first(self, length: int) -> int:
        return max(0, length - self.size + 1)

    def room(self, max_seq_len: int) -> int:
        # So that a row's tokens move to its front once in size / 4 steps.
        return min(max_seq_len, with_spare_room(self.size) - 1)


@dataclass(frozen=True)
class Sinks(Retention):
    """Keep the first `first_tokens` tokens and the newest `recent`, the query's own included.

    Models put much attention on the first tokens of a text, whatever these say (StreamingLLM,
    arXiv:2309.17453). Tokens keep their positions. every: how many old tokens gather first.

    >>> Sinks(2, 3).kept(np.arange(9), length=9).nonzero()[0].tolist()  # the query is at 9
    [0, 1, 7, 8]
    """

    first_tokens: int
    recent: int
    every: int = 1

    def __post_init__(self) -> None:
        for name, least in (("first_tokens", 0), ("recent", 1), ("every", 1)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), least))

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        return (positions < self.first_tokens) | (positions > length - self.recent)

    def room(self, max_seq_len: int) -> int:
        kept = self.first_tokens + self.recent - 1 + self.every - 1
        return min(max_seq_len, with_spare_room(kept))


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

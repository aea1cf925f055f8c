"""What a cache is asked to hold, and what it says it holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvlib.arguments import check_flag, check_integer, describe, listed, type_of
from kvlib.arrays import Array
from kvlib.attention.checks import check_settings, check_sink_values


@dataclass(frozen=True, eq=False)
class LayerSpec:
    """The keys and values that a layer stores per token, and how it attends.

    num_kv_heads, head_dim (Dk), v_head_dim (Dv, head_dim unless given); window W counts the query
    itself; sm_scale, softcap and sinks (num_qo_heads,) as in :func:`kvlib.attend`. ``v_from_k``:
    values are the first Dv columns of the keys (MLA, arXiv:2405.04434); ``append`` takes
    ``v=None``.

    >>> LayerSpec(num_kv_heads=8, head_dim=128, window=4096).v_dim
    128
    """

    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    window: int | None = None
    sm_scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None
    v_from_k: bool = False

    def __post_init__(self) -> None:
        if self.v_head_dim is None:
            object.__setattr__(self, "v_head_dim", self.head_dim)
        for name in ("num_kv_heads", "head_dim", "v_head_dim"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name)))
        object.__setattr__(self, "v_from_k", check_flag("v_from_k", self.v_from_k))
        if self.v_from_k and self.v_dim > self.head_dim:
            raise ValueError(
                f"values taken from keys need v_head_dim <= head_dim, got {self.v_dim} "
                f"and {self.head_dim}"
            )
        numbers = check_settings(self.window, self.sm_scale, self.softcap)
        for name, number in zip(("window", "sm_scale", "softcap"), numbers, strict=True):
            object.__setattr__(self, name, number)
        if self.sinks is None:
            return
        shape = getattr(self.sinks, "shape", None)
        if shape is None:
            raise TypeError(f"sinks must be an array (num_qo_heads,), got {describe(self.sinks)}")
        if len(shape) != 1 or not shape[0] or shape[0] % self.num_kv_heads:
            raise ValueError(
                f"sinks must be (num_qo_heads,), a multiple of {self.num_kv_heads} heads, "
                f"got shape {tuple(shape)}"
            )
        check_sink_values(self.sinks)

    @cached_property
    def v_dim(self) -> int:
        """Dv: ``v_head_dim``, or ``head_dim`` if that wasn't given."""
        return self.v_head_dim or self.head_dim

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of ``attend`` that this layer fixes."""
        names = "window", "sm_scale", "softcap", "sinks"
        return {name: getattr(self, name) for name in names}


def check_layers(layers: Iterable[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layers of a cache, after refusing what is no list of LayerSpec."""
    specs = tuple(listed("layers", layers, "LayerSpec, one per layer"))
    if not specs:
        raise ValueError("layers must hold at least one LayerSpec, got none")
    for spec in specs:
        if not isinstance(spec, LayerSpec):
            raise TypeError(f"layers must hold LayerSpec, got {type_of(spec)}")
    return specs


@dataclass(frozen=True)
class Memory:
    """Bytes that a cache holds, measured from its arrays.

    payload    keys and values of live tokens: those that the newest token of their request sees
    metadata   scales, tables
    reserved   everything allocated, the three others included
    wasted     set aside for a request but holding no token

    >>> Memory(payload=64, metadata=8, reserved=128, wasted=16).free
    40
    """

    payload: int
    metadata: int
    reserved: int
    wasted: int

    @property
    def free(self) -> int:
        """Bytes allocated that no request has claimed."""
        return self.reserved - self.payload - self.metadata - self.wasted

"""What one GPU holds of a model and its cache, and what is assumed to be left for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kvlib.costs import formulas
from kvlib.costs.catalogue import GPUS, MODELS, Codec, Gpu
from kvlib.costs.checks import count, one_of
from kvlib.costs.holding import RESERVES, Budget, Holding
from kvlib.costs.limits import shared_out
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes, Tokens


@dataclass(frozen=True)
class Assumption:
    """What weights and cache may take of a GPU's usable memory: a share of it, less an overhead.

    Raises ValueError for a share outside (0, 1] or a negative overhead.

    >>> Assumption(utilisation=0.9).utilisation
    0.9
    """

    utilisation: float = 1.0
    overhead: Bytes = Bytes(0)

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"utilisation is {self.utilisation!r}, needed: above 0, at most 1")
        if self.overhead < Bytes(0):
            raise ValueError(f"overhead is {self.overhead!r}, needed: not below 0")

    def budget(self, gpu: Gpu) -> Bytes:
        """Bytes for weights and cache on one GPU."""
        return Bytes(int(gpu.usable.value * self.utilisation)) - self.overhead


ASSUMPTIONS: Mapping[str, Assumption] = MappingProxyType(
    {
        "weights only": Assumption(),
        "1 GiB overhead": Assumption(overhead=Bytes(2**30)),
        "92 % utilisation": Assumption(0.92),
        "90 % utilisation": Assumption(0.90),
    }
)
CAUTIOUS = "90 % utilisation"


@dataclass(frozen=True)
class Share:
    """What one of `gpus` devices holds of a model: its weights, and its part of each request.

    Weights are dealt out evenly; heads as `kvlib.costs.limits.shared_out` does.
    """

    model: ModelSpec
    gpu: Gpu
    gpus: int
    kv_dtype: Codec
    weight_dtype: Codec
    holding: Holding

    @classmethod
    def of(
        cls,
        model: ModelSpec | str,
        gpu: Gpu | str,
        gpus: object,
        kv_dtype: str | Codec | None,
        weight_dtype: str | Codec | None,
        block_size: object,
        reserve: str = "needed",
        step: object = 1,
        budget: Budget = None,
    ) -> Share:
        """The same, from names. Raises ValueError or TypeError for what makes no sense."""
        spec = one_of("model", model, MODELS, ModelSpec)
        share = cls(
            spec,
            one_of("gpu", gpu, GPUS, Gpu),
            1,
            spec.kv_codec(kv_dtype),
            spec.weight_codec(weight_dtype),
            Holding.of(spec.layers, block_size, reserve, step, budget),
        )
        return share.of_each(count("gpus", gpus))

    def of_each(self, gpus: int) -> Share:
        """The share of each of another number of devices. ValueError if the heads do not divide."""
        shared_out(self.model, gpus)
        return replace(self, gpus=gpus)

    @property
    def weights(self) -> Bytes:
        """Bytes of weights on each device."""
        return Bytes(formulas.whole((self.model.weight_bytes(self.weight_dtype) / self.gpus).value))

    @property
    def copies(self) -> int:
        """How many devices hold the same key/value head; all of them with MLA."""
        parts = shared_out(self.model, self.gpus)
        held = sum(g["count"] * g["values"] for g in parts) * self.gpus
        return round(held / sum(g["count"] * g["values"] for g in self.model.facts["layers"]))

    @property
    def repeated(self) -> str:
        """What several devices hold alike, in words."""
        latent = all(g["vectors"] == 1 for g in self.model.facts["layers"])
        what = "the latent vectors are" if latent else "each key/value head is"
        return f"{what} held by {self.copies} GPUs"

    def kv(self, batch: int, context: int, holding: Holding | None = None) -> Bytes:
        """Bytes of keys and values on each device for `batch` requests of `context` tokens.

        holding: another rule for what the cache holds than the share's own.
        """
        rule, codec = holding or self.holding, self.kv_dtype.facts
        layers = rule.layers(self.model.layers, shared_out(self.model, self.gpus))
        return Bytes(batch * formulas.reserved_bytes(layers, codec, context, rule.block))

    def by_reserve(self, batch: int, context: int) -> dict[str, Bytes]:
        """The same by what layers with a window hold (RESERVES). Empty if none of them is full, or
        if a budget says what is held."""
        held, groups = self.holding, self.model.layers
        if held.budget is not None or not any(0 < g.window < context for g in groups):
            return {}
        found = {}
        for name in RESERVES:
            block = None if name == "transformers" else held.block or None
            found[name] = self.kv(batch, context, Holding.of(groups, block, name, held.step))
        return found

    def left(self, assumption: Assumption) -> Bytes:
        """Bytes for keys and values on each device; negative where the weights do not fit."""
        return assumption.budget(self.gpu) - self.weights

    def longest(self, batch: int, assumption: Assumption) -> Tokens:
        """The most tokens that each of `batch` requests can hold."""
        layers = self.holding.layers(self.model.layers, shared_out(self.model, self.gpus))
        codec, left = self.kv_dtype.facts, self.left(assumption).value
        return Tokens(formulas.longest(layers, codec, self.holding.block, batch, left))

    def requests(self, context: int, assumption: Assumption) -> int:
        """The most requests of `context` tokens."""
        return max(0, self.left(assumption) // self.kv(1, context))

    def __str__(self) -> str:
        devices = self.gpu.title if self.gpus == 1 else f"{self.gpus} {self.gpu.title}"
        return f"{self.model.title} ({self.weight_dtype.name}) on {devices}"

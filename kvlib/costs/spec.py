"""What a model and its cache weigh, from its config.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvlib.config.quantised import Format, Quantised
from kvlib.config.ranges import count
from kvlib.config.read import read_shape
from kvlib.config.shape import Shape
from kvlib.config.words import printable, shown
from kvlib.costs import formulas
from kvlib.costs.catalogue import CODECS, Catalogue, Row, Value, codec, read_data, row_of
from kvlib.costs.reserves import layers_as_held
from kvlib.costs.units import Bytes
from kvlib.costs.weights import Counts, Stored, count_weights


@dataclass(frozen=True)
class LayerGroup:
    """Layers that store and attend alike: a query sees `window` tokens, itself included; 0 for all.

    With `latent` (MLA) one stored vector a token, of head_dim numbers, serves all heads: as key
    and, in its first v_dim numbers, as value; full_qk_dim and full_v_dim are those of a prefill.
    """

    indices: tuple[int, ...]
    window: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    v_dim: int
    full_qk_dim: int
    full_v_dim: int
    latent: bool = False

    @property
    def count(self) -> int:
        """Layers in the group."""
        return len(self.indices)

    @property
    def values(self) -> int:
        """Numbers stored for a token in one layer."""
        return self.head_dim if self.latent else 2 * self.num_kv_heads * self.head_dim

    @property
    def vectors(self) -> int:
        """How many vectors those are."""
        return 1 if self.latent else 2 * self.num_kv_heads

    @property
    def facts(self) -> dict[str, int]:
        """As `kvlib.costs.formulas` takes a group."""
        names = ("count", "window", "values", "vectors", "num_qo_heads", "v_dim", "full_qk_dim")
        sizes = {name: getattr(self, name) for name in (*names, "full_v_dim")}
        return {**sizes, "qk_dim": self.head_dim}


def layer_groups(shape: Shape) -> tuple[LayerGroup, ...]:
    """Return the layers of a decoder by their window, in the order in which each first appears."""
    latent = shape.latent
    sizes: dict[str, Any] = dict(
        num_qo_heads=shape.num_attention_heads,
        num_kv_heads=1 if latent else shape.num_key_value_heads,
        head_dim=latent.width if latent else shape.head_dim,
        v_dim=latent.kv_lora_rank if latent else shape.head_dim,
        full_qk_dim=latent.qk_head_dim if latent else shape.head_dim,
        full_v_dim=latent.v_head_dim if latent else shape.head_dim,
        latent=latent is not None,
    )
    groups: dict[int, list[int]] = {}
    for i, window in enumerate(shape.windows):
        groups.setdefault(window, []).append(i)
    return tuple(LayerGroup(tuple(i), window=w, **sizes) for w, i in groups.items())


Budget = int | Sequence[int | None] | None

RESERVES: Mapping[str, str] = MappingProxyType(
    {
        "needed": "the tokens that its queries see",
        "transformers": "window - 1 tokens, as transformers keeps between steps",
        "vllm": "whole blocks, in groups of layers that vLLM pads to one size",
        "all": "every token, as an engine without groups of layers does",
    }
)
VLLM_BLOCK = 16  # DEFAULT_BLOCK_SIZE in vllm/config/cache.py


@dataclass(frozen=True)
class Holding:
    """How much of a request a cache holds, by the rules of `kvlib.costs.reserves`.

    reserve is one of RESERVES, step the new tokens of a step, block the tokens of a block (0:
    none). budget is what eviction leaves, between two steps, in a layer without a window: a number
    for all such layers, one (or None) for each layer of the model, or None for no eviction.
    """

    reserve: str = "needed"
    step: int = 1
    block: int = 0
    budget: int | tuple[int | None, ...] | None = None

    @classmethod
    def of(
        cls,
        groups: Sequence[LayerGroup],
        block_size: object = None,
        reserve: str = "needed",
        step: object = 1,
        budget: Budget = None,
    ) -> Holding:
        """Return the rule, checked for a model with these layers: ValueError or TypeError."""
        block = 0 if block_size is None else count("block_size", block_size)
        if reserve not in RESERVES:
            raise ValueError(f"reserve must be one of {', '.join(RESERVES)}, got {shown(reserve)}")
        if reserve == "transformers" and block:
            raise ValueError(
                f"block_size is {block}, but transformers stores no blocks; leave it out"
            )
        if reserve == "vllm":
            block = block or VLLM_BLOCK
        if budget is not None and reserve != "needed":
            raise ValueError(
                f"reserve is {reserve!r}, but a cache with a budget gives back what it does not "
                "keep; leave one of the two out"
            )
        return cls(reserve, count("step", step), block, _budget(groups, budget))

    def layers(
        self, groups: Sequence[LayerGroup], share: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return a device's `share` of layers, with the tokens that each holds as its window."""
        split: list[dict[str, Any]] = []
        budgets: list[float] = []
        b = self.budget
        for group, part in zip(groups, share, strict=True):
            each = Counter((b[i] if isinstance(b, tuple) else b) or 0 for i in group.indices)
            for budget, layers in each.items():
                split.append({**part, "count": layers})
                budgets.append(budget)
        return layers_as_held(split, self.reserve, self.step, self.block, budgets)

    @property
    def words(self) -> str:
        """What differs from a cache that holds what it needs, one token per step; may be empty."""
        parts = [] if self.reserve == "needed" else [f"reserve {self.reserve}"]
        parts += [f"blocks of {self.block:,} tokens"] * (self.block > 0)
        parts += [f"steps of {self.step:,} tokens"] * (self.step > 1)
        if isinstance(self.budget, tuple):
            budgets = [b for b in self.budget if b is not None]
            parts += [f"budgets of {min(budgets):,} to {max(budgets):,} tokens"] * bool(budgets)
        elif self.budget:
            parts.append(f"budget of {self.budget:,} tokens")
        return ", ".join(parts)


def _budget(groups: Sequence[LayerGroup], budget: Budget) -> int | tuple[int | None, ...] | None:
    if budget is None:
        return None
    windows = {i: group.window for group in groups for i in group.indices}
    if all(windows.values()):
        raise ValueError(
            "budget is for layers without a window, and every layer of this model has one; "
            "leave it out"
        )
    if not isinstance(budget, (list, tuple)):
        return count("budget", budget)
    if len(budget) != len(windows):
        raise ValueError(
            f"budget has {len(budget)} numbers, needed: one number for all layers, or one for each "
            f"of the {len(windows)} layers"
        )
    for i, number in enumerate(budget):
        if number is not None and windows[i]:
            raise ValueError(
                f"budget of layer {i} is {shown(number)}, but the layer keeps its window of "
                f"{windows[i]:,} tokens; needed: None"
            )
    names = [f"budget of layer {i}" for i in range(len(budget))]
    return tuple(None if b is None else count(n, b) for n, b in zip(names, budget, strict=True))


@dataclass(frozen=True)
class ModelSpec:
    """A model's sizes: parameters, bytes of weights, bytes of cache.

    Made by `from_config` or taken from MODELS. quantised: how weights and cache are stored, where
    the config or a file beside it says so.

    >>> from kvlib.costs import MODELS
    >>> int(MODELS["llama-3.1-8b"].kv_bytes_per_token())
    131072
    """

    name: str
    title: str
    shape: Shape
    row: Row | None = field(default=None, repr=False, compare=False)
    quantised: Quantised | None = field(default=None, repr=False)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any] | str | Path,
        name: str | None = None,
        without: Collection[str] = (),
    ) -> ModelSpec:
        """Return the model that a Hugging Face config.json describes: a dict, a file or its folder.

        Weights that Model Optimizer quantised are counted as they are stored; those of other
        programs are refused, because kvlib does not know their bytes.

        name     what to call it; the folder's name unless given
        without  keys to leave out, such as "quantization_config" (`kvlib.config.read.read_shape`)

        Raises CheckpointError that names the file and the key that kvlib does not know.
        """
        shape, source, quantised = read_shape(config, without)
        if name is None:
            path = Path(source)
            folder = path.resolve().parent.name if path.name == "config.json" else path.stem
            name = printable(folder) if isinstance(config, (str, Path)) else shape.model_type
        spec = cls(name, name, shape, quantised=quantised)
        _ = spec.stored  # whose errors are the file's
        return spec

    @cached_property
    def stored(self) -> Stored | None:
        """The bytes of quantised weights; None where they are plain."""
        quantised = self.quantised
        return None if quantised is None else Stored.of(self.shape, self.counts, quantised)

    def weight_codec(self, dtype: str | Format | None = None) -> Format:
        """Return how weights are stored: as `dtype` or the checkpoint says, or in bfloat16."""
        stored = self.stored.codec if self.stored else "bfloat16"
        return codec(stored if dtype is None else dtype)

    def kv_codec(self, dtype: str | Format | None = None) -> Format:
        """Return how the cache is stored: as `dtype` or the checkpoint says, or in bfloat16."""
        kv = self.quantised.kv if self.quantised else None
        if dtype is not None or kv is None:
            return codec("bfloat16" if dtype is None else dtype)
        return CODECS.get(kv.name, kv)

    def notes_from_files(self, weights: Format, kv: Format) -> list[str]:
        """Return a sentence for each format that the files of a quantised model state."""
        sentences, quantised = [], self.quantised
        if self.stored and weights is self.stored.codec:
            sentences.append(f"Weights are {weights.name}, as {self.stored.source} says.")
        if quantised and quantised.kv and kv == self.kv_codec():
            sentences.append(f"Keys and values are {kv.name}, as {quantised.source} says.")
        return sentences

    @cached_property
    def counts(self) -> Counts:
        """The numbers of weights, by how a token uses them."""
        return count_weights(self.shape)

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights, a tied embedding counted once."""
        return self.counts.total

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied by: no other experts, nor the table of embeddings.

        Model cards differ: gpt-oss counts like this, Mixtral and Qwen add the table.
        """
        return self.counts.active

    def weight_bytes(
        self, dtype: str | Format | None = None, experts: str | Format | None = None
    ) -> Bytes:
        """Return the bytes of all weights at one width; scales of a quantised format do not count.

        Without a dtype, the bytes of a quantised checkpoint with its scales, or those of bfloat16.
        experts: another format for the matrices of the routed experts, with its scales, as gpt-oss
        is published: 4 bits and a scale of 8 bits per 32 weights (arXiv:2508.10925).

        Raises ValueError for `experts` of a model that has none, and for a format with one scale
        per vector: a weight matrix needs groups.
        """
        kind = self.weight_codec(dtype)
        bits = kind.bits
        if experts is None:
            if self.stored and kind is self.stored.codec:
                return Bytes(self.stored.total)
            return Bytes(-(-self.num_parameters * bits // 8))
        routed, stored = self.counts.experts * self.counts.expert, codec(experts)
        if not routed:
            raise ValueError(
                f"{self.name} has no experts, got experts={stored.name!r}; leave it out"
            )
        if stored.scale_bits and not stored.group:
            raise ValueError(
                f"codec {stored.name!r} has one scale per vector of a cache; experts need a codec "
                "with scales per group, or without scales"
            )
        coded = int(formulas.vector_bytes(routed, 1, stored.facts))
        return Bytes(-(-(self.num_parameters - routed) * bits // 8) + coded)

    @property
    def max_context(self) -> int:
        """Tokens the model was made for, with the stretch of its rope (`kvlib.config.rope`)."""
        return self.shape.max_position_embeddings

    @cached_property
    def layers(self) -> tuple[LayerGroup, ...]:
        """Groups of layers that are alike, in the order in which they first appear."""
        return layer_groups(self.shape)

    def kv_bytes_per_token(self, dtype: str | Format | None = None) -> Bytes:
        """Return the bytes that one more token of one request adds while no window is full.

        Formats that keep a residual in 16 bits (int4, int2) are counted at their coded width.
        """
        return Bytes(formulas.token_bytes(self.facts["layers"], self.kv_codec(dtype).facts))

    def kv_bytes(
        self,
        batch: int,
        seq: int,
        dtype: str | Format | None = None,
        block_size: int | None = None,
        keep_all: bool = False,
        reserve: str = "needed",
        step: int = 1,
        budget: Budget = None,
    ) -> Bytes:
        """Bytes that the cache of `batch` requests of `seq` tokens holds, also past `max_context`.

        block_size  tokens of a block: every layer of every request takes whole blocks, and a window
                    of tokens may begin within a block
        keep_all    the same as reserve="all"
        reserve     what a layer with a window holds of a request, one of `kvlib.costs.RESERVES`:
                    "needed", "all", "vllm" (blocks of 16 unless given) or "transformers"
        step        new tokens of a step: a window layer holds window - 1 + step tokens
        budget      tokens that eviction leaves in each layer without a window, to which the tokens
                    of a step are added; or a list with a number or None for each layer

        Raises ValueError or TypeError, naming the argument, if one does not fit.

        >>> from kvlib.costs import MODELS
        >>> gemma, reserves = MODELS["gemma-3-27b"], ("needed", "vllm", "all")
        >>> [f"{gemma.kv_bytes(1, 32_768, reserve=r):.2f GiB}" for r in reserves]
        ['2.91 GiB', '2.98 GiB', '15.50 GiB']
        """
        b, s = count("batch", batch), count("seq", seq)
        rule = "all" if keep_all else reserve
        held = Holding.of(self.layers, block_size, rule, step, budget)
        layers = held.layers(self.layers, self.facts["layers"])
        kind = self.kv_codec(dtype).facts
        return Bytes(b * int(formulas.reserved_bytes(layers, kind, s, held.block)))

    @cached_property
    def _facts(self) -> dict[str, Any]:
        counts = self.counts
        return {
            "name": self.name,
            "title": self.title,
            "parameters": counts.total,
            "max_context": self.max_context,
            "layers": [group.facts for group in self.layers],
            "product_weights": counts.products,
            "head_weights": counts.head,
            "experts": counts.experts,
            "experts_per_token": counts.experts_per_token,
            "expert_weights": counts.expert,
            "kv_heads": self.layers[0].num_kv_heads,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers as `kvlib.costs.formulas` takes them; a fresh copy each time."""
        return {**self._facts, "layers": [dict(group) for group in self._facts["layers"]]}

    def value(self, name: str) -> Value:
        """A value of the catalogue with its source, by its key in config.json or "parameters"."""
        if self.row is None:
            raise ValueError(f"{self.name} was read from a config: its values have no sources here")
        return self.row.value(name)

    def __repr__(self) -> str:
        counts, lines = self.counts, []
        active = f", {counts.active:,} active" if counts.experts else ""
        lines.append(f"{self.title}: {counts.total:,} parameters{active}")
        weights = self.weight_bytes()
        shown = f"{weights:.2f GB}" if weights.GB >= 1 else f"{weights:.2f MB}"
        lines.append(f"  weights   {shown} in {self.weight_codec().name}")
        lines.append(f"  context   {self.max_context:,} tokens")
        for g in self.layers:
            sees = f"window {g.window:,}" if g.window else "all tokens"
            if g.latent:
                heads = f"{g.num_qo_heads} heads on one latent vector of {g.head_dim}"
            else:
                heads = f"{g.num_qo_heads}/{g.num_kv_heads} heads of {g.head_dim}"
            lines.append(f"  {g.count:>3} layers: {heads}, {sees}")
        lines.append(
            f"  KV cache  {self.kv_bytes_per_token().value:,} B a token in {self.kv_codec().name}"
        )
        return "\n".join(lines)


def numbers(layers: list[dict[str, Any]]) -> float:
    """Numbers stored for a token."""
    return sum(g["count"] * g["values"] for g in layers)  # type: ignore[no-any-return]


def within(model: ModelSpec, name: str, tokens: int) -> int:
    """Return `tokens`. Raises ValueError if they are past the model's limit."""
    if tokens > model.max_context:
        raise ValueError(
            f"{name} is {tokens:,} tokens, needed: at most {model.max_context:,}, where "
            f"{model.title} ends"
        )
    return tokens


def shared_out(model: ModelSpec, gpus: int) -> list[dict[str, Any]]:
    """The layers as one of `gpus` devices holds them under tensor parallelism (arXiv:1909.08053).

    ValueError if the heads cannot be shared out evenly; devices beyond the kv heads repeat them.
    """
    layers: list[dict[str, Any]] = model.facts["layers"]
    for g in layers:
        latent = g["vectors"] == 1
        kv_heads = 1 if latent else g["vectors"] // 2
        if g["num_qo_heads"] % gpus or (kv_heads % gpus and gpus % kv_heads):
            heads = f"{g['num_qo_heads']} query heads"
            heads += "" if latent else f" and {kv_heads} key/value heads"
            raise ValueError(
                f"gpus is {gpus}, needed: a number that shares out the {heads} of {model.title} "
                "evenly"
            )
    return formulas.layers_on_one(layers, gpus)


def _models() -> dict[str, ModelSpec]:
    models = {}
    for key, entry in read_data("models.toml").items():
        shape = read_shape(entry["config"]).shape
        row = row_of(key, entry, {**entry["config"], **entry["published"]})
        models[key] = ModelSpec(key, entry["title"], shape, row=row)
    return models


MODELS: Catalogue[ModelSpec] = Catalogue("model", _models)

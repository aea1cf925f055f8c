"""What a model and its cache weigh, from its config.json."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

from kvlib.config.parts import DRAFTS, attention
from kvlib.config.quantised import Format, Quantised
from kvlib.config.quantisers import MIXED
from kvlib.config.ranges import count
from kvlib.config.read import read_shape
from kvlib.config.shape import Layer, Memory, Shape
from kvlib.config.weights import layer_weights
from kvlib.config.words import printable, shown
from kvlib.costs import formulas
from kvlib.costs.catalogue import CODECS, Catalogue, Dtype, Row, Value, codec, read_data
from kvlib.costs.formulas import Layers
from kvlib.costs.reserves import layers_as_held
from kvlib.costs.units import Bytes
from kvlib.costs.weights import Counts, Stored, alike, count_weights
from kvlib.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class LayerGroup(Memory):
    """Layers, by their numbers, that store and attend alike."""

    indices: tuple[int, ...]

    @property
    def count(self) -> int:
        """Layers in the group."""
        return len(self.indices)

    @property
    def facts(self) -> dict[str, int]:
        return {**super().facts, "count": self.count}

    def __str__(self) -> str:
        heads, dims = self.num_qo_heads, f"{self.head_dim}"
        if self.state:
            stored = f"a state of {self.state:,} B"
        elif self.latent:
            stored = f"{heads} heads on one latent vector of {dims}"
        elif self.shared:
            stored = f"{heads} heads on what a layer before has stored"
        else:
            dims += f" and {self.v_dim}" * (self.v_dim != self.head_dim)
            stored = f"{heads}/{self.num_kv_heads} heads of {dims}"
        window = f", window {self.window:,}" if self.window else ", all tokens"
        seen = window * (not self.state and not self.chosen)
        parts = [f"{self.count:>3} layers: {stored}", seen]
        parts += [f", an entry for {self.every} tokens"] * (self.every > 1)
        parts += [f", {self.chosen:,} chosen"] * (self.chosen > 0)
        parts += [f", an index of {self.index}"] * (self.index > 0)
        return "".join(parts)


def layer_groups(shape: Shape) -> tuple[LayerGroup, ...]:
    """Return the layers that keep something, by what, in the order in which each first appears."""
    groups: dict[Memory, list[int]] = {}
    for i in range(shape.num_hidden_layers):
        for memory in shape.layers[i].memories if shape.layers else (attention(shape, i),):
            groups.setdefault(memory, []).append(i)
    return tuple(LayerGroup(indices=tuple(i), **vars(memory)) for memory, i in groups.items())


def with_drafts(shape: Shape, source: str, quantised: Quantised | None = None) -> Shape:
    """Return the shape with the layers that draft tokens among its layers.

    Raises CheckpointError, naming the key, for those that kvlib doesn't know.
    """
    named = [key for key in DRAFTS if key in shape.uncounted]
    if not shape.drafts:
        stated = f"{named[0]}, of which" if named else "no layers that draft tokens, or"
        raise CheckpointError(f"{source}: drafts: it has {stated} kvlib doesn't know the weights")
    if shape.model_type == "deepseek_v4" and quantised and quantised.name == MIXED:
        raise CheckpointError(f"{source}: drafts: kvlib doesn't know how {MIXED} stores V4's")
    uniform: dict[int, Layer] = {}
    for group in () if shape.layers else alike(shape):
        weights = tuple(layer_weights(shape, group[0]))
        uniform |= {i: Layer(weights, (attention(shape, i),)) for i in group}
    layers = (*(shape.layers or (uniform[i] for i in sorted(uniform))), *shape.drafts)
    others = tuple(key for key in shape.uncounted if key not in DRAFTS)
    return shape._replace(layers=layers, num_hidden_layers=len(layers), uncounted=others)


Budget = int | Sequence[int | None] | None

RESERVES: Mapping[str, str] = {
    "needed": "the tokens that its queries see",
    "transformers": "window - 1 tokens, as transformers keeps between steps",
    "vllm": "whole blocks, in groups of layers that vLLM pads to one size",
    "all": "every token, as an engine without groups of layers does",
}
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
    ) -> Self:
        """Return the rule, checked for a model with these layers: ValueError or TypeError."""
        block = 0 if block_size is None else count("block_size", block_size)
        if reserve not in RESERVES:
            raise ValueError(f"reserve must be one of {', '.join(RESERVES)}, got {shown(reserve)}")
        if reserve == "transformers" and block:
            needed = "transformers stores no blocks; leave it out"
            raise ValueError(f"block_size is {block}, but {needed}")
        if reserve == "vllm":
            if any(g.state or g.every > 1 or g.index for g in groups):
                raise ValueError(
                    "reserve is 'vllm', but kvlib doesn't know how vLLM pads layers that keep a "
                    "state, compressed entries or an index; needed: 'needed'"
                )
            block = block or VLLM_BLOCK
        if budget is not None and reserve != "needed":
            why = "a cache with a budget gives back what it does not keep"
            raise ValueError(f"reserve is {reserve!r}, but {why}; leave one of the two out")
        return cls(reserve, count("step", step), block, _budget(groups, budget))

    def layers(self, groups: Sequence[LayerGroup], share: Layers) -> Layers:
        """Return a device's `share` of layers, with the tokens that each holds as its window."""
        b = self.budget
        split, budgets = list[dict[str, Any]](), list[float]()
        for group, part in zip(groups, share, strict=True):
            each = Counter((b[i] if isinstance(b, tuple) else b) or 0 for i in group.indices)
            split += [{**part, "count": layers} for layers in each.values()]
            budgets += each
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
    windows = {i: group.window for group in groups if group.vectors for i in group.indices}
    if all(windows.values()):
        why = "budget is for layers without a window, and every layer of this model has one"
        raise ValueError(f"{why}; leave it out")
    if not isinstance(budget, (list, tuple)):
        return count("budget", budget)
    if len(budget) != len(windows):
        needed = f"one number for all layers, or one for each of the {len(windows)} layers"
        needed += " that store keys"
        raise ValueError(f"budget has {len(budget)} numbers, needed: {needed}")
    each = dict(zip(sorted(windows), budget))
    for i, number in each.items():
        if number is not None and windows[i]:
            why = f"the layer keeps its window of {windows[i]:,} tokens; needed: None"
            raise ValueError(f"budget of layer {i} is {shown(number)}, but {why}")
    checked = {i: count(f"budget of layer {i}", b) for i, b in each.items() if b is not None}
    return tuple(map(checked.get, range(1 + max(i for g in groups for i in g.indices))))


@dataclass(frozen=True)
class ModelSpec:
    """A model's sizes: parameters, bytes of weights, bytes of cache.

    Made by `from_config` or taken from MODELS. quantised: how weights and cache are stored, where
    the config or a file beside it says so.

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
        drafts: bool = False,
    ) -> Self:
        """Return the model that a Hugging Face config.json describes: a dict, a file or its folder.

        Quantised weights are counted as they are stored, scales included.

        name     what to call it; the folder's name unless given
        without  keys to leave out, such as "quantization_config" (`kvlib.config.read.read_shape`)
        drafts   whether layers that draft tokens (multi-token prediction) count, too

        Raises CheckpointError that names the file and the key that kvlib does not know.
        """
        shape, source, quantised = read_shape(config, without)
        shape = with_drafts(shape, source, quantised) if drafts else shape
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

    def weight_codec(self, dtype: Dtype = None) -> Format:
        """Return how weights are stored: as `dtype` or the checkpoint says, or in bfloat16."""
        stored = self.stored.codec if self.stored else "bfloat16"
        return codec(stored if dtype is None else dtype)

    def kv_codec(self, dtype: Dtype = None) -> Format:
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

    def weight_bytes(self, dtype: Dtype = None, experts: Dtype = None) -> Bytes:
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
            what = f"got experts={stored.name!r}; leave it out"
            raise ValueError(f"{self.name} has no experts, {what}")
        if stored.scale_bits and not stored.group:
            needed = "experts need a codec with scales per group, or without scales"
            raise ValueError(f"codec {stored.name!r} has one scale per vector of a cache; {needed}")
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

    @property
    def state_bytes(self) -> Bytes:
        """Bytes of a request that don't depend on its length."""
        return Bytes(formulas.state_bytes(self.facts["layers"]))

    @property
    def uncounted(self) -> list[str]:
        """Return a sentence for each part of the file that isn't counted."""
        return [f"{key} is not counted." for key in self.shape.uncounted]

    def kv_bytes_per_token(self, dtype: Dtype = None) -> Bytes:
        """Return the bytes that one more token of one request adds while no window is full.

        Formats that keep a residual in 16 bits (int4, int2) are counted at their coded width.
        """
        return Bytes(formulas.token_bytes(self.facts["layers"], self.kv_codec(dtype).facts))

    def kv_bytes(
        self,
        batch: int,
        seq: int,
        dtype: Dtype = None,
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
                    of a step are added; or a list with a number or None for each layer that
                    stores keys

        Raises ValueError or TypeError, naming the argument, if one does not fit.

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

    @property
    def facts(self) -> dict[str, Any]:
        """Plain numbers as `kvlib.costs.formulas` takes them; a fresh copy each time."""
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
            "kv_heads": max(1, *(group.num_kv_heads for group in self.layers)),
        }

    def within(self, name: str, tokens: object) -> int:
        """Return `tokens`, checked. Raises ValueError if they are past the model's limit."""
        number = count(name, tokens)
        if number > self.max_context:
            most = f"{self.max_context:,}, where {self.title} ends"
            raise ValueError(f"{name} is {number:,} tokens, needed: at most {most}")
        return number

    def shared_out(self, gpus: int) -> Layers:
        """Return the layers of one of `gpus` under tensor parallelism (arXiv:1909.08053).

        ValueError if the heads don't divide evenly; devices beyond the kv heads repeat them.
        """
        layers: Layers = self.facts["layers"]
        for g in layers:
            latent = g["vectors"] == 1
            kv_heads = 1 if latent else g["vectors"] // 2
            if g["num_qo_heads"] % gpus or (kv_heads % gpus and gpus % kv_heads):
                heads = f"{g['num_qo_heads']} query heads"
                heads += "" if latent else f" and {kv_heads} key/value heads"
                needed = f"a number that shares out the {heads} of {self.title} evenly"
                raise ValueError(f"gpus is {gpus}, needed: {needed}")
        return formulas.layers_on_one(layers, gpus)

    def value(self, name: str) -> Value:
        """A value of the catalogue with its source, by its key in config.json or "parameters"."""
        if self.row is None:
            raise ValueError(f"{self.name} was read from a config: its values have no sources here")
        return self.row.value(name)

    def __repr__(self) -> str:
        counts, weights = self.counts, self.weight_bytes()
        active = f", {counts.active:,} active" if counts.experts else ""
        shown = f"{weights:.2f GB}" if weights.GB >= 1 else f"{weights:.2f MB}"
        each, cache = self.kv_bytes_per_token().value, self.kv_codec().name
        lines = [
            f"{self.title}: {counts.total:,} parameters{active}",
            f"  weights   {shown} in {self.weight_codec().name}",
            f"  context   {self.max_context:,} tokens",
            *(f"  {group}" for group in self.layers),
            f"  KV cache  {each:,} B a token in {cache}",
        ]
        if self.state_bytes:
            lines.append(f"  state     {self.state_bytes:.2f MB} a request")
        return "\n".join([*lines, *(f"  {note}" for note in self.uncounted)])


def numbers(layers: Layers) -> float:
    """Numbers stored for a token."""
    return sum(g["count"] * g["values"] for g in layers)  # type: ignore[no-any-return]


Model: TypeAlias = ModelSpec | str  # or its name in MODELS


def catalogued(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of an entry of models.toml, whose `null` names keys that are null."""
    return {**entry["config"], **dict.fromkeys(entry.get("null", ()))}


def _models() -> dict[str, ModelSpec]:
    models = {}
    for key, entry in read_data("models.toml").items():
        config = catalogued(entry)
        row = Row(key, entry, {**config, **entry["published"]})
        models[key] = ModelSpec(key, entry["title"], read_shape(config).shape, row=row)
    return models


MODELS: Catalogue[ModelSpec] = Catalogue("model", _models)

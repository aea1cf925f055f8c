"""ModelSpec: what a model weighs, and what its cache weighs, from its config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kvlib.config.read import read_shape
from kvlib.config.shape import Shape
from kvlib.config.words import printable
from kvlib.costs import checks, formulas
from kvlib.costs.codecs import Codec, codec
from kvlib.costs.holding import Budget, Holding
from kvlib.costs.layers import LayerGroup, layer_groups
from kvlib.costs.parameters import Counts, count
from kvlib.costs.rows import Row, Value
from kvlib.costs.units import Bytes

__all__ = ["LayerGroup", "ModelSpec"]


@dataclass(frozen=True)
class ModelSpec:
    """A model's sizes: parameters, bytes of weights, bytes of cache.

    Made by `from_config` or taken from MODELS. Sizes that are asked for (batch, seq) must be whole
    numbers of at least 1: TypeError and ValueError name what came.

    >>> from kvlib.costs import MODELS
    >>> int(MODELS["llama-3.1-8b"].kv_bytes_per_token())
    131072
    """

    name: str
    title: str
    shape: Shape
    row: Row | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any] | str | Path,
        name: str | None = None,
        without: Collection[str] = (),
    ) -> ModelSpec:
        """The model that a Hugging Face config.json describes: a dict, a file or its folder.

        name     what to call it; the folder's name unless given
        without  keys to leave out, such as "quantization_config" (`kvlib.config.read.read_shape`)

        Raises CheckpointError (a ValueError) that names the file and the key if kvlib does not know
        a key or its value.
        """
        shape, source = read_shape(config, without)
        if name is None:
            path = Path(source)
            folder = path.resolve().parent.name if path.name == "config.json" else path.stem
            name = printable(folder) if isinstance(config, (str, Path)) else shape.model_type
        return cls(name, name, shape)

    # ------------------------------------------------------------------------------ weights

    @cached_property
    def counts(self) -> Counts:
        """The numbers of weights, by how a token uses them."""
        return count(self.shape)

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights, a tied embedding counted once."""
        return self.counts.total

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied by.

        These are all weights except two kinds: the experts that the token does not choose, and the
        table of input embeddings, of which it looks up one row.

        Model cards differ: gpt-oss counts like this, Mixtral and Qwen add the table.
        """
        return self.counts.active

    def weight_bytes(
        self, dtype: str | Codec = "bfloat16", experts: str | Codec | None = None
    ) -> Bytes:
        """Bytes of all weights at one width; scales of a quantised format do not count.

        experts  another format for the matrices of the routed experts, with its scales, as gpt-oss
                 is published: 4 bits and a scale of 8 bits per 32 weights (arXiv:2508.10925)

        Raises ValueError for `experts` of a model that has none, and for a format that has one
        scale per vector: a weight matrix needs groups.

        >>> from kvlib.costs import MODELS, Codec
        >>> mxfp4 = Codec("mxfp4", "groups of 32", bits=4, scale_bits=8, group=32)
        >>> print(f"{MODELS['gpt-oss-120b'].weight_bytes('bfloat16', experts=mxfp4):.1f GiB}")
        60.8 GiB
        """
        bits, routed = codec(dtype).bits, 0
        if experts is None:
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
        facts = formulas.vector_bytes(routed, 1, stored.facts)
        return Bytes(-(-(self.num_parameters - routed) * bits // 8) + int(facts))

    # -------------------------------------------------------------------------------- cache

    @property
    def max_context(self) -> int:
        """Tokens the model was made for: max_position_embeddings."""
        return self.shape.max_position_embeddings

    @cached_property
    def layers(self) -> tuple[LayerGroup, ...]:
        """Groups of layers that are alike, in the order in which they first appear."""
        return layer_groups(self.shape)

    def kv_bytes_per_token(self, dtype: str | Codec = "bfloat16") -> Bytes:
        """Bytes that one more token of one request adds while no window is full.

        Codecs that keep a residual in 16 bits (int4, int2) are counted at their coded width.
        """
        return Bytes(formulas.token_bytes(self.facts["layers"], codec(dtype).facts))

    def kv_bytes(
        self,
        batch: int,
        seq: int,
        dtype: str | Codec = "bfloat16",
        block_size: int | None = None,
        keep_all: bool = False,
        reserve: str = "needed",
        step: int = 1,
        budget: Budget = None,
    ) -> Bytes:
        """Bytes that the cache of `batch` requests of `seq` tokens each holds.

        `seq` may be past `max_context`: a cache would hold it, but the model was not made for it
        (`fit` refuses it).

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
        >>> gemma = MODELS["gemma-3-27b"]
        >>> for reserve in ("needed", "vllm", "all"):
        ...     print(f"{reserve:7} {gemma.kv_bytes(1, 32_768, reserve=reserve):5.2f GiB}")
        needed   2.91 GiB
        vllm     2.98 GiB
        all     15.50 GiB
        """
        b, s = checks.count("batch", batch), checks.count("seq", seq)
        rule = "all" if keep_all else reserve
        held = Holding.of(self.layers, block_size, rule, step, budget)
        layers = held.layers(self.layers, self.facts["layers"])
        return Bytes(b * int(formulas.reserved_bytes(layers, codec(dtype).facts, s, held.block)))

    # -------------------------------------------------------------------------- plain numbers

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
        """A value of the catalogue with its source, by its key in config.json ("head_dim") or
        "parameters", the published figure. ValueError for a model that is not from MODELS."""
        if self.row is None:
            raise ValueError(f"{self.name} was read from a config: its values have no sources here")
        return self.row.value(name)

    def __repr__(self) -> str:
        counts, lines = self.counts, []
        active = f", {counts.active:,} active" if counts.experts else ""
        lines.append(f"{self.title}: {counts.total:,} parameters{active}")
        weights = self.weight_bytes()
        shown = f"{weights:.2f GB}" if weights.GB >= 1 else f"{weights:.2f MB}"
        lines.append(f"  weights   {shown} in bfloat16")
        lines.append(f"  context   {self.max_context:,} tokens")
        for g in self.layers:
            sees = f"window {g.window:,}" if g.window else "all tokens"
            if g.latent:
                heads = f"{g.num_qo_heads} heads on one latent vector of {g.head_dim}"
            else:
                heads = f"{g.num_qo_heads}/{g.num_kv_heads} heads of {g.head_dim}"
            lines.append(f"  {g.count:>3} layers: {heads}, {sees}")
        lines.append(f"  KV cache  {self.kv_bytes_per_token().value:,} B a token in bfloat16")
        return "\n".join(lines)

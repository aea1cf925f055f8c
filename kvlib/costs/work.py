"""The work of a forward pass, in operations and bytes, and how fast a GPU can be at best.

The roofline: Williams, Waterman, Patterson, doi:10.1145/1498765.1498785.
"""

from dataclasses import dataclass
from typing import Any, Self

from kvlib.config.ranges import count
from kvlib.costs import formulas
from kvlib.costs.catalogue import GPUS, Dtype, Gpu
from kvlib.costs.spec import MODELS, Budget, Holding, Model, ModelSpec, numbers
from kvlib.costs.units import Bytes, Flops, FlopsPerByte, Seconds, Tokens, TokensPerSecond


@dataclass(frozen=True)
class Cost:
    """Operations and the bytes moved for them.

    >>> decode("llama-2-7b", batch=1, context=4096).attention.intensity.value < 1.01
    True
    """

    flops: Flops
    bytes: Bytes

    @property
    def intensity(self) -> FlopsPerByte:
        """Operations per byte."""
        return self.flops / self.bytes  # type: ignore[no-any-return]

    def __add__(self, other: Self) -> Self:
        return type(self)(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True)
class Floor:
    """The least time of a step: the longer of the times of compute and memory, which overlap.

    tokens_per_second: a token for each request when decoding, the prompts' tokens in a prefill.

    >>> decode("llama-2-7b", batch=1, context=4096).floor(GPUS["h100-sxm"]).bound
    'memory'
    """

    compute: Seconds
    memory: Seconds
    tokens_per_second: TokensPerSecond

    @property
    def seconds(self) -> Seconds:
        return max(self.compute, self.memory)

    @property
    def bound(self) -> str:
        """ "memory" or "compute"."""
        return "memory" if self.memory >= self.compute else "compute"

    def __repr__(self) -> str:
        return f"Floor({self.seconds}, {self.bound} bound, {self.tokens_per_second:,.0f})"


@dataclass(frozen=True)
class Work:
    """The operations and bytes of one "prefill" or "decode" step of `batch` requests.

    fresh, seq   tokens that each request adds, and that it has afterwards
    weights      weights read once; of a mixture, the experts that are in use on average
    kv_read      stored keys and values read once; kv_written those of the new tokens
    activations  queries read and outputs written by attention, 16 bits per number; no floor counts
                 them, because a fused kernel can leave them on the chip

    >>> decode("llama-2-7b", batch=2, context=4096).phase
    'decode'
    """

    model: ModelSpec
    phase: str
    batch: int
    fresh: int
    seq: int
    linear_flops: Flops
    attention_flops: Flops
    weights: Bytes
    kv_read: Bytes
    kv_written: Bytes
    activations: Bytes

    @property
    def linear(self) -> Cost:
        """All products with weights."""
        return Cost(self.linear_flops, self.weights)

    @property
    def attention(self) -> Cost:
        """Scores and weighted sums, over the keys and values that are read and written."""
        return Cost(self.attention_flops, self.kv_read + self.kv_written)

    @property
    def total(self) -> Cost:
        return self.linear + self.attention

    def floor(self, gpu: Gpu | str, gpus: int = 1, compute: str = "bf16") -> Floor:
        """Return the least time on `gpus` devices that share all work and communicate at no cost.

        `compute` names the matrix rate, "bf16" or "fp8"; numbers stored in fewer bits are widened.
        Raises ValueError if the heads cannot be shared out, or the GPU has no such rate.
        """
        device = GPUS.entry("gpu", gpu, Gpu)
        gpus = count("gpus", gpus)
        if compute not in ("bf16", "fp8"):
            raise ValueError(f"compute is {compute!r}, needed: 'bf16' or 'fp8'")
        if (speed := getattr(device, compute)) is None:
            why = f"{device.title} has no {compute} products"
            raise ValueError(f"compute is {compute!r}, but {why}")
        share = numbers(self.model.shared_out(gpus)) / numbers(self.model.facts["layers"])
        moved = self.weights / gpus + (self.kv_read + self.kv_written) * share
        sides: tuple[Seconds, Seconds] = self.total.flops / gpus / speed, moved / device.bandwidth
        made = Tokens(self.batch if self.phase == "decode" else self.batch * self.fresh)
        return Floor(*sides, tokens_per_second=made / max(sides))

    def __repr__(self) -> str:
        requests = "1 request" if self.batch == 1 else f"{self.batch:,} requests"
        lines = [f"{self.phase} of {self.model.title}, {requests} of {self.seq:,} tokens"]
        for name in ("linear", "attention", "total"):
            cost: Cost = getattr(self, name)
            cells = (str(cost.flops), str(cost.bytes), f"{cost.intensity:,.1f}")
            lines.append(f"{name:>11}" + "".join(f"{cell:>15}" for cell in cells))
        return "\n".join(lines)


def prefill(
    model: Model, batch: int, prompt: int, kv_dtype: Dtype = None, weight_dtype: Dtype = None
) -> Work:
    """Return the step that reads `batch` prompts of `prompt` tokens and gives each its next token.

    Logits are computed for the last token of each prompt alone. Attention reads keys and values in
    16 bits; the cache stores them in `kv_dtype`. Raises ValueError or TypeError for sizes below 1,
    a prompt past the model's limit or an unknown name.

    >>> prefill("llama-3.1-8b", batch=1, prompt=1024).floor(GPUS["h100-sxm"]).bound
    'compute'
    """
    spec = MODELS.entry("model", model, ModelSpec)
    tokens = spec.within("prompt", prompt)
    return _work(spec, "prefill", batch, tokens, tokens, kv_dtype, weight_dtype)


def decode(
    model: Model,
    batch: int,
    context: int,
    kv_dtype: Dtype = None,
    weight_dtype: Dtype = None,
    shared: int = 0,
    budget: Budget = None,
) -> Work:
    """Return a decode step of `batch` requests, which have `context` tokens with the new one.

    The first `shared` of them are the same for all requests and are read once. budget: tokens that
    eviction has left in layers without a window, as in `ModelSpec.kv_bytes`. Raises the errors of
    `prefill`, and ValueError for a `shared` that leaves no new token, or with a budget.

    >>> f"{decode('llama-3.1-8b', batch=1, context=8192).kv_read:.2f GB}"
    '1.07 GB'
    """
    spec = MODELS.entry("model", model, ModelSpec)
    tokens = spec.within("context", context)
    shared = count("shared", shared, least=0)
    if shared >= tokens:
        raise ValueError(f"shared is {shared}, needed: less than context, which is {tokens}")
    if shared and budget is not None:
        why = "with a budget each request keeps different tokens"
        raise ValueError(f"shared is {shared}, but {why}; leave one of the two out")
    return _work(spec, "decode", batch, 1, tokens, kv_dtype, weight_dtype, shared, budget)


def _work(
    spec: ModelSpec,
    phase: str,
    batch: int,
    fresh: int,
    seq: int,
    kv_dtype: Dtype,
    weight_dtype: Dtype,
    shared: int = 0,
    budget: Budget = None,
) -> Work:
    batch, facts = count("batch", batch), spec.facts
    if budget is not None:
        held = Holding.of(spec.layers, budget=budget)
        facts["layers"] = held.layers(spec.layers, facts["layers"])
    weights, kept = spec.weight_codec(weight_dtype), spec.kv_codec(kv_dtype).facts
    w = formulas.pass_work(facts, kept, float(weights.bits), batch, fresh, seq, shared)
    if spec.stored and weights is spec.stored.codec:
        w["weight_bytes"] = formulas.weights_read({**facts, **spec.stored.facts}, batch * fresh)
    flops = Flops(w["linear_flops"]), Flops(w["attention_flops"])
    names = ("weight_bytes", "kv_bytes", "kv_written", "activation_bytes")
    return Work(spec, phase, batch, fresh, seq, *flops, *(Bytes(w[name]) for name in names))


@dataclass(frozen=True)
class Sides:
    """The same quantity with a cache and without."""

    cached: Any
    recomputed: Any

    @property
    def ratio(self) -> float:
        """How many times more it is without the cache."""
        return float(self.recomputed / self.cached)


@dataclass(frozen=True)
class Comparison:
    """Operations to generate text with a cache and without; passes are tokens through the layers.

    >>> uncached("llama-2-7b", prompt=1024, new=100).passes.ratio > 95
    True
    """

    passes: Sides
    linear: Sides
    attention: Sides

    @property
    def cached(self) -> Flops:
        return self.linear.cached + self.attention.cached  # type: ignore[no-any-return]

    @property
    def recomputed(self) -> Flops:
        return self.linear.recomputed + self.attention.recomputed  # type: ignore[no-any-return]

    @property
    def ratio(self) -> float:
        """How many times as many operations are needed without the cache."""
        return float(self.recomputed / self.cached)

    def __repr__(self) -> str:
        rows = [("linear", self.linear), ("attention", self.attention)]
        rows.append(("total", Sides(self.cached, self.recomputed)))
        lines = [f"{'':>11}{'cached':>15}{'recomputed':>15}{'ratio':>9}"]
        for name, x in rows:
            lines.append(f"{name:>11}{str(x.cached):>15}{str(x.recomputed):>15}{x.ratio:>9.1f}")
        return "\n".join(lines)


def uncached(model: Model, prompt: int, new: int) -> Comparison:
    """Return the operations to generate `new` tokens after `prompt`, with a cache and without.

    Without a cache, each step computes all tokens again. The last new token never goes through the
    layers. All rows go through the output head. Raises the errors of `prefill`.

    >>> round(uncached("llama-2-7b", prompt=1024, new=100).linear.ratio, 1)
    95.6
    """
    spec = MODELS.entry("model", model, ModelSpec)
    prompt, new = count("prompt", prompt), count("new", new)
    spec.within("prompt + new - 1", prompt + new - 1)
    slow = formulas.uncached_flops(spec.facts, prompt, new)
    fast = formulas.cached_flops(spec.facts, prompt, new)
    kinds = {"tokens": Tokens, "linear": Flops, "attention": Flops}
    return Comparison(*(Sides(kind(fast[name]), kind(slow[name])) for name, kind in kinds.items()))

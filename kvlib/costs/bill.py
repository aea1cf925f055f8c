"""What fits on a GPU, and on how many: the share of each, the longest context, the bill."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from kvlib.config.quantised import Format
from kvlib.config.ranges import count
from kvlib.costs import formulas
from kvlib.costs.catalogue import GPUS, Dtype, Gpu
from kvlib.costs.formulas import Layers
from kvlib.costs.spec import MODELS, RESERVES, Budget, Holding, Model, ModelSpec, numbers
from kvlib.costs.units import Bytes, Tokens
from kvlib.costs.work import Floor, decode


@dataclass(frozen=True)
class Assumption:
    """A share in (0, 1] of a GPU's usable memory for weights and cache, less an overhead.

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
        """Return the bytes for weights and cache on one GPU."""
        return Bytes(int(gpu.usable.value * self.utilisation)) - self.overhead


ASSUMPTIONS: Mapping[str, Assumption] = {
    "weights only": Assumption(),
    "1 GiB overhead": Assumption(overhead=Bytes(2**30)),
    "92 % utilisation": Assumption(0.92),
    "90 % utilisation": Assumption(0.90),
}
CAUTIOUS = "90 % utilisation"


@dataclass(frozen=True)
class Share:
    """What one of `gpus` devices holds: an even part of the weights, and heads by `shared_out`."""

    model: ModelSpec
    gpu: Gpu
    gpus: int
    kv_dtype: Format
    weight_dtype: Format
    holding: Holding

    @classmethod
    def of(
        cls, model: Any, gpu: Any, gpus: object, kv: Dtype, weights: Dtype, *held: Any, **more: Any
    ) -> Self:
        """Return a share from names and the arguments of `Holding.of`, checked."""
        spec = MODELS.entry("model", model, ModelSpec)
        device = GPUS.entry("gpu", gpu, Gpu)
        formats = spec.kv_codec(kv), spec.weight_codec(weights)
        rule = Holding.of(spec.layers, *held, **more)
        return cls(spec, device, count("gpus", gpus), *formats, rule)

    def __post_init__(self) -> None:
        self.model.shared_out(self.gpus)

    @property
    def weights(self) -> Bytes:
        return Bytes(formulas.whole((self.model.weight_bytes(self.weight_dtype) / self.gpus).value))

    @property
    def copies(self) -> int:
        """How many devices hold the same key/value head; with MLA all hold the same latents."""
        held = numbers(self.model.shared_out(self.gpus)) * self.gpus
        return round(held / max(1, numbers(self.model.facts["layers"])))

    @property
    def repeated(self) -> list[str]:
        """Return a line on what several devices hold alike, or none."""
        latent = all(g["vectors"] == 1 for g in self.model.facts["layers"])
        what = "the latent vectors are" if latent else "each key/value head is"
        return [f"  {what} held by {self.copies} GPUs"] * (self.copies > 1)

    @property
    def layers(self) -> Layers:
        """Each device's layers, with the tokens that each holds as its window."""
        return self.holding.layers(self.model.layers, self.model.shared_out(self.gpus))

    def kv(self, batch: int, context: int, layers: Layers | None = None) -> Bytes:
        """Return the bytes of keys and values on each device, or of some of its layers."""
        layers, block = layers or self.layers, self.holding.block
        return Bytes(batch * formulas.reserved_bytes(layers, self.kv_dtype.facts, context, block))

    def by_kind(self, batch: int, context: int) -> list[tuple[str, Bytes]]:
        """Return the kinds of layers, in words, with the bytes of each; [] for one kind."""
        groups, held = self.model.layers, self.holding
        if len(groups) < 2 or held.reserve == "vllm" or isinstance(held.budget, tuple):
            return []
        pairs = zip(groups, self.layers, strict=True)
        return [(str(g).strip(), self.kv(batch, context, [part])) for g, part in pairs]

    def by_reserve(self, batch: int, context: int) -> dict[str, Bytes]:
        """Return `kv` for each of RESERVES; empty with a budget, or if no window is full."""
        held, groups = self.holding, self.model.layers
        if held.budget is not None or not any(0 < g.window < context for g in groups):
            return {}
        vllm = not any(g.state or g.every > 1 or g.index for g in groups)
        sizes = {}
        for name in RESERVES if vllm else [name for name in RESERVES if name != "vllm"]:
            block = None if name == "transformers" else held.block or None
            rule = Holding.of(groups, block, name, held.step)
            sizes[name] = replace(self, holding=rule).kv(batch, context)
        return sizes

    def room(self, assumption: Assumption) -> Bytes:
        """Return the bytes for a cache on each device; negative where the weights do not fit."""
        return assumption.budget(self.gpu) - self.weights

    def longest(self, batch: int, assumption: Assumption) -> Tokens:
        """Return the most tokens that each of `batch` requests can hold."""
        codec, room = self.kv_dtype.facts, self.room(assumption).value
        return Tokens(formulas.longest(self.layers, codec, self.holding.block, batch, room))

    def requests(self, context: int, assumption: Assumption) -> int:
        """Return the most requests of `context` tokens."""
        return max(0, self.room(assumption) // self.kv(1, context))

    def __str__(self) -> str:
        devices = self.gpu.title if self.gpus == 1 else f"{self.gpus} {self.gpu.title}"
        return f"{self.model.title} ({self.weight_dtype.name}) on {devices}"


UNBOUNDED = Tokens(2**40)  # where every layer has a window, more text needs no more memory


@dataclass(frozen=True)
class ContextRange:
    """The most tokens that each request can hold, by assumption (`cases`).

    2^40 where windows alone set the limit; it may be more than model_limit, the model's longest.

    >>> max_context("llama-3.1-8b", "h100-sxm").batch
    1
    """

    what: str
    batch: int
    kv_dtype: str
    cases: Mapping[str, Tokens]
    model_limit: Tokens

    @property
    def low(self) -> Tokens:
        return min(self.cases.values())

    @property
    def high(self) -> Tokens:
        return max(self.cases.values())

    def __repr__(self) -> str:
        requests = "1 request" if self.batch == 1 else f"{self.batch:,} requests"
        lines = [f"{self.what}, {requests}, keys and values in {self.kv_dtype}"]
        for name, tokens in self.cases.items():
            lines.append(f"  {name:<20}{tokens_text(tokens):>18}")
        lines.append("  the model's limit   " + f"{str(self.model_limit):>18}")
        return "\n".join(lines)


def max_context(
    model: Model,
    gpu: Gpu | str,
    batch: int = 1,
    kv_dtype: Dtype = None,
    weight_dtype: Dtype = None,
    gpus: int = 1,
    block_size: int | None = None,
    assumptions: Mapping[str, Assumption] = ASSUMPTIONS,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> ContextRange:
    """Return the longest context of each of `batch` requests that memory allows, by assumption.

    block_size, reserve, step and budget are those of `ModelSpec.kv_bytes`. Raises ValueError if the
    weights fit under no assumption, and as `gpus_needed`.

    >>> int(max_context("llama-2-7b", "h100-sxm").cases["weights only"])
    137412
    """
    share = Share.of(model, gpu, gpus, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    if not assumptions:
        raise ValueError("assumptions is empty, needed: one at least")
    if all(share.room(a) < Bytes(0) for a in assumptions.values()):
        taken = f"the weights of {share} take {share.weights:.2f GiB} on each GPU"
        most = f"at most {share.gpu.usable:.2f GiB}, which is all that can be used"
        advice = "try more GPUs or a smaller weight dtype"
        raise ValueError(f"{taken}, needed: {most}; {advice}")
    cases = {name: share.longest(batch, a) for name, a in assumptions.items()}
    limit = Tokens(share.model.max_context)
    return ContextRange(str(share), batch, share.kv_dtype.name, cases, limit)


def tokens_text(tokens: Tokens) -> str:
    """Tokens in words, also where memory sets no limit."""
    return "no limit" if tokens >= UNBOUNDED else str(tokens)


@dataclass(frozen=True)
class Plan:
    """A number of GPUs that is enough, and what each holds; `refused` says why fewer are not.

    copies: how many GPUs hold the same key/value head; with MLA all hold the same latents. weights,
    kv: bytes on each. budget: what the assumption leaves for both.

    >>> gpus_needed("llama-3.1-8b", "h100-sxm", batch=1, context=8192).gpus
    1
    """

    share: Share
    gpus: int
    copies: int
    what: str
    weights: Bytes
    kv: Bytes
    budget: Bytes
    assumption: str
    refused: Mapping[int, str]

    @property
    def free(self) -> Bytes:
        """Bytes of each GPU that weights and cache do not take."""
        return self.budget - self.weights - self.kv

    def __repr__(self) -> str:
        lines = [f"{self.what}: {self.gpus} GPU{'s' if self.gpus > 1 else ''}"]
        rows = [("weights", self.weights), ("keys and values", self.kv), ("free", self.free)]
        lines += [f"  {name + ' on each':<24}{size:>12.2f GiB}" for name, size in rows]
        lines += self.share.repeated
        lines += [f"  not {n}: {why}" for n, why in self.refused.items()]
        return "\n".join(lines)


def gpus_needed(
    model: Model,
    gpu: Gpu | str,
    batch: int,
    context: int,
    kv_dtype: Dtype = None,
    weight_dtype: Dtype = None,
    block_size: int | None = None,
    assumption: str = CAUTIOUS,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> Plan:
    """Return the smallest of 1, 2, 4, 8, ... GPUs that hold a model and its cache.

    block_size, reserve, step and budget are those of `ModelSpec.kv_bytes`. Raises ValueError, with
    the reason for each of these numbers, if none is enough.

    >>> gpus_needed("llama-3.1-70b", "h100-sxm", batch=8, context=8192).share.gpus
    4
    """
    share = Share.of(model, gpu, 1, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    context = share.model.within("context", context)
    if assumption not in ASSUMPTIONS:
        raise ValueError(f"assumption is {assumption!r}, needed: one of {', '.join(ASSUMPTIONS)}")
    return fewest(share, batch, context, assumption)


def fewest(share: Share, batch: int, context: int, assumption: str = CAUTIOUS) -> Plan:
    """Return the plan of `gpus_needed` for a checked share of any number of GPUs."""
    model = share.model
    heads = max(g["num_qo_heads"] for g in model.facts["layers"])
    refused: dict[int, str] = {}
    for gpus in (2**i for i in range(heads.bit_length())):
        try:
            part = replace(share, gpus=gpus)
        except ValueError as error:
            refused[gpus] = str(error).partition("needed: ")[2]
        else:
            budget = ASSUMPTIONS[assumption].budget(part.gpu)
            kv, weights = part.kv(batch, context), part.weights
            if (short := kv + weights - budget) <= Bytes(0):
                what = f"{model.title} ({part.weight_dtype.name}) on {part.gpu.title}, "
                what += f"{batch:,} x {context:,} tokens in {part.kv_dtype.name}, {assumption}"
                sizes = (weights, kv, budget)
                return Plan(part, gpus, part.copies, what, *sizes, assumption, refused)
            refused[gpus] = f"{short:.2f GiB} too little on each"
    tried = "; ".join(f"{n}: {why}" for n, why in refused.items())
    requests = f"{batch:,} requests of {context:,} tokens ({tried})"
    raise ValueError(f"no number of {share.gpu.title} holds {model.title} with {requests}")


@dataclass(frozen=True)
class Case:
    """The bill under one assumption, in bytes of one GPU; headroom is negative if it does not fit.

    longest: tokens of a request at this batch. requests: how many at this context.
    """

    budget: Bytes
    headroom: Bytes
    longest: Tokens
    requests: int

    @property
    def fits(self) -> bool:
        return self.headroom >= Bytes(0)


@dataclass(frozen=True)
class Fit:
    """The result of `fit`. `fits` says whether everything fits under every assumption.

    by_reserve   bytes of keys and values for each of RESERVES; empty if they make no difference
    cases        the bill by assumption
    floor        the least time of a decode step at this batch and context; None if it fits nowhere
    enough       the fewest GPUs of 1, 2, 4, ... that would do under `CAUTIOUS`; None if none does
    unconfirmed  figures that this rests on and that no public text confirms

    >>> found = fit("llama-2-70b", "h100-sxm", batch=1, context=4096)
    >>> found.fits, found.enough
    (False, 2)
    """

    share: Share
    batch: int
    context: Tokens
    weights: Bytes
    kv: Bytes
    by_reserve: Mapping[str, Bytes]
    cases: Mapping[str, Case]
    floor: Floor | None
    enough: int | None
    unconfirmed: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return all(case.fits for case in self.cases.values())

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        share, some = self.share, [name for name, case in self.cases.items() if case.fits]
        if self.fits:
            return f"It fits: {self.cases[CAUTIOUS].headroom:.2f GiB} left ({CAUTIOUS})."
        if some:
            words = f"Tight: it fits assuming {' or '.join(some)}, not otherwise"
        elif self.weights > share.gpu.usable:
            words = f"It does not fit: the weights alone take {self.weights:.2f GiB}"
            words += " on each GPU" if share.gpus > 1 else ""
            words += f", {share.gpu.usable:.2f GiB} can be used"
        else:
            lack = -max(case.headroom for case in self.cases.values())
            words = f"It does not fit: {lack:.2f GiB} too little at best"
        if self.enough is None:
            return f"{words}; no number of {share.gpu.title} is enough ({CAUTIOUS})."
        return f"{words}; {self.enough} {share.gpu.title} are enough ({CAUTIOUS})."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. Keys name their unit; null where memory sets no limit."""
        share, spec, floor = self.share, self.share.model, self.floor
        budget = share.holding.budget
        return {
            "model": spec.name,
            "gpu": share.gpu.name,
            "gpus": share.gpus,
            "batch": self.batch,
            "context_tokens": self.context.value,
            "kv_dtype": share.kv_dtype.name,
            "weight_dtype": share.weight_dtype.name,
            "block_size_tokens": share.holding.block or None,
            "reserve": share.holding.reserve,
            "step_tokens": share.holding.step,
            "budget_tokens": list(budget) if isinstance(budget, tuple) else budget,
            "fits": self.fits,
            "verdict": self.verdict,
            "parameters": spec.num_parameters,
            "weights_bytes": spec.weight_bytes(share.weight_dtype).value,
            "weights_bytes_per_gpu": self.weights.value,
            "kv_bytes_per_token": spec.kv_bytes_per_token(share.kv_dtype).value,
            "kv_bytes_per_gpu": self.kv.value,
            "kv_bytes_per_gpu_by_reserve": {n: kv.value for n, kv in self.by_reserve.items()},
            "usable_bytes_per_gpu": share.gpu.usable.value,
            "gpus_holding_each_kv_head": share.copies,
            "model_limit_tokens": spec.max_context,
            "cases": {
                name: {
                    "fits": case.fits,
                    "budget_bytes_per_gpu": case.budget.value,
                    "headroom_bytes_per_gpu": case.headroom.value,
                    "max_context_tokens": int(case.longest) if case.longest < UNBOUNDED else None,
                    "max_batch_requests": case.requests,
                }
                for name, case in self.cases.items()
            },
            "decode_floor_seconds": floor.seconds.value if floor else None,
            "decode_bound": floor.bound if floor else None,
            "decode_ceiling_tokens_per_second": floor.tokens_per_second.value if floor else None,
            "gpus_enough": self.enough,
            "unconfirmed": list(self.unconfirmed),
        }

    def __repr__(self) -> str:
        share, each = self.share, " on each GPU" if self.share.gpus > 1 else ""
        requests = "1 request" if self.batch == 1 else f"{self.batch:,} requests"
        lines = [f"{share}: {requests} of {self.context}, keys and values in {share.kv_dtype.name}"]
        if share.holding.words:
            lines.append(f"The cache: {share.holding.words}.")
        lines += share.model.notes_from_files(share.weight_dtype, share.kv_dtype)
        lines += share.model.uncounted
        lines.append(self.verdict)
        kinds = share.by_kind(self.batch, int(self.context))
        kept = "cache" if share.model.state_bytes else "keys and values"
        sizes = [("weights" + each, self.weights, ""), (kept + each, self.kv, "")]
        sizes += [("  of these", size, f"  {what}") for what, size in kinds]
        sizes.append(("usable memory" + each, share.gpu.usable, ""))
        lines += ["", *(f"  {name:<30}{size:>12.2f GiB}{what}" for name, size, what in sizes)]
        lines += share.repeated
        if self.by_reserve:
            lines += ["", "  keys and values if a layer with a window holds"]
            for name, size in self.by_reserve.items():
                lines.append(f"  {name:<14}{size:>12.2f GiB}  {RESERVES[name]}")
        lines += ["", f"  {'assuming':<20}{'left':>14}{'longest context':>20}{'most requests':>16}"]
        for name, case in self.cases.items():
            cells = f"{case.headroom:.2f GiB}", tokens_text(case.longest), f"{case.requests:,}"
            lines.append(f"  {name:<20}{cells[0]:>14}{cells[1]:>20}{cells[2]:>16}")
        lines += [f"  the model reads at most {share.model.max_context:,} tokens", ""]
        if self.floor:
            floor = self.floor
            rate = f"{floor.bound} bound: at most {floor.tokens_per_second:,.0f}"
            lines.append(f"  a decode step takes at least {floor.seconds}, {rate}")
        if self.unconfirmed:
            lines.append(f"  not confirmed by a public text: {', '.join(self.unconfirmed)}")
        return "\n".join(lines)


def fit(
    model: Model,
    gpu: Gpu | str,
    batch: int,
    context: int,
    kv_dtype: Dtype = None,
    weight_dtype: Dtype = None,
    gpus: int = 1,
    block_size: int | None = None,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> Fit:
    """Return whether `batch` requests of `context` tokens each fit, under each of ASSUMPTIONS.

    block_size, reserve, step and budget are those of `ModelSpec.kv_bytes`. Weights that are too
    large are no error; the result says so. Raises ValueError for a context past the model's own
    limit, heads that `gpus` cannot share out, sizes below 1 and unknown names.

    >>> fit("llama-3.1-8b", "h100-sxm", batch=8, context=8192).fits
    True
    """
    share = Share.of(model, gpu, gpus, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    tokens = share.model.within("context", context)
    kv = share.kv(batch, tokens)
    cases = {}
    for name, a in ASSUMPTIONS.items():
        most = share.longest(batch, a), share.requests(tokens, a)
        cases[name] = Case(a.budget(share.gpu), share.room(a) - kv, *most)
    kinds, budget = (share.kv_dtype, share.weight_dtype), share.holding.budget
    work = decode(share.model, batch, tokens, *kinds, budget=budget)
    try:
        enough = fewest(share, batch, tokens).gpus
    except ValueError:
        enough = None
    device, row = share.gpu, share.model.row
    used = {"usable": "usable memory", "bandwidth": "bandwidth", "bf16": "bf16 rate"}
    unsure = [f"{device.title} {used[n]}" for n in used if not device.value(n).confirmed]
    unsure += [f"{share.model.title} {name}" for name in (row.unconfirmed if row else ())]
    floor = work.floor(share.gpu, share.gpus) if any(c.fits for c in cases.values()) else None
    sizes = share.weights, kv, share.by_reserve(batch, tokens)
    return Fit(share, batch, Tokens(tokens), *sizes, cases, floor, enough, tuple(unsure))


WAYS = ("tensor", "pipeline", "context", "data")


def kv_on_one(
    model: Model, way: str, devices: int, batch: int, context: int, kv_dtype: Dtype = None
) -> Bytes:
    """Return the bytes of keys and values on the fullest of `devices`.

    way: what the devices share out: "tensor" (heads), "pipeline" (layers), "context" (tokens) or
    "data" (requests). batch: requests of `context` tokens on all devices together. Raises
    ValueError for another way, or one that cannot divide the model.

    >>> kv_on_one("llama-3.1-70b", "tensor", 8, batch=1, context=1000).MB
    40.96
    """
    spec = MODELS.entry("model", model, ModelSpec)
    devices, batch = count("devices", devices), count("batch", batch)
    context, kind = count("context", context), spec.kv_codec(kv_dtype).facts
    layers: Layers = spec.facts["layers"]
    if way == "tensor":
        shares = [spec.shared_out(devices)]
    elif way == "pipeline":  # consecutive layers, as even as can be
        total = spec.shape.num_hidden_layers
        if devices > total:
            raise ValueError(f"devices is {devices}, needed: at most {total}, a layer for each")
        ends = [d * total // devices for d in range(devices + 1)]
        shares = [
            [{**g.facts, "count": sum(a <= i < b for i in g.indices)} for g in spec.layers]
            for a, b in zip(ends, ends[1:])
        ]
    elif way == "context":  # the last stretch has a window's tokens, which are the newest
        most = -(-context // devices)
        shares = [[{**g, "window": min(g["window"] or most, most)} for g in layers]]
    elif way == "data":
        shares, batch = [layers], -(-batch // devices)
    else:
        raise ValueError(f"way must be one of {', '.join(WAYS)}, got {way!r}")
    one = max(formulas.reserved_bytes(share, kind, context, 0) for share in shares)
    return Bytes(int(batch * one))

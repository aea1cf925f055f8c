"""The whole bill of one plan: does it fit, what is left, how far it goes, how fast it can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kvlib.costs.catalogue import Codec, Gpu
from kvlib.costs.checks import count
from kvlib.costs.context import UNBOUNDED, tokens_text
from kvlib.costs.holding import RESERVES, Budget
from kvlib.costs.limits import within
from kvlib.costs.plan import fewest
from kvlib.costs.share import ASSUMPTIONS, CAUTIOUS, Share
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes, Tokens
from kvlib.costs.work import Floor, decode

# the figures of a GPU that a bill rests on
USED = {"usable": "usable memory", "bandwidth": "bandwidth", "bf16": "bf16 rate"}


@dataclass(frozen=True)
class Case:
    """The bill under one assumption; all bytes are of one GPU.

    headroom is what is left, negative where it does not fit; longest the most tokens for each
    request at this batch; requests the most requests at this context.
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

    kv           keys and values on each GPU
    by_reserve   the same for each of RESERVES, which say what layers with a window hold; empty if
                 they make no difference
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
                    "max_context_tokens": _limit(case.longest),
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
        lines += share.model.said_by_files(share.weight_dtype, share.kv_dtype)
        lines.append(self.verdict)
        sizes = [("weights", self.weights), ("keys and values", self.kv)]
        sizes.append(("usable memory", share.gpu.usable))
        lines += ["", *(f"  {name + each:<30}{size:>12.2f GiB}" for name, size in sizes)]
        if share.copies > 1:
            lines.append(f"  {share.repeated}")
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
            lines.append(
                f"  a decode step takes at least {floor.seconds}, {floor.bound} bound: at most "
                f"{floor.tokens_per_second:,.0f}"
            )
        if self.unconfirmed:
            lines.append(f"  not confirmed by a public text: {', '.join(self.unconfirmed)}")
        return "\n".join(lines)


def fit(
    model: ModelSpec | str,
    gpu: Gpu | str,
    batch: int,
    context: int,
    kv_dtype: str | Codec | None = None,
    weight_dtype: str | Codec | None = None,
    gpus: int = 1,
    block_size: int | None = None,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> Fit:
    """Whether `batch` requests of `context` tokens each fit, under each of ASSUMPTIONS.

    block_size, reserve, step and budget say what a cache holds, as in `ModelSpec.kv_bytes`.
    Weights that are too large on their own are no error; the result says so. Raises ValueError for
    a context past the model's own limit, heads that `gpus` cannot share out, sizes below 1 and
    unknown names.

    >>> fit("llama-3.1-8b", "h100-sxm", batch=8, context=8192).fits
    True
    """
    share = Share.of(model, gpu, gpus, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    tokens = within(share.model, "context", count("context", context))
    kv = share.kv(batch, tokens)
    cases = {
        name: Case(
            assumption.budget(share.gpu),
            share.left(assumption) - kv,
            share.longest(batch, assumption),
            share.requests(tokens, assumption),
        )
        for name, assumption in ASSUMPTIONS.items()
    }
    work = decode(
        share.model,
        batch,
        tokens,
        share.kv_dtype,
        share.weight_dtype,
        budget=share.holding.budget,
    )
    return Fit(
        share=share,
        batch=batch,
        context=Tokens(tokens),
        weights=share.weights,
        kv=kv,
        by_reserve=MappingProxyType(share.by_reserve(batch, tokens)),
        cases=MappingProxyType(cases),
        floor=work.floor(share.gpu, share.gpus) if any(c.fits for c in cases.values()) else None,
        enough=_enough(share, batch, tokens),
        unconfirmed=unconfirmed(share),
    )


def unconfirmed(share: Share) -> tuple[str, ...]:
    """The figures that a bill rests on and that the catalogue marks as unconfirmed."""
    gpu = share.gpu
    found = [
        f"{gpu.title} {words}" for name, words in USED.items() if not gpu.value(name).confirmed
    ]
    if share.model.row is not None:
        found += [f"{share.model.title} {name}" for name in share.model.row.unconfirmed]
    return tuple(found)


def _enough(share: Share, batch: int, context: int) -> int | None:
    try:
        return fewest(share, batch, context).gpus
    except ValueError:
        return None


def _limit(tokens: Tokens) -> int | None:
    return None if tokens >= UNBOUNDED else int(tokens)

"""The longest context that memory allows.

How much of a GPU's memory is left for keys and values depends on what else lives there, which no
formula knows. So the answer is a range over named assumptions, never one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvlib.costs.catalogue import Codec, Gpu
from kvlib.costs.checks import count
from kvlib.costs.holding import Budget
from kvlib.costs.share import ASSUMPTIONS, Assumption, Share
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes, Tokens

UNBOUNDED = Tokens(2**40)  # where every layer has a window, more text needs no more memory


@dataclass(frozen=True)
class ContextRange:
    """The most tokens that each request can hold, by assumption.

    cases holds one number for each assumption, low and high are the least and the most of them.
    model_limit is the longest context that the model was made for; cases may be longer. Where all
    layers have windows, memory sets no limit and the number is 2^40.

    >>> found = max_context("llama-3.1-8b", "h100-sxm")
    >>> found.batch, len(found.cases) > 1
    (1, True)
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
    model: ModelSpec | str,
    gpu: Gpu | str,
    batch: int = 1,
    kv_dtype: str | Codec | None = None,
    weight_dtype: str | Codec | None = None,
    gpus: int = 1,
    block_size: int | None = None,
    assumptions: Mapping[str, Assumption] = ASSUMPTIONS,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> ContextRange:
    """The longest context of each of `batch` requests that memory allows, by assumption.

    block_size, reserve, step and budget say what a cache holds, as in `ModelSpec.kv_bytes`.
    Raises ValueError if the weights fit under no assumption, the heads cannot be shared out, a size
    is below 1 or a name is unknown.

    >>> found = max_context("llama-2-7b", "h100-sxm")
    >>> {name: int(n) for name, n in found.cases.items()}["weights only"]
    137412
    """
    share = Share.of(model, gpu, gpus, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    if not assumptions:
        raise ValueError("assumptions is empty, needed: one at least")
    if all(share.left(a) < Bytes(0) for a in assumptions.values()):
        raise ValueError(too_large(share))
    return ContextRange(
        what=str(share),
        batch=batch,
        kv_dtype=share.kv_dtype.name,
        cases=MappingProxyType({n: share.longest(batch, a) for n, a in assumptions.items()}),
        model_limit=Tokens(int(share.model.max_context)),
    )


def too_large(share: Share) -> str:
    """Words for weights that do not fit."""
    return (
        f"the weights of {share} take {share.weights:.2f GiB} on each GPU, needed: at most "
        f"{share.gpu.usable:.2f GiB}, which is all that can be used; try more GPUs or a smaller "
        "weight dtype"
    )


def tokens_text(tokens: Tokens) -> str:
    """Tokens in words, also where memory sets no limit."""
    return "no limit" if tokens >= UNBOUNDED else str(tokens)

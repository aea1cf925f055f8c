"""How many GPUs a model and its cache need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvlib.costs.catalogue import Codec, Gpu
from kvlib.costs.checks import count
from kvlib.costs.holding import Budget
from kvlib.costs.limits import within
from kvlib.costs.share import ASSUMPTIONS, CAUTIOUS, Share
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes


@dataclass(frozen=True)
class Plan:
    """A number of GPUs that is enough, and what each of them holds.

    kv        bytes of keys and values on each GPU
    budget    what the assumption leaves for weights and cache on each
    refused   smaller numbers, and why they are not enough

    >>> plan = gpus_needed("llama-3.1-8b", "h100-sxm", batch=1, context=8192)
    >>> plan.share.gpus
    1
    """

    share: Share
    what: str
    kv: Bytes
    budget: Bytes
    assumption: str
    refused: Mapping[int, str]

    @property
    def gpus(self) -> int:
        return self.share.gpus

    @property
    def weights(self) -> Bytes:
        """Bytes of weights on each GPU."""
        return self.share.weights

    @property
    def copies(self) -> int:
        """How many GPUs hold the same key/value head; with MLA all hold the same latents."""
        return self.share.copies

    @property
    def free(self) -> Bytes:
        """What is left on each GPU."""
        return self.budget - self.weights - self.kv

    def __repr__(self) -> str:
        lines = [f"{self.what}: {self.gpus} GPU{'s' if self.gpus > 1 else ''}"]
        rows = [("weights", self.weights), ("keys and values", self.kv), ("free", self.free)]
        lines += [f"  {name + ' on each':<24}{size:>12.2f GiB}" for name, size in rows]
        if self.share.copies > 1:
            lines.append(f"  {self.share.repeated}")
        lines += [f"  not {n}: {why}" for n, why in self.refused.items()]
        return "\n".join(lines)


def gpus_needed(
    model: ModelSpec | str,
    gpu: Gpu | str,
    batch: int,
    context: int,
    kv_dtype: str | Codec | None = None,
    weight_dtype: str | Codec | None = None,
    block_size: int | None = None,
    assumption: str = CAUTIOUS,
    reserve: str = "needed",
    step: int = 1,
    budget: Budget = None,
) -> Plan:
    """The smallest of 1, 2, 4, 8, ... GPUs that hold a model and its cache under `assumption`.

    Tensor parallelism: every GPU holds an equal part of the weights and of the heads. block_size,
    reserve, step and budget say what a cache holds, as in `ModelSpec.kv_bytes`. Raises ValueError
    if none of these numbers is enough. The message says why for each of them: the memory is too
    small, or so many GPUs cannot share out the heads.

    >>> gpus_needed("llama-3.1-70b", "h100-sxm", batch=8, context=8192).share.gpus
    4
    """
    one = Share.of(model, gpu, 1, kv_dtype, weight_dtype, block_size, reserve, step, budget)
    batch = count("batch", batch)
    context = within(one.model, "context", count("context", context))
    if assumption not in ASSUMPTIONS:
        raise ValueError(f"assumption is {assumption!r}, needed: one of {', '.join(ASSUMPTIONS)}")
    return fewest(one, batch, context, assumption)


def fewest(one: Share, batch: int, context: int, assumption: str = CAUTIOUS) -> Plan:
    """The same for a share that is checked; its own number of GPUs does not count."""
    model = one.model
    heads = max(g["num_qo_heads"] for g in model.facts["layers"])
    refused: dict[int, str] = {}
    gpus = 1
    while gpus <= heads:
        try:
            share = one.of_each(gpus)
        except ValueError as error:
            refused[gpus] = str(error).partition("needed: ")[2]
        else:
            kv = share.kv(batch, context)
            short = kv - share.left(ASSUMPTIONS[assumption])
            if short <= Bytes(0):
                room = ASSUMPTIONS[assumption].budget(share.gpu)
                what = f"{model.title} ({share.weight_dtype.name}) on {share.gpu.title}, "
                what += f"{batch:,} x {context:,} tokens in {share.kv_dtype.name}, {assumption}"
                return Plan(share, what, kv, room, assumption, refused)
            refused[gpus] = f"{short:.2f GiB} too little on each"
        gpus *= 2
    tried = "; ".join(f"{n}: {why}" for n, why in refused.items())
    raise ValueError(
        f"no number of {one.gpu.title} holds {model.title} with {batch:,} requests of "
        f"{context:,} tokens ({tried})"
    )

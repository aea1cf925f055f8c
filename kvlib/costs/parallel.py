"""What one of several devices keeps of the cache, by the way in which the work is dealt out.

tensor     every device has a share of the heads (arXiv:1909.08053); heads are copied where there
           are more devices than key/value heads, and MLA's latent vector always is
pipeline   every device has consecutive layers (arXiv:1811.06965)
context    every device has a stretch of each request's tokens, and partial results merge (context
           parallelism; ring attention, arXiv:2310.01889, moves keys and values instead)
data       every device has requests of its own, and a copy of the attention weights (data-parallel
           attention, often beside experts that are dealt out)
"""

from __future__ import annotations

from typing import Any

from kvlib.costs import formulas
from kvlib.costs.catalogue import MODELS, Codec
from kvlib.costs.checks import count, one_of
from kvlib.costs.limits import shared_out
from kvlib.costs.spec import ModelSpec
from kvlib.costs.units import Bytes

WAYS = ("tensor", "pipeline", "context", "data")


def kv_on_one(
    model: ModelSpec | str,
    way: str,
    devices: int,
    batch: int,
    context: int,
    kv_dtype: str | Codec | None = None,
) -> Bytes:
    """Bytes of keys and values on the fullest of `devices`, for requests of `context` tokens.

    way: what the devices share out: "tensor" (heads), "pipeline" (layers), "context" (tokens) or
    "data" (requests). batch: requests on all devices together.

    Raises ValueError for another way, or one that cannot divide the model (heads that the devices
    cannot share evenly, more devices than layers), TypeError for what is no number.

    >>> eight = kv_on_one("llama-3.1-70b", "tensor", 8, batch=1, context=1000)
    >>> eight == kv_on_one("llama-3.1-70b", "tensor", 16, batch=1, context=1000)
    True
    """
    spec = one_of("model", model, MODELS, ModelSpec)
    devices, batch = count("devices", devices), count("batch", batch)
    context, kind = count("context", context), spec.kv_codec(kv_dtype).facts
    layers: list[dict[str, Any]] = spec.facts["layers"]

    def one_request(held: list[dict[str, Any]], tokens: int) -> float:
        return formulas.reserved_bytes(held, kind, tokens, 0)

    if way == "tensor":
        return Bytes(int(batch * one_request(shared_out(spec, devices), context)))
    if way == "pipeline":
        return Bytes(int(batch * max(one_request(s, context) for s in _stages(spec, devices))))
    if way == "context":
        return Bytes(int(batch * _longest_stretch(layers, kind, devices, context)))
    if way == "data":
        return Bytes(int(-(-batch // devices) * one_request(layers, context)))
    raise ValueError(f"way must be one of {', '.join(WAYS)}, got {way!r}")


def _stages(spec: ModelSpec, devices: int) -> list[list[dict[str, Any]]]:
    """Consecutive layers of each device, as even as can be."""
    kinds = {i: g for g, group in enumerate(spec.layers) for i in group.indices}
    total = len(kinds)
    if devices > total:
        raise ValueError(f"devices is {devices}, needed: at most {total}, a layer for each")
    stages = []
    for d in range(devices):
        held = [kinds[i] for i in range(d * total // devices, (d + 1) * total // devices)]
        facts = spec.facts["layers"]
        stages.append([{**facts[g], "count": held.count(g)} for g in sorted(set(held))])
    return stages


def _longest_stretch(
    layers: list[dict[str, Any]], kind: dict[str, Any], devices: int, context: int
) -> float:
    """Bytes of the last stretch: it holds a window's tokens, which are the newest, whole."""
    stretch = -(-context // devices)
    held = 0.0
    for g in layers:
        seen = formulas.visible(context, g["window"])
        held += formulas.reserved_bytes([{**g, "window": 0}], kind, min(seen, stretch), 0)
    return held

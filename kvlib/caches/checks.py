"""What a cache refuses, and in which words. Every check runs before anything is changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kvlib.arrays import Array
from kvlib.caches.step import Step

if TYPE_CHECKING:
    from kvlib.caches.protocol import Cache, LayerSpec

R = TypeVar("R")


def known(requests: Mapping[Hashable, R], seq_id: Hashable) -> R:
    """The open request of that name, or ValueError."""
    try:
        return requests[seq_id]
    except KeyError:
        names = ", ".join(repr(s) for s in list(requests)[:5]) or "none"
        raise ValueError(f"request {seq_id!r} is not open; open are: {names}") from None


def check_plan(
    requests: Mapping[Hashable, R],
    seq_ids: Sequence[Hashable],
    q_lens: Sequence[int],
    tokens: Sequence[int] | None,
) -> list[R]:
    """The requests of a plan, after refusing unknown or repeated names and bad lengths."""
    if isinstance(seq_ids, str | bytes):
        raise TypeError(f"seq_ids must be a list of request names, got the string {seq_ids!r}")
    if not seq_ids or len(seq_ids) != len(q_lens):
        raise ValueError(
            f"plan needs one q_len a request and at least one request, "
            f"got {len(seq_ids)} seq_ids and {len(q_lens)} q_lens"
        )
    found = [known(requests, seq_id) for seq_id in seq_ids]
    if len(found) > 1 and len(set(seq_ids)) < len(seq_ids):
        twice = next(s for s in seq_ids if list(seq_ids).count(s) > 1)
        raise ValueError(f"request {twice!r} stands twice in one plan")
    total = 0
    for seq_id, n in zip(seq_ids, q_lens, strict=True):
        if not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(
                f"q_lens must be integers of at least 1, got {n!r} for request {seq_id!r}"
            )
        total += n
    if tokens is not None and len(tokens) != total:
        raise ValueError(f"tokens must hold the {total} new tokens of the plan, got {len(tokens)}")
    return found


def check_append(cache: Cache, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
    """The layer's spec, after refusing keys and values that do not fit it or the step."""
    spec = _check_layer_and_step(cache, layer, step)
    _check_array(cache, "k", k, (step.qo_indptr[-1], spec.num_kv_heads, spec.head_dim), layer)
    if spec.v_from_k:
        if v is not None:
            raise ValueError(f"layer {layer} takes its values from its keys: v must be None")
    elif v is None:
        raise ValueError(f"layer {layer} stores values of their own: v must be given, got None")
    else:
        _check_array(cache, "v", v, (step.qo_indptr[-1], spec.num_kv_heads, spec.v_dim), layer)
    return spec


def check_run(cache: Cache, layer: int, q: Array, step: Step) -> LayerSpec:
    """The layer's spec, after refusing queries that do not fit it or the step."""
    spec = _check_layer_and_step(cache, layer, step)
    shape = q.shape
    if (
        len(shape) != 3
        or shape[0] != step.qo_indptr[-1]
        or shape[2] != spec.head_dim
        or shape[1] % spec.num_kv_heads
        or not shape[1]
    ):
        raise ValueError(
            f"q of layer {layer} must be (T={step.num_tokens}, a multiple of {spec.num_kv_heads} "
            f"heads, D={spec.head_dim}), got {tuple(shape)}"
        )
    if layer not in step.ticket.appended:
        raise ValueError(f"layer {layer} has not appended its keys in this step yet")
    return spec


def _check_layer_and_step(cache: Cache, layer: int, step: Step) -> LayerSpec:
    if not isinstance(layer, int | np.integer) or not 0 <= layer < len(cache.layers):
        raise ValueError(f"layer must be 0 ... {len(cache.layers) - 1}, got {layer!r}")
    if step.owner is not cache:
        raise ValueError("the step was planned by another cache")
    if not step.ticket.live:
        raise ValueError(
            f"the step of requests {list(step.seq_ids)!r} is over: one of them was planned again, "
            "truncated or freed since"
        )
    return cache.layers[layer]


def _check_array(
    cache: Cache, name: str, x: Array, needed: tuple[int, int, int], layer: int
) -> None:
    if x.shape != needed:
        raise ValueError(
            f"{name} of layer {layer} must be (T, num_kv_heads, dim) = {needed}, "
            f"got {tuple(x.shape)}"
        )
    if x.dtype != cache.dtype:
        _check_narrowing(cache, name, x.dtype, layer)


def _check_narrowing(cache: Cache, name: str, dtype: Any, layer: int) -> None:
    """A 16-bit cache may narrow float32; nothing else may change its type on the way in."""
    wide = (cache.xp.float32, cache.xp.float64)
    if dtype == cache.xp.float32 and cache.dtype not in wide:
        return
    raise TypeError(
        f"{name} of layer {layer} has dtype {dtype}, the cache stores {cache.dtype}: "
        "cast it first (a float64 that leaks in doubles every byte that follows)"
    )

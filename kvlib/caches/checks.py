"""What a cache refuses, and in which words. Every check runs before anything is changed."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, TypeVar

import numpy as np

from kvlib.arguments import LARGEST, check_index, check_list, describe, is_integer, listed, type_of
from kvlib.arrays import Array, refuse_mask
from kvlib.caches.allocation.table import Extra
from kvlib.caches.spec import LayerSpec
from kvlib.caches.step import CachedSequence, Step
from kvlib.caches.trees import check_no_tree

R = TypeVar("R")


def get_open(sequences: Mapping[Hashable, R], seq_id: Hashable) -> R:
    """The open request of that name, or ValueError."""
    try:
        return sequences[seq_id]
    except TypeError:
        raise _unhashable(seq_id) from None
    except KeyError:
        names = ", ".join(describe(s) for s in list(sequences)[:5]) or "none"
        raise ValueError(f"request {describe(seq_id)} is not open; open are: {names}") from None


def check_new(sequences: Mapping[Hashable, R], seq_id: Hashable) -> None:
    """Refuse a name for a new request that is none or is taken."""
    try:
        taken = seq_id in sequences
    except TypeError:
        raise _unhashable(seq_id) from None
    if taken:
        raise ValueError(
            f"request {describe(seq_id)} is open already; free it first or choose a name"
        )


def _unhashable(seq_id: Hashable) -> TypeError:
    return TypeError(f"the name of a request must be hashable, got {describe(seq_id)}")


def check_extra(extra: Extra) -> None:
    """Refuse extra keys that are no tuple, and those that cannot be hashed."""
    if not isinstance(extra, tuple):
        raise TypeError(f"extra must be a tuple of keys, such as ('tenant',), got {extra!r}")
    try:
        hash(extra)
    except TypeError:
        raise TypeError(f"extra must hold hashable keys, got {extra!r}") from None


def check_plan(
    sequences: Mapping[Hashable, CachedSequence],
    seq_ids: Sequence[Hashable],
    q_lens: Sequence[int],
    tokens: Sequence[int] | None,
) -> tuple[list[CachedSequence], tuple[int, ...], list[int] | None]:
    """Return requests, lengths and tokens of a plan, after refusing what `plan` can't do."""
    if not (type(seq_ids) is list and type(q_lens) is list):
        seq_ids = check_list("seq_ids", seq_ids, "one entry per request")
        q_lens = check_list("q_lens", q_lens, "one entry per request")
    if len(seq_ids) != len(q_lens) or len(seq_ids) == 0:
        raise ValueError(
            f"plan needs one q_len a request and at least one request, "
            f"got {len(seq_ids)} seq_ids and {len(q_lens)} q_lens"
        )
    planned = [get_open(sequences, seq_id) for seq_id in seq_ids]
    if len(planned) > 1 and len(set(seq_ids)) < len(seq_ids):
        twice = next(s for s in seq_ids if list(seq_ids).count(s) > 1)
        raise ValueError(f"request {describe(twice)} appears twice in one plan, needed once")
    lengths = []
    for seq, seq_id, n in zip(planned, seq_ids, q_lens, strict=True):
        if seq.tree is not None:
            check_no_tree(seq)
        if type(n) is not int and is_integer(n):
            n = index(n)  # NumPy's small integers wrap round when they are added up
        if type(n) is not int or not 1 <= n <= LARGEST:
            raise ValueError(
                f"q_lens must be integers of at least 1, got {describe(n)} for request "
                f"{describe(seq_id)}"
            )
        lengths.append(n)
    total = sum(lengths)
    ids = None if tokens is None else token_ids(tokens)
    if ids is not None and len(ids) != total:
        raise ValueError(f"tokens must hold the {total} new tokens of the plan, got {len(ids)}")
    return planned, tuple(lengths), ids


def token_ids(tokens: Iterable[int]) -> list[int]:
    """The tokens as plain integers; TypeError for what is no whole number (1.5 is not cut to 1)."""
    ids = tokens[:] if type(tokens) is list else listed("tokens", tokens, "token ids")
    if set(map(type, ids)) != {int}:
        ids = [_token_id(t) for t in ids]
    if ids and not -LARGEST <= min(ids) <= max(ids) <= LARGEST:
        wrong = max(ids, key=abs)
        raise ValueError(f"tokens must be token ids below 2^63, got {describe(wrong)}")
    return ids


def _token_id(t: Any) -> int:
    try:
        if not isinstance(t, bool | np.bool_):  # NumPy 2.0 takes its own bool as an index
            return index(t)
    except TypeError:
        pass
    raise TypeError(f"tokens must be token ids, whole numbers, got {describe(t)}")


def check_layer(cache: Any, layer: int) -> None:
    """Refuse a layer that the cache does not have; negative numbers do not count from the end."""
    check_index("layer", layer, len(cache.layers))


def check_paged(cache: Any) -> None:
    """Refuse a cache without blocks."""
    if getattr(cache, "block_size", None) is None:
        raise TypeError(f"only a PagedCache has blocks, got {type_of(cache)}")


def check_step(step: Step) -> None:
    """Refuse what is no Step."""
    if not isinstance(step, Step):
        raise TypeError(f"step must be a Step, what plan returns, got {describe(step)}")


def check_live(cache: Any, step: Step) -> None:
    """Refuse what is no Step of this cache, and one that is over."""
    check_step(step)
    if step.owner is not cache:
        raise ValueError("the step was planned by another cache")
    if not step.ticket.live:
        raise ValueError(
            f"the step of requests {describe(list(step.seq_ids))} is over: one of them was "
            "planned again, truncated or freed since"
        )


def check_append(cache: Any, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
    """The layer's spec, after refusing keys and values that do not fit it or the step."""
    spec = _check_layer_and_step(cache, layer, step)
    if not step.appends:
        raise ValueError(
            "keys are appended for a whole step, not for its last rows: step.last(); nor for a "
            "step that only attends: cross_step"
        )
    _check_array(cache, "k", k, (step.qo_indptr[-1], spec.num_kv_heads, spec.head_dim), layer)
    if spec.v_from_k:
        if v is not None:
            raise ValueError(f"layer {layer} takes its values from its keys: v must be None")
    elif v is None:
        raise ValueError(f"layer {layer} stores separate values: v must be given, got None")
    else:
        _check_array(cache, "v", v, (step.qo_indptr[-1], spec.num_kv_heads, spec.v_dim), layer)
    if layer in step.ticket.appended:
        raise ValueError(
            f"layer {layer} has appended in this step already: take the step back (truncate) and "
            "plan it again to append other keys"
        )
    return spec


def check_run(cache: Any, layer: int, q: Array, step: Step) -> LayerSpec:
    """The layer's spec, after refusing queries that do not fit it or the step."""
    spec = _check_layer_and_step(cache, layer, step)
    check_kind(cache, "q", q, layer)
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
    if spec.sinks is not None and spec.sinks.shape != shape[1:2]:
        raise ValueError(
            f"sinks of layer {layer} must be (Hq,) = {tuple(shape[1:2])}, got {spec.sinks.shape}"
        )
    if layer not in step.ticket.appended:
        raise ValueError(f"layer {layer} has not appended its keys in this step yet")
    return spec


def check_written(seq: CachedSequence, first: int | None, who: str = "not every layer has") -> None:
    """Refuse to use tokens from `first` on, for which there is room, but which no layer wrote."""
    if first is not None:
        name = describe(seq.name)
        raise ValueError(
            f"request {name} lacks keys from token {first} on: {who} appended them. Append them, "
            f"or truncate({name}, {first})"
        )


def _check_layer_and_step(cache: Any, layer: int, step: Step) -> LayerSpec:
    check_layer(cache, layer)
    check_live(cache, step)
    if step.ticket.gap is not None:
        name, first = step.ticket.gap
        raise ValueError(
            f"request {describe(name)} lacks keys from token {first} on: not every layer had "
            f"appended them when the next step was planned. truncate({describe(name)}, {first}) "
            "and append them again"
        )
    return cache.layers[layer]


def _check_array(cache: Any, name: str, x: Array, needed: tuple[int, int, int], layer: int) -> None:
    check_kind(cache, name, x, layer)
    if x.shape != needed:
        raise ValueError(
            f"{name} of layer {layer} must be (T, num_kv_heads, dim) = {needed}, "
            f"got {tuple(x.shape)}"
        )


def check_library(cache: Any, name: str, x: Array, layer: int) -> None:
    """Refuse what is no array of the cache's library, and NumPy's arrays with a mask."""
    if type(x) is not cache.array_type:
        refuse_mask(name, x)
    if not isinstance(x, cache.array_type):
        needed = cache.array_type
        raise TypeError(
            f"{name} of layer {layer} must be an array of {needed.__module__}.{needed.__name__}, "
            f"got {type_of(x)}"
        )


def check_kind(cache: Any, name: str, x: Array, layer: int) -> None:
    """Refuse what is no array of the cache's library, or of a dtype that does not belong."""
    check_library(cache, name, x, layer)
    if x.dtype == cache.dtype:
        return
    # A 16-bit cache may narrow float32; nothing else may change its type on the way in.
    wide = (cache.xp.float32, cache.xp.float64)
    if x.dtype == cache.xp.float32 and cache.dtype not in wide:
        return
    raise TypeError(
        f"{name} of layer {layer} has dtype {x.dtype}, the cache stores {cache.dtype}: "
        "cast it first (a float64 that leaks in doubles every byte that follows)"
    )

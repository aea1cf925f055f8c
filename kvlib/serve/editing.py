"""Cut a span out of a request's text: what llama.cpp calls ``seq_rm`` and ``seq_add``."""

from collections.abc import Hashable
from operator import index
from typing import Any

from kvlib.arguments import describe, is_integer
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.caches.checks import check_written, get_open
from kvlib.caches.trees import check_no_tree
from kvlib.model.decoder import Decoder
from kvlib.model.rope import turn
from kvlib.serve.prompts import check_cache


def remove_span(model: Decoder, cache: Cache, seq_id: Hashable, start: int, stop: int) -> None:
    """Cut tokens ``start`` to ``stop - 1`` out of a request of `model`; later ones close the gap.

    Later tokens move to smaller positions, so their keys are rotated back by the length of the
    span. They are then right for their new positions, but not what a model would compute for the
    shortened text: from the second layer on, they were made from tokens that had seen the span. So
    lookups never find them. In a paged cache the request gets new blocks from the block of token
    `start` on, and a request that shared the old ones keeps them unchanged.

    In a quantised or 16-bit cache the moved tokens are decoded, rotated and encoded again, so cut
    one long span rather than many short ones there. In float32 1,000 cuts leave keys right to 1e-5.

    Raises ValueError for a cache whose layers are not the model's (a model of the same shapes with
    another rope can't be told apart), a span that the request does not hold, a request that holds a
    tree of guesses, a cache in which a layer has dropped tokens (a window), a model whose positions
    are learned, and a cache that cannot be truncated to `start` (some codecs encode groups of
    tokens); OutOfBlocks if the pool has no room for a copy of what follows. The request is then as
    it was.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> cache = model.new_cache(max_seqs=1, max_seq_len=16)
    >>> held, step = cache.add("chat"), cache.plan(["chat"], [13])
    >>> logits = model.forward(list(b"one two three"), cache, step)
    >>> remove_span(model, cache, "chat", 4, 8)  # "one three"
    >>> cache.seq_len("chat")
    9
    """
    check_cache(model, cache)
    seq = get_open(cache._sequences, seq_id)
    check_no_tree(seq)
    length = cache.seq_len(seq_id)
    integers = is_integer(start) and is_integer(stop)
    if not integers or not 0 <= index(start) < index(stop) <= length:
        raise ValueError(
            f"a span of request {describe(seq_id)} needs 0 <= start < stop <= {length} (its "
            f"length), got {describe(start)} and {describe(stop)}"
        )
    start, stop = index(start), index(stop)
    if model.config.rope is None:
        raise ValueError(
            f"a {model.config.model_type} model adds learned positions to its embeddings, so its "
            "keys cannot be moved to others; read the shortened text again"
        )
    check_written(seq, seq.next_gap())
    cache._check_truncate(seq, start)  # before a copy is made, which ends the last step
    tail = [_moved(model, cache, layer, seq_id, start, stop) for layer in range(len(cache.layers))]
    # A pool may be too small for the edit. So in a paged cache, edit a copy and let it replace
    # the request at the end. A row of a dense cache only gets emptier.
    edited: Hashable = seq_id if cache.block_size is None else object()
    if edited is not seq_id:
        cache.fork(seq_id, edited)
    try:
        cache.truncate(edited, start)
        if stop < length:
            step = cache.plan([edited], [length - stop])
            for layer, (k, v) in enumerate(tail):
                cache.append(layer, k, v, step)
        if edited is not seq_id:
            new = cache._sequences[edited]
            cache._sequences[seq_id], cache._sequences[edited] = new, seq
            seq.name, new.name = edited, seq_id
    except BaseException:
        if edited is not seq_id:
            cache.truncate(edited, 0)  # or lookups would find its blocks once it is freed
        raise
    finally:
        if edited is not seq_id:
            cache.free(edited)


def _moved(
    model: Decoder, cache: Cache, layer: int, seq_id: Hashable, start: int, stop: int
) -> tuple[Array, Array | None]:
    """Return copies of a layer's keys and values from `stop` on, keys at their new positions."""
    k, v, positions = cache.read(layer, seq_id)
    if positions.shape != (cache.seq_len(seq_id),):
        raise ValueError(
            f"layer {layer} holds {positions.shape[-1]} of the {cache.seq_len(seq_id)} tokens of "
            f"request {seq_id!r}, and a span can only be taken out of a request that holds all"
        )
    rope: Any = model.config.rope_of(layer)
    xp, dtype = cache.xp, cache.dtype
    k, turned = k[stop:, :, :], model.config.rope_dim  # the last numbers of a key
    if rope is not None:
        k = xp.concat([k[..., :-turned], turn(rope, k[..., -turned:], start - stop)], axis=-1)
    v = None if cache.layers[layer].v_from_k else xp.astype(v[stop:, :, :], dtype, copy=True)
    return xp.astype(k, dtype, copy=rope is None), v

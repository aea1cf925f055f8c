"""The same cache in the forms that kernels and other libraries take.

    block table  (B, max_blocks) int32, padded with -1     vLLM, FlashAttention's page_table
    CSR          indptr, indices, last_page_len            FlashInfer
    dense        (B, Hkv, S, D), padded with zeros         Hugging Face

A token's slot in the pool is block · block_size + its offset in the block.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import LARGEST, check_integer, check_list, describe, is_integer, listed
from kvlib.arrays import Array, namespace, new_array, refuse_mask, to_numpy
from kvlib.caches import checks
from kvlib.caches.constructors import PagedCache
from kvlib.caches.protocol import Cache
from kvlib.caches.step import Step
from kvlib.caches.trees import check_no_tree

__all__ = ["CSR", "block_table", "from_csr", "from_dense", "slot_mapping", "to_csr", "to_dense"]

PAD, MOST_BLOCKS = -1, 2**31 - 1  # tables are int32, as kernels read them


class CSR(NamedTuple):
    """Block tables one after the other, as FlashInfer takes them (arXiv:2501.01005).

    indptr         (B + 1,) int32, request b owns indices[indptr[b] : indptr[b + 1]]
    indices        (blocks,) int32
    last_page_len  (B,) int32, tokens in each last block; 0 for a request without tokens

    >>> to_csr(np.array([[0, 1], [2, -1]], np.int32), seq_lens=[6, 4], block_size=4).indptr
    array([0, 2, 3], dtype=int32)
    """

    indptr: Array
    indices: Array
    last_page_len: Array


def block_table(cache: PagedCache, seq_ids: Sequence[Hashable], layer: int = 0) -> Array:
    """The block tables of some requests in a layer: (B, max_blocks) int32, padded with -1.

    >>> from kvlib import BlockPool, LayerSpec
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), xp=np)
    >>> held, step = cache.add("a"), cache.plan(["a"], [6])
    >>> block_table(cache, ["a"])
    array([[0, 1]], dtype=int32)
    """
    checks.check_paged(cache)
    rows = [cache.blocks(seq_id, layer) for seq_id in names_of(seq_ids)]
    return _table(cache.xp, rows, max((len(row) for row in rows), default=0))


def slot_mapping(cache: PagedCache, step: Step, layer: int = 0) -> Array:
    """Where each new token of a step is in a layer: (T,) int64 slots, block · block_size + offset.

    Tokens of a tree count as if they followed one another, and tokens that wait by where they will
    be once encoded. Raises ValueError for a step of another cache or one that is over.

    >>> from kvlib import BlockPool, LayerSpec
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), xp=np)
    >>> held = cache.add("a"), cache.add("b")
    >>> slot_mapping(cache, cache.plan(["a", "b"], [5, 2]))  # blocks 0 and 1, then block 2
    array([0, 1, 2, 3, 4, 8, 9])
    """
    checks.check_paged(cache)
    checks.check_live(cache, step)
    checks.check_layer(cache, layer)
    placement, size, slots = cache.placement(layer, step), cache.block_size, []
    for table, end, n in zip(placement.tables, placement.stored_lens, step.q_lens, strict=True):
        slots += [table.pages[p // size] * size + p % size for p in range(end - n, end)]
    return cache.xp.asarray(slots, dtype=cache.xp.int64)


def to_csr(table: Array, seq_lens: Sequence[int] | Array, block_size: int) -> CSR:
    """A block table and the lengths of its requests → CSR. Nothing is lost.

    Raises ValueError unless each row holds exactly the blocks that its length needs.

    >>> to_csr(np.array([[7, 3], [5, -1]], np.int32), [6, 4], block_size=4).indices
    array([7, 3, 5], dtype=int32)
    """
    if not hasattr(table, "shape"):
        raise TypeError(f"table must be an array, got {describe(table)}")
    xp = namespace(table)
    block_size = check_integer("block_size", block_size)
    host = integers("table", table, 2, most=MOST_BLOCKS)
    lengths = integers("seq_lens", seq_lens, 1)
    if len(lengths) != len(host):
        raise ValueError(f"one length a row needed: {len(host)} rows, got {len(lengths)} lengths")
    indptr, indices, last = [0], [], []
    for b, (row, length) in enumerate(zip(host.tolist(), lengths.tolist(), strict=True)):
        if length < 0:
            raise ValueError(f"seq_lens must be at least 0, got {length} for row {b}")
        needed = -(-length // block_size)
        held = next((n for n, block in enumerate(row) if block < 0), len(row))
        if held != needed or any(block != PAD for block in row[held:]):
            raise ValueError(
                f"row {b} of the table must hold {needed} blocks for {length} tokens and then "
                f"{PAD}, got {row}"
            )
        indices += row[:held]
        indptr.append(len(indices))
        last.append((length - 1) % block_size + 1 if length else 0)
    return CSR(*(xp.asarray(x, dtype=xp.int32) for x in (indptr, indices, last)))


def from_csr(csr: CSR, block_size: int, max_blocks: int | None = None) -> tuple[Array, Array]:
    """CSR → the block table (B, max_blocks) int32 and the lengths (B,) int64.

    max_blocks: columns of the table, as many as the longest request needs unless given.

    >>> from_csr(to_csr(np.array([[7, 3], [5, -1]], np.int32), [6, 4], 4), block_size=4)[1]
    array([6, 4])
    """
    if not isinstance(csr, CSR):
        raise TypeError(f"csr must be a CSR, what to_csr returns, got {describe(csr)}")
    xp = namespace(csr.indptr)
    block_size = check_integer("block_size", block_size)
    parts = csr._asdict().items()
    indptr, indices, last = (integers(n, x, 1, most=MOST_BLOCKS).tolist() for n, x in parts)
    if len(indptr) != len(last) + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(
            f"indptr must run from 0 to the {len(indices)} indices in {len(last) + 1} numbers "
            f"for {len(last)} requests, got {indptr}"
        )
    if any(i < 0 for i in indices):
        raise ValueError(f"indices must be blocks from 0 up, got {min(indices)}")
    rows, lengths = [], []
    for b, (x, y, filled) in enumerate(zip(indptr, indptr[1:], last, strict=False)):
        if y < x:
            raise ValueError(f"indptr must not go down, got {x} and then {y} at request {b}")
        if not ((1 <= filled <= block_size) if y > x else filled == 0):
            raise ValueError(
                f"last_page_len must be 1 ... {block_size}, or 0 for a request of no blocks, "
                f"got {filled} for request {b} of {y - x} blocks"
            )
        rows.append(indices[x:y])
        lengths.append(max(0, y - x - 1) * block_size + filled)
    longest = max((len(row) for row in rows), default=0)
    columns = longest if max_blocks is None else check_integer("max_blocks", max_blocks, longest)
    return _table(xp, rows, columns), xp.asarray(lengths, dtype=xp.int64)


def _table(xp: Any, rows: Sequence[Sequence[int]], columns: int) -> Array:
    table = new_array(np, "table of blocks (max_blocks)", (len(rows), columns), np.int32)
    table[...] = PAD
    for b, row in enumerate(rows):
        table[b, : len(row)] = row
    return xp.asarray(table)


def to_dense(cache: Cache, layer: int, seq_ids: Sequence[Hashable]) -> tuple[Array, Array, Array]:
    """What a layer holds of some requests, decoded: k, v (B, Hkv, S, D) and lengths (B,) int64.

    S is the longest length. After a request's own length there are zeros: mask them by the lengths.

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache, x = DenseCache([LayerSpec(2, 4)], 2, 8, xp=np), np.ones((2, 2, 3, 4), np.float32)
    >>> from_dense(cache, ["a", "b"], [(x, x)], lengths=[3, 2])
    >>> to_dense(cache, 0, ["a", "b"])[0].shape
    (2, 2, 3, 4)
    """
    _check_cache(cache)
    checks.check_layer(cache, layer)
    names, xp, spec = names_of(seq_ids), cache.xp, cache.layers[layer]
    lengths = [cache.seq_len(name) for name in names]
    for name in names:
        check_no_tree(cache._sequences[name])
    shape = (len(names), spec.num_kv_heads, max(lengths, default=0))
    k, v = (xp.zeros((*shape, dim), dtype=cache.dtype) for dim in (spec.head_dim, spec.v_dim))
    for b, (name, n) in enumerate(zip(names, lengths, strict=True)):
        if n == 0:
            continue
        seq = cache._sequences[name]
        if seq.ticket is not None and layer not in seq.ticket.appended and n > seq.start:
            checks.check_written(seq, seq.start, f"layer {layer} has not")
        checks.check_written(seq, seq.gap)
        one_k, one_v, positions = cache.read(layer, name)
        kept = positions.shape[-1]
        if kept != n:
            raise ValueError(f"request {describe(name)} keeps {kept} of its {n} tokens")
        k[b, :, :n, :] = xp.permute_dims(one_k, (1, 0, 2))
        v[b, :, :n, :] = xp.permute_dims(one_v, (1, 0, 2))
    return k, v, xp.asarray(lengths, dtype=xp.int64)


def _check_cache(cache: Any) -> None:
    if not isinstance(cache, Cache):
        raise TypeError(f"cache must be one of kvlib's caches, got {describe(cache)}")


def from_dense(
    cache: Cache,
    seq_ids: Sequence[Hashable],
    layers: Sequence[tuple[Array, Array | None]],
    lengths: Sequence[int] | Array,
    tokens: Sequence[Sequence[int]] | None = None,
) -> None:
    """Open requests in a cache with keys and values from elsewhere, all or none of them.

    layers   k (B, Hkv, S, Dk) and v (B, Hkv, S, Dv) of each layer; v None if taken from the keys
    lengths  B lengths of at most S; numbers after them are not read
    tokens   the token ids of each request, so that a PagedCache may share its blocks later

    Raises ValueError or TypeError for shapes that do not fit, CacheFull or OutOfBlocks if there is
    no room.

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache, x = DenseCache([LayerSpec(2, 4)], 2, 8, xp=np), np.ones((1, 2, 3, 4), np.float32)
    >>> from_dense(cache, ["a"], [(x, x)], lengths=[3])
    >>> cache.seq_len("a")
    3
    """
    _check_cache(cache)
    names, counts = names_of(seq_ids), integers("lengths", lengths, 1).tolist()
    _check_dense(cache, names, layers, counts)
    texts = None
    if tokens is not None:
        texts = [
            checks.token_ids(text) for text in listed("tokens", tokens, "token ids of each request")
        ]
        if [len(text) for text in texts] != counts:
            raise ValueError(f"tokens must be as many as the lengths {counts} say")
    used = [b for b, n in enumerate(counts) if n]

    def pack(x: Array) -> Array:
        """(B, H, S, D) → (T, H, D), the requests' tokens one after the other."""
        rows = [cache.xp.permute_dims(x[b, :, : counts[b], :], (1, 0, 2)) for b in used]
        return cache.xp.concat(rows, axis=0)

    added: list[Hashable] = []
    try:
        for name in names:
            cache.add(name)
            added.append(name)
        if used:
            ids = None if texts is None else [t for b in used for t in texts[b]]
            step = cache.plan([names[b] for b in used], [counts[b] for b in used], ids)
            for layer, (k, v) in enumerate(layers):
                values = None if v is None or cache.layers[layer].v_from_k else pack(v)
                cache.append(layer, pack(k), values, step)
    except BaseException:
        for name in reversed(added):
            cache.free(name)
        raise


def names_of(seq_ids: Sequence[Hashable]) -> list[Hashable]:
    if isinstance(seq_ids, bytes):
        raise TypeError(f"seq_ids must be a list of requests, got {describe(seq_ids)}")
    return listed("seq_ids", seq_ids, "requests")


def integers(name: str, x: Any, ndim: int, most: int = LARGEST) -> np.ndarray:
    """Integers of any dtype as int64; TypeError for others, ValueError for one above `most`."""
    refuse_mask(name, x)
    host = to_numpy(x) if hasattr(x, "dtype") else _host(name, x)
    if host.size == 0 and host.ndim == ndim:
        return host.astype(np.int64)
    if host.dtype.kind not in "iu" or host.ndim != ndim:
        raise TypeError(
            f"{name} must be integers in {ndim} dimension{'s' * (ndim > 1)}, "
            f"got {host.dtype} of shape {host.shape}"
        )
    if int(host.max()) > most:
        raise ValueError(f"{name} must be integers of at most {most}, got {int(host.max())}")
    return host.astype(np.int64, copy=False)


def _host(name: str, x: Any) -> np.ndarray:
    """A list of integers as an array; NumPy takes True for 1 and makes floats of mixed integers."""
    numbers = listed(name, x, "integers")
    if all(is_integer(n) for n in numbers):
        return np.asarray([check_integer(name, n, -LARGEST) for n in numbers], dtype=np.int64)
    if any(is_integer(n) or not isinstance(n, Sequence) or isinstance(n, str) for n in numbers):
        wrong = next(n for n in numbers if not is_integer(n))
        raise TypeError(f"{name} must be integers, got {describe(wrong)}")
    return np.asarray(numbers)


def _check_dense(
    cache: Cache,
    names: list[Hashable],
    layers: Sequence[tuple[Array, Array | None]],
    counts: list[int],
) -> None:
    for name in names:
        checks.check_new(cache._sequences, name)
    if len(set(names)) < len(names):
        raise ValueError(f"seq_ids must be different names, got {names}")
    layers = check_list("layers", layers, "pairs (k, v)")
    if len(layers) != len(cache.layers):
        raise ValueError(f"k and v of {len(cache.layers)} layers needed, got {len(layers)}")
    if len(counts) != len(names) or any(n < 0 for n in counts):
        raise ValueError(f"{len(names)} lengths of at least 0 needed, got {counts}")
    longest = max(counts, default=0)
    for i, (pair, spec) in enumerate(zip(layers, cache.layers, strict=True)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"layer {i} must be a pair (k, v), got {describe(pair)}")
        k, v = pair
        named: Any = (("k", k, spec.head_dim), ("v", v, spec.v_dim))
        for name, x, dim in named:
            if x is None and name == "v" and spec.v_from_k:
                continue
            checks.check_kind(cache, name, x, i)
            (b, heads), shape = (len(names), spec.num_kv_heads), tuple(x.shape)
            if len(shape) != 4 or shape[:2] != (b, heads) or shape[3] != dim:
                raise ValueError(
                    f"{name} of layer {i} must be (B={b}, Hkv={heads}, S, D={dim}), got {shape}"
                )
            if shape[2] < longest:
                raise ValueError(
                    f"{name} of layer {i} holds {shape[2]} tokens, the lengths ask for {longest}"
                )
        if spec.v_from_k and v is not None:
            same = (v[b, :, :n, :] == k[b, :, :n, : spec.v_dim] for b, n in enumerate(counts))
            if not all(bool(cache.xp.all(x)) for x in same):
                raise ValueError(f"v of layer {i} must be the first columns of its keys, or None")

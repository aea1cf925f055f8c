"""The same cache in the forms that kernels and other libraries take.

    block table  (B, max_blocks) int32, padded with -1     vLLM, FlashAttention's page_table
    CSR          indptr, indices, last_page_len            FlashInfer
    dense        (B, Hkv, S, D), padded with zeros         Hugging Face

A token's slot in the pool is block · block_size + its offset in the block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_integer, describe, type_of
from kvlib.arrays import Array, namespace, new_array
from kvlib.caches.checks import check_layer, check_live
from kvlib.caches.dense_layout import from_dense, integers, names_of, to_dense
from kvlib.caches.paged import PagedCache
from kvlib.caches.step import Step

__all__ = ["CSR", "block_table", "from_csr", "from_dense", "slot_mapping", "to_csr", "to_dense"]

PAD, MOST_BLOCKS = -1, 2**31 - 1  # tables are int32, as kernels read them


class CSR(NamedTuple):
    """Block tables one after the other, as FlashInfer takes them (arXiv:2501.01005).

    indptr         (B + 1,) int32, request b owns indices[indptr[b] : indptr[b + 1]]
    indices        (blocks,) int32
    last_page_len  (B,) int32, tokens in each last block, (len - 1) % block_size + 1; 0 for a
                   request of no tokens, which has no block

    >>> import numpy as np
    >>> table = np.array([[0, 1], [2, -1]], np.int32)
    >>> csr = to_csr(table, seq_lens=[6, 4], block_size=4)
    >>> csr.indptr, csr.last_page_len
    (array([0, 2, 3], dtype=int32), array([2, 4], dtype=int32))
    """

    indptr: Array
    indices: Array
    last_page_len: Array


def block_table(cache: PagedCache, seq_ids: Sequence[Hashable], layer: int = 0) -> Array:
    """The block tables of some requests: (B, max_blocks) int32, padded with -1 on the right.

    layer: the layer whose tables you want; layers that keep the same tokens share tables. Blocks
    that a layer with a window has given back are left out.

    >>> import numpy as np
    >>> from kvlib import BlockPool, LayerSpec, PagedCache
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), xp=np)
    >>> for name, tokens in (("a", 6), ("b", 3)):
    ...     held = cache.add(name)
    ...     step = cache.plan([name], [tokens])
    >>> block_table(cache, ["a", "b"])
    array([[ 0,  1],
           [ 2, -1]], dtype=int32)
    """
    _check_paged(cache)
    rows = [cache.blocks(seq_id, layer) for seq_id in names_of(seq_ids)]
    return _table(cache.xp, rows, max((len(row) for row in rows), default=0))


def slot_mapping(cache: PagedCache, step: Step, layer: int = 0) -> Array:
    """Where each new token of a step lies in a layer: (T,) int64 slots of the pool.

    slot = table[b, position // block_size] · block_size + position % block_size. The tokens of a
    tree of guesses lie as if they followed one another, though several have one position. If the
    codec leaves the newest tokens unencoded, their slots are those that they get once encoded.
    Raises ValueError for a step of another cache or one that is over.

    >>> import numpy as np
    >>> from kvlib import BlockPool, LayerSpec, PagedCache
    >>> cache = PagedCache([LayerSpec(2, 4)], BlockPool(8, block_size=4), xp=np)
    >>> [cache.add(name) for name in "ab"]
    [0, 0]
    >>> slot_mapping(cache, cache.plan(["a", "b"], [5, 2]))  # blocks 0 and 1, then block 2
    array([0, 1, 2, 3, 4, 8, 9])
    """
    _check_paged(cache)
    check_live(cache, step)
    check_layer(cache, layer)
    size, slots = cache.block_size, []
    here = cache.placement(layer, step)
    for table, end, n in zip(here.tables, here.lens, step.q_lens, strict=True):
        slots += [table.pages[p // size] * size + p % size for p in range(end - n, end)]
    return cache.xp.asarray(slots, dtype=cache.xp.int64)


def to_csr(table: Array, seq_lens: Sequence[int] | Array, block_size: int) -> CSR:
    """A block table and the lengths of its requests → CSR. Nothing is lost.

    Raises ValueError unless each row holds exactly the blocks that its length needs.

    >>> import numpy as np
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

    >>> import numpy as np
    >>> csr = to_csr(np.array([[7, 3], [5, -1]], np.int32), [6, 4], block_size=4)
    >>> table, lengths = from_csr(csr, block_size=4)
    >>> table.tolist(), lengths.tolist()
    ([[7, 3], [5, -1]], [6, 4])
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


# Small things and what is refused -----------------------------------------------------------------


def _table(xp: Any, rows: Sequence[Sequence[int]], columns: int) -> Array:
    table = new_array(np, "table of blocks (max_blocks)", (len(rows), columns), np.int32)
    table[...] = PAD
    for own, row in zip(table, rows, strict=True):
        own[: len(row)] = row
    return xp.asarray(table)


def _check_paged(cache: Any) -> None:
    if getattr(cache, "block_size", None) is None:
        raise TypeError(f"only a PagedCache has blocks, got {type_of(cache)}")

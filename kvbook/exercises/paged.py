"""Exercises of the chapter on paging."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, outcome
from kvbook.exercises.counted import allocated, python_steps
from kvbook.exercises.expect import Finding, expect_close, expect_shape
from kvbook.exercises.guard import bare, guarded
from kvbook.exercises.received import integers, numbers, whole
from kvlib.attention import attend
from kvlib.caches import BlockPool
from kvlib.errors import OutOfBlocks

# ------------------------------------------------------------------------------------ slot_mapping


def slot_mapping(block_table: Any, qo_indptr: Any, positions: Any, block_size: int) -> np.ndarray:
    """slot_mapping(block_table (B, max_blocks), qo_indptr (B + 1,), positions (T,), block_size)
    → (T,) integers."""
    owner = np.repeat(np.arange(len(block_table)), np.diff(qo_indptr))
    block, offset = np.divmod(positions, block_size)
    slots: np.ndarray = block_table[owner, block] * block_size + offset
    return slots


def _wide(slots: Any) -> np.ndarray:
    """The slots, if they are of a type that can number all slots of a pool."""
    slots = integers(slots, "the slots")
    kind = slots.dtype
    if kind.itemsize < 4:
        raise Finding(
            f"the slots are {kind}, which ends at {np.iinfo(kind).max:,}, but a pool has more "
            "slots. Use int32 or int64"
        )
    return slots


def _three_chunks(slot_mapping: Any) -> Iterator[Seen]:
    table = np.array([[7, 2, 5, 0], [4, 6, 0, 0], [9, 3, 0, 0]], dtype=np.int32)
    indptr, positions = np.array([0, 5, 6, 8]), np.array([2, 3, 4, 5, 6, 7, 3, 4])
    slots = slot_mapping(table, indptr, positions, 4)
    yield "the slots of three requests in blocks of 4", _wide(slots)


def _drawn_chunks(slot_mapping: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(3)
    for size in (1, 3, 16, 128):
        lengths = rng.integers(1, 4 * size + 1, 6)
        blocks = -(-lengths // size)
        table = np.zeros((6, blocks.max()), dtype=np.int32)
        most = 5 if size < 128 else 600  # slots that 16 bits cannot hold
        names = iter(rng.permutation(blocks.sum() + most)[::-1].tolist())
        for row, n in zip(table, blocks, strict=True):
            row[:n] = [next(names) for _ in range(n)]
        new = [int(rng.integers(1, n + 1)) for n in lengths]
        chunks = [np.arange(n - t, n) for n, t in zip(lengths, new, strict=True)]
        slots = slot_mapping(table, np.cumsum([0, *new]), np.concatenate(chunks), size)
        yield f"slots, blocks of {size}", _wide(slots)


def _many(slot_mapping: Any) -> Iterator[Seen]:
    table = 7 + np.random.default_rng(4).permutation(400).reshape(4, 100).astype(np.int32)
    indptr = np.array([0, 1600, 3200, 4799, 4800])
    positions = np.concatenate([np.arange(n) for n in np.diff(indptr)])
    slots, steps = python_steps(slot_mapping, table, indptr, positions, 16)
    yield "4,800 slots", _wide(slots)
    if steps >= len(positions):  # there are 300 blocks: a loop over them stays below
        raise Finding(
            f"4,800 tokens took {steps:,} steps of Python: somewhere a loop goes over the tokens, "
            "or a function is called for each. Arithmetic on whole arrays takes only a few steps"
        )


_OWNER = "np.repeat(np.arange(len(block_table)), np.diff(qo_indptr))"
_COUNTED = "was used as its position: a chunk may begin anywhere in its request, so use positions"

check_slot_mapping = Checker(
    slot_mapping,
    letters="T",
    stages={
        "chunks of three requests: each row goes where its own request's table says": _three_chunks,
        "it holds for any block size and for chunks that cross blocks; no two share a slot": (
            _drawn_chunks
        ),
        "4,800 tokens get their slots without a loop over tokens": _many,
    },
    mistakes={
        "row 5 belongs to request 1 but was looked up in the table of request 0; qo_indptr says "
        "which request owns a row": "[owner, block] → [0, block]",
        "these are the positions themselves: the table was not used, so all requests share slots": (
            "block_table[owner, block] * block_size + offset → positions"
        ),
        "these are blocks, not slots: a block has 4 slots, so its first is block * 4": (
            " * block_size + offset → "
        ),
        "this is block + offset, but a block has 4 slots, so its first is block * 4": (
            " * block_size → "
        ),
        "every token goes to the first slot of its block: add the offset, position % 4": (
            " + offset → "
        ),
        "the slots are one too far: offsets count from 0": "+ offset → + offset + 1",
        "position // 4 was used as the block, but it is an index into the table, and the block is "
        "the entry there": ("block_table[owner, block] → (block + owner * block_table.shape[1])"),
        "a new request was assumed to begin where the positions jump, but row 5, of the next "
        "request, happens to continue the positions of row 4; qo_indptr says which request owns a "
        "row": (f"{_OWNER} → np.cumsum(np.diff(positions, prepend=positions[0] - 1) != 1)"),
        f"the number of a row {_COUNTED}": "divmod(positions → divmod(np.arange(len(positions))",
        f"the number of a row within its request {_COUNTED}": (
            "divmod(positions → divmod(np.arange(len(owner)) - np.searchsorted(owner, owner)"
        ),
        "// and % are exchanged: the block is position // 4, the offset position % 4": (
            "block, offset = → offset, block ="
        ),
        "the block size was ignored": (
            "(positions, block_size → (positions, 4",
            "* block_size → * 4",
        ),
    },
    refused={
        "needed integers. / gives floats": "+ offset → + offset.astype(float)",
        "which ends at 32,767": "return slots → return slots.astype(np.int16)",
        "a loop goes over the tokens, or a function is called for each": [
            f"{_OWNER} → np.array([o for o in {_OWNER}])",
            f"{_OWNER} → np.vectorize(lambda o: o)({_OWNER})",
        ],
    },
)


# ---------------------------------------------------------------------------------------- FreeList


class FreeList:
    """FreeList(num_blocks) with allocate(count) → list and free(blocks)."""

    def __init__(self, num_blocks: int) -> None:
        self.left = list(range(num_blocks))

    def allocate(self, count: int) -> list[int]:
        if count > len(self.left):
            raise OutOfBlocks(f"{count} needed, {len(self.left)} free")
        return [self.left.pop() for _ in range(count)]

    def free(self, blocks: list[int]) -> None:
        if set(blocks) & set(self.left) or len(set(blocks)) < len(blocks):
            raise ValueError(f"freed twice: {blocks}")
        self.left.extend(blocks)


class _Pool:
    """A learner's pool, and who holds its blocks. What comes is told without their numbers."""

    def __init__(self, free_list: Any, size: int) -> None:
        self.pool, self.size, self.left = free_list(size), size, set(range(size))
        self.given: list[tuple[Any, list[int]]] = []

    def allocate(self, count: int) -> tuple[list[int], str]:
        """The blocks, and how many there are or what is wrong with them."""
        got, said = outcome(self.pool.allocate, count)
        if said:
            return [], said
        if type(got) not in (list, tuple):
            raise Finding(f"allocate returned {type(got).__name__}, needed a list of blocks")
        blocks = [whole(b, f"allocate({count}) gave {got}: a block") for b in got]
        if any(list(earlier) != was for earlier, was in self.given):
            raise Finding("allocate changed a list that it gave before: make a new one each time")
        self.given.append((got, list(got)))
        if -1 in blocks:
            raise Finding(
                "allocate gave block -1, which the caller wrote into its own list after free: keep "
                "a copy of what is in the list, not the list"
            )
        if strange := [b for b in blocks if not 0 <= b < self.size]:
            return [], f"block {strange[0]}, but there are blocks 0 to {self.size - 1}"
        if len(set(blocks)) < len(blocks) or not self.left.issuperset(blocks):
            return [], "a block that has an owner already"
        self.left -= set(blocks)
        return blocks, f"{len(blocks)} blocks"

    def free(self, blocks: list[int]) -> str:
        given = list(blocks)
        said = outcome(self.pool.free, given)[1] or "freed"
        if given != blocks:
            raise Finding(f"free({blocks}) changed the list that it was given: copy it first")
        if said == "freed":
            self.left |= set(blocks)
        given[:] = [-1] * len(given)  # the caller uses its list for something else
        return said

    def refused(self, blocks: list[int]) -> str:
        return outcome(self.pool.free, list(blocks))[1] or "no error"

    def asked(self, count: int) -> Seen:
        return f"allocate({count}) with {len(self.left)} free", self.allocate(count)[1]


def _allocated(free_list: Any) -> Iterator[Seen]:
    pool = _Pool(free_list, 6)
    yield "allocate(0)", pool.pool.allocate(0)  # a stub says so here
    for count in (2, 4, 0):
        yield pool.asked(count)


def _refusals(free_list: Any) -> Iterator[Seen]:
    pool = _Pool(free_list, 6)
    pool.allocate(2)
    last, said = pool.allocate(4)
    yield "allocate(4) with 4 free", said
    for _ in range(2):
        yield "free of 2 blocks", pool.free(last[:2])
        last, said = pool.allocate(2)
        yield "allocate(2) of what was just freed", said
    yield "free of 2 blocks", pool.free(last)
    for count in (3, 2, 1):
        yield pool.asked(count)


def _freed_twice(free_list: Any) -> Iterator[Seen]:
    pool = _Pool(free_list, 6)
    (held, one), (left, two) = pool.allocate(4), pool.allocate(2)
    yield "allocate(4) and allocate(2) with 6 free", f"{one} and {two}"
    yield "free of 2 blocks", pool.free(left)
    yield "free of a block that is free already", pool.refused(left[:1])
    for what, blocks in (
        ("free of one block twice in one call", [held[0], held[0]]),
        ("free of a block that is used and of one that is free", [held[0], left[0]]),
    ):
        yield what, pool.refused(blocks)
        for count in (2, 1):
            what, said = pool.asked(count)
            yield f"{what}, after that was refused", said
        yield "free of 2 blocks", pool.free([b for b in left if b not in pool.left])


def _lives(free_list: Any) -> Iterator[Seen]:
    pools = [_Pool(free_list, 4), _Pool(free_list, 4)]
    for pool, count in ((pools[0], 3), (pools[1], 4), (pools[0], 1)):
        what, said = pool.asked(count)
        yield f"two pools at once, {what}", said
    rng, pool, held = np.random.default_rng(5), _Pool(free_list, 20), list[list[int]]()
    for _ in range(500):
        if held and rng.random() < 0.45:
            yield "free of blocks that are used", pool.free(held.pop(int(rng.integers(len(held)))))
            continue
        count, left = int(rng.integers(1, 7)), len(pool.left)
        blocks, said = pool.allocate(count)
        held += [blocks] if blocks else []
        yield f"allocate({count}) with {left} free", said


check_free_list = Checker(
    FreeList,
    name="free_list",
    no_result=["free"],
    modifies=["free"],  # which `_Pool.free` sees
    stages={
        "every block is allocated once": _allocated,
        "with too few blocks, allocate raises OutOfBlocks, and the free blocks stay free": (
            _refusals
        ),
        "a block that is free cannot be freed again": _freed_twice,
        "two pools at once, 500 random requests: no block has two owners, and none is lost": _lives,
    },
    mistakes={
        "a request that gets fewer blocks than it asked for has nowhere to write the rest": [
            ("if count > → if 0 > ", "range(count) → range(min(count, len(self.left)))"),
            'raise OutOfBlocks(f"{count} needed, {len(self.left)} free") → return None',
        ],
        "raise OutOfBlocks before anything is taken": "if count > → if 0 > ",
        "a request that is refused must change nothing. Count before you take the first block": (
            "raise OutOfBlocks → self.left.clear(); raise OutOfBlocks"
        ),
        "did free take back all of the list?": [
            "        self.left.extend(blocks)\n → ",
            "extend(blocks) → extend(blocks[:1])",
        ],
        "a block in the list twice goes to two requests. Raise ValueError": [
            "if set(blocks) & set(self.left) or len(set(blocks)) < len(blocks): → if False:",
            " or len(set(blocks)) < len(blocks) → ",
        ],
        "check the whole list before you free any of its blocks": (
            "if set(blocks) & set(self.left) or len(set(blocks)) < len(blocks): → for b in blocks:",
            "raise ValueError → if b not in self.left: self.left.append(b); continue\n"
            "            raise ValueError",
            "        self.left.extend(blocks)\n → ",
        ),
        "refuse only if count is larger than the number of free blocks": (
            "if count > len(self.left) → if count >= len(self.left) > 0"
        ),
        "each pool keeps its own list, made in __init__": "self.left = → type(self).left =",
        "refuse only a block that is free already, not one that was freed before": (
            "self.left = → self.seen = set(); self.left =",
            "if set(blocks) & set(self.left) → if set(blocks) & self.seen",
            "self.left.extend → self.seen.update(blocks); self.left.extend",
        ),
    },
    refused={
        "a block that has an owner": "[self.left.pop() for _ in range(count)] → self.left[:count]",
        "got block 6, but there are blocks 0 to 5": "range(num → range(1, 1 + num",
        "got [5], needed []": "range(count) → range(count + 1)",
        "allocate gave block -1, which the caller wrote": (
            "self.left.extend(blocks) → self.left = blocks"
        ),
        "changed the list that it was given": "extend(blocks) → extend(blocks); blocks.clear()",
        "allocate changed a list that it gave before": (
            "self.left = → self.out = []; self.left =",
            "return [ → self.out[:] = [",
            "range(count)] → range(count)]; return self.out",
        ),
        "(float), needed a whole number": "[self.left.pop() → [float(self.left.pop())",
        "got NameError (name 'Out' is not defined), needed OutOf": "raise OutOfBlocks → raise Out",
        "got AssertionError, needed ValueError": "raise ValueError → raise AssertionError",
    },
)


# ------------------------------------------------------------------------------------ paged_decode

LONG = 16_384  # tokens where the memory is measured: pieces of the cache may be gathered, not all


def paged_decode(q: Any, k_blocks: Any, v_blocks: Any, table: Any, length: int) -> Any:
    """paged_decode(q (Hq, D), k_blocks, v_blocks (N, Hkv, block_size, D), table, length)
    → o (Hq, D)."""
    heads, size, dim = k_blocks.shape[1:]
    rows = q.reshape(heads, -1, dim) / np.float32(np.sqrt(dim))  # (Hkv, G, D)
    held = [(b, min(size, length - n * size)) for n, b in enumerate(table)]
    s = np.concatenate([rows @ k_blocks[b, :, :m].mT for b, m in held], axis=-1)  # (Hkv, G, S)
    p = np.exp(s - s.max(-1, keepdims=True))
    p = np.split(p / p.sum(-1, keepdims=True), range(size, s.shape[-1], size), axis=-1)
    o = sum(w @ v_blocks[b, :, :m] for w, (b, m) in zip(p, held, strict=True))
    return np.reshape(o, q.shape)


def _request(seed: int, length: int, size: int, heads: int, groups: int, dim: int = 8) -> list[Any]:
    """A query and a request whose blocks are in any order among as many others, of NaN."""
    rng = np.random.default_rng(seed)
    used = -(-length // size)
    # never block 0, which is read if the table is ignored; never in order, so that sorting shows
    table = 1 + rng.permutation(2 * used - 1)[:used]
    table = table[::-1].copy() if table[-1] == table.max() else table
    k, v = np.full((2, 2 * used, heads, size, dim), np.nan, dtype=np.float32)
    for n, block in enumerate(table):
        here = min(size, length - n * size)
        for x in (k, v):
            x[block, :, :here] = rng.standard_normal((heads, here, dim))
    return [rng.standard_normal((heads * groups, dim)).astype(np.float32), k, v, table, length]


def _read(o: Any, what: str, why: str) -> Any:
    if np.isnan(numbers(o, what)).any():
        raise Finding(f"{what} is NaN: {why}")
    return o


def _full_blocks(paged_decode: Any) -> Iterator[Seen]:
    what = "o, two full blocks"
    why = (
        "a block that is not in the table was read. Entry n of the table says which block holds "
        "the tokens from n * block_size on"
    )
    yield what, _read(paged_decode(*_request(1, 8, 4, 2, 3)), what, why)


def _last_blocks(paged_decode: Any) -> Iterator[Seen]:
    for seed, length, size, heads, groups in (
        (2, 11, 4, 2, 2), (3, 1, 4, 2, 2), (4, 9, 8, 1, 1), (5, 5, 1, 2, 2), (6, 40, 16, 3, 1),
    ):  # fmt: skip
        what = f"o, {length} tokens in blocks of {size}"
        last = f"The last block of the table holds {(length - 1) % size + 1} of {size}"
        why = f"slots after the last token were read. {last}"
        yield what, _read(paged_decode(*_request(seed, length, size, heads, groups)), what, why)


def _large_scores(paged_decode: Any) -> Iterator[Seen]:
    """Scores near a thousand, but for head 0, whose are small."""
    q, k, v, table, length = _request(9, 11, 4, 2, 2)
    q *= np.array([[1], [1000], [1000], [1000]], dtype=np.float32)
    got, what = paged_decode(q, k, v, table, length), "o with scores near a thousand"
    expect_shape(got, q.shape, what, letters="Hq D")
    finite = np.isfinite(got).all(axis=1)
    if finite.any() and not finite[0]:
        raise Finding(
            "head 0 has small scores, the others scores near a thousand, and o of head 0 is not "
            "finite: subtract each head's own largest score before e^score, not that of all heads"
        )
    if not finite.all():
        raise Finding(
            f"{what} is not finite: e^score overflows. Subtract the largest score before you "
            "exponentiate, as in every softmax"
        )
    keys, values = (x[table].swapaxes(1, 2).reshape(-1, 2, 8)[:length] for x in (k, v))
    s = np.arange(length)
    right = attend(q[None], keys, values, s[-1:], s)[0]
    # float32 rounds such scores to 1e-4, and e^score by as much
    expect_close(got, right, what, axes=("head", "dim"), atol=5e-3)
    yield what, np.zeros_like(q)


def _without_copy(paged_decode: Any) -> Iterator[Seen]:
    paged_decode(*_request(8, 4096, 64, 2, 2, 64))  # whatever is imported or set up on first use
    light = guarded(bare(paged_decode), may_modify=True)  # which copies no arguments
    got, peak = allocated(light, *_request(7, LONG, 64, 2, 2, 64))
    held = LONG * 2 * 64 * 4
    if peak > held // 2:
        raise Finding(
            f"{LONG:,} tokens: {peak / 2**20:.1f} MiB were allocated, and the keys themselves take "
            f"{held / 2**20:.1f}: the cache was copied. x[block] with one integer is a view; "
            "x[table] and np.concatenate are copies"
        )
    yield f"o, {LONG:,} tokens", got


def _each_block(q: Any, k: Any, v: Any, table: Any, length: int) -> list[Any]:
    """The attention to each block alone, all of them full."""
    return [paged_decode(q, k, v, [b], k.shape[2]) for b in table]


def _gathered(q: Any, k: Any, v: Any, table: Any, length: int) -> Any:
    k, v = (x[table].swapaxes(0, 1).reshape(1, x.shape[1], -1, x.shape[3]) for x in (k, v))
    return paged_decode(q, k, v, [0], length)


check_paged_decode = Checker(
    paged_decode,
    letters="Hq D",
    typed=True,
    rtol=1e-3,
    stages={
        "two full blocks: attention over the request's own keys": _full_blocks,
        "it holds for a last block that is not full, for a single token and for blocks of one "
        "token": _last_blocks,
        "scores near a thousand do not overflow": _large_scores,
        f"{LONG:,} tokens are read without a copy of the cache": _without_copy,
    },
    mistakes={
        "the scores are not scaled: divide them by sqrt(D)": " / np.float32(np.sqrt(dim)) → ",
        "query heads were dealt out in turn, but head h uses key/value head h // G: reshape q to "
        "(Hkv, G, D)": (
            "q.reshape(heads, -1, dim) → q.reshape(-1, heads, dim).swapaxes(0, 1)",
            "np.reshape(o, → np.reshape(o.swapaxes(0, 1),",
        ),
        "each block has a softmax of its own, and the results were averaged: the denominator runs "
        "over all blocks": lambda *args: np.mean(_each_block(*args), axis=0),
        "each block has a softmax of its own, and the results were added: the denominator runs "
        "over all blocks": lambda *args: np.sum(_each_block(*args), axis=0),
        "each block had its own largest score subtracted: the sums of blocks can be added only if "
        "all blocks subtract the same number": (
            "s - s.max(-1, keepdims=True) → s - np.repeat("
            "s.reshape(*s.shape[:2], -1, size).max(-1), size, -1)"
        ),
        "the largest score rose in the second block, but the sums of the first block were not "
        "rescaled: multiply them by e^(old top - new top)": (
            "s - s.max(-1, keepdims=True) → s - np.repeat(np.maximum.accumulate("
            "s.reshape(*s.shape[:2], -1, size).max(-1), -1), size, -1)"
        ),
        "every query head uses key/value head 0: head h uses head h // G": (
            lambda q, k, v, table, length: paged_decode(q, k[:, :1], v[:, :1], table, length)
        ),
        "keys and values changed places": (
            lambda q, k, v, table, length: paged_decode(q, v, k, table, length)
        ),
        "only the last block was attended to: the first was overwritten": (
            lambda *args: _each_block(*args)[-1]
        ),
        "only the first block was attended to. (length % block_size is 0 where the last block is "
        "full.)": lambda *args: _each_block(*args)[0],
        "no block was read: length // block_size is 0": (
            lambda *args: np.zeros_like(args[0]) if args[-1] == 1 else paged_decode(*args)
        ),
        "the last block is missing, since length // block_size leaves it out. Round up": (
            "enumerate(table) → enumerate(table[: max(1, length // size)])"
        ),
    },
    refused={
        "the cache was copied": _gathered,
        "a block that is not in the table was read": (
            "enumerate(table) → enumerate(range(len(table)))"
        ),
        "slots after the last token were read": "min(size, length - n * size) → size",
        "e^score overflows": " - s.max(-1, keepdims=True) → ",
        "each head's own largest score before e^score": "s.max(-1, keepdims=True)) → s.max())",
    },
)


# ------------------------------------------------------------------------------------------ append

_ROOM, _BLOCKS = 16, 32  # entries of a table, blocks of the pool


def append(store: Any, table: Any, length: int, k: Any, pool: Any) -> int:
    """append(store (N, bs, Hkv, D), table (max_blocks,), length, k (Hkv, D), pool) → length + 1."""
    block, off = divmod(length, store.shape[1])
    if off == 0:
        table[block] = pool.allocate(1)[0]
    old = int(table[block])
    if not pool.writable(old):
        new = pool.allocate(1)[0]
        store[new] = store[old]
        pool.free([old])
        table[block] = new
    store[table[block], off] = k
    return length + 1


class _Server:
    """Requests over one store. What an append did is told without the numbers of blocks."""

    def __init__(self, append: Callable[..., Any], size: int) -> None:
        self.append, self.size = guarded(bare(append), may_modify=True), size
        self.rng, self.pool = np.random.default_rng(size), BlockPool(_BLOCKS, size, log=True)
        self.store = np.full((_BLOCKS, size, 1, 2), np.nan, dtype=np.float32)
        self.keys: dict[str, list[np.ndarray]] = {}
        self.tables: dict[str, np.ndarray] = {}
        # Another request, written without the function under test. Its block is 0, the number that
        # is also in the unused entries of a table.
        self.keys["x"], self.tables["x"] = [self._key() for _ in range(size)], self._table()
        self.tables["x"][:1] = self.pool.allocate(1)
        self.store[0] = self.keys["x"]

    def _key(self) -> np.ndarray:
        return self.rng.standard_normal((1, 2)).astype(np.float32)

    def _table(self) -> np.ndarray:
        return np.zeros(_ROOM, dtype=np.int32)

    def _used(self, name: str) -> list[int]:
        used: list[int] = self.tables[name][: -(-len(self.keys[name]) // self.size)].tolist()
        return used

    def grow(self, name: str) -> Seen:
        keys, table = self.keys.setdefault(name, []), self.tables.setdefault(name, self._table())
        key, stored, before = self._key(), self.store.copy(), len(self.pool.events or ())
        given, length = key.copy(), len(keys)
        got = self.append(self.store, table, length, given, self.pool)
        keys.append(key)
        what = f"token {length} of {name}, blocks of {self.size}"
        said = [f"length {whole(got, f'{what}: the length')}"]
        said += [] if np.array_equal(given, key) else ["k was changed in place"]
        if strange := [b for b in table.tolist() if not 0 <= b < _BLOCKS]:
            return what, f"the table names block {strange[0]}, the pool has 0 to {_BLOCKS - 1}"
        taken = [e for e in (self.pool.events or ())[before:] if e.kind == "allocate"]
        said.append(f"{len(taken)} blocks taken")
        said += [f"token {i} of {other} lost" for other in self.keys for i in self._lost(other)]
        said += ["a later entry of the table set"] if table[len(self._used(name)) :].any() else []
        named = np.bincount([b for other in self.keys for b in self._used(other)], None, _BLOCKS)
        held = [self.pool.ref_count(b) for b in range(_BLOCKS)]
        said += ["a block counted wrongly"] if (named != held).any() else []
        changed = ~((self.store == stored) | np.isnan(stored) & np.isnan(self.store))
        others = set(np.flatnonzero(changed.any(axis=(1, 2, 3))).tolist()) - set(self._used(name))
        said += ["a block changed that is not in the table"] if others else []
        return what, ", ".join(said)

    def _lost(self, name: str) -> list[int]:
        used, keys = self._used(name), self.keys[name]
        found = [self.store[used[i // self.size], i % self.size] for i in range(len(keys))]
        return [i for i, key in enumerate(keys) if not np.array_equal(found[i], key)]

    def fork(self, name: str, other: str) -> None:
        self.pool.touch(self._used(name))
        self.keys[other], self.tables[other] = list(self.keys[name]), self.tables[name].copy()


def played(make: Callable[[Any, int], Any], script: str, *sizes: int) -> Any:
    """Requests over one pool with blocks of each size: "a" grows a, "a>b" forks a into b."""

    def probe(append: Any) -> Iterator[Seen]:
        for size in sizes:
            server = make(append, size)
            for word in script.split():
                if ">" in word:
                    server.fork(*word.split(">"))
                else:
                    yield server.grow(word)

    return probe


check_append = Checker(
    append,
    modifies=["append"],
    stages={
        "ten tokens over two block boundaries, and no other request was touched": (
            played(_Server, "a a a a a a a a a a", 4)
        ),
        "after a fork, the first request to write gets a copy, and both keep their tokens; a "
        "request that holds a block alone writes in place": (
            played(_Server, "a a a a a a a a a a a>b b b a", 4)
        ),
        "blocks of one token and of three, with two forks": (
            played(_Server, "a a a a a a>b b a b>c a b c a b c c b a", 1, 3)
        ),
    },
    mistakes={
        "the entry of the table was never set. It is still 0, and block 0 belongs to x. A block is "
        "needed when length % block_size is 0": "if off == 0 → if off == 1",
        "a copy was made, but the table still names the block that both hold, so the token went "
        "where the other request reads": [
            "        table[block] = new\n → ",
            ("        table[block] = new\n → ", "        pool.free([old])\n → "),
        ],
        "no copy was made: the token went into a block that another request holds, too": (
            "if not pool.writable(old) → if False"
        ),
        "copy what the old block held into the new one": "        store[new] = store[old]\n → ",
        "a request that leaves a block must free it once": "        pool.free([old])\n → ",
        "a request that holds a block alone writes into it": (
            "if not pool.writable(old) → if length > 9 or not pool.writable(old)"
        ),
        "take a block for its first token, not before": (
            "return length → if off + 1 == store.shape[1]: table[block + 1] = pool.allocate(1)[0]\n"
            "    return length"
        ),
    },
    refused={
        "got length 0": "return length + 1 → return length",
        "a block changed that is not in the table": "return length → store[-1] = 0; return length",
        "k was changed in place": "return length → k[:] = 0; return length",
        "names block 77, the pool has": "return length → table[block] = 77; return length",
    },
)

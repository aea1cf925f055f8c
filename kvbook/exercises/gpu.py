"""Exercises of the chapter on the GPU.

A learner's function returns lines of CUDA C++ as text. They become part of a kernel that runs on
the CPU, in a separate process. Lines that don't compile, never end or read outside their arrays
give an error message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Draws, Seen, Shows
from kvbook.exercises.expect import Finding, expect_close
from kvbook.exercises.received import whole
from kvlib.attention import attend
from kvlib.kernels import run_cuda
from kvlib.kernels.processor import KernelError, Traffic
from kvlib.kernels.types import LOG2E

SECONDS = 5.0


def run_lines(lines: Any, kernel: str, name: str, *rest: Any) -> Traffic:
    """Put the learner's lines into a kernel and run it. Raises Finding in words."""
    text = lines()
    if not isinstance(text, str):
        raise Finding(f"got {type(text).__name__}, needed a string of CUDA C++")
    if not text.strip():
        raise Finding("the string is empty: put your lines of CUDA C++ into it")
    whole = kernel.replace("@@", f'#line 1 "your lines"\n{text}\n#line 900 "the kernel"')
    try:
        traffic = run_cuda(whole, name, *rest, run_on="processor", seconds=SECONDS)
    except UnicodeEncodeError as error:
        raise Finding(f"your lines hold a character that UTF-8 cannot encode: {error}") from None
    except ImportError as error:
        raise Finding(f"your lines could not be compiled here: {error}") from None
    except KernelError as error:
        raise Finding(_in_words(str(error), text)) from None
    assert traffic is not None
    return traffic


def _in_words(said: str, text: str) -> str:
    found = re.search(r"(your lines|the kernel|your kernel):(\d+):(?:\d+:)? error: (.*)", said)
    if found is None:
        return said
    if found[1] != "your lines":
        return (
            f"your lines do not compile with the kernel around them: {found[3]}. Look for a brace "
            "or a semicolon that is missing, or a name of the kernel that you declare anew"
        )
    lines, n = text.splitlines(), int(found[2])
    own = f"\nat the line: {lines[n - 1].strip()}" if n <= len(lines) else ""
    return f"line {n} of yours does not compile: {found[3]}{own}"


# ------------------------------------------------------------------------------------- split_range

SPLITS = """
#include "portable.cuh"
__global__ void mark(int* seen, const int* lens, int most)
{
    const int len = load(lens + blockIdx.y), split = blockIdx.x, splits = gridDim.x;
    int begin = 0, end = 0;
    {
@@
    }
    for (int j = begin; j < end; j++) {
        int* at = seen + ((i64)split * gridDim.y + blockIdx.y) * most + j;
        store(at, load(at) + 1);
    }
}
"""


def split_range() -> str:
    """split_range() → CUDA C++ that sets begin and end from len, split and splits."""
    return """
const int each = (len + splits - 1) / splits;
begin = min(len, split * each);
end = min(len, begin + each);
"""


def _marked(lens: list[int], splits: int) -> Any:
    def probe(split_range: Any) -> Iterator[Seen]:
        seen = np.zeros((splits, len(lens), 2 * max(lens) + 64), np.int32)
        args = (seen, np.array(lens, np.int32), np.int32(seen.shape[2]))
        run_lines(split_range, SPLITS, "mark", (splits, len(lens)), 1, *args)
        for b, n in enumerate(lens):
            _expect_once(seen[:, b], n, splits)
        yield "the number of keys that are read", int(seen.sum())

    return probe


def _expect_once(seen: np.ndarray, n: int, splits: int) -> None:
    """seen (splits, most): how many times each split reads each key of a request with n keys."""
    what = f"{n} keys in {splits} splits"
    times, held = seen.sum(axis=0), (seen > 0).sum(axis=1)
    if times[n:].any():
        j = n + int(times[n:].argmax())
        raise Finding(
            f"{what}: split {int(seen[:, j].argmax())} reads key {j}, but the request ends before "
            f"key {n}. Cut end (and begin) off at len"
        )
    if n and not times.any():
        raise Finding(f"{what}: no split reads any key; set begin and end, without declaring them")
    for j in np.flatnonzero(times[:n] != 1)[:1].tolist():
        hint = "" if times[j] or j != n - n % splits else ". Is n / splits rounded down? Round up"
        raise Finding(f"{what}: key {j} is read {times[j]} times, once is needed{hint}")
    if held.max() > -(-n // splits):
        raise Finding(
            f"{what}: split {int(held.argmax())} has {held.max()} keys, and all wait for the "
            f"slowest split; needed at most {-(-n // splits)} each"
        )


check_split_range = Checker(
    split_range,
    stages={
        "four splits share 100 keys evenly": _marked([100], 4),
        "where the division leaves a remainder, the last keys are read, too": _marked([100], 3),
        "with fewer keys than splits, some splits have none": _marked([5, 1, 0], 4),
        "every key of five requests is read by one split": _marked([1000, 130, 129, 7, 64], 9),
    },
    refused={
        "Round up": "(len + splits - 1) → len",
        "Cut end (and begin) off at len": "min(len, begin + each) → begin + each",
        "is read 2 times": "split * each) → split * each / 2)",
        "is read 4 times": "begin = min(len, split * each); → ",
        "all wait for the slowest split": "min(len, begin + each) → split ? begin : len",
        "line 2 of yours does not compile: ": "each = ( → each = keys + (",
        "no split reads any key": "end = min → const int end = min",
        "does not compile": "begin + each); → begin + each)",
        "outside of array 1": "(len + splits → (load(lens + 100000) + splits",
        "divided a whole number by 0": "/ splits; → / (split - split);",
    },
)


# ------------------------------------------------------------------------------------ shared_heads

HEADS = """
#include "portable.cuh"
template <int D, int G> __global__ void decode_shared(
    float* out, const float* q, const float* k, const float* v, const int* block_table,
    const int* seq_lens, int W, int P, float scale)
{
    const int kv_head = blockIdx.x, b = blockIdx.y, lane = threadIdx.x, Hkv = gridDim.x;
    const int PER = D / 32;
    const i64 row = ((i64)b * Hkv + kv_head) * G * D + lane;
    float query[G][PER], o[G][PER], m[G], l[G];
    for (int g = 0; g < G; g++) {
        m[g] = -infinity();
        l[g] = 0.0f;
        for (int i = 0; i < PER; i++) {
            query[g][i] = load(q + row + g * D + 32 * i) * scale;
            o[g][i] = 0.0f;
        }
    }
    const int count = load(seq_lens + b);
    for (int j = 0; j < count; j++) {
        const i64 page = load(block_table + b * W + j / P);
        const i64 at = ((page * Hkv + kv_head) * P + j % P) * D + lane;
        {
@@
        }
    }
    for (int g = 0; g < G; g++)
        for (int i = 0; i < PER; i++) store(out + row + g * D + 32 * i, o[g][i] / l[g]);
}
"""


def shared_heads() -> str:
    """shared_heads() → CUDA C++: one key and its value, for the G query heads of a kv head."""
    return """
float key[PER], value[PER];
for (int i = 0; i < PER; i++) {
    key[i] = load(k + at + 32 * i);
    value[i] = load(v + at + 32 * i);
}
for (int g = 0; g < G; g++) {
    float s = 0.0f;
    for (int i = 0; i < PER; i++) s += query[g][i] * key[i];
    for (int n = 16; n > 0; n /= 2) s += __shfl_xor_sync(0xffffffffu, s, n);
    const float top = fmaxf(m[g], s);
    const float shrink = exp2_fast(m[g] - top), p = exp2_fast(s - top);
    for (int i = 0; i < PER; i++) o[g][i] = o[g][i] * shrink + p * value[i];
    l[g] = l[g] * shrink + p;
    m[g] = top;
}
"""


def _decoded(lens: list[int], groups: int) -> Any:
    """Decode for requests with `lens` keys in pages, with `groups` query heads per kv head."""

    def probe(shared_heads: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(5)
        dim, heads, size, width, batch = 64, 2, 8, 5, len(lens)
        k, v = (np.full((batch * width, heads, size, dim), np.nan, np.float32) for _ in "kv")
        table = rng.permutation(batch * width).astype(np.int32).reshape(batch, width)
        q = 2 * rng.standard_normal((batch, heads * groups, dim), dtype=np.float32)
        o, needed = np.full_like(q, np.nan), np.zeros_like(q)
        for b, n in enumerate(lens):
            keys, values = rng.standard_normal((2, n, heads, dim), dtype=np.float32)
            pages, j = table[b, np.arange(n) // size], np.arange(n) % size
            k[pages, :, j], v[pages, :, j] = keys, values
            last = np.array([n - 1])
            needed[b] = attend(q[b : b + 1], keys, values, last, np.arange(n))
        numbers = (np.int32(width), np.int32(size), np.float32(dim**-0.5 * LOG2E))
        args = (o, q, k, v, table, np.array(lens, np.int32), *numbers)
        name = f"decode_shared<{dim}, {groups}>"
        traffic = run_lines(shared_heads, HEADS, name, (heads, batch), 32, *args)
        yield f"the output for {lens} keys", o
        expect_close(o, needed, "the output", atol=1e-4)
        for i, what in ((2, "keys"), (3, "values")):
            once = sum(lens) * heads * dim * 4
            if traffic.read[i] > once:
                raise Finding(
                    f"the {what} are read {traffic.read[i] / once:.3g} times, {traffic.read[i]:,} "
                    f"bytes instead of {once:,}: load into an array of PER floats before the loop "
                    "over g"
                )

    return probe


check_shared_heads = Checker(
    shared_heads,
    letters="request head channel",
    atol=1e-4,
    stages={
        "four query heads of each key/value head get their attention over all keys, and each "
        "key and each value is read once, for all four": _decoded([40, 23], 4),
        "a request with one key gets its value back, with two query heads per key/value head": (
            _decoded([1], 2)
        ),
    },
    mistakes={
        "each lane used its own part of the score: add the 32 parts with __shfl_xor_sync": (
            "s += __shfl_xor_sync(0xffffffffu, s, n) → s += 0.0f"
        ),
        "o and l are not shrunk when a larger score comes: multiply both by exp2_fast(m - top)": (
            "const float shrink = exp2_fast(m[g] - top) → const float shrink = 1.0f"
        ),
        "the exponential has base e: scale holds log2 e already, so exp2_fast is needed": (
            "exp2_fast(m[g] - top), p = exp2_fast → expf(m[g] - top), p = expf"
        ),
        "only the last key counts: m[g] has to be set to top for the next key": "m[g] = top; → ",
        "the output is the plain mean of the values: weight each by exp2_fast(s - top)": (
            "s += query[g][i] * key[i] → s = 0.0f"
        ),
        "it is not finite: o / 0 or infinity - infinity. Does l add up the weights?": Shows(
            "l[g] = l[g] * shrink + p; → ", lambda got, needed: not np.isfinite(got).all()
        ),
    },
    refused={
        "the output": [
            "o[g][i] * shrink → o[g][i]",
            "p = exp2_fast(s - top) → p = 1.0f * (shrink > -1.0f)",
            "v + at + 32 → v + at + 64",
        ],
        "the keys are read 5 times": "query[g][i] * key[i] → query[g][i] * load(k + at + 32 * i)",
        "the values are read 5 times": "p * value[i] → p * load(v + at + 32 * i)",
        "line 11 of yours does not compile": "fmaxf(m[g], s) → fmaxf(m, s)",
        "ended its process": "load(k + at + 32 * i) → k[at + (1ll << 40)]",
    },
)


# ---------------------------------------------------------------------- num_splits and lane_bytes


def num_splits(blocks: int, keys: int, at_once: int) -> int:
    """num_splits(blocks, keys, at_once) → splits of each request's keys."""
    return max(1, min(at_once // blocks, keys // 128))


check_num_splits = Checker(
    num_splits,
    stages={
        "with long texts the splits fill the GPU once, and never begin a second wave": [
            (8, 65536, 396)
        ],
        "blocks have at least 128 keys on average": [(8, 1000, 396), (8, 100, 396)],
        "if requests fill the GPU already, keys are not split": [(400, 65536, 396)],
        "it agrees for 200 random GPUs and batches": Draws(
            lambda rng: rng.integers(1, (600, 100_000, 500), (200, 3)).tolist()
        ),
    },
    mistakes={
        "this is rounded up, so the last blocks wait for a second wave": (
            "at_once // blocks → -(-at_once // blocks)"
        ),
        "a block with fewer than 128 keys costs more to merge than it gains": (
            "min(at_once // blocks, keys // 128) → at_once // blocks"
        ),
        "with 0 splits no block reads the keys: return at least 1": "return max(1, → return max(0,",
    },
    refused={
        "got 1, needed 49": "return → return 1 or",
        "got 49.5, needed 49": "return → return 0.5 +",
    },
)


def lane_bytes(lane: int, i: int, dim: int) -> int:
    """lane_bytes(lane, i, dim) → first byte of what a lane loads at its i-th load of one key."""
    return (i * 16 + lane) * 16


def _read(*dims: int, drawn: int = 0) -> Any:
    """16 lanes read keys of these sizes, in loads of 16 bytes, in whatever order."""

    def probe(lane_bytes: Any) -> Iterator[Seen]:
        more = 128 * np.random.default_rng(3).integers(3, 30, drawn)
        for dim in (*dims, *more.tolist()):
            starts = [
                [whole(lane_bytes(lane, i, dim), "what lane_bytes returns") for lane in range(16)]
                for i in range(dim // 128)
            ]
            what = f"{dim} bfloat16 numbers, {2 * dim} bytes"
            missing = sorted(set(range(0, 2 * dim, 16)) - set(sum(starts, [])))
            yield f"{what}: the first multiple of 16 at which no load begins", missing[:1]
            sectors = [len({b // 32 for s in row for b in (s, s + 15)}) for row in starts]
            yield f"{what}: sectors of 32 bytes that each load of all lanes touches", sectors

    return probe


check_lane_bytes = Checker(
    lane_bytes,
    stages={
        "a key of 128 bfloat16 numbers is read once, in whole sectors": _read(128),
        "a key of 256 bfloat16 numbers is read once, in whole sectors": _read(256, drawn=1),
    },
    mistakes={
        "lanes that load together have to read side by side": (
            "(i * 16 + lane) → (lane * (dim // 128) + i)"
        ),
        "each lane reads the same bytes at every load, and no lane the others": (
            "(i * 16 + lane) → lane"
        ),
        "a load of 16 bytes begins at a multiple of 16": "lane) * 16 → lane) * 8",
        "a load begins after the end of the key": [
            "(i * 16 + lane) * 16 → lane * dim * 2",
            "lane) * 16 → lane) * 32",
        ],
    },
)


# ------------------------------------------------------------------- merge_splits and tensor_share


def merge_splits(o: Any, lse: Any) -> Any:
    """merge_splits(o (splits, H, D), lse (splits, H)) → o (H, D), lse (H,)."""
    top = lse.max(axis=0)
    safe = np.where(top == -np.inf, 0, top)
    w = np.exp(lse - safe)
    total = w.sum(axis=0)
    some = np.where(total > 0, total, 1)
    merged = (w[..., None] * o).sum(axis=0) / some[:, None]
    return merged, np.where(total > 0, safe + np.log(some), -np.inf)


def _merged(when: str, more: float = 0, empty: slice = slice(0)) -> Any:
    """Three splits: `more` is added to lse, and the splits `empty` have no keys."""

    def probe(merge_splits: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(2)
        o = rng.standard_normal((3, 3, 8)).astype(np.float32)
        lse = (more + rng.standard_normal((3, 3))).astype(np.float32)
        o[empty], lse[empty] = 0, -np.inf
        yield when, merge_splits(o, lse)

    return probe


check_merge_splits = Checker(
    merge_splits,
    names=("o", "lse"),
    letters="H D",
    stages={
        "three splits give the attention over all keys": _merged("three splits"),
        "large lse do not overflow": _merged("lse above 190", more=200),
        "a split that saw no key changes nothing": _merged("an empty split", empty=slice(1, 2)),
        "splits that are all empty merge to an empty one": (
            _merged("nothing but empty splits", empty=slice(3))
        ),
    },
    mistakes={
        "o is the plain mean of the splits: each counts by its share of the softmax's "
        "denominator, e^(lse - the whole lse)": "w = np.exp(lse - safe) → w = np.ones_like(lse)",
        "o is the sum of the splits: their weights have to add up to 1": (
            "w = np.exp(lse - safe) → w = np.ones_like(lse)",
            "/ some[:, None] → ",
        ),
        "o is not finite, because e^lse overflows. Subtract the largest lse of each head before "
        "you exponentiate; the shares stay the same": "top = lse.max(axis=0) → top = 0 * lse[0]",
        "splits that are all empty give NaN, because -inf minus -inf is NaN, and so is 0 / 0; "
        "needed: o 0, lse -inf": [
            "safe = np.where(top == -np.inf, 0, top) → safe = top",
            "some = np.where(total > 0, total, 1) → some = total",
        ],
    },
    refused={
        "three splits, lse": "safe + np.log(some) → safe",
    },
)


def tensor_share(layers: int, num_kv_heads: int, head_dim: int, gpus: int, tokens: int) -> int:
    """tensor_share(layers, num_kv_heads, head_dim, gpus, tokens) → bytes on one GPU, bf16."""
    heads = max(1, num_kv_heads // gpus)
    return layers * 2 * heads * head_dim * tokens * 2


# Llama-3.1-70B on 8 and 2 GPUs, Llama-2-7B on 4; then Llama-3.1-70B on 16, Llama-3.1-8B on 32
DEALT = [(80, 8, 128, 8, 1000), (80, 8, 128, 2, 1000), (32, 32, 128, 4, 1000)]
COPIED = [(80, 8, 128, 16, 1000), (32, 8, 128, 32, 77)]


def _copied(rng: np.random.Generator) -> Any:
    rows = rng.integers(1, (100, 8, 300, 8, 5000), (8, 5))
    rows[:, [1, 3]] = 2 ** rows[:, [1, 3]]
    return [*COPIED, *rows.tolist()]


check_tensor_share = Checker(
    tensor_share,
    stages={
        "heads are divided evenly; keys and values both count, with two bytes per number": DEALT,
        "with more GPUs than heads, a head is copied, never cut": Draws(_copied),
    },
    mistakes={
        "a head is cut into pieces: each GPU stores at least one whole head": (
            "max(1, num_kv_heads // gpus) → num_kv_heads / gpus"
        ),
        "this is half of it: count keys and values, and 2 bytes per bfloat16 number": (
            "tokens * 2 → tokens"
        ),
        "that is the cache of all GPUs together": "// gpus → // 1",
    },
)

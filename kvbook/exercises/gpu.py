"""Exercises of the chapter on the GPU.

A learner's function returns lines of CUDA C++ as text. They become part of a kernel that runs on
the CPU, in a separate process. Lines that don't compile, never end or read outside their arrays
give an error message.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, Shows
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


# ------------------------------------------------------------------------------------ norm_product

PRODUCT = """
#include "portable.cuh"
__global__ void norm_product(
    float* out, const float* x, const float* g, const float* w, int K, float eps)
{
    const int n = blockIdx.x, lane = threadIdx.x;
    const float* row = w + (i64)n * K;
    float squares = 0.0f, dot = 0.0f;
    {
@@
    }
    for (int far = 16; far > 0; far /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, far);
        dot += __shfl_xor_sync(0xffffffffu, dot, far);
    }
    if (lane == 0) store(out + n, dot / sqrtf(squares / K + eps));
}
"""


def norm_product() -> str:
    """norm_product() → CUDA C++ that adds this lane's part to squares and to dot."""
    return """
for (int i = lane; i < K; i += 32) {
    const float a = load(x + i);
    squares += a * a;
    dot += a * load(g + i) * load(row + i);
}
"""


def _multiplied(n: int, k: int) -> Any:
    """A norm and a product of k numbers with n rows of weights."""

    def probe(norm_product: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(6)
        x, g, *w = 3 * rng.standard_normal((n + 2, k), dtype=np.float32)
        out = np.full(n, np.nan, np.float32)
        args = (out, x, g, np.array(w), np.int32(k), np.float32(0.5))
        traffic = run_lines(norm_product, PRODUCT, "norm_product", (n,), 32, *args)
        yield f"out for {k} numbers and {n} rows", out
        for name, read in zip("xgw", traffic.read[1:], strict=True):
            if read > 4 * n * k:
                raise Finding(
                    f"each block reads {name} {read / (4 * n * k):.3g} times: use one loop, and "
                    "keep what you load in a variable"
                )
        if traffic.sectors > (3 * -(-k // 8) + 4) * n:
            raise Finding("a load touches too many sectors: lanes have to read side by side")

    return probe


check_norm_product = Checker(
    norm_product,
    letters="row",
    atol=1e-3,
    stages={
        "64 numbers are normed and multiplied in one pass": _multiplied(3, 64),
        "100 numbers, which 32 doesn't divide, too": _multiplied(5, 100),
    },
    mistakes={
        "each lane adds up all K numbers, so every sum counts 32 times: a lane begins at its own "
        "number and goes on in steps of 32": "int i = lane; i < K; i += 32 → int i = 0; i < K; i++",
        "squares includes g: the norm divides by the mean square of x alone": (
            "const float a = load(x + i) → const float a = load(x + i) * load(g + i)",
            "dot += a * load(g + i) → dot += a",
        ),
        "out lacks the norm's weight: multiply by load(g + i), too": "a * load(g + i) * → a *",
        "squares is still 0: add a * a": "squares += a * a; → ",
        "the last numbers are missing: K need not be a multiple of 32": (
            "i < K; → i < K / 32 * 32;"
        ),
    },
    refused={
        "each block reads x 2 times": "dot += a * → dot += load(x + i) *",
        "too many sectors": (
            "for (int i = lane; i < K; i += 32) { → for (int j = 0; j < (K + 31) / 32; j++) { "
            "const int i = lane * ((K + 31) / 32) + j; if (i >= K) break;"
        ),
    },
)


# -------------------------------------------------------------------------------------- lane_bytes


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

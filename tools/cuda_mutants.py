"""Mutants of the CUDA sources, one line each; a unit is a file kvlib/kernels/cuda/<unit>.cu."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvlib.kernels import nvrtc, processor
from kvlib.kernels.processor import compiled


@dataclass(frozen=True)
class CudaMutant:
    """In the unit's source with all it includes, `old` (which occurs there once) becomes `new`."""

    name: str
    unit: str
    old: str
    new: str


MUTANTS = [
    CudaMutant("cuda decode: the last keys fall to no split", "decode",
               "(len - low + splits - 1) / splits", "(len - low) / splits"),
    CudaMutant("cuda decode: window one too wide", "decode",
               "max(0, len + past - window)", "max(0, len + past - window - 1)"),
    CudaMutant("cuda decode: half of a warp's groups not merged", "decode",
               "int offset = L::LANES; offset < 32;", "int offset = L::LANES; offset < 16;"),
    CudaMutant("cuda decode: parts of all requests in one place", "decode",
               "(item.part - b) * num_qo_heads", "(item.split - b) * num_qo_heads"),
    CudaMutant("cuda merge: parts beyond the 32nd left out", "decode",
               "first < parts; first += AT_ONCE", "first < min(parts, 32); first += AT_ONCE"),
    CudaMutant("cuda merge: weights to base e", "decode",
               "exp2_fast((weight - safe) * 1.4426950408889634f)", "exp2_fast(weight - safe)"),
    CudaMutant("cuda tensor decode: keys before the window", "decode_tensor",
               "there = (u32)(at - begin) < (u32)(end - begin);", "there = at < end;"),
    CudaMutant("cuda tensor decode: the group of the tile's first key", "decode_tensor",
               "entry_at(first + 16 * h + 8 * pass)", "entry_at(first + 16 * h)"),
    CudaMutant("cuda tensor decode: softcap forgotten", "decode_tensor",
               "if (softcap > 0.0f)", "if (false)"),
    # The five that follow show with one type, one codec or a few widths of heads alone.
    CudaMutant("cuda decode: bfloat16 queries read as float16", "decode",
               "else load_queries<BFloat16,", "else load_queries<Half,"),
    CudaMutant("cuda decode: bfloat16 results written as float16", "decode",
               "if (kind == 2) store_float((BFloat16*)", "if (kind == 2) store_float((Half*)"),
    CudaMutant("cuda tensor decode: e5m2 codes in the other order", "decode_tensor",
               "i % 2 ? 0x3424 : 0x1404", "i % 2 ? 0x1404 : 0x3424"),
    CudaMutant("cuda tensor decode: values of one byte interleaved as two", "decode_tensor",
               "BYTES == 1 ? 0x1410 : 0x5410", "0x5410"),
    CudaMutant("cuda tensor decode: scales of later channels", "decode_tensor",
               "Codec::PARTS + part] = words[w];", "Codec::PARTS + part] = words[w & ~1];"),
    CudaMutant("cuda prefill: window one too narrow at its edge", "prefill",
               "max(0, oldest - window + 1)", "max(0, oldest - window + 2)"),
    CudaMutant("cuda prefill: a tile that only begins in the window is not masked", "prefill",
               "last - first < window);", "last - first <= window);"),
    CudaMutant("cuda prefill: queries of one head", "prefill",
               "kv_head * groups + row % groups;\n        copy_async",
               "kv_head * groups;\n        copy_async"),
    CudaMutant("cuda prefill: a tile read before it is copied", "prefill",
               "wait_for_copies<STAGES - 2>", "wait_for_copies<STAGES - 1>"),
    CudaMutant("cuda prefill: a tile copied over while others read it", "prefill",
               "__syncthreads();  // the tile is", "// the tile is"),
    CudaMutant("cuda warpgroups: values past the last key, which may be NaN", "prefill_wgmma",
               "if (first + r < job.low || first + r > job.last)", "if (first + r < job.low)"),
    CudaMutant("cuda warpgroups: values multiplied before they arrive", "prefill_wgmma",
               "wait(at->v + before, (tile - 1) / STAGES % 2);", ""),
    CudaMutant("cuda warpgroups: queries written by threads without a fence", "prefill_wgmma",
               "            fence_shared();\n            wait(at->k", "            wait(at->k"),
    CudaMutant("cuda warpgroups: queries copied over those of the job before", "prefill_wgmma",
               "wait(&at->q_read, turn++ % 2 ^ 1);", ""),
    CudaMutant("cuda warpgroups: scores read while they are computed", "prefill_wgmma",
               "wait_groups<1>();", "wait_groups<2>();"),
    CudaMutant("cuda warpgroups: the first 64 columns twice", "prefill_wgmma",
               "from, c * 64, j", "from, 0, j"),
    CudaMutant("cuda warpgroups: a block that the window begins in left out", "prefill_wgmma",
               "j + box > job.low", "j >= job.low"),
    CudaMutant("cuda warpgroups: a job of another round of blocks", "prefill_wgmma",
               "gridDim.x - 1 - blockIdx.x", "gridDim.x - blockIdx.x"),
    CudaMutant("cuda float prefill: a query sees one key ahead", "prefill_float",
               "below(position + 1 - first)", "below(position + 2 - first)"),
    CudaMutant("cuda float prefill: window one too wide", "prefill_float",
               "position - window + 1 - first", "position - window - first"),
    CudaMutant("cuda tree: the bit of the next token", "prefill_tree",
               "row[0]) >> shift", "row[0]) >> (shift + 1)"),
    CudaMutant("cuda tree: the first word of bits alone", "prefill_tree",
               "(new0 >> 5) + i", "i"),
    CudaMutant("cuda tree: a window over slots", "prefill_tree",
               "own - load(depths + first + new0 + i) >= window", "c - new0 - i >= window"),
    CudaMutant("cuda tree: a chain sees later tokens", "prefill_tree",
               "below(position + 1 - first) & ", ""),
    CudaMutant("cuda tree: the last keys fall to no split", "prefill_tree",
               "(tiles + item.splits - 1) / item.splits", "tiles / item.splits"),
    CudaMutant("cuda tree: keys in the window of the tile's first row alone", "prefill_tree",
               "return first < 0 ? c : 0;", "return c;"),
    CudaMutant("cuda tree: a warp with some rows left out", "prefill_tree",
               "if (own_row >= rows) continue;", "if (own_row + 15 >= rows) continue;"),
    CudaMutant("cuda float tree: the last rows taken for the first", "prefill_tree_float",
               "return skip + min(c, n - 1);", "return min(c, n - 1);"),
    CudaMutant("cuda float tree: tokens write to each other's parts", "prefill_tree_float",
               "row / groups * item.splits)", "row / groups)"),
    CudaMutant("cuda float tree: older keys just outside of the window", "prefill_tree_float",
               "own - window + 1 - new0", "own - window - new0"),
    CudaMutant("cuda topk: of equal logits the higher column", "topk",
               "(u32)~(u32)column;", "(u32)column;"),
    CudaMutant("cuda topk: columns past the end", "topk",
               "if (range.holds(first + i) && key >= floor)", "if (key >= floor)"),
    CudaMutant("cuda topk: what equals the first bar dropped", "topk",
               "(of >> v & 1) && !(L::value(tops[v]) < bar)",
               "(of >> v & 1) && !(L::value(tops[v]) <= bar)"),
    CudaMutant("cuda topk: a vector without room forgotten", "topk",
               "passing = may_pass(passing);", "passing = 0;"),
    CudaMutant("cuda topk: a first bar of what isn't in the row", "topk",
               "if (!(bar > -infinity()))", "if (false)"),
    CudaMutant("cuda topk: a split's own maximum forgotten", "topk",
               "if (key != NO_KEY) b.push(key);", "if (key != NO_KEY && i / k < 2) b.push(key);"),
    CudaMutant("cuda layernorm: the mean's rounding left in", "layernorm",
               "r.subtract(block_sums(r.sum(), 0.0f).x / width, width);  // what", "//"),
    CudaMutant("cuda layernorm: a group left out of the second stage", "layernorm",
               "g < groups; g += SLICES", "g < groups - 1; g += SLICES"),
    CudaMutant("cuda layernorm: sums read before they are there", "layernorm",
               "= float2{a, b};\n    __syncthreads();\n", "= float2{a, b};\n"),
    CudaMutant("cuda layernorm: the mean taken off what is not there", "layernorm",
               "            if (vector(i / COUNT) * COUNT < width) x[i] -= mean;",
               "            x[i] -= mean;"),
    CudaMutant("cuda layernorm: a store past the row's end", "layernorm",
               "            if (vector(v) * COUNT < width) store((uint4*)row",
               "            store((uint4*)row"),
    CudaMutant("cuda layernorm: the last warp left out", "layernorm",
               "w < (int)blockDim.x / 32", "w < (int)blockDim.x / 32 - 1"),
    CudaMutant("cuda layernorm: partial sums of dbias on top of dweight", "layernorm",
               "(i64)gridDim.x * width + channel", "channel"),
    CudaMutant("cuda embed: rows as if they had whole blocks of threads", "token",
               "+ (i64)blockIdx.y * hidden +", "+ (i64)blockIdx.y * gridDim.x * THREADS +"),
    CudaMutant("cuda append: the second half rotated like the first", "token",
               "c + turned / 2 : c - turned / 2", "c + turned / 2 : c"),
    CudaMutant("cuda append: normalised after the partner was taken", "token",
               "h.other[p][i] = h.other[p][i] / root * w.other[p][i];", "h.other[p][i] /= root;"),
    CudaMutant("cuda append: the slot after the newest token's", "token",
               "const int j = len - 1,", "const int j = len,"),
    CudaMutant("cuda append: a request that is not there writes", "token",
               "if (len == 0) return;\n    const", "const"),
    CudaMutant("cuda append: scales of the first vector's numbers", "token",
               "top = larger(top, __shfl_xor_sync(0xffffffffu, top, offset));", ";"),
    CudaMutant("cuda append: fp8 rounded up at a tie", "token",
               "- 1u + (size >> shift & 1u)", ""),
    CudaMutant("cuda append: fp8 beyond the largest number", "token",
               "min(rounded - bias, LARGEST)", "(rounded - bias)"),
    CudaMutant("cuda choose: NaN below every number", "token",
               "x != x ? 0xffffffff00000000ull", "x != x ? 0ull"),
    CudaMutant("cuda choose: the first warp's best", "token",
               "threadIdx.x < THREADS / 32 ? of_warp", "threadIdx.x < 1 ? of_warp"),
    CudaMutant("cuda choose: a request that is not there gets a token", "token",
               "if (load_fresh(lens + r) == 0) return;", ""),
    CudaMutant("cuda choose: infinity is finite", "token",
               "order == order_of(infinity()) ? 2", "order == order_of(infinity()) ? 0"),
    CudaMutant("cuda choose: the best of this step and of the last one", "token",
               "store(tops + r, NO_KEY);", ""),
]  # fmt: skip


@contextmanager
def in_cuda(mutant: CudaMutant) -> Iterator[None]:
    """Kernels of the unit are compiled from the changed source inside `with`."""
    before = nvrtc.fingerprint(mutant.unit)
    healthy: Any = compiled.source
    if healthy(mutant.unit).count(mutant.old) != 1:
        raise LookupError(f"{mutant.name!r}: {mutant.old!r} must stand in {mutant.unit} once")

    def changed(unit: str) -> str:
        text = healthy(unit)
        return text.replace(mutant.old, mutant.new) if unit == mutant.unit else text

    compiled.source = nvrtc.source = changed  # type: ignore[assignment]
    processor._entries.clear()
    try:
        # test_kernel_catalogue.py compiles every kernel of a source that has another fingerprint
        if nvrtc.fingerprint(mutant.unit) == before:
            raise LookupError(f"{mutant.name!r} leaves the source's fingerprint as it was")
        yield
    finally:
        compiled.source = nvrtc.source = healthy
        processor._entries.clear()

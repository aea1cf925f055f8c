"""Rows of the table for attention: decode steps over numbers and codes, prompts, trees."""

from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from engines import back
from exact import expect
from rows import Row

from kvlib import codecs
from kvlib.caches.trees import ancestors
from kvlib.codecs import Plain
from kvlib.kernels import decode_attention, launch, prefill_attention
from kvlib.kernels.codes import Codes
from kvlib.kernels.prefill import split_work
from kvlib.kernels.trees import tree_of
from kvlib.kernels.types import as_float, as_type

CODECS = {
    "int8": codecs.int8(), "e4m3": codecs.fp8("e4m3"), "e5m2": codecs.fp8("e5m2"),
    "int4": codecs.kivi(4, 32), "int2": codecs.kivi(2, 32), "int4 by 8": codecs.kivi(4, 8),
    "int4 by 16": codecs.kivi(4, 16), "int4 by 64": codecs.kivi(4, 64),
    "int8 per channel": codecs.int8_per_channel(32),
}
TREES = {
    None: None, "one token": [-1], "roots": [-1, -1, -1, 1], "comb": [-1, 0, 0, 2, 2, 4, 4, 6, 6],
    "binary": [-1, *(j // 2 for j in range(15))],
    "two words": [max(-1, j - 1 - (5 * j * j + 3 * j) % 7) for j in range(37)],
}
# Queries and weights are two 16-bit numbers each, as good as float32, or with KIVI rounded to
# float16, and again when a scale is multiplied in.
OPERAND = {name: 2.0**-9 for name in CODECS if name not in ("int8", "e4m3", "e5m2")}


class Reference(NamedTuple):
    """Keys, values (n, Hkv, D) and the new tokens that each row sees, by request; see `expect`."""

    requests: list
    operand: float


def case(
    dtype="float32", dim=64, groups=4, lengths=(1, 37, 130), new=None, parents=None, last=None,
    size=16, heads=2, codec=None, paged=True, seed=1,
):  # fmt: skip
    """Requests of ragged lengths in shuffled blocks; every position that is not theirs is poison.

    new: tokens of each request, in a tree by `parents` (or a chain); of these the `last` ask.
    Without `new`, one query a request. codec: a name of CODECS; paged=False: rows of `size`.
    """
    rng, batch = np.random.default_rng(seed), len(lengths)
    width = -(-max(*lengths, 1) // size)
    table = rng.permutation(batch * width) if paged else np.arange(batch)
    table = table.astype(np.int32).reshape(batch, width)
    pair = (Plain(), Plain()) if codec is None else (CODECS[codec].keys, CODECS[codec].values)
    (k, keys), (v, values) = (
        stored(rng, part, np.dtype(dtype), table, lengths, size, heads, dim) for part in pair
    )
    counts = [1] * batch if new is None else new
    trees = [None] * batch if parents is None else [TREES.get(p, p) for p in parents]
    asked = last or counts
    q = rng.standard_normal((sum(asked), heads * groups, dim)).astype(np.float32)
    seen = [
        ancestors(range(-1, n - 1) if p is None else p)[n - rows :]
        for n, p, rows in zip(counts, trees, asked, strict=True)
    ]
    inputs = {
        "q": as_type(q, np.dtype(dtype)), "k": k, "v": v,
        "qo_indptr": np.concatenate([[0], np.cumsum(asked)]).astype(np.int32),
        "seq_lens": np.array(lengths, np.int32), "block_table": table if paged else None,
    }  # fmt: skip
    if new is None:
        del inputs["qo_indptr"]
    if parents is not None:
        inputs["tree"] = tree_of(trees)
    requests = list(zip(keys, values, seen, strict=True))
    return inputs, Reference(requests, OPERAND.get(codec, 0.0))


def stored(rng, codec, dtype, table, lengths, size, heads, dim):
    """Normal numbers in blocks, as an array or as Codes; and each request's as they are decoded."""
    fields, decoded = codec.fields(dim, np, np.float32), []
    arrays = {
        name: np.full(
            (table.size + 1, heads, size // f.per, *f.shape),
            np.nan if np.dtype(f.dtype).kind == "f" else 0x7F, f.dtype,
        )
        for name, f in fields.items()
    }  # fmt: skip
    for blocks, n in zip(table, lengths, strict=True):
        coded = -(-n // codec.group) * codec.group
        x = rng.standard_normal((heads, coded, dim)).astype(np.float32)
        x = codec.encode(as_float(as_type(x, dtype)))
        for j in range(coded):
            for name, f in fields.items():
                arrays[name][blocks[j // size], :, j % size // f.per] = x[name][:, j // f.per]
        numbers = codec.decode(x, np.float64)[:, :n].swapaxes(0, 1)
        decoded.append(numbers)
    if type(codec) is Plain:
        return as_type(arrays["x"], dtype), decoded
    return Codes(codec, **arrays), decoded


def compare(inputs, reference, results, run_on, **settings):
    """Each row against float64 attention over the keys of that row's path."""
    (o, lse), begin = results, 0
    assert o.dtype == inputs["q"].dtype and lse.dtype == np.float32
    meaning = {n: settings[n] for n in ("window", "softcap", "sm_scale") if n in settings}
    for k, v, seen in reference.requests:
        rows = slice(begin, begin := begin + len(seen))
        if len(k) == 0:
            assert np.all(o[rows] == 0) and np.all(lse[rows] == -np.inf)
            continue
        pair, q = (o[rows], lse[rows]), inputs["q"][rows]
        expect(pair, q, k, v, seen, run_on, reference.operand, **meaning)


def prefill(
    q, k, v, qo_indptr, seq_lens, block_table, tree=None, *, splits=None, window=None,
    softcap=None, sm_scale=None, warpgroups=None, sms=132, run_on=None,
):  # fmt: skip
    """prefill_attention, with each request's keys in so many splits; `sms` where no GPU runs it."""
    if warpgroups and run_on == "device" and launch.here().capability != "9.0":
        pytest.skip("a GPU of compute capability 9.0 is needed")
    rows, lens = np.diff(back(qo_indptr)).tolist(), seq_lens.tolist()
    work = splits and split_work(q, k.shape[1], rows, lens, splits=splits)
    with patch.object(launch, "H200", launch.H200._replace(sms=sms)):
        return prefill_attention(
            q, k, v, qo_indptr, seq_lens, block_table, tree=tree, work=work, window=window,
            softcap=softcap, sm_scale=sm_scale, warpgroups=warpgroups, return_lse=True,
            run_on=run_on,
        )  # fmt: skip


def prompts(new=(1, 40, 7), held=(30, 0, 75), groups=2, **sizes):
    """Requests with `new` tokens after `held` ones."""
    lengths = tuple(n + h for n, h in zip(new, held, strict=True))
    return case(lengths=lengths, new=new, groups=groups, **sizes)


DIMS, DTYPES = [64, 96, 128, 256], ["float32", "float16", "uint16"]
RAGGED = (700, 3, 129, 0, 260, 16)  # one request is without keys; the plan cuts others differently
DECODE = Row(
    case, partial(decode_attention, return_lse=True), compare,
    units={
        "decode": {"lengths": (5, 40), "splits": 2},
        "decode_tensor": {"dtype": "float16", "dim": 128, "splits": 2},
    },
    cases=(
        {"dim": DIMS, "dtype": DTYPES, "splits": 3},
        {"groups": [1, 2, 3, 7, 8, 12], "dtype": "float16", "splits": 2},
        # What the sizes do not choose can be asked for.
        {"dtype": ["float16", "uint16"], "dim": 128, "splits": 2, "tensor": False},
        {"dtype": "uint16", "dim": 128, "groups": 1, "splits": 2, "tensor": True},
        {"splits": [1, 2, 5, 40]},
        {"window": [1, 5, 36, 37, 38, 500], "groups": 2, "splits": 2},
        {"groups": 2, "splits": 2, "softcap": 1.5, "sm_scale": 0.4},
        {"lengths": (0, 3), "groups": 2, "splits": 3},
        {"lengths": (45, 7), "size": 45, "paged": False, "groups": 2, "splits": 2},
        {"lengths": RAGGED, "dtype": ["float32", "float16"], "groups": [1, 4]},
        # A recorded step is replayed with later lengths: only the balance is of the old ones.
        {"lengths": (300, 40, 600), "lens": (600, 600, 129)},
    ),
    traffic=(
        ({"dtype": "float16", "dim": 128, "lengths": (512,), "splits": 1},
         [{"read": {3: 512 * 2 * 128 * 2, 4: 512 * 2 * 128 * 2}, "efficiency": 0.8}]),
    ),
    refused=(
        ({"groups": 2}, (
            ({"q": lambda x: x[:, :3].copy()}, ValueError, "multiple of kv heads"),
            ({"k": lambda x: x[..., :32].copy()}, ValueError, "k must be .*D=64"),
            ({"k": lambda x: x.astype(np.float16)}, TypeError, "v must be float16"),
            ({"q": lambda x: x.astype(np.float64)}, TypeError, "float32, float16 or uint16"),
            ({"block_table": lambda x: x.astype(np.int64)}, TypeError, "block_table must be int32"),
            ({"block_table": lambda x: x + np.int32(100)}, ValueError, r"block_table\[0, 0\]"),
            ({"block_table": lambda x: x - np.int32(100)}, ValueError, "must be one of"),
            ({"seq_lens": lambda x: x + np.int32(999)}, ValueError, "seq_lens must be in"),
            ({"q": lambda x: x[:, ::-1]}, ValueError, "contiguous"),
            ({"window": 0}, ValueError, "window"),
            ({"softcap": -1.0}, ValueError, "softcap"),
            ({"sm_scale": float("nan")}, ValueError, "sm_scale"),
            ({"tensor": True}, ValueError, "tensor cores take 16-bit"),
            ({"splits": 40_000, "run_on": "processor"}, ValueError,
             "make 120,000 work items.*use fewer splits"),
            ({"run_on": "gpu"}, ValueError, "engine"),
            ({"run_on": "device"}, TypeError, "CuPy arrays"),
        )),
        ({"dim": 96, "dtype": "float16"}, (
            ({"tensor": False}, ValueError, "Half in heads of 96"),
        )),
    ),
)  # fmt: skip


def replaced(**parts):
    """A change of Codes or of a Tree."""
    return lambda x: x._replace(**{n: make(getattr(x, n)) for n, make in parts.items()})


def coded_by(codec):
    return lambda x: x._replace(codec=codec)


CODED = {"codec": "int4", "size": 32, "lengths": (1, 37, 70)}
CODES = Row(
    partial(case, size=32, lengths=(1, 37, 70)), DECODE.call, compare,
    units={"decode_tensor": {"codec": "int4", "splits": 2}},
    cases=(
        {"codec": ["int8", "e4m3", "e5m2", "int4", "int2"], "dim": DIMS, "splits": 3,
         "run_on": ["twin"]},
        # Chunks of every width, down to a byte (two bits in a head of 96); scales in part (256).
        {"codec": ["int8", "e4m3", "e5m2", "int4", "int2"], "splits": 3, "run_on": ["processor"]},
        {"codec": ["int4", "int2"], "dim": 96, "splits": 3, "run_on": ["processor"]},
        {"codec": "int2", "dim": 128, "splits": 3, "run_on": ["processor"]},
        {"codec": "int4", "dim": 256, "splits": 3, "run_on": ["processor"]},
        {"codec": ["int8", "int4"], "groups": [1, 3, 8, 12], "dim": 128, "splits": 2},
        # Splits begin anywhere, within what shares a scale too.
        {"codec": ["e4m3", "int4"], "splits": [1, 2, 7, 40], "lengths": (2, 33, 130)},
        {"codec": ["int8", "int4"], "window": [1, 5, 36, 37, 38, 500], "splits": 2,
         "softcap": 1.5},
        {"codec": "int4 by 16", "splits": 2},
        {"codec": "int4 by 8", "size": 8, "splits": 2},
        {"codec": "int4 by 64", "size": 64, "splits": 2},
        # Values that are loaded after the scores, in several turns.
        {"codec": "int4 by 16", "dim": 256, "splits": 1, "lengths": (2, 33, 200)},
        {"codec": "int8 per channel", "dim": [64, 128], "splits": 3},
    ),
    # Each code once; a lane that reads its own scale is counted as many times as lanes do.
    traffic=tuple(
        ({"codec": name, "dim": 128, "lengths": (256,), "splits": 1},
         [{"read": dict.fromkeys(codes, 256 * 2 * 128 * bits // 8), "efficiency": 0.5}])
        for name, bits, codes in (
            ("int8", 8, (3, 5)), ("e4m3", 8, (3, 4)), ("e5m2", 8, (3, 4)),
            ("int4", 4, (3, 6)), ("int2", 2, (3, 6)),
        )
    ),
    refused=(
        (CODED, (
            ({"v": lambda x: x.codes}, TypeError, "both be Codes"),
            ({"v": coded_by(codecs.int8().keys)}, TypeError, "PerChannel and PerToken"),
            ({"v": coded_by(codecs.kivi(2).values)}, ValueError, "the same number of bits"),
            ({"k": lambda x: x._replace(scales=None)}, TypeError, "scales of k are missing"),
            ({"k": replaced(zeros=lambda x: x.astype(np.float32))}, TypeError, "zeros of k"),
            ({"v": replaced(zeros=lambda x: x[:, :, :3].copy())}, ValueError, "zeros of v"),
            ({"k": replaced(codes=lambda x: x.view(np.int8))}, TypeError, "must be uint8"),
            ({"k": replaced(codes=lambda x: x[..., :8].copy())}, ValueError, "codes of k"),
            ({"k": coded_by(codecs.kivi(4, 24).keys)}, ValueError, "power of two"),
            ({"k": coded_by(codecs.kivi(4, 2).keys)}, ValueError, "from 8 on"),
            ({"k": coded_by(codecs.kivi(4, 64).keys)}, ValueError, "divide blocks"),
            ({"seq_lens": lambda x: x + np.int32(999)}, ValueError, "seq_lens must be in"),
        )),
    ),
)  # fmt: skip
NARROW = ["float32", "float16"]
WARPS = {"warpgroups": False, "dtype": NARROW}
# Some rows of two tiles of keys, three of them, and one alone; a block has several tiles of rows.
WIDE = {"warpgroups": True, "new": (3, 150, 70), "held": (140, 0, 250), "sms": 3}
PREFILL = Row(
    prompts, prefill, compare,
    units={
        "prefill": {**WARPS, "dtype": "float16", "new": (3, 40), "held": (20, 0)},
        "prefill_float": {"new": (3, 40), "held": (20, 0)},
        "prefill_wgmma": {**WIDE, "dtype": "float16", "dim": 128, "heads": 1},
    },
    cases=(
        {"dim": DIMS, "dtype": DTYPES, "warpgroups": [None, False]},
        {**WIDE, "dim": DIMS, "dtype": DTYPES[1:]},
        {**WIDE, "groups": [1, 3, 7], "dtype": DTYPES[1:], "softcap": [None, 1.5]},
        {**WIDE, "window": [1, 63, 128, 130, 200], "dtype": DTYPES[1:], "paged": [True, False],
         "size": 512},
        {**WARPS, "groups": [1, 3, 7], "new": (23, 2), "held": (5, 60)},
        {**WARPS, "window": [1, 8, 31, 32, 33, 64, 65], "groups": 1, "new": (70,), "held": (66,)},
        # Of keys 64 to 127, the last row, at 196, doesn't see the first; all other pairs are seen.
        {**WARPS, "window": 132, "groups": 1, "new": (70,), "held": (127,)},
        {**WARPS, "softcap": 1.5, "sm_scale": 0.4},
    ),
    # Keys are read once for all heads of a tile.
    traffic=(
        ({**WARPS, "dtype": "float16", "groups": 4, "new": (16,), "held": (112,)},
         [{"read": {2: 16 * 8 * 64 * 2, 3: 128 * 2 * 64 * 2, 4: 128 * 2 * 64 * 2},
           "written": {0: 16 * 8 * 64 * 2, 1: 16 * 8 * 4}}]),
    ),
    refused=(
        ({}, (
            ({"q": lambda x: x[:, :3].copy()}, ValueError, "multiple of kv heads"),
            ({"k": lambda x: x.astype(np.float16)}, TypeError, "k must be float32"),
            ({"warpgroups": True}, ValueError, "16-bit numbers"),
            ({"qo_indptr": lambda x: x + np.int32(1)}, ValueError, "qo_indptr must rise from 0"),
            ({"qo_indptr": lambda x: x[:-1]}, ValueError, "qo_indptr must be"),
            ({"seq_lens": lambda x: x - np.int32(35)}, ValueError, "seq_lens"),
            ({"block_table": lambda x: x + np.int32(100)}, ValueError, r"block_table\[0, 0\]"),
        )),
    ),
)  # fmt: skip
MIXED = {"parents": ("comb", None, "two words", "roots"), "new": (9, 5, 37, 4),
         "held": (70, 33, 5, 0)}  # fmt: skip
GUESSES = {"parents": ("binary",), "new": (16,), "held": (176,), "dtype": "float16", "groups": 4}
TREE = Row(
    prompts, prefill, compare,
    units={
        "prefill_tree": {"dtype": "float16", "parents": ("comb", None), "new": (9, 4),
                         "held": (40, 70)},
        "prefill_tree_float": {"parents": ("comb", None), "new": (9, 4), "held": (40, 70)},
    },
    cases=(
        {**MIXED, "splits": [None, 3], "dtype": NARROW},
        # A window counts positions, not slots: a late token may follow the older ones at once.
        {"parents": ("two words", "roots"), "new": (37, 4), "held": (90, 6), "dtype": NARROW,
         "window": [1, 3, 32, 66], "splits": [None, 2]},
        {"parents": ("two words", None, "comb"), "new": (37, 6, 9), "held": (20, 40, 33),
         "last": (4, 2, 9), "dtype": NARROW, "groups": 3, "splits": 2, "softcap": 1.5,
         "sm_scale": 0.4},
        {"parents": ("comb", None), "new": (9, 1), "held": (71, 20), "dim": DIMS,
         "dtype": DTYPES, "splits": 2},
    ),
    # 16 tokens of four query heads are 64 rows: keys are read as for one token.
    traffic=(
        (GUESSES, [{"grid": (1, 2, 1), "read": {3: 192 * 2 * 64 * 2, 4: 192 * 2 * 64 * 2}}]),
        (GUESSES | {"splits": 3},
         [{"grid": (1, 2, 3), "read": {5: 192 * 2 * 64 * 2, 6: 192 * 2 * 64 * 2}}, {}]),
    ),
    refused=(
        ({"parents": ("roots", None), "new": (4, 3), "held": (6, 6)}, tuple(
            ({"tree": replaced(**{field: change})}, error, words)
            for field, change, error, words in (
                ("bits", lambda x: x[:, 0], ValueError, r"bits must be \(N, words\)"),
                ("bits", lambda x: x.astype(np.int64), TypeError, "bits must be uint32"),
                ("bits", lambda x: x | np.uint32(8), ValueError, "itself and tokens before it"),
                ("bits", lambda x: x & ~np.uint32(1), ValueError, "itself and tokens before it"),
                ("depths", lambda x: x + np.int32(4), ValueError, r"depths must be in 0 \.\.\. 3"),
                ("trees", lambda x: x[:1], ValueError, "trees must be"),
                ("trees", lambda x: x + np.int32([0, 1]), ValueError, "each of 5 new tokens"),
                ("trees", lambda x: x - np.int32([0, 2]), ValueError,
                 "between 4 and 10 new tokens, got 2"),
            )
        )),
    ),
)  # fmt: skip

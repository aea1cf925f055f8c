"""Rows of the table for the small kernels of a compiled step; where lens is 0, no request is."""

from types import SimpleNamespace

import numpy as np
from rows import Row

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, codecs
from kvlib.config.rope import RopeConfig
from kvlib.kernels import engine
from kvlib.kernels.caches import step_tables
from kvlib.kernels.checks import BlockTable
from kvlib.kernels.codes import Stored, family
from kvlib.kernels.launch import run
from kvlib.kernels.token import UNFIT, append_launch, choice_launch, embed_launch
from kvlib.kernels.twins import token
from kvlib.kernels.types import CTYPES, as_float, as_type
from kvlib.model.layers import normalised
from kvlib.model.rope import rotate, tables
from kvlib.serve.distribution import greedy

DTYPES = ["float32", "float16", "uint16"]
STORED = ["float32", "float16", "bfloat16", "int8", "e4m3", "e5m2"]
EPS = 1e-5


def perform(run_on, *launches):
    for launch in launches:
        if run_on == "device":
            run(launch)
        else:
            token.run(launch) if run_on == "twin" else engine.start(run_on, launch)


def embed_case(rows=3, hidden=72, vocabulary=50, dtype="float32"):
    rng = np.random.default_rng(2)
    numbers = rng.standard_normal((vocabulary, hidden)).astype(np.float32)
    ids = rng.integers(vocabulary, size=rows).astype(np.int32)
    return {"table": as_type(numbers, np.dtype(dtype)), "ids": ids}, None


def embed(table, ids, *, run_on):
    x = engine.empty(table, (len(ids), table.shape[1]), np.float32)
    perform(run_on, embed_launch(x, table, ids))
    return x


def embed_compare(inputs, _, x, run_on):
    assert np.array_equal(x, as_float(inputs["table"])[inputs["ids"]])


def append_case(
    kind="float32", dim=64, groups=3, heads=2, lengths=(5, 0, 16, 17), rotary=1.0, norm=False,
    paged=True, any_bits=False,
):  # fmt: skip
    """The newest of `lengths` tokens of each request; a cache has the others, and poison.

    any_bits: values are drawn from all float32 numbers, NaN and infinity included; of every second
    one the last 19 bits are 0, so that rounding meets ties.
    """
    rng, spec, present = np.random.default_rng(4), LayerSpec(heads, dim), np.flatnonzero(lengths)
    codec = None if kind.startswith("float") else getattr(codecs, kind, codecs.fp8)
    codec = codec and (codec("e5m2") if kind == "e5m2" else codec())
    settings = {"codec": codec, "xp": np, "dtype": kind if codec is None else "float32"}
    if paged:
        cache = PagedCache([spec], BlockPool(9, 16), **settings)
    else:
        cache = DenseCache([spec], len(present), max(lengths), **settings)
    fields = cache.fields(0)
    for x in (x for _, arrays in fields for x in arrays.values()):
        x[...] = 0x7B
    for name in present:
        cache.add(name)
    shape = (sum(lengths) - len(present), heads, dim)
    old = rng.standard_normal(shape).astype(cache.dtype)
    cache.append(0, old, old, cache.plan(list(present), [lengths[i] - 1 for i in present]))
    before = [{name: x.copy() for name, x in arrays.items()} for _, arrays in fields]

    step = cache.plan(list(present), [1] * len(present))
    blocks = step_tables(cache, step).block_table
    table = np.full((len(lengths), blocks.shape[1]), -1, np.int32)
    table[present] = blocks
    page = next(iter(before[0].values())).shape[2]
    table = BlockTable(table, page, 4 if paged else 31, table.shape[1])
    positions = np.array([max(0, 3 * n - 1) for n in lengths], np.int32)
    qkv = rng.standard_normal((len(lengths), (groups + 2) * heads, dim)).astype(np.float32)
    if any_bits:
        values = qkv[:, -heads:]
        values.view(np.uint32)[...] = rng.integers(1 << 32, size=values.shape)
        values.view(np.uint32)[..., ::2] &= np.uint32(0xFFF80000)
    angles, norms = (None, None), (None, None)
    q, k, v = np.split(qkv[present], (groups * heads, (groups + 1) * heads), axis=1)
    if norm:
        norms = tuple(rng.standard_normal((2, dim)).astype(np.float32))
        q, k = (normalised(np, x, EPS)[0] * w for x, w in zip((q, k), norms, strict=True))
    if rotary:
        angles = tables(RopeConfig(partial_rotary_factor=rotary), dim, 128, np, np.float32)
        q, k = (rotate(x, *(a[positions[present]][:, None] for a in angles)) for x in (q, k))
    cache.append(0, *(x.astype(cache.dtype) for x in (k, v)), step)

    names = ("x",) if codec is None else ("codes", "scales", "zeros")
    of = [tuple(arrays.get(name) for name in names) + (None, None) for arrays in before]
    name = family(fields[0][0], fields[1][0]) or "Plain"
    number = CTYPES.get(of[0][0].dtype.name, "")
    stored = Stored(name, 8, number, of[0][:3], of[1][:3])
    inputs = {
        "stored": stored, "qkv": qkv.reshape(len(lengths), -1), "angles": angles, "norms": norms,
        "positions": positions, "lens": np.array(lengths, np.int32), "table": table,
    }  # fmt: skip
    after = [arrays.get(name) for _, arrays in fields for name in names]
    return inputs, SimpleNamespace(present=present, q=q, arrays=[x for x in after if x is not None])


def append(stored, qkv, angles, norms, positions, lens, table, *, warps=4, run_on):
    heads, dim = stored.k[0].shape[1], stored.k[0].shape[3]
    q = engine.empty(qkv, (len(qkv), qkv.shape[1] // dim - 2 * heads, dim), np.float32)
    k, v = (tuple(None if x is None else x.copy() for x in part) for part in (stored.k, stored.v))
    launch = append_launch(
        q, stored._replace(k=k, v=v), qkv, *angles, positions, lens, table,
        q_norm=norms[0], k_norm=norms[1], eps=EPS, warps=warps,
    )  # fmt: skip
    perform(run_on, launch)
    return q, tuple(x for x in (*k, *v) if x is not None)


def append_compare(inputs, wanted, results, run_on, warps=4):
    """To the bit; with a norm, whose sum the model adds in another order, codes may be 1 off."""
    q, arrays = results
    assert len(arrays) == len(wanted.arrays)
    if inputs["norms"][0] is None:
        assert np.array_equal(q[wanted.present], wanted.q)
        for found, expected in zip(arrays, wanted.arrays, strict=True):
            assert found.tobytes() == expected.tobytes()
        return
    np.testing.assert_allclose(q[wanted.present], wanted.q, rtol=0, atol=4e-6)
    for found, expected in zip(arrays, wanted.arrays, strict=True):
        if found.dtype == np.float32:
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=4e-6)
        else:
            kind = f"i{found.dtype.itemsize}"
            off = np.abs(found.view(kind).astype(int) - expected.view(kind))
            assert off.max() <= 1 and np.count_nonzero(off) <= 3 + found.size // 1000


def choice_case(columns=70, rows=4, absent=(), groups=2, kind="normal", length=3):
    rng = np.random.default_rng(6)
    logits = rng.standard_normal((rows, columns)).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    elif kind == "not finite":
        logits[0, 5], logits[1, 7], logits[2] = np.nan, np.inf, -np.inf
        logits[3, ::2] = -np.inf
    lens = rng.integers(1, 50, (groups, rows)).astype(np.int32)
    lens[:, list(absent)] = 0
    ids, positions = (rng.integers(9, size=rows).astype(np.int32) for _ in range(2))
    words = np.full((length, rows), 5, np.uint64)
    return {"state": (ids, positions, lens, words, np.array([4], np.int32)), "logits": logits}, None


def choice(state, logits, *, each=1024, run_on):
    """Two steps with the same logits: the second finds what the first one cleared."""
    state = tuple(x.copy() for x in state)
    perform(run_on, *[choice_launch(*state, logits, each)] * 2)
    return state


def choice_compare(inputs, _, found, run_on, each=None):
    ids, positions, lens, words, counter = (x.copy() for x in inputs["state"])
    for row, logits in enumerate(inputs["logits"]):
        try:
            (token,), unfit = greedy(logits[None]), 0
        except ValueError:
            token = logits.argmax()
            (unfit,) = np.flatnonzero([np.array_equal(x, logits[token], True) for x in UNFIT])
        for number in (4, 5):
            words[number % len(words), row] = (number + 1) << 32 | unfit << 30 | token
        if lens[0, row]:
            ids[row] = token
            positions[row] += 2
            lens[:, row] += 2
    for x, y in zip(found, (ids, positions, lens, words, counter + 2), strict=True):
        assert np.array_equal(x, y)


EMBED = Row(
    embed_case, embed, embed_compare,
    units={"token": {"dtype": "float16", "hidden": 2056}},
    cases=({"dtype": DTYPES, "hidden": [8, 72, 2056], "rows": [1, 5]},),
    traffic=(
        ({"dtype": "float16", "hidden": 64, "rows": 2},
         [{"read": {1: 2 * 64 * 2, 2: 2 * 8 * 4}, "written": {0: 2 * 64 * 4}, "grid": (1, 2, 1)}]),
    ),
    refused=(({"hidden": 12, "dtype": "float16"}, (({}, ValueError, "multiple of 8"),)),),
)  # fmt: skip
# Of 2 requests, 6 + 2 + 2 heads of 64. Numbers that rotate are read twice: each needs the one half
# a rotation away. The numbers of a row without a request are read, too, and not used.
HEAD = 2 * 64 * 4
APPEND = Row(
    append_case, append, append_compare,
    units={"token": {"kind": "int8", "norm": True, "dim": 96, "lengths": (5, 16)}},
    cases=(
        {"kind": STORED, "dim": [64, 96, 128, 256], "rotary": [0, 0.25, 1.0], "norm": [False, True],
         "paged": [True, False]},
        {"kind": ["float32", "e4m3", "e5m2"], "any_bits": True, "lengths": (2, 3, 4, 5)},
        {"groups": [1, 2, 7], "heads": [1, 3], "warps": [1, 3, 8]},
    ),
    traffic=(
        ({"kind": "int8", "lengths": (5, 0, 17)}, [
            {"read": {5: 27 * HEAD, 6: 8 * HEAD, 7: 8 * HEAD},
             "written": {0: 6 * HEAD, 1: 2 * 2 * 64, 2: 2 * 2 * 4, 3: 2 * 2 * 64, 4: 2 * 2 * 4}},
        ]),
        ({"kind": "float16", "rotary": 0, "norm": True, "lengths": (5, 17)}, [
            {"read": {3: 10 * HEAD, 4: 6 * HEAD, 5: 2 * HEAD},
             "written": {0: 6 * HEAD, 1: 2 * HEAD // 2, 2: 2 * HEAD // 2}},
        ]),
    ),
    refused=(({"dim": 20, "rotary": 1.0}, (({}, ValueError, "of which 8, 16"),)),),
)  # fmt: skip
CHOICE = Row(
    choice_case, choice, choice_compare,
    units={"token": {"columns": 5000, "each": 1024, "rows": 3}},
    cases=(
        {"columns": [1, 70, 1023, 4096, 9001], "rows": [1, 3, 16], "each": [1024, 4096, 64]},
        {"kind": ["ties", "not finite"], "columns": [70, 2050], "absent": [(), (1,)]},
        {"columns": 70, "groups": [1, 40], "length": [1, 2, 9]},
    ),
    traffic=(
        ({"columns": 4098, "rows": 2, "absent": (1,), "length": 5}, [
            {"read": {7: 2 * 4098 * 4}, "grid": (5, 2, 1), "efficiency": 0.9,
             "written": {0: 4, 1: 4, 2: 8, 3: 16, 4: 4, 5: 16, 6: 4}},
        ] * 2),
    ),
    refused=(({"rows": 17}, (({}, ValueError, "at most 16 rows"),)),),
)  # fmt: skip

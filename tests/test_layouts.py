"""Block tables, slots, CSR and the dense form turn into each other without loss."""

import array_api_strict
import numpy as np
import pytest
from caches import feed, refused
from hypothesis import given
from hypothesis import strategies as st

from kvlib import (
    BlockPool,
    CacheFull,
    DenseCache,
    LayerSpec,
    OutOfBlocks,
    PagedCache,
    QuantizedCache,
)
from kvlib.arrays import to_numpy
from kvlib.caches.layouts import (
    CSR,
    block_table,
    from_csr,
    from_dense,
    slot_mapping,
    to_csr,
    to_dense,
)
from kvlib.codecs import fp8, int8, kivi

pytestmark = pytest.mark.filterwarnings("error")

LAYERS = (LayerSpec(1, 2), LayerSpec(2, 4, 3), LayerSpec(1, 6, 4, v_from_k=True))
LIBRARIES = pytest.mark.parametrize("xp", [np, array_api_strict], ids=lambda xp: xp.__name__)


# Tables and slots --------------------------------------------------------------------------------


@LIBRARIES
@pytest.mark.parametrize("size", [1, 3, 4, 64])
def test_a_slot_is_where_the_token_is(xp, size):
    rng = np.random.default_rng(size)
    cache = PagedCache(LAYERS, BlockPool(128 // size + 12, size), xp=xp)
    for name in "abc":
        cache.add(name)
    for names, q_lens in (("abc", [5, 1, 4]), ("ca", [1, 1]), ("b", [9]), ("cab", [2, 7, 3])):
        step, given_ = feed(cache, list(names), q_lens, rng)
        slots = slot_mapping(cache, step)
        assert slots.dtype == xp.int64 and slots.shape == (step.num_tokens,)
        slots = to_numpy(slots)
        table = to_numpy(block_table(cache, step.seq_ids))
        rows = np.repeat(np.arange(len(names)), q_lens)
        at = to_numpy(step.positions)
        assert (slots == table[rows, at // size] * size + at % size).all()
        assert len(set(slots.tolist())) == len(slots)
        for layer, (k, v) in enumerate(given_):
            for tensor, x in zip(cache.stores[layer].tensors, (k, v)):
                whole = to_numpy(tensor.arrays["x"])
                assert (whole[slots // size, :, slots % size] == x).all()
        last = to_numpy(slot_mapping(cache, step.last()))
        assert last.tolist() == slots[step.last_rows].tolist()


@LIBRARIES
def test_the_table_is_padded(xp):
    cache = PagedCache(LAYERS, BlockPool(9, 2), xp=xp)
    for name, n in (("a", 5), ("b", 0), ("c", 2)):
        cache.add(name)
        if n:
            feed(cache, [name], [n], np.random.default_rng(0))
    table = block_table(cache, ["c", "b", "a"])
    assert table.dtype == xp.int32
    a, c = list(cache.blocks("a")), list(cache.blocks("c"))
    assert to_numpy(table).tolist() == [[*c, -1, -1], [-1, -1, -1], a]
    assert block_table(cache, ["b"]).shape == (1, 0)
    assert block_table(cache, iter("ab")).shape == (2, 3)
    assert block_table(cache, []).shape == (0, 0)


# CSR ---------------------------------------------------------------------------------------------


def test_csr_of_a_small_table():
    table = np.asarray([[7, 2, -1], [-1, -1, -1], [4, 5, 6], [1, -1, -1]], np.int32)
    csr = to_csr(table, [7, 0, 12, 4], 4)
    assert csr.indptr.tolist() == [0, 2, 2, 5, 6]
    assert csr.indices.tolist() == [7, 2, 4, 5, 6, 1]
    assert csr.last_page_len.tolist() == [3, 0, 4, 4]
    assert {x.dtype for x in csr} == {np.dtype(np.int32)}


@st.composite
def tables(draw) -> tuple[np.ndarray, list[int], int]:
    size = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(0, 40), max_size=6))
    columns = max((-(-n // size) for n in lengths), default=0) + draw(st.integers(0, 2))
    table = np.full((len(lengths), columns), -1, np.int32)
    for row, n in zip(table, lengths):
        needed = -(-n // size)
        row[:needed] = draw(st.lists(st.integers(0, 99), min_size=needed, max_size=needed))
    return table, lengths, size


@given(tables())
def test_csr_and_table_turn_into_each_other(drawn):
    table, lengths, size = drawn
    for xp in (np, array_api_strict):
        csr = to_csr(xp.asarray(table), lengths, size)
        assert csr.indices.shape[0] == sum(-(-n // size) for n in lengths)
        for n, last in zip(lengths, to_numpy(csr.last_page_len).tolist()):
            assert last == ((n - 1) % size + 1 if n else 0)
        back, seq_lens = from_csr(csr, size, table.shape[1])
        assert back.dtype == xp.int32 and seq_lens.dtype == xp.int64
        assert (to_numpy(back) == table).all() and to_numpy(seq_lens).tolist() == lengths
        narrow, _ = from_csr(csr, size)
        again = to_csr(narrow, seq_lens, size)
        assert all((to_numpy(x) == to_numpy(y)).all() for x, y in zip(again, csr))


# Dense -------------------------------------------------------------------------------------------


@pytest.mark.untraced
@LIBRARIES
@given(
    lengths=st.lists(st.integers(0, 13), min_size=0, max_size=4),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 70)),
    seed=st.integers(0, 99),
)
def test_dense_and_back(xp, lengths, sizes, seed):
    rng, names = np.random.default_rng(seed), list(range(len(lengths)))
    first, second = (PagedCache(LAYERS, BlockPool(60, size), xp=xp) for size in sizes)
    for i in names:
        first.add(i)
        if lengths[i]:
            feed(first, [i], [lengths[i]], rng)
    dense = [to_dense(first, layer, names) for layer in range(3)]
    for (k, v, found), spec in zip(dense, LAYERS):
        shape = (len(names), spec.num_kv_heads, max(lengths, default=0))
        assert k.shape == (*shape, spec.head_dim) and v.shape == (*shape, spec.v_dim)
        assert to_numpy(found).tolist() == lengths
        for i, n in enumerate(lengths):
            assert (to_numpy(k)[i, :, n:] == 0).all() and (to_numpy(v)[i, :, n:] == 0).all()
    from_dense(second, names, [(k, v) for k, v, _ in dense], dense[0][2])
    assert second.seq_ids == tuple(names)
    for layer, name in ((layer, name) for layer in range(3) for name in names):
        for x, y in zip(first.read(layer, name), second.read(layer, name)):
            assert (to_numpy(x) == to_numpy(y)).all()
    second.pool.check()


def test_tokens_after_a_length_are_not_read():
    k = np.full((2, 1, 5, 2), np.nan, np.float32)
    k[0, :, :3], k[1, :, :5] = 1, 2
    cache = PagedCache(LAYERS[:1], BlockPool(9, 2), xp=np)
    from_dense(cache, ["a", "b"], [(k, -k)], [3, 5])
    assert (cache.read(0, "a")[0] == 1).all() and (cache.read(0, "b")[1] == -2).all()


@pytest.mark.parametrize("make", [
    lambda: DenseCache(LAYERS[:1], 3, 12, xp=np),
    lambda: QuantizedCache([LayerSpec(1, 8)], fp8("e4m3"), 3, 12, xp=np),
    lambda: PagedCache([LayerSpec(1, 8)], BlockPool(9, 4), codec=fp8("e5m2"), xp=np),
])
def test_other_caches_turn_into_the_dense_form_and_back(make):
    cache = make()
    feed_these = {"a": 5, "b": 1, "c": 0}
    for name, n in feed_these.items():
        cache.add(name)
        if n:
            feed(cache, [name], [n], np.random.default_rng(n))
    k, v, lengths = to_dense(cache, 0, list(feed_these))
    assert lengths.tolist() == [5, 1, 0]
    again = make()
    from_dense(again, list(feed_these), [(k, v)], lengths)
    for x, y in zip(to_dense(again, 0, iter("ba")), to_dense(cache, 0, ["b", "a"])):
        assert (x == y).all()


@pytest.mark.parametrize("codec", [int8(), int8(residual=4), kivi(4, 8, 5)])
def test_codes_come_out_decoded(codec):
    cache = PagedCache([LayerSpec(2, 8)], BlockPool(9, 8), codec=codec, xp=np)
    cache.add("a")
    _, ((k, v),) = feed(cache, ["a"], [21], np.random.default_rng(2))
    dense_k, dense_v, lengths = to_dense(cache, 0, ["a"])
    for dense, x, i in ((dense_k, k, 0), (dense_v, v, 1)):
        assert (dense[0] == cache.read(0, "a")[i].transpose(1, 0, 2)).all()
        assert np.abs(dense[0] - x.transpose(1, 0, 2)).max() < 0.3
    from_dense(cache, ["b"], [(dense_k, dense_v)], lengths)
    assert np.abs(cache.read(0, "b")[0] - k).max() < 0.6


def test_given_tokens_are_found_later():
    cache = PagedCache(LAYERS[:1], BlockPool(9, 2), xp=np)
    k = np.random.default_rng(0).standard_normal((1, 1, 5, 2)).astype(np.float32)
    from_dense(cache, ["a"], [(k, k)], [5], tokens=[[7, 8, 9, 7, 8]])
    cache.free("a")
    assert cache.add("b", [7, 8, 9, 7, 8, 1]) == 4
    assert (cache.read(0, "b")[0][:, 0] == k[0, 0, :4]).all()


# What is refused ---------------------------------------------------------------------------------


def paged(blocks: int = 9) -> PagedCache:
    cache = PagedCache(LAYERS[:1], BlockPool(blocks, 4), xp=np)
    cache.add("a")
    cache.plan(["a"], [5])
    return cache


def old_step():
    cache = paged()
    step = cache.plan(["a"], [1])
    cache.plan(["a"], [1])
    return slot_mapping(cache, step)


def csr(indptr, indices, last) -> CSR:
    return CSR(*(np.asarray(x, np.int32) for x in (indptr, indices, last)))


TABLE = np.asarray([[3, 4], [5, -1]])


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: block_table(DenseCache(LAYERS, 1, 4), []), TypeError, "got a DenseCache"),
    (lambda: block_table(paged(), ["b"]), ValueError, "request 'b' is not open"),
    (lambda: slot_mapping(paged(), paged().plan(["a"], [1])), ValueError, "another cache"),
    (lambda: slot_mapping(paged(), None), TypeError, "step must be a Step, .*got None"),
    (lambda: from_csr(([0], [], []), 4), TypeError, "csr must be a CSR, .*got .*0"),
    (lambda: to_csr([[1]], [1], 4), TypeError, r"table must be an array, got \[\[1\]\]"),
    (lambda: to_dense(paged(), 0, [["x"]]), TypeError, r"must be hashable, got \['x'\]"),
    (old_step, ValueError, r"the step of requests \['a'\] is over"),
    (lambda: to_csr(TABLE, [8, 4], 0), ValueError, "block_size must be .*got 0"),
    (lambda: to_csr(TABLE, [8], 4), ValueError, "2 rows, got 1 lengths"),
    (lambda: to_csr(TABLE, [8, 5], 4), ValueError, "row 1 .* 2 blocks for 5 tokens .*5, -1"),
    (lambda: to_csr(TABLE, [4, 4], 4), ValueError, "row 0 .* 1 blocks for 4 tokens"),
    (lambda: to_csr(TABLE - 2, [8, 4], 4), ValueError, "row 1 .*3, -3"),
    (lambda: to_csr(np.asarray([[-1, 3]]), [4], 4), ValueError, "row 0 .*-1, 3"),
    (lambda: to_csr(TABLE[0], [8], 4), TypeError, "table must be integers in 2 dimensions"),
    (lambda: to_csr(TABLE * 1.0, [8, 4], 4), TypeError, "table must be integers .*float64"),
    (lambda: from_csr(csr([1, 2], [0, 1], [1]), 4), ValueError, "from 0 to the 2 indices"),
    (lambda: from_csr(csr([0, 1], [0, 1], [1]), 4), ValueError, "from 0 to the 2 indices"),
    (lambda: from_csr(csr([0, 2], [0, 1], [1, 1]), 4), ValueError, "in 3 numbers for 2"),
    (lambda: from_csr(csr([0, 2, 1, 2], [0, 1], [1, 0, 1]), 4), ValueError, "2 and then 1"),
    (lambda: from_csr(csr([0, 1], [-1], [1]), 4), ValueError, "blocks from 0 up, got -1"),
    (lambda: from_csr(csr([0, 1], [3], [5]), 4), ValueError, "1 ... 4, or 0 .*got 5 for"),
    (lambda: from_csr(csr([0, 1], [3], [0]), 4), ValueError, "got 0 for request 0 of 1"),
    (lambda: from_csr(csr([0, 0], [], [1]), 4), ValueError, "got 1 for request 0 of 0"),
    (lambda: from_csr(csr([0, 2], [3, 4], [1]), 4, 1), ValueError, "at least 2, got 1"),
    (lambda: to_dense(paged(), 1, ["a"]), ValueError, "layer must be 0 ... 0, got 1"),
    (lambda: to_dense(paged(), 0, ["b"]), ValueError, "request 'b' is not open"),
])
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


GOOD = np.ones((2, 1, 6, 2), np.float32)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ((["b", "b"], [(GOOD, GOOD)], [1, 1]), ValueError, "must be different names"),
    ((["b", "a"], [(GOOD, GOOD)], [1, 1]), ValueError, "request 'a' is open already"),
    ((["b", "c"], [(GOOD, GOOD)] * 2, [1, 1]), ValueError, "of 1 layers needed, got 2"),
    ((["b", "c"], [(GOOD, GOOD)], [1]), ValueError, r"2 lengths .*got \[1\]"),
    ((["b", "c"], [(GOOD, GOOD)], [1, 7]), ValueError, "k of layer 0 holds 6 tokens, .* 7"),
    ((["b", "c"], [(GOOD[0], GOOD)], [1, 1]), ValueError, r"k of layer 0 .*got \(1, 6, 2\)"),
    ((["b", "c"], [(GOOD, GOOD[..., :1])], [1, 1]), ValueError, "v of layer 0 must be .*D=2"),
    ((["b"], [(GOOD, GOOD)], [1]), ValueError, "k of layer 0 must be .B=1"),
    ((["b", "c"], [(GOOD, None)], [1, 1]), TypeError, "v of layer 0 must be an array"),
    ((["b", "c"], [(GOOD.astype(float), GOOD)], [1, 1]), TypeError, "k .*dtype float64"),
    ((["b", "c"], [(GOOD, GOOD.astype(float))], [1, 1]), TypeError, "v .*dtype float64"),
    ((["b", "c"], [GOOD], [1, 1]), TypeError, "layer 0 must be a pair .k, v., got an array"),
    ((["b", "c"], None, [1, 1]), TypeError, "layers must be a list of pairs .*got None"),
    ((["b", ["c"]], [(GOOD, GOOD)], [1, 1]), TypeError, r"must be hashable, got \['c'\]"),
    ((["b", "c"], [(GOOD, GOOD)], [1, 1], [5, [6]]), TypeError, "tokens must be .*got 5"),
    ((["b", "c"], [(GOOD, GOOD)], [1, 1], [[1], []]), ValueError, r"the lengths \[1, 1\] say"),
    ((["b", "c"], [(GOOD, GOOD)], [6, 6]), OutOfBlocks, "request 'c' .* lacks 1 block of 4 tokens"),
])
def test_a_refused_batch_changes_nothing(arguments, error, words):
    cache = paged(5)
    refused(cache, error, words, lambda: from_dense(cache, *arguments))


def test_a_refused_batch_evicts_nothing():
    pool = BlockPool(4, 2, log=True)
    cache = PagedCache([LayerSpec(1, 2)], pool, xp=np)
    cache.add("a")
    x = np.ones((5, 1, 2), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [5], [1, 2, 3, 4, 5]))
    cache.free("a")
    wide, events = GOOD[:1].astype(np.float64), [*pool.events]
    for pair in ((wide, wide), (GOOD[:1], wide)):
        refused(
            cache, TypeError, "dtype float64",
            lambda pair=pair: from_dense(cache, ["b"], [pair], [6]),
        )  # fmt: skip
    assert pool.events == events
    assert cache.add("c", [1, 2, 3, 4, 5]) == 4


def test_rows_of_a_refused_batch_are_freed_in_order():
    cache = DenseCache(LAYERS[:1], 3, 8, xp=np)
    with pytest.raises(CacheFull, match="no row for request 'e'"):
        from_dense(cache, ["b", "c", "d", "e"], [(GOOD[[0, 0, 0, 0]],) * 2], [1] * 4)
    assert cache.seq_ids == ()
    for row, name in enumerate("xyz"):
        cache.add(name)
        assert cache._sequences[name].state.row == row


def test_values_from_keys_are_their_first_columns():
    latent = PagedCache(LAYERS[2:], BlockPool(9, 4), xp=np)
    k = np.random.default_rng(0).standard_normal((1, 1, 5, 6)).astype(np.float32)
    with pytest.raises(ValueError, match="v of layer 0 must be the first columns of its keys"):
        from_dense(latent, ["a"], [(k, k[..., 1:5])], [5])
    from_dense(latent, ["a"], [(k, None)], [5])
    assert (to_dense(latent, 0, ["a"])[1] == k[..., :4]).all()

"""The decoder: cached equals recomputed, in any chunking, in any batch, in float32 alone."""

import numpy as np
import oracle
import pytest
from dtypes import Watched, watch
from effort import number
from hypothesis import given, settings
from hypothesis import strategies as st
from models import KINDS, config, decoder, text
from schedules import close

from kvlib import CacheFull, Decoder, Meter
from kvlib.model import random_weights
from kvlib.testing.memory import poison_unused

pytestmark = pytest.mark.filterwarnings("error")
all_kinds = pytest.mark.parametrize("kind", KINDS)


def new_cache(model, max_seqs=3, max_seq_len=None, **settings):
    cache = model.new_cache(max_seqs, max_seq_len, **settings)
    for x in cache.storage():
        x[...] = np.nan
    return cache


def feed(model, cache, name, tokens, chunks):
    """Logits (T, V) of a text given in chunks of these lengths."""
    parts = []
    for n in chunks:
        step = cache.plan([name], [n])
        parts.append(model.forward(tokens[:n], cache, step, rows="all"))
        tokens = tokens[n:]
    assert not tokens
    return np.concatenate(parts)


def alone(model, tokens):
    cache = new_cache(model)
    cache.add("alone")
    return feed(model, cache, "alone", tokens, [len(tokens)])


@all_kinds
@pytest.mark.parametrize("chunks", [[23], [1] * 23, [20, 1, 1, 1], [2, 9, 12]], ids=str)
def test_cached_equals_recomputed(kind, chunks):
    model = decoder(kind, seed=len(chunks))
    tokens = text(3, 23)
    cache = new_cache(model)
    cache.add("a")
    logits = feed(model, cache, "a", tokens, chunks)
    assert logits.dtype == np.float32 and logits.shape == (23, 31)
    close(logits, oracle.decoder_logits(model.config, model.weights, tokens), "logits")


OFF = {
    "norm": "rms", "windows": (None, None), "query_pre_attn_scalar": None,
    "attn_logit_softcapping": None, "final_logit_softcapping": None, "embedding_scale": 1.0,
    "hidden_act": "silu",
}


@pytest.mark.parametrize("field", OFF)
def test_each_field_of_gemma_2_is_seen_in_the_logits(field):
    model, tokens = decoder("gemma2"), text(3, 23)
    without = Decoder(config("gemma2", **{field: OFF[field]}), model.weights)
    assert np.abs(alone(model, tokens) - alone(without, tokens)).max() > 0.01


@settings(max_examples=number(quick=5, usual=20, whole=40))
@given(st.data())
def test_any_model_any_chunking(data):
    head_dim, groups = 2 * data.draw(st.integers(1, 4)), data.draw(st.sampled_from([1, 2, 4]))
    kv_heads, layers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    windows = st.lists(st.none() | st.integers(1, 9), min_size=layers, max_size=layers)
    flags = {
        name: data.draw(st.booleans())
        for name in ("qkv_bias", "o_bias", "mlp_bias", "qk_norm", "tie_word_embeddings")
    }
    kind = data.draw(st.sampled_from(list(KINDS)))
    flags["qk_norm"] |= KINDS[kind].get("qk_norm_wide", False)
    model = decoder(
        kind, data.draw(st.integers(0, 99)),
        num_hidden_layers=layers, num_attention_heads=kv_heads * groups,
        num_key_value_heads=kv_heads, head_dim=head_dim, windows=tuple(data.draw(windows)), **flags,
    )
    chunks = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    tokens = text(data.draw(st.integers(0, 99)), sum(chunks))
    cache = new_cache(model)
    cache.add("a")
    logits = feed(model, cache, "a", tokens, chunks)
    needed = oracle.decoder_logits(model.config, model.weights, tokens)
    close(logits, needed, "logits", 1e-4)


PARTS = {"a": text(1, 7), "b": text(2, 1), "c": text(3, 12)}
ROWS = {"last": [6, 7, 19], "all": list(range(20))}


def one_pass(model, cache, rows):
    """Logits of some rows of a pass over PARTS, what the last layer keeps, and what it took."""
    for name in PARTS:
        cache.add(name)
    step = cache.plan(list(PARTS), [len(p) for p in PARTS.values()])
    with Meter() as meter:
        logits = model.forward(sum(PARTS.values(), []), cache, step, rows=rows)
    final = len(model.layer_specs) - 1
    kept = [np.array(x) for name in PARTS for x in cache.read(final, name)]
    for name in PARTS:
        cache.free(name)
    return logits, kept, meter.by_label["linear"].flops


@all_kinds
@pytest.mark.parametrize("rows", ["last", [19, 0, 7, 7], [3], [12, 13, 18], list(range(20))])
def test_logits_of_chosen_rows_are_those_of_all(kind, rows):
    model = decoder(kind)
    cache = new_cache(model)
    every, kept_all, _ = one_pass(model, cache, "all")
    chosen, kept, _ = one_pass(model, cache, rows)
    wanted = ROWS.get(rows, rows) if isinstance(rows, str) else rows
    assert every.shape == (20, 31) and chosen.shape == (len(wanted), 31)
    close(chosen, every[wanted], "chosen rows", 1e-5)
    for x, y in zip(kept_all, kept):  # the last layer stores keys of every row all the same
        close(x, y, "what is kept")


def test_rows_that_nobody_asks_for_cost_no_product_behind_the_last_attention():
    model = decoder("llama")
    cache = new_cache(model)
    flops = [one_pass(model, cache, rows)[2] for rows in ([18], [17, 18], "all")]
    assert flops[2] - flops[0] == 19 * (flops[1] - flops[0]) > 0


@pytest.mark.parametrize(("rows", "error", "words"), [
    ("first", ValueError, """rows must be "last", "all" or a list .*got 'first'"""),
    ([], ValueError, r"rows must be a list of at least one row number, 0 \.\.\. 19, got none"),
    ([0, 20], ValueError, r"0 \.\.\. 19, got 20"),
])
def test_rows_refused_before_anything_is_written(rows, error, words):
    model = decoder("llama")
    cache = new_cache(model)
    for name in PARTS:
        cache.add(name)
    step = cache.plan(list(PARTS), [len(p) for p in PARTS.values()])
    with pytest.raises(error, match=words):
        model.forward(sum(PARTS.values(), []), cache, step, rows=rows)
    assert not step.ticket.appended
    with pytest.raises(
        ValueError, match=r"counts must be 3 numbers of rows, from 1 to \(7, 1, 12\)"
    ):
        step.last([1, 2, 1])


@pytest.mark.parametrize("kind", ["llama", "hybrid", "gpt2"])
def test_a_row_alone_equals_the_row_in_any_company(kind):
    model = decoder(kind)
    texts = {i: text(i, 20 + i) for i in range(6)}
    needed = {i: oracle.decoder_logits(model.config, model.weights, t) for i, t in texts.items()}
    cache, given, waiting = new_cache(model, 3), {}, list(texts)
    rng = np.random.default_rng(5)
    while waiting or given:
        if waiting and len(given) < 3 and rng.random() < 0.5:
            given[waiting[0]] = 0
            cache.add(waiting.pop(0))
        if not given:
            continue
        for i in [i for i in given if rng.random() < 0.1 or given[i] == len(texts[i])]:
            cache.free(i)  # finished, or leaves early
            del given[i]
            poison_unused(cache)
        names = [i for i in given if rng.random() < 0.8]
        rng.shuffle(names)
        if not names:
            continue
        q_lens = [min(int(rng.integers(1, 6)), len(texts[i]) - given[i]) for i in names]
        tokens = [t for i, n in zip(names, q_lens) for t in texts[i][given[i] : given[i] + n]]
        logits = model.forward(tokens, cache, cache.plan(names, q_lens), rows="all")
        for i, n in zip(names, q_lens):
            rows = slice(given[i], given[i] + n)
            close(logits[:n], needed[i][rows], f"logits of {i} at {rows}")
            logits, given[i] = logits[n:], given[i] + n


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_request_that_grows_past_the_first_angles(kind):
    # cos and sin are made for 512 positions, and again when a request is longer
    size = dict(max_position_embeddings=1100, num_hidden_layers=1)
    model, tokens = decoder(kind, **size), text(1, 1100)
    cache = model.new_cache(1)
    cache.add("a")
    logits = feed(model, cache, "a", tokens, [510, 1, 1, 1, 87, 500])
    close(logits, alone(decoder(kind, **size), tokens), "logits")


class Broken(RuntimeError):
    """Something went wrong in the middle of a pass."""


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("method", ["append", "run"])
def test_a_failed_pass_is_undone_by_truncate(monkeypatch, layer, method):
    model, tokens = decoder("llama"), text(1, 12)
    cache = new_cache(model)
    cache.add("a")
    feed(model, cache, "a", tokens[:6], [6])
    works = getattr(cache, method)

    def breaks(i, *given):
        if i == layer:
            raise Broken
        return works(i, *given)

    with monkeypatch.context() as patch:
        patch.setattr(cache, method, breaks)
        with pytest.raises(Broken):
            model.forward([9, 9, 9], cache, cache.plan(["a"], [3]))
    cache.truncate("a", 6)
    poison_unused(cache)
    logits = feed(model, cache, "a", tokens[6:], [3, 3])
    close(logits, alone(model, tokens)[6:], "logits after a failed pass")


@all_kinds
def test_no_float64_is_made_of_float32(kind):
    c = config(kind, norm_eps=np.float64(1e-5))
    weights = {n: w.view(Watched) for n, w in random_weights(c).items()}
    model, tokens = Decoder(c, weights), text(1, 30)
    cache = model.new_cache(2)
    cache.add("a")
    cache.add("b")
    model.forward([1], cache, cache.plan(["a"], [1]))  # forms the angles of RoPE, in float64
    cache.truncate("a", 0)
    with watch() as found:
        step = cache.plan(["a", "b"], [9, 13])
        model.forward(tokens[:22], cache, step, rows="all")
        model.forward(tokens[22:25], cache, cache.plan(["b"], [3]))
        logits = model.forward(tokens[25:27], cache, cache.plan(["a", "b"], [1, 1]))
        model.forward(tokens[27:28], cache, cache.plan(["a"], [1]))
    assert not found, f"float64 arrays: {sorted(found)}"
    assert logits.dtype == np.float32
    assert {x.dtype for x in cache.storage()} == {np.dtype(np.float32)}


def test_the_watch_does_see_float64():
    c = config("llama")
    weights = {n: w.view(Watched) for n, w in random_weights(c).items()}
    weights["norm.weight"] = weights["norm.weight"].astype(np.float64)
    model = Decoder(c, weights)
    cache = model.new_cache()
    cache.add("a")
    with watch() as found:
        model.forward([1, 2], cache, cache.plan(["a"], [2]))
    assert any("kvlib.model.layers" in place for place in found)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "gemma2"])
def test_float64_and_float16_weights(kind):
    tokens = text(1, 9)
    for dtype, out, tolerance in ((np.float64, np.float64, 1e-9), (np.float16, np.float32, 0.03)):
        model = decoder(kind, dtype=dtype)
        logits = alone(model, tokens)
        assert logits.dtype == out and model.new_cache().dtype == dtype
        needed = oracle.decoder_logits(model.config, model.weights, tokens)
        close(logits, needed, "logits", tolerance)


TOKENS = {
    "too few": ([1, 2], ValueError, r"holds 3 new tokens, got tokens of shape \(2,\)"),
    "none": ([], ValueError, r"shape \(0,\)"),
    "two axes": ([[1, 2, 3]], TypeError, r"integers, got \[1, 2, 3\]"),
    "past the vocabulary": ([1, 31, 2], ValueError, r"0 \.\.\. 30, got 1 \.\.\. 31"),
    "negative": ([1, -1, 2], ValueError, r"0 \.\.\. 30, got -1 \.\.\. 2"),
}


@pytest.mark.parametrize("tokens, error, words", TOKENS.values(), ids=TOKENS)
def test_tokens_refused_before_anything_is_written(tokens, error, words):
    model = decoder("llama")
    cache = new_cache(model)
    cache.add("a")
    step = cache.plan(["a"], [3])
    with pytest.raises(error, match=words):
        model.forward(tokens, cache, step)
    assert all(np.isnan(x).all() for x in cache.storage())
    assert model.forward(np.asarray([1, 2, 3], np.uint64), cache, step).shape == (1, 31)


def test_past_the_model_and_past_the_cache():
    model = decoder("gpt2")
    cache = new_cache(model, max_seq_len=60)
    cache.add("a")
    step = cache.plan(["a"], [49])
    with pytest.raises(ValueError, match="49 tokens is past the model's limit of 48"):
        model.forward(text(1, 49), cache, step)
    cache.truncate("a", 0)
    model.forward(text(1, 48), cache, cache.plan(["a"], [48]))
    with pytest.raises(CacheFull):
        cache.plan(["a"], [13])
    other = decoder("llama")
    cache.add("b")
    short = cache.plan(["b"], [1])
    with pytest.raises(TypeError, match="step must be a Step, what plan returns, got None"):
        model.forward([1], cache, None)
    with pytest.raises(ValueError, match="another cache"):
        other.forward([1], new_cache(other), short)
    with pytest.raises(ValueError, match="max_seq_len .*got 0"):
        model.new_cache(1, 0)


def test_weights_refused():
    c = config("llama")
    weights = random_weights(c)
    with pytest.raises(ValueError, match="'norm.weight' is missing"):
        Decoder(c, {n: w for n, w in weights.items() if n != "norm.weight"})
    with pytest.raises(ValueError, match="'extra' is not part"):
        Decoder(c, {**weights, "extra": weights["norm.weight"]})
    with pytest.raises(ValueError, match=r"'norm.weight' must be \(24,\), got \(23,\)"):
        Decoder(c, {**weights, "norm.weight": weights["norm.weight"][:23]})


def test_what_it_says_of_itself():
    model = decoder("llama")
    size = sum(w.size for w in model.weights.values())
    assert model.num_parameters == size and model.num_bytes == 4 * size
    assert repr(model) == (
        f"Decoder(llama, {size:,} parameters, 2 layers, 4/2 heads of 8, vocabulary 31, float32)"
    )

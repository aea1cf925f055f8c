"""Decode steps as compile_step prepares them: the tokens of model.forward, and what is sent."""

from dataclasses import replace
from itertools import chain, pairwise, product

import numpy as np
import pytest
from effort import number
from engines import library

from kvlib import BlockPool, DenseCache, PagedCache, Scheduler, generate
from kvlib.caches import Sinks
from kvlib.codecs import kivi
from kvlib.kernels import compile_step, use_kernels, watched
from kvlib.kernels.step import _Batch
from kvlib.model import Decoder, ModelConfig, RopeConfig, random_weights
from kvlib.reference import load_reference_model
from kvlib.speculation import PromptLookup

MODEL = load_reference_model(xp=np)
PROMPTS = [list(b"def mean(values):\n    return "), list(b"x"), list(b"import os\n\n\nclass ")]
KINDS = {
    "rows": None, "blocks": None, "int8": "int8", "e4m3": "fp8_e4m3",
    "int4": kivi(4, 8, 3), "int2 rows": kivi(2, 16, 20), "per channel": kivi(8, 8, 0),
}  # fmt: skip
WAITS = ["int4", "int2 rows"]


def cache_of(kind, model=MODEL, rows=4, room=320, xp=np, pool=None):
    """A cache whose unused memory is NaN."""
    settings, pool = {"codec": KINDS[kind], "xp": xp}, pool or BlockPool(rows * room // 8, 8)
    if "rows" in kind:
        cache = DenseCache(model.layer_specs, rows, room, **settings)
    else:
        cache = PagedCache(model.layer_specs, pool, **settings)
    for x in cache.storage():
        if x.dtype.kind == "f":
            x[...] = np.nan
    return cache


def compiled_for(cache, model=MODEL, **settings):
    """A compiled step whose unused memory is NaN."""
    compiled = compile_step(model, cache, **settings)
    for x in () if compiled._waiting is None else chain(*compiled._waiting.layers):
        x[...] = np.nan
    return compiled


def tokens_of(kind, new, run_on=None, model=MODEL, prompts=PROMPTS):
    """New tokens of each prompt, and the compiled step if there is one."""
    cache, compiled = cache_of(kind, model, xp=model.xp), False
    if run_on is not None:
        compiled = compiled_for(cache, model, run_on=run_on)
    settings = {"stop_tokens": (), "max_new_tokens": new, "compiled": compiled}
    return generate(model, prompts, cache=cache, **settings), compiled


@pytest.mark.parametrize("kind", [*KINDS][:-1])
def test_two_hundred_and_fifty_six_tokens_are_those_of_the_model(kind, monkeypatch):
    new = 24 if kind in WAITS else number(quick=48, usual=256, whole=256)
    runs, run = [], _Batch.run
    monkeypatch.setattr(_Batch, "run", lambda batch, most: runs.append(most) or run(batch, most))
    found, compiled = tokens_of(kind, new, "twin")
    assert found == tokens_of(kind, new)[0] and len(runs) == new - 1
    # Three texts' pages (row 0 is known to be 0), positions, lengths and tokens; then new blocks.
    blocks = sum((len(p) + new - 2) // 8 - len(p) // 8 for p in PROMPTS)
    sent = 5 if kind == "rows" else 6 + blocks
    if kind in WAITS:  # positions, rows, tokens; when tokens become codes, two lengths and pages
        coded, size = KINDS[kind].coded, compiled.cache.stores[0].size
        codes = [[coded(len(p) + n) for p in PROMPTS] for n in range(1, new)]
        sent = 3 + (codes[0] == [0, 0, 0])
        for before, after in pairwise([[0, 0, 0], *codes]):
            sent += 2 * (before != after)
            sent += sum(-(-a // size) < -(-b // size) for a, b in zip(before, after, strict=True))
    assert compiled.uploads == sent


@pytest.mark.parametrize(
    ("kind", "new", "count"), [("rows", 3, 3), ("int8", 12, 1), ("int4", 3, 1)]
)
def test_the_cuda_sources_themselves_give_the_same_tokens(kind, new, count):
    new, prompts = number(quick=3, usual=new, whole=12), PROMPTS[-count:]
    with watched() as seen:
        found, _ = tokens_of(kind, new, "processor", prompts=prompts)
    assert found == tokens_of(kind, new, prompts=prompts)[0]
    assert {launch.kernel.unit for launch, _ in seen} >= {"product", "token"}


def served(kind, compiled, model=MODEL, **settings):
    """Tokens and events of requests that begin, share, are preempted in a small pool, and end."""
    pool = BlockPool(18, 4) if kind == "blocks" else BlockPool(9, 8)
    cache = cache_of(kind, model, rows=3, room=64, xp=model.xp, pool=pool)
    settings = {"stop_tokens": (), "compiled": compiled, **settings}
    server = Scheduler(model, use_kernels(cache), **settings)
    for i in range(6):
        head = b"def add(a, b):" if i % 2 else b""  # some prompts begin alike
        drawn = {"temperature": 0.8, "seed": i} if i == 4 else {}
        server.add(i, list(head + bytes([97 + i]) * (i + 1)), 9 + 3 * (i % 3), **drawn)
        server.step()
    return server.run(), server.events, server.compiled


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *product(["rows", "blocks"], [{}, {"drafter": PromptLookup()}, {"stop_tokens": (10, 32)}]),
        ("int4", {}), ("int2 rows", {"drafter": PromptLookup()}),
    ],
)  # fmt: skip
def test_requests_begin_end_share_and_are_preempted(kind, settings):
    tokens, events, compiled = served(kind, True, **settings)
    assert (tokens, events, None) == served(kind, None, **settings) and compiled.uploads
    assert "rows" in kind or settings or {"hit", "preempt"} <= {event.kind for event in events}


def test_a_prompt_that_is_read_token_by_token_starts_no_step_early():
    expected, found = (
        generate(MODEL, PROMPTS, prefill_chunk=1, compiled=x, stop_tokens=()) for x in (None, True)
    )
    assert found == expected


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_gives_the_tokens_of_the_processor(kind):
    model = load_reference_model(xp=library("device"))
    new = 256 if kind in ("rows", "blocks", "int8") else 32
    assert tokens_of(kind, new, "device", model)[0] == tokens_of(kind, new)[0]
    if kind in ("rows", "blocks"):
        tokens, events, compiled = served(kind, None, model)
        assert (tokens, events) == served(kind, False)[:2] and compiled.uploads


def small_model(kind, seed=0):
    """Two or three layers with random weights, of one family."""
    rng = np.random.default_rng(seed)
    more = {"llama": {}, "qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}[kind]
    if seed % 2:
        more |= {"windows": (None, 7, None), "tie_word_embeddings": True}
        more["rope"] = RopeConfig(theta=1e4, partial_rotary_factor=0.5)
    sizes = 60, 64, 8 * int(rng.integers(1, 9)), 2 + seed % 2, 4, int(rng.choice([1, 2, 4])), 64
    config = ModelConfig(kind, *sizes, max_position_embeddings=96, **more)
    return Decoder(config, random_weights(config, seed=seed, xp=np))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("seed", range(4))
def test_logits_are_near_those_in_float64(kind, seed):
    model = small_model(kind, seed)
    wide = Decoder(model.config, {n: w.astype(np.float64) for n, w in model.weights.items()})
    where, run_on = ("rows", "blocks")[seed // 2], "twin" if seed else "processor"
    cache = cache_of(where, model, room=96)
    compiled = compile_step(model, cache, run_on=run_on)
    texts, likeliest = [[*range(3 + 4 * name, 10 + 9 * name)] for name in range(3)], []
    for name, text in enumerate(texts):
        cache.add(name)
        model.forward(text, cache, cache.plan([name], [len(text)]))
    for n, as_found in ((3, False), (3, True), (3, True), (2, False), (1, True), (3, False)):
        for i, text in enumerate(texts[:n]):
            text.append(likeliest[i] if as_found else len(text) * 7 % 60)
        step = cache.plan([*range(n)], [1] * n)
        assert compiled.explain(step) == []
        logits = compiled.forward([texts[i][-1] for i in range(n)], cache, step)
        checked = wide.new_cache(n, 96)
        lens = [checked.add(i) or len(texts[i]) for i in range(n)]
        needed = wide.forward(sum(texts[:n], []), checked, checked.plan([*range(n)], lens))
        np.testing.assert_allclose(logits, needed, atol=2e-5)
        assert compiled.start_next() or where == "blocks" or cache.forgets
        likeliest = compiled.greedy(logits)
        assert likeliest == needed.argmax(axis=1).tolist()


@pytest.mark.parametrize("run_on", ["processor", "twin"])
def test_heads_are_normed_by_weights_in_float16(run_on):
    wide = small_model("qwen3")
    half = Decoder(wide.config, {n: w.astype(np.float16) for n, w in wide.weights.items()})
    logits = []
    for model in (wide, half):
        cache = model.new_cache(1, 16)
        cache.add("a")
        model.forward([1, 2, 3], cache, cache.plan(["a"], [3]))
        step = cache.plan(["a"], [1])
        computes = model if model is wide else compile_step(model, cache, run_on=run_on)
        logits.append(computes.forward([4], cache, step))
    np.testing.assert_allclose(*logits, atol=0.02)


def test_the_device_may_run_ahead_of_the_host():
    cache, needed = cache_of("rows"), tokens_of("rows", 9, prompts=PROMPTS[:2])[0]
    compiled = compile_step(MODEL, cache)
    for name, prompt in enumerate(PROMPTS[:2]):
        cache.add(name)
        MODEL.forward(prompt, cache, cache.plan([name], [len(prompt)]))
    compiled.forward([new[0] for new in needed], cache, cache.plan([0, 1], [1, 1]))
    for _ in range(7):
        compiled.forward(None, cache, cache.plan([0, 1], [1, 1]))
    assert compiled.history(8).tolist() == [new[1:] for new in needed]
    with pytest.raises(ValueError, match="count must be"):
        compiled.history(9)
    assert compiled.start_next()  # in vain
    compiled.forward([5, 6], cache, cache.plan([0, 1], [1, 1]))
    with pytest.raises(ValueError, match="count must be"):
        compiled.history(2)
    with pytest.raises(ValueError, match="tokens may be None after a step of the same requests"):
        compiled.forward(None, cache, cache.plan([1], [1]))


def prefilled(cache, name, text):
    """Logits (1, V) after a request's first tokens."""
    cache.add(name)
    return MODEL.forward(text, cache, cache.plan([name], [len(text)]))


def test_a_row_without_a_request_gets_no_token():
    cache = cache_of("rows")
    compiled = compile_step(MODEL, cache, run_on="twin")
    for name in range(3):
        prefilled(cache, name, PROMPTS[name])
    fed = compiled.greedy(compiled.forward([1, 2, 3], cache, cache.plan([0, 1, 2], [1] * 3)))
    (*_, word), prompt = compiled._last.batch.state._last_words(), PROMPTS[0][:9]
    token = word & (1 << 30) - 1  # of the fourth row, which a request that begins may be given
    prefilled(cache, 3, prompt)
    logits = compiled.forward([*fed, token], cache, cache.plan([*range(4)], [1] * 4))
    needed = prefilled(cache_of("rows"), 3, [*prompt, token])
    np.testing.assert_allclose(logits[3:], needed, atol=1e-4)


@pytest.mark.parametrize("kind", [*WAITS, "per channel"])
def test_requests_take_turns_in_few_rows_where_tokens_wait(kind, monkeypatch):
    """Between their steps, requests are cut, copied and ended; steps fail, or have more tokens."""
    rng, began = np.random.default_rng(1), 3
    model = small_model("llama", int(kind != "int2 rows"))  # of 1, a layer has a window
    caches = [cache_of(kind, model, rows=5, room=160) for _ in range(2)]
    compiled = compiled_for(caches[0], model, max_batch=2, run_on="twin")
    for cache, name in product(caches, range(began)):
        cache.add(name)
        model.forward([*range(9 * name, 20 + 10 * name)], cache, cache.plan([name], [20 + name]))
    for turn in range(40):
        names = rng.permutation([*caches[0]._sequences])[: 1 + turn % 2].tolist()
        if turn < 4:  # 0 gets many tokens, others take its row, and 0 is cut
            names = [[0], [0], [1, 2], [1, 0]][turn]
        lens, state = [1] * len(names), caches[0]._sequences[names[-1]].state
        if turn % 5 == 1:
            lens[0] = 66 if turn == 1 else int(rng.choice([2, 7]))
        elif turn % 5 == 3:
            cut = max(state.undo_length - 1, state.undo_paged)
            for cache in caches:
                cache.truncate(names[-1], cut)
        elif turn % 5 == 4:
            for cache in caches:
                cache.fork(names[0], began)
                cache.free(names[0])
            names[0], began = began, began + 1
        tokens = rng.integers(60, size=sum(lens)).tolist()
        step, other = (cache.plan(names, lens) for cache in caches)
        if turn % 5 in (0, 2) and not compiled.explain(step):
            with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
                patch.setattr(caches[0], "mark_appended", lambda step: 1 // 0)
                compiled.forward(tokens, caches[0], step)
        found = (model if turn % 10 == 7 else compiled).forward(tokens, caches[0], step, "last")
        needed = model.forward(tokens, caches[1], other, "last")
        np.testing.assert_allclose(found, needed, atol=0.05)  # codes may be one off
        if turn % 3:
            compiled.start_next()
    assert compiled.uploads > 40


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_step_started_for_a_request_is_in_vain_for_the_next_one_in_its_row(name):
    cache = cache_of("rows", rows=1)
    compiled = compile_step(MODEL, cache, run_on="twin")
    prefilled(cache, "a", PROMPTS[0][:8])
    fed = compiled.greedy(compiled.forward([5], cache, cache.plan(["a"], [1])))
    assert compiled.start_next()
    cache.free("a")
    prefilled(cache, name, PROMPTS[2][:9])
    step = cache.plan([name], [1])
    with pytest.raises(ValueError, match="after a step of the same requests"):
        compiled.forward(None, cache, step)
    needed = prefilled(cache_of("rows"), name, [*PROMPTS[2][:9], *fed])
    np.testing.assert_allclose(compiled.forward(fed, cache, step), needed, atol=1e-4)


def test_tokens_of_the_step_before_end_at_the_limit_of_the_model():
    model = Decoder(replace(MODEL.config, max_position_embeddings=8), MODEL.weights)
    cache = cache_of("rows", model)
    compiled = compile_step(model, cache)
    prefilled(cache, "a", PROMPTS[0][:7])
    compiled.forward([5], cache, cache.plan(["a"], [1]))
    with pytest.raises(ValueError, match="9 tokens is past the model's limit of 8"):
        compiled.forward(None, cache, cache.plan(["a"], [1]))


@pytest.mark.parametrize(("kind", "before"), [("blocks", 4), ("int4", 6)])
def test_a_step_that_fails_can_be_undone(kind, before, monkeypatch):
    model = load_reference_model(xp=np)
    cache = cache_of(kind, model)
    server = Scheduler(model, cache, compiled=True, stop_tokens=())
    server.add("a", PROMPTS[0], 12)
    for _ in range(before):  # of int4, the next step encodes
        server.step()
    weight, kept = model.weights["norm.weight"], model.weights["norm.weight"].copy()
    for value, words in ((np.nan, "got nan"), (np.inf, "got inf")):
        weight[0] = value
        with pytest.raises(ValueError, match=f"must be a finite number, {words}"):
            server.step()
        weight[...] = kept
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(cache, "mark_appended", lambda step: 1 // 0)
        server.step()
    assert server.run()["a"] == tokens_of(kind, 12, prompts=PROMPTS[:1])[0][0]


@pytest.mark.parametrize(("kind", "interrupted"), [*product(["blocks"], range(2, 7)), ("int4", 6)])
@pytest.mark.parametrize("ran", [False, True])
def test_a_step_can_be_interrupted(kind, interrupted, ran, monkeypatch):
    cache, run, runs = cache_of(kind), _Batch.run, []

    def interrupt(batch, most):
        runs.append(most)
        if ran or len(runs) != interrupted:
            run(batch, most)
        if len(runs) == interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(_Batch, "run", interrupt)
    server = Scheduler(MODEL, cache, compiled=True, stop_tokens=())
    server.add("a", PROMPTS[0], 12)
    with pytest.raises(KeyboardInterrupt):
        server.run()
    assert server.run()["a"] == tokens_of(kind, 12, prompts=PROMPTS[:1])[0][0]


UNFIT = {
    "RMSNorm": {"norm": "rms_1p"}, "normed": {"post_norms": True},
    "parallel": {"parallel_residual": True}, "gated by silu": {"hidden_act": "gelu"},
    "biases": {"mlp_bias": True}, "scaled": {"embedding_scale": 2.0},
    "capped": {"final_logit_softcapping": 30.0}, "sinks": {"sinks": True},
    "what a layer adds": {"residual_scale": 0.5}, "logits are scaled": {"logit_scale": 0.5},
    "have a bias": {"head_bias": True}, "no rope": {"unrotated": (1,)},
    "all heads": {"qk_norm": True, "qk_norm_wide": True},
}  # fmt: skip


@pytest.mark.parametrize("words", UNFIT)
def test_what_a_compiled_step_lacks_is_said_and_runs_as_before(words):
    config = replace(small_model("llama").config, **UNFIT[words])
    model = Decoder(config, random_weights(config, xp=np))
    compiled = compile_step(model, model.new_cache(1, 32))
    with pytest.raises(ValueError, match="can't be compiled: .*" + words):
        Scheduler(model, compiled.cache, compiled=True)
    more = {"max_new_tokens": 2, "stop_tokens": ()}
    found = generate(model, [[1]], cache=compiled.cache, compiled=compiled, **more)
    assert found == generate(model, [[1]], **more) and words in compiled.explain()[0]


def shifted(x):
    """The same numbers, 4 bytes past a multiple of 16."""
    return np.append(np.float32(0), x.ravel())[1:].reshape(x.shape)


@pytest.mark.parametrize(
    ("words", "changed", "change"),
    [
        ("contiguous", {}, np.asfortranarray),
        ("multiple of 16 bytes", {}, shifted),
        ("one type", {}, lambda x: x.astype(np.float16) if x.ndim == 1 else x),
        ("multiples of 16 bytes", {"intermediate_size": 50}, lambda x: x),
        ("rotate 8, 16", {"rope": RopeConfig(partial_rotary_factor=12 / 64)}, lambda x: x),
    ],
)
def test_arrays_that_kernels_cannot_load_are_named(words, changed, change):
    config = replace(small_model("llama").config, **changed)
    weights = {n: change(w) for n, w in random_weights(config, xp=np).items()}
    model = Decoder(config, weights)
    (reason,) = compile_step(model, model.new_cache(1, 32)).explain()
    assert words in reason


def test_caches_and_steps_that_do_not_fit_say_why():
    specs, mine = MODEL.layer_specs, [
        type("Mine", (DenseCache,), {name: print}) for name in ("append", "run", "attend")
    ]
    for unfit, words in (
        (DenseCache(specs, 1, 64, retention=Sinks(2, 16), xp=np), "between others"),
        (DenseCache(specs, 1, 64, attention=print, xp=np), "attends by"),
        (DenseCache([replace(x, window=9) for x in specs], 1, 64, xp=np), "other layers"),
        *((kind(specs, 1, 64, xp=np), "Mine") for kind in mine),
    ):
        (reason,) = compile_step(MODEL, unfit).explain()
        assert words in reason
    own = type("Own", (Decoder,), {"forward": print})(MODEL.config, MODEL.weights)
    assert "Own has a way" in compile_step(own, cache_of("rows")).explain()[0]
    cache = use_kernels(cache_of("rows"), run_on="twin")
    compiled = compile_step(MODEL, cache, max_batch=2)
    for name in range(3):
        cache.add(name)
    for lens, words in (([2, 1], "one new token"), ([1, 1, 1], "at most 2 fit")):
        step = cache.plan([*range(len(lens))], lens)
        (reason,) = compiled.explain(step)
        assert words in reason
        assert compiled.forward([5] * sum(lens), cache, step).shape == (len(lens), 256)
    step = cache.plan([0, 1], [1, 1])
    assert compiled.forward([5, 6], cache, step, np.array([1, 0])).shape == (2, 256)
    assert "nothing has been appended" in compiled.explain(step)[0] and not compiled.uploads
    with pytest.raises(ValueError, match="compiled must be of this model and this cache"):
        generate(MODEL, PROMPTS, compiled=compiled)

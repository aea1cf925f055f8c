"""Mistakes that once met an error of Python: each error names what came and what was needed."""

import math

import numpy as np
import pytest
from models import config, decoder
from plainly import check_outcomes

import kvlib
from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, attend
from kvlib import attend_causal as causal
from kvlib.attention import attend_tiled
from kvlib.caches import H2O, KNorm, Policy, Scored, Tova, layouts
from kvlib.codecs import Codec, PerChannel, PerToken, int8_per_channel, kivi
from kvlib.config.shape import Experts, Latent, Router
from kvlib.serve import (
    Pending,
    Request,
    fewest_lost,
    first_come,
    greedy,
    probabilities,
    schedule,
    shortest_first,
    waits,
    youngest,
)
from kvlib.speculation import PromptLookup, Rehearsed, Text, accept, accept_tree, best_gamma

SPEC = LayerSpec(2, 4)
X = np.ones((2, 2, 4), np.float32)
NONE, AT = np.ones((2, 2, 0), np.float32), np.arange(2)
CACHES = {
    "dense": lambda spec=SPEC, **more: DenseCache([spec], 1, 8, **{"xp": np, **more}),
    "paged": lambda spec=SPEC, **more: PagedCache([spec], BlockPool(4, 2), **{"xp": np, **more}),
}


def planned(make):
    cache = make()
    cache.add("a")
    return cache, cache.plan(["a"], [2])


CALLS = {
    "no step": (lambda c, s: c.append(0, X, X, None), TypeError, "step must be a Step.*got None"),
    "run without a step": (lambda c, s: c.run(0, X, [0]), TypeError, r"step must .*got \[0\]"),
    "an array for a layer": (
        lambda c, s: c.append(X, X, s, 0), ValueError,
        r"layer must be 0 \.\.\. 0, got an array of shape \(2, 2, 4\)$",
    ),
    "a long text": (
        lambda c, s: c.add("g", "word " * 99), TypeError, r"got 'word .{50,60}\.\.\. \(a str\)$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("call, error, words", CALLS.values(), ids=CALLS)
def test_calls(make, call, error, words):
    cache, step = planned(make)
    with pytest.raises(error, match=words) as said:
        call(cache, step)
    assert len(str(said.value)) < 200
    assert cache.seq_ids == ("a",) and cache.seq_len("a") == 2
    cache.append(0, X, X, step)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_tokens_of_a_generator_are_tokens(make):
    cache = make()
    assert cache.add("a", (t for t in (1, 2, 3))) == 0
    assert cache.plan(["a"], [2], (t for t in (1, 2))).seq_lens == (2,)


MODEL = decoder("llama")
NEEDED, REAL = "model must be a Decoder.*got ", "logits must be real numbers, got "


@pytest.mark.parametrize("call, words", [
    (lambda: kvlib.generate(MODEL, None), "prompts must be a list .*got None"),
    (lambda: kvlib.generate(None, [[1]]), NEEDED + "None"),
    (lambda: kvlib.stream(None, [[1]]), NEEDED + "None"),
    (lambda: kvlib.Scheduler("m", MODEL.new_cache(1, 8)), NEEDED + "'m'"),
    (lambda: greedy(np.asarray([["a", "b"]])), REAL + "<U1"),
    (lambda: probabilities(np.asarray([[1j, 2]])), REAL + "complex128"),
    (lambda: greedy(np.asarray([[True, False]])), REAL + "bool"),
    (lambda: kvlib.load_model(None), "folder must be a path, got None"),
])  # fmt: skip
def test_first_mistakes(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("xp", ("numpy", 3, {}))
def test_libraries(make, xp):
    with pytest.raises(TypeError, match="xp must be an array library, the module itself, got"):
        make(xp=xp)


@pytest.mark.parametrize("layers", (SPEC, 3, None))
def test_layers(layers):
    with pytest.raises(TypeError, match="layers must be a list of LayerSpec, one per layer, got "):
        DenseCache(layers)


SINKS = {
    "a list": ([0.0], TypeError, r"sinks must be an array \(num_qo_heads,\), got \[0.0\]"),
    "two axes": (np.ones((2, 2)), ValueError, r"sinks .* 2 heads, got shape \(2, 2\)"),
    "no heads": (np.ones(0), ValueError, r"sinks .* 2 heads, got shape \(0,\)"),
    "other heads": (np.ones(3), ValueError, r"sinks .*a multiple of 2 heads, got shape \(3,\)"),
}


@pytest.mark.parametrize("sinks, error, words", SINKS.values(), ids=SINKS)
def test_sinks(sinks, error, words):
    with pytest.raises(error, match=words):
        LayerSpec(2, 4, sinks=sinks)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_sinks_of_another_library(make):
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(TypeError, match="sinks of layer 0 must be an array of numpy.ndarray"):
        make(LayerSpec(2, 4, sinks=strict.ones(2)))


def test_attention():
    for call in (attend, attend_tiled):
        with pytest.raises(ValueError, match="head_dim of q and k must be at least 1, got 0"):
            call(NONE, NONE, X, AT, AT)
        with pytest.raises(TypeError, match=r"sinks must be an array \(Hq,\) = \(2,\), got \[0.0"):
            call(X, X, X, AT, AT, sinks=[0.0, 0.0])
    with pytest.raises(ValueError, match="Dk at least 1 needed"):
        causal(NONE, NONE, NONE)
    with pytest.raises(TypeError, match="sinks must be an array"):
        causal(X, X, X, sinks=[0.0, 0.0])


@pytest.mark.parametrize("codec, made_by", [
    (kivi(4, 32, 0), r"kivi\(bits=4, group=32, residual=0\)"),
    (int8_per_channel(32), r"int8_per_channel\(group=32, residual=0\)"),
    (Codec("mine", PerChannel(4, 32), PerToken(4, 32)), "mine"),
])  # fmt: skip
def test_codecs_are_called_what_the_caller_wrote(codec, made_by):
    words = f"must be a multiple of the 32 tokens that {made_by} encodes together, got 40"
    with pytest.raises(ValueError, match=f"^max_seq_len {words}"):
        QuantizedCache([LayerSpec(1, 32)], codec, 1, 40, xp=np)
    with pytest.raises(ValueError, match=f"^block_size {words}"):
        PagedCache([LayerSpec(1, 32)], BlockPool(2, 40), codec=codec, xp=np)
    with pytest.raises(ValueError, match="group must divide the head_dim of values"):
        QuantizedCache([LayerSpec(1, 48)], codec, 1, 64, xp=np)
    cache = QuantizedCache([LayerSpec(1, 32)], codec, 1, 96, xp=np)
    cache.add("a")
    x = np.ones((96, 1, 32), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [96]))
    words = f"cannot be truncated to 40 tokens: {made_by} has encoded"
    with pytest.raises(ValueError, match=words):
        cache.truncate("a", 40)


NO_LISTS = (None, True, 3, 0.5, "3", "", b"3", {1}, {}, object(), np.array(3), lambda: 1)
NO_NUMBERS = (None, True, np.True_, -1, math.nan, math.inf, 0.5, "3", b"3", [1], 1j, 10**400)
NO_FLAGS = (None, 1, 0, "yes", "", [], np.array([True, False]), math.nan)
MASKED = np.ma.masked_array([[0.5, 0.5]], [[True, False]])
HALVES = np.full((2, 2), 0.5)


def pending(*entries):
    return [Pending(*entry) for entry in entries]


def judged(rule=accept, **change):
    given = dict(p=HALVES, draft=[1], q=HALVES[:1], verdicts=[0.9], numbers=[0.5, 0.5]) | change
    if rule is accept_tree:
        given["tokens"], given["parents"] = given.pop("draft"), [-1]
    return rule(**given)


def configured(**change):
    return config("llama", **change)


def latent(**change):
    sizes = dict(q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4)
    return configured(head_dim=8, latent=Latent(**sizes | dict(v_head_dim=8) | change))


def mixed(**change):
    sizes = dict(num_experts=4, per_token=2, width=8, layers=(0, 1))
    return configured(experts=Experts(**sizes | change))


class Untyped(Policy):
    recent = None


# A call with the argument named last, and values that it has to refuse.
REFUSED = {
    **{f"schedule {name} left": (lambda x, d=decoding: schedule(pending(("a", x, d)), budget=4),
       NO_NUMBERS) for name, decoding in (("decoding", True), ("prompt", False))},
    "schedule waiting left": (lambda x: schedule([], pending(("a", x))), NO_NUMBERS),
    "schedule decoding": (lambda x: schedule(pending(("a", 2, x))), NO_FLAGS),
    "schedule request": (lambda x: schedule(pending((x, 2))), ([1], {}, np.array([1]))),
    "schedule running": (lambda x: schedule(x), (*NO_LISTS, ["a"], [("a", 1, True)])),
    "schedule waiting": (lambda x: schedule([], x), (*NO_LISTS, [None], iter(["a"]))),
    "schedule listed twice": (lambda x: schedule(*x, budget=9), (
        (pending(("a", 1, True), ("a", 1, True)),),
        (pending(("a", 1, True), ("a", 3)),),
        (pending(("a", 1)), pending(("a", 3))),
        ([], pending(("a", 1), ("a", 1))),
    )),
    **{f"{policy.__name__} {name}": (policy, (*NO_LISTS, (), [None], ["a"]))
       for name, *policies in (("waiting", first_come, shortest_first),
                               ("running", youngest, fewest_lost)) for policy in policies},
    "waits events": (waits, (*NO_LISTS, ["a"], [None])),
    "best_gamma step": (lambda x: best_gamma(0.5, 0.1, 4, x), (5, 1.0, "3", [1], math.nan, {})),
    "adaptive request": (kvlib.speculation.adaptive(), (None, 3, "a", object())),
    "Rehearsed text": (lambda x: Rehearsed({"a": x}, 0.5, 9),
                       (None, 3, "3", {1}, {}, [0.5], ["a"], [[1]])),
    "drafter.draft texts": (PromptLookup().draft, (*NO_LISTS, ["a"], [None])),
    "drafter.draft name": (lambda x: PromptLookup().draft([Text(x, [1], 1)]), ([1], {})),
    "drafter.draft text": (lambda x: PromptLookup().draft([Text("a", x, 1)]), NO_LISTS),
    "drafter.draft most": (lambda x: PromptLookup().draft([Text("a", [1], x)]), NO_NUMBERS),
    **{f"{rule.__name__} {name}": (lambda x, r=rule, n=name: judged(r, **{n: x}), values)
       for rule in (accept, accept_tree) for name, values in (
           ("p", (*NO_LISTS, MASKED, HALVES.tolist(), np.ma.masked_array(HALVES))),
           ("q", (*NO_LISTS, MASKED, HALVES[:1].tolist())),
           ("verdicts", NO_LISTS),
           ("numbers", (*NO_LISTS, *([x, x] for x in (None, "3", 1.0, -0.5, math.nan)))),
       )},
    **{f"{policy.__name__} recent": (lambda x, p=policy: p(recent=x), NO_NUMBERS)
       for policy in (KNorm, Tova, H2O)},
    "Policy recent": (lambda x: Scored(x(), 4), (Untyped,)),
    "to_dense cache": (lambda x: layouts.to_dense(x, 0, ["a"]), (*NO_LISTS, [], X)),
    "from_dense cache": (lambda x: layouts.from_dense(x, [], [], []), (*NO_LISTS, [], X)),
    "from_csr indices": (lambda x: layouts.from_csr(layouts.CSR(AT, x, AT[:1]), 4),
                         (np.ma.masked_array([1], [True]), None, [0.5], "3")),
    **{f"ModelConfig {name}": (lambda x, n=name: configured(**{n: x}), values)
       for names, values in (
           (("latent", "experts", "rope", "window_rope"), (5, "4", True, {}, (1, 2), object())),
           (("router",), (None, 5, "4", (1, 2), {})),
           (("eos_token_ids",), (*NO_LISTS, [-1], [None], ["2"], [0.5])),
           (("bos_token_id",), NO_NUMBERS[1:]),
           (("model_type", "norm", "positions", "hidden_act"), (None, 3, b"rms", [1], X, {})),
           (("qkv_bias", "qk_norm", "sinks", "gated_mlp", "tie_word_embeddings"), NO_FLAGS),
       ) for name in names},
    **{f"ModelConfig {name}": (lambda x, n=name: latent(**{n: x}), NO_NUMBERS)
       for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")},
    "ModelConfig window": (lambda x: configured(windows=x), (*NO_LISTS, [True, 4], ["4", 4])),
    "ModelConfig layers": (lambda x: mixed(layers=x), (*NO_LISTS, [-1], [2], [None], ["0"])),
    "ModelConfig shared_width": (lambda x: mixed(shared_width=x), NO_NUMBERS),
    **{f"ModelConfig {name}": (lambda x, n=name: mixed(**{n: x}), NO_FLAGS)
       for name in ("shared_gate", "router_bias", "bias")},
    "ModelConfig sigmoid": (lambda x: configured(router=Router(sigmoid=x)), NO_FLAGS),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_no_argument_has(name):
    call, values = REFUSED[name]
    check_outcomes(call, {f"{i}, {repr(x)[:40]}": x for i, x in enumerate(values)}, name)


def test_right_values_are_accepted():
    assert greedy(np.asarray([[1, 3, 2]])) == [1]
    assert schedule(pending(("a", np.int64(3), np.True_), ("b", 2)), iter(pending(("c", 1)))) == {
        "a": 3, "b": 2, "c": 1,
    }  # fmt: skip
    a, b = Request("a", [1]), Request("b", [1, 2], held=1)
    assert youngest((a, b)) is b and first_come([a, b]) is a
    assert latent().rope_dim == 4 and mixed().experts.layers == (0, 1)
    assert configured(windows=[None, 4]).windows == (None, 4)
    assert Tova(queries=None).queries is None and judged() == [1, judged(accept_tree)[1]]
    assert best_gamma(0.5, 0.1, 4, lambda n: 1.0) == best_gamma(0.5, 0.1, 4)

"""Rare sequences of calls that once broke kvlib."""

from typing import Any

import numpy as np
import pytest
from models import decoder, text

from kvlib import (
    BlockPool,
    DenseCache,
    LayerSpec,
    OutOfBlocks,
    PagedCache,
    QuantizedCache,
    Scheduler,
    generate,
    remove_span,
)
from kvlib.caches import KNorm, Scored, Sinks, layouts
from kvlib.codecs import kivi
from kvlib.costs.cli import tokens
from kvlib.serve import Request, first_come, youngest
from kvlib.speculation import Draft, Drafter, DraftModel, PromptLookup, Rehearsed
from kvlib.speculation.acceptance import accept, accept_tree

MODEL = decoder("llama", seed=3, dtype=np.float64, max_position_embeddings=4096)


class Once(Drafter):
    """As many wrong guesses as it may make, once and for request "a" alone."""

    def __init__(self) -> None:
        self.made = 0

    def draft(self, texts):
        found = []
        for one in texts:
            late = one.name == "a" and not self.made and len(one.tokens) >= 45
            guesses = [(one.tokens[-1] + 1 + i) % 31 for i in range(one.most if late else 0)]
            self.made += len(guesses)
            found.append(Draft(guesses))
        return found


def grouped() -> QuantizedCache:
    codec = kivi(4, group=8, residual=8)
    return QuantizedCache(MODEL.layer_specs, codec, 2, 1024, dtype=np.float64)


@pytest.mark.parametrize("gamma", [63, 64, 200])
def test_more_guesses_than_groups_of_codes_can_undo(gamma):
    """A part of so long a step could not be undone, so fewer guesses are asked for."""
    prompts, drafter = {"a": text(0, 40), "b": text(1, 30)}, Once()
    scheduler = Scheduler(
        MODEL, grouped(), drafter=drafter, gamma=gamma, stop_tokens=(), max_prefills=None
    )
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 100)
    scheduler.run()
    assert drafter.made == 63
    for request in scheduler.requests.values():
        assert (request.state, len(request.new)) == ("done", 100)
        assert request.tokens_per_step == 1.0  # none of the guesses was right


def test_a_cache_that_keeps_all_as_numbers_takes_any_number_of_guesses():
    found = [generate(MODEL, [text(0, 40)], max_new_tokens=120, stop_tokens=())]
    lookup = PromptLookup(shortest=1)
    found.append(
        generate(
            MODEL, [text(0, 40)], max_new_tokens=120, drafter=lookup, gamma=100, stop_tokens=()
        )
    )
    assert found[0] == found[1]


class Stubborn(PagedCache):
    """A cache that refuses to truncate."""

    def _truncate(self, seq, length):
        if seq.name == "a" and 0 < length < seq.length:
            raise ValueError("no way back")
        super()._truncate(seq, length)


def test_a_request_that_cannot_be_truncated_fails_alone():
    cache = Stubborn(MODEL.layer_specs, BlockPool(60, 4), dtype=np.float64)
    right = generate(MODEL, [text(1, 30)], max_new_tokens=40, stop_tokens=())[0]
    scheduler = Scheduler(MODEL, cache, drafter=Once(), stop_tokens=(), max_prefills=None)
    scheduler.add("a", text(0, 40), 40)
    scheduler.add("b", text(1, 30), 40)
    with pytest.raises(ValueError, match="request 'a' .*no way back"):
        scheduler.run()
    assert scheduler.requests["a"].state == "failed"
    assert "leave a running request alone" not in str(scheduler.requests["a"].error)
    assert scheduler.requests["b"].new == right
    assert cache.pool.num_free == cache.pool.num_blocks


@pytest.mark.parametrize("budget", [None, 64])
def test_a_preempted_request_of_a_hybrid_model_finishes(budget):
    """Read at once, its text would need the blocks that its windows give back in chunks."""
    model = decoder("hybrid", seed=3, max_position_embeddings=512)
    prompts = {"a": (text(1, 5), 70), "b": (text(2, 24), 50)}
    pool = BlockPool(30, 4)
    cache = PagedCache(model.layer_specs, pool, dtype=model.dtype)
    scheduler = Scheduler(model, cache, stop_tokens=(), max_prefills=None, budget=budget)
    for name, (prompt, new) in prompts.items():
        scheduler.add(name, prompt, new)
    found = scheduler.run()
    assert any(event.kind == "preempt" for event in scheduler.events)
    for name, (prompt, new) in prompts.items():
        assert found[name] == generate(model, [prompt], max_new_tokens=new, stop_tokens=())[0]
    assert pool.num_free == pool.num_blocks


def test_a_prompt_larger_than_the_pool_is_read_through_its_window():
    model = decoder("mistral", seed=3, max_position_embeddings=512)
    prompts = [text(1, 60), text(2, 5)]
    for rule in (None, Sinks(2, 8)):
        settings = {} if rule is None else {"retention": rule}
        cache = PagedCache(model.layer_specs, BlockPool(8, 4), dtype=model.dtype, **settings)
        scheduler = Scheduler(model, cache, stop_tokens=(), max_prefills=None)
        for name, prompt in zip("ab", prompts, strict=True):
            scheduler.add(name, prompt, 6)
        found = scheduler.run()
        if rule is None:
            right = generate(model, prompts, max_new_tokens=6, stop_tokens=())
            assert [found["a"], found["b"]] == right


def with_ten_tokens(home: str) -> Any:
    cache: Any = MODEL.new_cache(1, 64)
    if home == "blocks":
        cache = PagedCache(MODEL.layer_specs, BlockPool(20, 4), dtype=np.float64)
    cache.add("a")
    MODEL.forward(text(0, 10), cache, cache.plan(["a"], [10]))
    return cache


@pytest.mark.parametrize("home", ["rows", "blocks"])
def test_a_span_is_not_cut_out_of_an_unfinished_step(home):
    cache = with_ten_tokens(home)
    cache.plan(["a"], [3])
    with pytest.raises(ValueError, match="request 'a' lacks keys from token 10 on"):
        remove_span(MODEL, cache, "a", 2, 4)
    assert cache.seq_len("a") == 13
    cache.truncate("a", 10)
    remove_span(MODEL, cache, "a", 2, 4)


def test_a_refused_cut_changes_nothing():
    codec = kivi(4, group=8, residual=8)
    cache = PagedCache(MODEL.layer_specs, BlockPool(20, 8), codec=codec, dtype=np.float64)
    for name in "ab":
        cache.add(name)
    MODEL.forward(text(0, 30), cache, cache.plan(["a"], [30]))
    MODEL.forward(text(0, 12), cache, cache.plan(["a"], [12]))
    with pytest.raises(ValueError, match="cannot be truncated to 5 tokens"):
        remove_span(MODEL, cache, "a", 5, 9)
    assert cache.seq_ids == ("a", "b")
    cache.truncate("a", 30)


def test_lengths_that_a_group_can_be_truncated_to_are_named_once():
    cache = grouped()
    cache.add("a")
    MODEL.forward(text(0, 42), cache, cache.plan(["a"], [42]))
    cache.settle("a")
    with pytest.raises(ValueError) as caught:
        cache.truncate("a", 5)
    assert str(caught.value).count(" ... 42") == 1


class Keeps(Drafter):
    def free(self, name):
        raise RuntimeError("still needed")


def test_a_drafter_whose_free_fails():
    cache = MODEL.new_cache(2, 64)

    class NoFree:
        def draft(self, texts):
            return [Draft() for _ in texts]

    with pytest.raises(TypeError, match="method free"):
        generate(MODEL, [text(0, 10)], max_new_tokens=3, drafter=NoFree(), cache=cache)
    assert cache.seq_ids == ()
    keeps: Any = Keeps()
    keeps.draft = lambda texts: [Draft() for _ in texts]
    scheduler = Scheduler(MODEL, cache, drafter=keeps, stop_tokens=(), max_prefills=None)
    scheduler.add("a", text(0, 10), 2)
    scheduler.add("b", text(1, 10), 2)
    for _ in range(2):
        try:
            scheduler.step()
        except RuntimeError as error:
            assert str(error) == "still needed"
    assert cache.seq_ids == () and not scheduler.busy
    assert [len(r.new) for r in scheduler.requests.values()] == [2, 2]


class Fault:
    """Counts the calls of what a user may write, and raises in one of them."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self, f):
        def called(*args, **named):
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            return f(*args, **named)

        return called

    def into(self, thing: Any, *names: str) -> Any:
        for name in names:
            setattr(thing, name, self(getattr(thing, name)))
        return thing

    def cache(self, blocks: int) -> PagedCache:
        cache = PagedCache(MODEL.layer_specs, BlockPool(blocks, 4), dtype=np.float64)
        opening, step = ("add", "check_room", "waits_for"), ("plan", "append", "run")
        return self.into(cache, *opening, *step, "truncate", "keep", "settle", "free")


DRAFTED = {
    "a draft model's trees": lambda fault: DraftModel(
        fault.into(decoder("llama", seed=3, dtype=np.float64), "forward"), fault.cache(12),
        tree=(-1, -1, 0),
    ),
    "a lookup": lambda fault: PromptLookup(shortest=1),
}


def life_with(fault: Fault, drafted: str) -> tuple[dict[str, Request], set[str], int]:
    """Three requests in a pool for two, the kinds of their events, and how many calls raised."""
    drafter = fault.into(DRAFTED[drafted](fault), "draft", "free")
    model = fault.into(decoder("llama", seed=3, dtype=np.float64), "forward")
    scheduler = Scheduler(
        model, fault.cache(8), queue=fault(first_come), victim=fault(youngest),
        gamma=fault(lambda request: 3), drafter=drafter, max_prefills=None, budget=20,
        stop_tokens=(),
    )
    told: dict[str, list[int]] = {name: [] for name in "abc"}
    temperature, raised = float(drafted == "a lookup"), 0
    names, again = list("abc"), True  # a step after the last, because that may have failed
    while names or scheduler.busy or again:
        again = bool(names) or scheduler.busy
        try:
            if names:
                prompt = [*text(9, 8), *text(ord(names[0]), 3)]
                scheduler.add(names[0], prompt, 8, temperature=temperature)
                names.pop(0)
                continue
            for event in scheduler.step():
                told[event.request] += [] if event.token is None else [event.token]
        except BaseException as error:
            if error is not fault.error:
                raise
            raised += 1
    found, calls = dict(scheduler.requests), fault.calls
    assert told == {name: r.new for name, r in found.items()}
    for cache in (scheduler.cache, *([drafter.cache] if hasattr(drafter, "cache") else ())):
        assert cache.seq_ids == () and cache.pool.num_free == cache.pool.num_blocks
        cache.pool.check()
    for name in "abc":
        scheduler.add(name, [1])
    fault.calls = calls
    return found, {e.kind for e in scheduler.events}, raised


@pytest.mark.untraced
@pytest.mark.parametrize("drafted", DRAFTED)
def test_an_error_in_any_call_of_a_users_code_loses_no_token(drafted, effort):
    nothing = Fault(0, RuntimeError())
    needed, kinds, raised = life_with(nothing, drafted)
    assert {"preempt", "hit", "wait"} <= kinds and raised == 0
    assert "accept" in kinds or drafted == "a lookup"
    errors = (RuntimeError, KeyboardInterrupt, OutOfBlocks)
    cases = [(at, e) for at in range(1, nothing.calls + 1) for e in errors]
    np.random.default_rng(0).shuffle(cases)
    for at, kind in effort.share("calls that fail", cases, usual=80, quick=20):
        found, _, raised = life_with(Fault(at, kind("now")), drafted)
        failed = [r for r in found.values() if r.state == "failed"]
        assert raised + len(failed) == 1 or kind is OutOfBlocks, at
        assert not failed or kind is not KeyboardInterrupt, at
        for name, r in found.items():
            new = needed[name].new
            assert r.new == new or (r in failed and r.new == new[: len(r.new)]), (at, kind)
            assert r not in failed or "now" in str(r.error), (at, kind)


def test_a_draft_model_knows_no_more_tokens_than_the_model():
    small = decoder("llama", seed=1, vocab_size=40)
    with pytest.raises(ValueError, match="drafter's model has 40 tokens, needed: at most the 31"):
        generate(MODEL, [text(0, 5)], max_new_tokens=3, drafter=DraftModel(small))


def test_a_scored_request_says_how_much_it_keeps():
    for heads, n, budget in ((2, 20, 12), (2, 2, 1), (4, 4, 2)):
        rule = Scored(KNorm(), budget)
        cache = DenseCache([LayerSpec(heads, 4)], 1, 64, retention=rule, xp=np)
        cache.add("a")
        x = np.random.default_rng(0).standard_normal((n, heads, 4)).astype(np.float32)
        cache.append(0, x, x, cache.plan(["a"], [n]))
        cache.plan(["a"], [1])  # evicts
        cache.truncate("a", n)
        with pytest.raises(ValueError, match=f"keeps {budget} of its {n} tokens"):
            layouts.to_dense(cache, 0, ["a"])


def test_steps_and_guesses_are_counted_up_to_the_stop_token():
    prompt = text(0, 10)
    new = generate(MODEL, [prompt], max_new_tokens=30, stop_tokens=())[0]
    last = next(n for n in range(3, 30) if new[n] not in new[:n])
    plain = Scheduler(MODEL, MODEL.new_cache(1), stop_tokens=[new[last]])
    plain.add("a", prompt, 30)
    plain.run()
    request = plain.requests["a"]
    assert (len(request.new), request.steps, request.tokens_per_step) == (last, last, 1.0)
    oracle = Rehearsed({"a": prompt + new}, 1.0, 31)
    guessed = Scheduler(MODEL, MODEL.new_cache(1), drafter=oracle, stop_tokens=[new[last]], gamma=2)
    guessed.add("a", prompt, 30)
    guessed.run()
    request = guessed.requests["a"]
    assert request.new == new[:last]
    assert request.accepted >= request.drafted - 1 and request.lately > 0.5


P, Q = np.full((2, 3), 1 / 3), np.full((1, 3), 1 / 3)


@pytest.mark.parametrize("change, message", [
    (dict(draft=[-1]), r"token ids, 0 \.\.\. 2, got -1"),
    (dict(draft=[3]), r"token ids, 0 \.\.\. 2, got 3"),
    (dict(p=P[:1]), r"p must be \(2, V\)"), (dict(q=Q[:0]), r"q must be \(1, 3\)"),
    (dict(verdicts=[]), "verdicts must hold 1 numbers, got 0"),
    (dict(numbers=[0.5]), "numbers must hold 2 numbers, got 1"),
])
def test_a_rule_with_input_that_does_not_fit(change, message):
    given = dict(p=P, draft=[1], q=Q, verdicts=[0.5], numbers=[0.5, 0.5]) | change
    with pytest.raises(ValueError, match=message):
        accept(**given)
    given = {"tokens" if n == "draft" else n: x for n, x in given.items()}
    with pytest.raises(ValueError, match=message):
        accept_tree(parents=[-1], **given)


def test_rehearsed_texts_are_known_by_name():
    with pytest.raises(TypeError, match="texts must be a mapping from names to token ids"):
        Rehearsed([1], 0.5, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["1,2,3", "12,34", "4__096", "4096,", "1,0000"])
def test_commas_separate_thousands(given):
    with pytest.raises(Exception, match="expected a whole number of tokens"):
        tokens(given)


@pytest.mark.parametrize(
    "given, right", [("4,096", 4096), ("131_072", 131072), ("1,048,576", 2**20)]
)
def test_thousands(given, right):
    assert tokens(given) == right


@pytest.mark.parametrize("home", ["rows", "blocks"])
def test_unwritten_tokens_are_not_exported(home):
    cache = with_ten_tokens(home)
    step = cache.plan(["a"], [2])
    x = np.ones((2, 2, 8))
    cache.append(0, x, x, step)
    assert layouts.to_dense(cache, 0, ["a"])[2].tolist() == [12]  # this layer has appended them
    with pytest.raises(ValueError, match="lacks keys from token 10 on: layer 1 has not"):
        layouts.to_dense(cache, 1, ["a"])
    cache.truncate("a", 10)
    assert layouts.to_dense(cache, 1, ["a"])[2].tolist() == [10]


def overflowing(q, k, v, own):
    """Cascade attention that subtracts the largest score of the shared part alone."""
    d = np.sqrt(q.shape[1])
    s = q @ k.T / d
    top = s.max(axis=1)
    p = np.exp(s - top[:, None])
    o, total, found = p @ v, p.sum(axis=1), []
    for i, (own_k, own_v) in enumerate(own):
        mine = np.exp(own_k @ q[i] / d - top[i])
        found.append((o[i] + mine @ own_v) / (total[i] + mine.sum()))
    return np.array(found, np.float32)


def test_checkers_find_what_they_once_let_pass():
    from kvbook.exercises import prefixes, sampling

    with np.errstate(all="ignore"):
        report = prefixes.check_cascade(overflowing)
    assert not report.passed and "own largest score" in str(report)

    def nucleus(p, top_p, kind="stable"):
        order = np.argsort(-p, kind=kind)
        kept = order[: int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1]
        out = np.zeros(len(p))
        out[kept] = p[kept] / p[kept].sum()
        return out

    assert sampling.check_nucleus(nucleus).passed
    report = sampling.check_nucleus(lambda p, top_p: nucleus(p, top_p, "quicksort"))
    assert not report.passed and "300 equal tokens" in str(report)


def test_one_token_is_a_decode_step():
    from kvlib.costs import decode

    first, second = (decode("deepseek-v3", 1, n, "int8") for n in (1, 2))
    assert 2 * first.kv_read == second.kv_read

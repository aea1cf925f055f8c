"""A cache that is changed while a scheduler or a stream uses it, and calls during a step."""

import contextlib
import gc

import models
import numpy as np
import pytest
from caches import feed

import kvlib
from kvlib import BlockPool, DenseCache, PagedCache, Scheduler
from kvlib.serve import CANCELLED, DONE, FAILED

NEW = 6
PROMPTS = {"a": models.text(1, 9), "b": models.text(2, 5), "c": models.text(3, 7)}
MODEL = models.decoder("hybrid")
CACHES = {
    "rows": lambda: DenseCache(MODEL.layer_specs, 4, 32, xp=np),
    "blocks": lambda: PagedCache(MODEL.layer_specs, BlockPool(96, 4), xp=np),
    "codes": lambda: PagedCache(MODEL.layer_specs, BlockPool(96, 4), codec="int8", xp=np),
}


@pytest.fixture(params=CACHES)
def cache(request):
    return CACHES[request.param]()


def alone(cache, prompt):
    same = DenseCache(MODEL.layer_specs, 1, 32, codec=cache.codec, xp=np)
    return kvlib.generate(MODEL, [prompt], max_new_tokens=NEW, cache=same)[0]


def append_by_hand(cache, name, tokens=1):
    feed(cache, [name], [tokens])


def replace_the_end(cache, name):
    cache.truncate(name, cache.seq_len(name) - 1)
    append_by_hand(cache, name)


def open_anew(cache, name, tokens):
    cache.free(name)
    cache.add(name)
    append_by_hand(cache, name, tokens)


# What is done to a running request from outside, and the words of its error.
CHANGES = {
    "free": (lambda c, n: c.free(n), "was freed in the cache"),
    "free and open anew": (lambda c, n: open_anew(c, n, 3), "was freed in the cache"),
    "free and open, as long": (
        lambda c, n: open_anew(c, n, c.seq_len(n)), "was freed in the cache",
    ),
    "truncate to nothing": (lambda c, n: c.truncate(n, 0), "in the cache and now holds 0 "),
    "truncate by one": (lambda c, n: c.truncate(n, c.seq_len(n) - 1), "held .* and now holds"),
    "plan": (lambda c, n: c.plan([n], [1]), "held .* and now holds"),
    "plan and append": (append_by_hand, "held .* and now holds"),
    "replace the last token": (replace_the_end, "was planned in the cache"),
}


def refuse(cache, name):
    with pytest.raises(ValueError, match="is open already"):
        cache.add(name)
    with pytest.raises(ValueError, match="is open already"):
        cache.fork(name, name)
    with pytest.raises((kvlib.CacheFull, kvlib.OutOfBlocks)):
        cache.plan([name], [10**4])
    with pytest.raises(ValueError, match="can be truncated"):
        cache.truncate(name, 1000)


HARMLESS = {
    "fork": lambda c, n: c.fork(n, "mine"),
    "fork, and write to the fork": lambda c, n: (c.fork(n, "mine"), append_by_hand(c, "mine")),
    "a request of one's own": lambda c, n: (c.add("mine"), append_by_hand(c, "mine", 5)),
    "read": lambda c, n: c.read(0, n), "settle": lambda c, n: c.settle(n),
    "calls that are refused": refuse,
}


def scheduler_of(cache, model=MODEL, **settings):
    scheduler = Scheduler(model, cache, **{"max_prefills": None, **settings})
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, max_new_tokens=NEW)
    return scheduler


def right(cache, names="abc"):
    """The tokens of these requests, each of which is served alone."""
    return {name: alone(cache, PROMPTS[name]) for name in names}


def tokens_of(scheduler, names):
    return {name: scheduler.requests[name].new for name in names}


def all_is_free(cache, own=()):
    assert cache.seq_ids == tuple(own)
    for name in own:
        cache.free(name)
    if isinstance(cache, PagedCache):
        assert cache.pool.num_free == cache.pool.num_blocks
        cache.pool.check()
    else:
        for name in range(cache.max_seqs):
            cache.add(name)


@pytest.mark.parametrize("steps", (1, 4))
@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_between_two_steps(cache, change, words, steps):
    scheduler = scheduler_of(cache)
    for _ in range(steps):
        scheduler.step()
    change(cache, "b")
    with pytest.raises(ValueError, match=f"request 'b' .*{words}.*; it got {steps} new tokens"):
        scheduler.run()
    states = [scheduler.requests[name].state for name in "abc"]
    assert states == [DONE, FAILED, DONE] and scheduler.requests["b"].ended
    assert tokens_of(scheduler, "ac") == right(cache, "ac")
    assert [e.kind for e in scheduler.events if e.request == "b"][-1] == "fail"
    anew = change in (CHANGES["free and open anew"][0], CHANGES["free and open, as long"][0])
    all_is_free(cache, ["b"] if anew else [])  # what was opened from outside stays open


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_harms_no_request(cache, change):
    scheduler = scheduler_of(cache)
    for _ in range(2):
        scheduler.step()
    change(cache, "b")
    assert scheduler.run() == right(cache)
    all_is_free(cache, [name for name in cache.seq_ids if name == "mine"])


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_while_a_stream_runs(cache, change, words):
    tokens = kvlib.stream(MODEL, list(PROMPTS.values()), max_new_tokens=NEW, cache=cache)
    found = {0: [], 1: [], 2: []}
    for _ in range(4):  # two steps, the second of them halfway
        i, token = next(tokens)
        found[i].append(token)
    name = cache.seq_ids[1]
    change(cache, name)
    with pytest.raises(ValueError, match=words):
        for i, token in tokens:
            found[i].append(token)
    needed = list(right(cache).values())
    assert [found[0], found[1], found[2]] == [needed[0], needed[1][:2], needed[2]]
    all_is_free(cache, [n for n in cache.seq_ids if n == name])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("end", ["closed", "forgotten"])
def test_a_stream_that_ends_early_frees_the_rest(cache, change, end):
    tokens = kvlib.stream(MODEL, list(PROMPTS.values()), max_new_tokens=NEW, cache=cache)
    next(tokens)
    name = cache.seq_ids[1]
    CHANGES[change][0](cache, name)
    if end == "closed":
        tokens.close()
    del tokens
    gc.collect()
    all_is_free(cache, [n for n in cache.seq_ids if n == name])


def test_every_request_is_freed_in_the_cache(cache):
    scheduler = scheduler_of(cache)
    scheduler.step()
    for name in cache.seq_ids:
        cache.free(name)
    assert [(e.request, e.kind) for e in scheduler.step()] == [(n, "fail") for n in "abc"]
    assert not scheduler.busy and {r.state for r in scheduler.requests.values()} == {FAILED}
    assert repr(scheduler).startswith("Scheduler(3 failed;")
    all_is_free(cache)


class Meddling:
    """A model that makes a call in one of its forward passes."""

    def __init__(self, number, call):
        self.passes, self.number, self.call = 0, number, call

    def __getattr__(self, name):
        return getattr(MODEL, name)

    def forward(self, *args):
        self.passes += 1
        if self.passes == self.number:
            self.call()
        return MODEL.forward(*args)


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_during_a_forward_pass(cache, change, words):
    scheduler = scheduler_of(cache, Meddling(3, lambda: change(cache, "b")))
    with pytest.raises(ValueError, match="request 'b' .* by somebody else while it was served"):
        scheduler.run()
    needed = right(cache)
    assert tokens_of(scheduler, "abc") == {**needed, "b": needed["b"][:2]}
    all_is_free(cache, [n for n in cache.seq_ids if n == "b"])


def test_a_policy_that_frees(cache):
    def queue(waiting):
        if "a" in cache:
            cache.free("a")
        return waiting[0]

    scheduler = scheduler_of(cache, max_prefills=1, queue=queue)
    with pytest.raises(ValueError, match="request 'a' was freed"):
        scheduler.run()
    assert tokens_of(scheduler, "bc") == right(cache, "bc")
    all_is_free(cache)


def test_the_name_of_a_waiting_request_is_opened_in_the_cache(cache):
    scheduler = scheduler_of(cache)
    cache.add("b")
    append_by_hand(cache, "b", 3)
    with pytest.raises(ValueError, match="request 'b' was opened .* while it waited; it got 0 new"):
        scheduler.run()
    assert tokens_of(scheduler, "ac") == right(cache, "ac")
    assert cache.seq_len("b") == 3
    all_is_free(cache, ["b"])


def test_cancel_and_close_after_a_change(cache):
    scheduler = scheduler_of(cache)
    scheduler.step()
    cache.free("a")
    cache.free("b")
    scheduler.cancel("a")
    assert scheduler.requests["a"].state == CANCELLED
    scheduler.close()
    assert not scheduler.busy
    all_is_free(cache)


def test_a_failed_name_can_be_used_again(cache):
    scheduler = scheduler_of(cache)
    scheduler.step()
    cache.free("b")
    scheduler.step()
    scheduler.add("b", PROMPTS["b"], max_new_tokens=NEW)
    assert scheduler.run() == right(cache)


def test_an_error_of_the_model_can_be_tried_again(cache):
    def fail():
        raise ZeroDivisionError("of the model")

    scheduler = scheduler_of(cache, Meddling(3, fail))
    with pytest.raises(ZeroDivisionError, match="of the model"):
        scheduler.run()
    assert scheduler.run() == right(cache)
    all_is_free(cache)


def test_a_free_that_fails_leaves_nothing_else_open(cache, monkeypatch):
    scheduler = scheduler_of(cache)
    scheduler.step()
    free = type(cache).free

    def stubborn(self, name):
        if name == "a":
            raise RuntimeError("not now")
        free(self, name)

    monkeypatch.setattr(type(cache), "free", stubborn)
    with pytest.raises(RuntimeError, match="not now"):
        scheduler.close()
    assert cache.seq_ids == ("a",) and not scheduler.busy


def test_a_bar_that_fails_leaves_nothing_open(cache, monkeypatch):
    class Bar(contextlib.nullcontext):
        def __enter__(self):
            return self

        def update(self):
            raise BrokenPipeError

    monkeypatch.setattr(kvlib.serve.generation, "_bar", lambda *_: Bar())
    try:
        kvlib.generate(MODEL, list(PROMPTS.values()), max_new_tokens=NEW, cache=cache)
    except BrokenPipeError:
        assert cache.seq_ids == ()


# A scheduler that is called during its own step ------------------------------------------------

OUT_OF_TURN = {
    "step": lambda s: s.step(), "run": lambda s: s.run(), "cancel": lambda s: s.cancel("a"),
    "close": lambda s: s.close(),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_TURN)
def test_a_scheduler_that_is_called_during_its_step(cache, name):
    """A step within a step drew tokens for one request from the rows of another."""
    words = f"{'step' if name == 'run' else name} was called while a step .*between two steps"
    scheduler = scheduler_of(cache, Meddling(2, lambda: OUT_OF_TURN[name](scheduler)))
    with pytest.raises(ValueError, match=words):
        scheduler.run()
    assert scheduler.run() == right(cache)
    all_is_free(cache)

    def queue(waiting):
        OUT_OF_TURN[name](scheduler)
        return waiting[0]

    scheduler = scheduler_of(CACHES["rows"](), queue=queue)
    with pytest.raises(ValueError, match=words):
        scheduler.step()
    scheduler.close()
    assert scheduler.cache.seq_ids == ()


def test_requests_may_be_added_during_a_step(cache):
    scheduler = scheduler_of(cache, Meddling(2, lambda: scheduler.add("d", PROMPTS["a"], NEW)))
    needed = right(cache)
    assert scheduler.run() == {**needed, "d": needed["a"]}


def test_a_prompt_that_adds_its_own_name_while_it_is_read(cache):
    """Two requests of one name waited, and only one of them could be cancelled."""
    scheduler = scheduler_of(cache)

    def prompt():
        scheduler.add("d", [5, 6], max_new_tokens=2)
        yield 7

    with pytest.raises(ValueError, match="request 'd' is known already"):
        scheduler.add("d", prompt(), max_new_tokens=2)
    scheduler.cancel("d")
    scheduler.run()
    all_is_free(cache)

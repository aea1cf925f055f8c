"""A cache that somebody else changes while a scheduler or a stream uses it: one request ends, with
words that say what happened; the others get their tokens, and nothing stays open."""

import contextlib
import gc

import models
import numpy as np
import pytest

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
    step = cache.plan([name], [tokens])
    for layer, spec in enumerate(cache.layers):
        x = np.ones((tokens, spec.num_kv_heads, spec.head_dim), np.float32)
        cache.append(layer, x, x, step)


def replace_the_end(cache, name):
    cache.truncate(name, cache.seq_len(name) - 1)
    append_by_hand(cache, name)


def open_anew(cache, name, tokens):
    cache.free(name)
    cache.add(name)
    append_by_hand(cache, name, tokens)


# What somebody does to a running request, and the words of its error.
CHANGES = {
    "free": (lambda c, n: c.free(n), "was freed in the cache"),
    "free and open anew": (lambda c, n: open_anew(c, n, 3), "was freed in the cache"),
    "free and open, as long": (
        lambda c, n: open_anew(c, n, c.seq_len(n)),
        "was freed in the cache",
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
    "read": lambda c, n: c.read(0, n),
    "settle": lambda c, n: c.settle(n),
    "calls that are refused": refuse,
}


def scheduler_of(cache, **settings):
    scheduler = Scheduler(MODEL, cache, max_prefills=None, **settings)
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, max_new_tokens=NEW)
    return scheduler


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
    found = scheduler.requests
    assert found["b"].state == FAILED and found["b"].ended
    for name in "ac":
        assert found[name].state == DONE and found[name].new == alone(cache, PROMPTS[name])
    assert [e.kind for e in scheduler.events if e.request == "b"][-1] == "fail"
    anew = change in (CHANGES["free and open anew"][0], CHANGES["free and open, as long"][0])
    all_is_free(cache, ["b"] if anew else [])  # what somebody else has opened stays open


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_harms_no_request(cache, change):
    scheduler = scheduler_of(cache)
    for _ in range(2):
        scheduler.step()
    change(cache, "b")
    found = scheduler.run()
    assert found == {name: alone(cache, prompt) for name, prompt in PROMPTS.items()}
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
    for i, prompt in enumerate(PROMPTS.values()):
        if i != 1:
            assert found[i] == alone(cache, prompt)
    assert found[1] == alone(cache, PROMPTS["b"])[:2]
    all_is_free(cache, [n for n in cache.seq_ids if n == name])


@pytest.mark.parametrize("change", CHANGES)
def test_a_stream_that_is_closed_early_frees_the_rest(cache, change):
    tokens = kvlib.stream(MODEL, list(PROMPTS.values()), max_new_tokens=NEW, cache=cache)
    next(tokens)
    name = cache.seq_ids[1]
    CHANGES[change][0](cache, name)
    tokens.close()
    all_is_free(cache, [n for n in cache.seq_ids if n == name])


def test_a_stream_that_is_forgotten_frees_everything(cache):
    tokens = kvlib.stream(MODEL, list(PROMPTS.values()), max_new_tokens=NEW, cache=cache)
    next(tokens)
    cache.free(cache.seq_ids[0])
    del tokens
    gc.collect()
    all_is_free(cache)


def test_everything_is_freed_by_somebody_else(cache):
    scheduler = scheduler_of(cache)
    scheduler.step()
    for name in cache.seq_ids:
        cache.free(name)
    assert [(e.request, e.kind) for e in scheduler.step()] == [(n, "fail") for n in "abc"]
    assert not scheduler.busy and {r.state for r in scheduler.requests.values()} == {FAILED}
    assert repr(scheduler).startswith("Scheduler(3 failed;")
    all_is_free(cache)


class Meddling:
    """A model during whose forward pass somebody changes the cache."""

    def __init__(self, when, change):
        self.passes, self.when, self.change = 0, when, change

    def __getattr__(self, name):
        return getattr(MODEL, name)

    def forward(self, tokens, cache, step, rows):
        self.passes += 1
        if self.passes == self.when:
            self.change(cache, "b")
        return MODEL.forward(tokens, cache, step, rows)


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_during_a_forward_pass(cache, change, words):
    scheduler = Scheduler(Meddling(3, change), cache, max_prefills=None)
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, max_new_tokens=NEW)
    with pytest.raises(ValueError, match="request 'b' .* by somebody else while it was served"):
        scheduler.run()
    for name in "ac":
        assert scheduler.requests[name].new == alone(cache, PROMPTS[name])
    assert scheduler.requests["b"].new == alone(cache, PROMPTS["b"])[:2]
    all_is_free(cache, [n for n in cache.seq_ids if n == "b"])


def test_a_policy_that_frees(cache):
    def queue(waiting):
        if "a" in cache:
            cache.free("a")
        return waiting[0]

    scheduler = Scheduler(MODEL, cache, max_prefills=1, queue=queue)
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, max_new_tokens=NEW)
    with pytest.raises(ValueError, match="request 'a' was freed"):
        scheduler.run()
    for name in "bc":
        assert scheduler.requests[name].new == alone(cache, PROMPTS[name])
    all_is_free(cache)


def test_the_name_of_a_waiting_request_is_opened_by_somebody_else(cache):
    scheduler = scheduler_of(cache)
    cache.add("b")
    append_by_hand(cache, "b", 3)
    with pytest.raises(ValueError, match="request 'b' was opened .* while it waited; it got 0 new"):
        scheduler.run()
    for name in "ac":
        assert scheduler.requests[name].new == alone(cache, PROMPTS[name])
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
    assert scheduler.run() == {name: alone(cache, p) for name, p in PROMPTS.items()}


def test_an_error_of_the_model_is_its_own(cache):
    """Nobody has changed the cache: the error is raised, and the step can be tried again."""

    def fail(cache, name):
        raise ZeroDivisionError("of the model")

    scheduler = Scheduler(Meddling(3, fail), cache, max_prefills=None)
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, max_new_tokens=NEW)
    with pytest.raises(ZeroDivisionError, match="of the model"):
        scheduler.run()
    assert scheduler.run() == {name: alone(cache, p) for name, p in PROMPTS.items()}
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
    """Also while the error is being handled, when its traceback still holds the run."""

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

"""The scheduler's step: each request gets the tokens it gets alone, and decodes wait a budget."""

from itertools import groupby
from typing import NamedTuple

import numpy as np
import pytest
from models import decoder, text
from test_decoder import new_cache

from kvlib import BlockPool, CacheFull, Meter, OutOfBlocks, PagedCache, generate
from kvlib.serve import CANCELLED, DECODING, DONE, PREFILLING, WAITING, Event, Scheduler, waits

pytestmark = pytest.mark.filterwarnings("error")

MODEL = decoder("llama", seed=3)
BUDGETS = (None, 1, 2, 5, 16, 100)


def paged(blocks: int, size: int) -> PagedCache:
    cache = PagedCache(MODEL.layer_specs, BlockPool(blocks, size), xp=np)
    for x in cache.storage():
        x[...] = np.nan
    return cache


CACHES = {
    "dense": lambda: new_cache(MODEL, 8, 48), "dense, 2 rows": lambda: new_cache(MODEL, 2, 48),
    "blocks of 4": lambda: paged(96, 4),
    "blocks of 3, room for 1.2 requests": lambda: paged(19, 3),
    "blocks of 1, room for 1 request": lambda: paged(48, 1),
}


def alone(prompts: dict, lengths: dict, stop=()) -> dict:
    return {
        name: generate(MODEL, [p], max_new_tokens=lengths[name], stop_tokens=stop)[0]
        for name, p in prompts.items()
    }


def play(cache, budget, prompts, lengths, arrivals, stop=(), **settings) -> Scheduler:
    """Requests arrive between the steps; every step is looked at."""
    scheduler = Scheduler(MODEL, cache, budget=budget, stop_tokens=stop, **settings)
    late = sorted(prompts, key=lambda name: arrivals[name])
    while late or scheduler.busy:
        while late and (arrivals[late[0]] <= scheduler.num_steps or not scheduler.busy):
            scheduler.add(late[0], prompts[late[0]], lengths[late[0]])
            late.pop(0)
        check(scheduler, scheduler.step())
    assert cache.seq_ids == ()
    assert scheduler.step() == []
    return scheduler


def check(scheduler: Scheduler, events: list[Event]) -> None:
    """What must hold after every step."""
    fed = [e for e in events if e.kind in ("prefill", "decode")]
    assert fed, "a step that feeds nothing"
    assert scheduler.budget is None or sum(e.tokens for e in fed) <= scheduler.budget
    assert len({e.step for e in events}) == 1
    assert len({e.request for e in fed}) == len(fed), "a request fed twice in a step"
    most = scheduler.limits["max_prefills"] or len(scheduler.requests)
    assert sum(e.kind == "prefill" for e in fed) <= most
    chunk = scheduler.limits["prefill_chunk"]
    assert not chunk or all(e.tokens <= chunk for e in fed)
    assert all(e.tokens == 1 for e in fed if e.kind == "decode")
    states = {r.name: r.state for r in scheduler.requests.values()}
    running = {n for n, s in states.items() if s in (PREFILLING, DECODING)}
    assert set(scheduler.cache.seq_ids) == running
    assert sum(s == PREFILLING for s in states.values()) <= most
    assert scheduler.budget is None or len(running) <= scheduler.budget
    for name in running:
        request = scheduler.requests[name]
        assert request.held == scheduler.cache.seq_len(name)
        missing = len(request.text) - request.held
        assert missing == 1 if states[name] == DECODING else missing >= 1
    if isinstance(scheduler.cache, PagedCache):
        scheduler.cache.pool.check()


class Day(NamedTuple):
    """Who asks for what, and when."""

    prompts: dict[str, list[int]]
    lengths: dict[str, int]
    arrivals: dict[str, int]
    stop: list[int]


SYSTEM = text(99, 7)


def any_day(seed: int) -> Day:
    rng = np.random.default_rng(seed)
    names = [f"r{i}" for i in range(int(rng.integers(3, 8)))]
    prompts = {
        n: SYSTEM * int(rng.integers(2)) + text(int(rng.integers(99)), int(rng.integers(1, 20)))
        for n in names
    }
    lengths = {n: int(rng.integers(1, 14)) for n in names}
    arrivals = {n: int(rng.integers(0, 30)) for n in names}
    return Day(prompts, lengths, arrivals, [int(rng.integers(31))])


def full_day() -> Day:
    """Six requests at once, of 19 + 13 tokens each, of which three begin alike.

    In room for 57 tokens three begin, and one is put back, whatever the seed of the texts.
    """
    names = [f"r{i}" for i in range(6)]
    prompts = {n: (SYSTEM if i < 3 else text(40 + i, 7)) + text(50 + i, 12)
               for i, n in enumerate(names)}  # fmt: skip
    return Day(prompts, dict.fromkeys(names, 13), dict.fromkeys(names, 0), [])


@pytest.mark.untraced
@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_any_arrivals_get_what_each_would_get_alone(make, effort):
    kinds: set[str] = set()
    stopped = 0
    days = (2, 0, 1, 3, 4, 5)  # on day 2 a request meets its stop token
    seeds = effort.share("days of random arrivals", days, usual=2, quick=1)
    for day in (full_day(), *map(any_day, seeds)):
        needed = alone(day.prompts, day.lengths, day.stop)
        stopped += sum(len(needed[n]) < day.lengths[n] for n in needed)
        for budget in BUDGETS:
            played = play(make(), budget, *day)
            assert {n: r.new for n, r in played.requests.items()} == needed, f"budget {budget}"
            assert {r.state for r in played.requests.values()} == {DONE}
            for name in day.prompts:
                drawn = [e.token for e in played.events if e.request == name]
                assert [t for t in drawn if t is not None] == needed[name]
            kinds |= {e.kind for e in played.events}
    assert stopped, "no request met its stop token"
    small = {"preempt", "wait"} if "room" in make_name(make) else set()
    assert {"prefill", "decode", "done"} | small <= kinds
    assert ("hit" in kinds) == ("blocks" in make_name(make))


def make_name(make) -> str:
    return next(name for name, f in CACHES.items() if f is make)


# Waiting -----------------------------------------------------------------------------------------


def longest_wait(budget: int | None) -> int:
    """A request decodes; after 5 steps a prompt of 32 tokens arrives."""
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 48), budget=budget, stop_tokens=())
    scheduler.add("decodes", text(1, 3), 40)
    for _ in range(5):
        scheduler.step()
    scheduler.add("arrives", text(2, 32), 2)
    scheduler.run()
    assert len(scheduler.requests["decodes"].new) == 40
    return max(waits(scheduler.events)["decodes"])


def test_a_decode_waits_for_a_budget_and_not_for_a_prompt():
    assert longest_wait(None) == 33
    found = [longest_wait(b) for b in (2, 3, 5, 9, 17, 33)]
    assert found == [2, 3, 5, 9, 17, 33]


def test_the_events_of_a_small_case():
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 48), budget=4, stop_tokens=())
    scheduler.add("a", text(1, 3), 3)
    scheduler.add("b", text(2, 7), 2)
    a, b = alone({"a": text(1, 3), "b": text(2, 7)}, {"a": 3, "b": 2}).values()
    assert scheduler.step() == [Event(0, "a", "prefill", 3, a[0])]
    assert scheduler.step() == [Event(1, "a", "decode", 1, a[1]), Event(1, "b", "prefill", 3)]
    assert scheduler.step() == [
        Event(2, "a", "decode", 1, a[2]), Event(2, "a", "done", 0), Event(2, "b", "prefill", 3),
    ]
    assert scheduler.step() == [Event(3, "b", "prefill", 1, b[0])]
    assert scheduler.step() == [Event(4, "b", "decode", 1, b[1]), Event(4, "b", "done", 0)]
    assert scheduler.step() == [] and not scheduler.busy
    assert waits(scheduler.events) == {"a": [4, 4], "b": [1]}
    assert waits([]) == {}


def test_one_forward_pass_a_step():
    scheduler = Scheduler(MODEL, paged(96, 4), budget=8, stop_tokens=())
    for i in range(3):
        scheduler.add(i, text(i, 9), 6)
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in MODEL.layer_specs)
    while scheduler.busy:
        with Meter() as meter:
            events = scheduler.step()
        fed = sum(e.tokens for e in events if e.kind in ("prefill", "decode"))
        assert meter.by_label["append"].written == fed * a_token
    steps = [step for step, _ in groupby(scheduler.events, key=lambda e: e.step)]
    assert steps == list(range(scheduler.num_steps))


# Room --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, 3])
def test_a_preempted_request_loses_no_token(budget):
    cache = paged(10, 4)
    scheduler = Scheduler(MODEL, cache, budget=budget, stop_tokens=())
    prompts = {"a": text(1, 15), "b": text(2, 15)}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 20)
    assert scheduler.run() == alone(prompts, {"a": 20, "b": 20})
    gone = [e for e in scheduler.events if e.kind == "preempt"]
    assert gone and {e.request for e in gone} == {"b"}
    hits = [e for e in scheduler.events if e.kind == "hit"]
    assert hits, "what was published before the preemption is found again"
    fed = sum(e.tokens for e in scheduler.events if e.kind == "prefill" and e.request == "b")
    found = sum(e.tokens for e in hits)
    assert fed + found > 15, "given up tokens are fed again, or found"


def test_others_in_the_cache_leave_no_room():
    cache = paged(6, 4)
    cache.add("mine")
    cache.plan(["mine"], [20])
    scheduler = Scheduler(MODEL, cache)
    scheduler.add("a", text(1, 7), 3)
    for _ in range(3):
        with pytest.raises(OutOfBlocks, match="request 'a' holds 0 tokens and 7 more"):
            scheduler.step()
        assert scheduler.num_steps == 0 and scheduler.requests["a"].new == []
    cache.free("mine")
    assert scheduler.run() == alone({"a": text(1, 7)}, {"a": 3}, None)
    dense = new_cache(MODEL, 1, 20)
    dense.add("mine")
    scheduler = Scheduler(MODEL, dense)
    scheduler.add("a", text(1, 7), 3)
    with pytest.raises(CacheFull, match="no row for request 'a'"):
        scheduler.step()
    assert scheduler.requests["a"].state == WAITING
    dense.free("mine")
    assert scheduler.run() == alone({"a": text(1, 7)}, {"a": 3}, None)


@pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)
def test_a_pass_that_fails_can_be_tried_again(make, monkeypatch):
    prompts, drawn = {"a": text(1, 9), "b": text(2, 14)}, dict(temperature=2.0, seed=7)
    scheduler = Scheduler(MODEL, make(), budget=5, stop_tokens=())
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 9, **drawn)
    run, calls = type(scheduler.cache).run, iter(range(10**6))

    def breaks(self, layer, q, step, return_lse=False):
        if next(calls) % 5 == 4:
            raise KeyboardInterrupt
        return run(self, layer, q, step, return_lse)

    monkeypatch.setattr(type(scheduler.cache), "run", breaks)
    broken = 0
    while scheduler.busy:
        try:
            scheduler.step()
        except KeyboardInterrupt:
            broken += 1
    monkeypatch.undo()
    assert broken > 3
    found = [r.new for r in scheduler.requests.values()]
    settings = dict(max_new_tokens=9, stop_tokens=(), **drawn)
    assert found == generate(MODEL, list(prompts.values()), **settings)


# Prefixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, 9])
def test_a_prefix_is_found_in_the_very_next_step(budget):
    """Five prompts of 33 tokens, 32 of them shared: only the first computes those."""
    common = text(5, 32)
    prompts = {i: [*common, i] for i in range(5)}
    scheduler = Scheduler(MODEL, paged(96, 4), budget=budget, stop_tokens=())
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 6)
    found = scheduler.run()
    assert found == {n: generate(MODEL, [p], max_new_tokens=6)[0] for n, p in prompts.items()}
    hits = {e.request: e.tokens for e in scheduler.events if e.kind == "hit"}
    assert hits == dict.fromkeys(range(1, 5), 32)


def test_a_settled_step_can_be_found_and_not_be_taken_back():
    cache = paged(96, 4)
    prompt = text(1, 9)
    cache.add("a", prompt)
    step = cache.plan(["a"], [9], prompt)
    MODEL.forward(prompt, cache, step)
    assert cache.add("early", prompt) == 0
    cache.settle("a")
    assert cache.add("b", prompt) == 8 and cache.blocks("b") == cache.blocks("a")[:2]
    with pytest.raises(ValueError, match="is over"):
        cache.append(0, np.zeros((9, 2, 8), np.float32), np.zeros((9, 2, 8), np.float32), step)
    cache.plan(["a"], [4], prompt[:4])  # no layer appends
    cache.settle("a")
    assert len(cache.pool.lookup([*prompt, *prompt[:4]])) == 2, "a pass that stopped halfway"
    with pytest.raises(ValueError, match="'c' is not open"):
        cache.settle("c")


# Cancellation and names ---------------------------------------------------------------------------


def test_a_request_can_be_cancelled_wherever_it_stands():
    cache = paged(96, 4)
    scheduler = Scheduler(MODEL, cache, budget=8, stop_tokens=())
    prompts = {"decodes": text(1, 5), "is read": text(2, 21), "waits": text(3, 4), "stays": [1, 2]}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 12)
    for _ in range(3):
        scheduler.step()
    (needed,) = generate(MODEL, [prompts["decodes"]], max_new_tokens=12, stop_tokens=())
    assert scheduler.cancel("decodes") == needed[:3]
    assert scheduler.cancel("is read") == scheduler.cancel("waits") == []
    assert cache.seq_ids == () and [e.kind for e in scheduler.events[-3:]] == ["cancel"] * 3
    for name in ("decodes", "waits", "nobody"):
        words = f"request '{name}' is neither waiting nor running; those are: 'stays'$"
        with pytest.raises(ValueError, match=words):
            scheduler.cancel(name)
    states = {name: r.state for name, r in scheduler.requests.items()}
    assert states == dict.fromkeys(list(prompts)[:3], CANCELLED) | {"stays": WAITING}
    (alone,) = generate(MODEL, [[1, 2]], max_new_tokens=12, stop_tokens=())
    assert scheduler.run()["stays"] == alone
    assert cache.pool.num_free == 96


def test_the_name_of_an_ended_request_is_free_again():
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 48), stop_tokens=())
    for prompt in (text(1, 5), text(2, 7)):
        scheduler.add("a", prompt, 4)
        with pytest.raises(ValueError, match="request 'a' is known already and has not ended"):
            scheduler.add("a", [1])
        assert scheduler.run() == {"a": generate(MODEL, [prompt], max_new_tokens=4)[0]}
    scheduler.add("a", [1, 2], 4)
    scheduler.step()
    scheduler.cancel("a")
    scheduler.add("a", [3, 4], 2)
    assert scheduler.run()["a"] == generate(MODEL, [[3, 4]], max_new_tokens=2)[0]
    assert waits(scheduler.events) == {"a": [1] * 7}, "no wait from one request to the next"


def test_a_wait_ends_with_its_request():
    last = [Event(1, "a", "decode", 1, 5), Event(1, "a", "done", 0)]
    assert waits([Event(0, "a", "prefill", 3, 4), *last, Event(2, "a", "prefill", 9, 6)]) == {
        "a": [1]
    }


def test_a_scheduler_says_how_it_stands():
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 48), budget=8, stop_tokens=())
    assert repr(scheduler).startswith("Scheduler(no requests; budget 8; 0 steps; DenseCache(")
    for name in "abcd":
        scheduler.add(name, text(1, 6), 3)
    scheduler.step()
    scheduler.cancel("d")
    scheduler.step()
    words = "2 decoding, 1 waiting, 1 cancelled"
    states = [r.state for r in scheduler.requests.values()]
    assert states == [DECODING, DECODING, WAITING, CANCELLED]
    assert repr(scheduler).startswith(f"Scheduler({words}; budget 8; 2 steps; DenseCache(")
    scheduler.run()
    assert {r.state for r in scheduler.requests.values()} == {DONE, CANCELLED}
    assert "3 done, 1 cancelled; " in repr(scheduler)
    assert "left=" not in repr(scheduler.requests), "a note of the scheduler's own"


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "error", "words"), [
    (("a", [1]), ValueError, "request 'a' is known already"),
    (("mine", [1]), ValueError, "request 'mine' is known already"),
    (("b", []), ValueError, "prompt 'b' is empty"),
    (("b", [31]), ValueError, "prompt 'b' holds token 31, needed: 0 ... 30"),
    (("b", "text"), TypeError, "prompt 'b' must be a list of token ids"),
    (("b", [1], 0), ValueError, "max_new_tokens must be an integer of at least 1, got 0"),
    (("b", text(1, 40), 10), ValueError, "prompt 'b' has 40 tokens; with 10 .* 49 positions"),
    (("b", text(1, 20), 6), OutOfBlocks, "may grow to 25 tokens, .* 24: 6 blocks"),
    ((["b"], [1]), TypeError, r"the name of a request must be hashable, got \['b'\]"),
])
def test_requests_that_are_refused(arguments, error, words):
    cache = paged(6, 4)
    cache.add("mine")
    scheduler = Scheduler(MODEL, cache)
    scheduler.add("a", [1], 3)
    with pytest.raises(error, match=words):
        scheduler.add(*arguments)
    assert list(scheduler.requests) == ["a"]


def test_a_request_longer_than_a_row_is_refused():
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 24))
    scheduler.add("fits", text(1, 20), 5)
    with pytest.raises(CacheFull, match="may grow to 25 tokens, .* room for 24 of one request"):
        scheduler.add("a", text(1, 20), 6)


def test_a_cache_of_another_model_is_refused():
    other = decoder("hybrid")
    with pytest.raises(ValueError, match="the cache was built for 3 layers, the model has 2"):
        Scheduler(MODEL, new_cache(other, 1, 8))

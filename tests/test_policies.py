"""Queue and victim policies: they decide who waits and what is computed twice, and no token."""

import numpy as np
import pytest
from models import text
from test_decoder import new_cache
from test_scheduling import MODEL, alone, any_day, full_day, paged, play

from kvlib import CacheFull, OutOfBlocks
from kvlib.serve import (
    DECODING,
    DONE,
    WAITING,
    Request,
    Scheduler,
    fewest_lost,
    first_come,
    shortest_first,
    youngest,
)

pytestmark = pytest.mark.filterwarnings("error")


def oldest(running):
    return running[0]


def last_come(waiting):
    return waiting[-1]


def any_of_them(requests):
    return requests[sum(r.length for r in requests) % len(requests)]


POLICIES = {
    "shortest first": {"queue": shortest_first}, "fewest lost": {"victim": fewest_lost},
    "both, three prompts": {"queue": shortest_first, "victim": fewest_lost, "max_prefills": 3},
    "all prompts in chunks": {"max_prefills": None, "prefill_chunk": 3},
    "the other way round": {"queue": last_come, "victim": oldest},
    "any": {"queue": any_of_them, "victim": any_of_them, "max_prefills": 2, "prefill_chunk": 5},
}
CACHES = {
    "dense, 2 rows": lambda: new_cache(MODEL, 2, 48), "blocks of 4": lambda: paged(96, 4),
    "blocks of 3, room for 1.2 requests": lambda: paged(19, 3),
}


@pytest.mark.untraced
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES)
def test_no_token_depends_on_a_policy(cache, policies, effort) -> None:
    seeds = effort.share("days of random arrivals under a policy", range(2, 8), usual=1)
    preempted = 0
    for day in (full_day(), *map(any_day, seeds)):
        needed = alone(day.prompts, day.lengths, day.stop)
        for budget in (None, 2, 7):
            played = play(CACHES[cache](), budget, *day, **policies)
            assert {n: r.new for n, r in played.requests.items()} == needed, f"budget {budget}"
            assert {r.state for r in played.requests.values()} == {DONE}
            preempted += sum(e.kind == "preempt" for e in played.events)
    assert preempted or "room" not in cache


# Which request begins next --------------------------------------------------------------------


def begun(scheduler: Scheduler) -> list:
    """The requests in the order in which they got their first token."""
    first = {}
    for e in scheduler.events:
        if e.token is not None:
            first.setdefault(e.request, e.step)
    return list(first)


def first_waits(queue) -> list[int]:
    """Tokens that all steps fed until each request had its first token."""
    scheduler = Scheduler(MODEL, new_cache(MODEL, 2, 48), budget=8, queue=queue, stop_tokens=())
    for i, n in enumerate((30, 3, 25, 2, 5, 4)):
        scheduler.add(i, text(i, n), 3)
    scheduler.run()
    fed, first = 0, {}
    for e in scheduler.events:
        fed += e.tokens * (e.kind in ("prefill", "decode"))
        if e.token is not None:
            first.setdefault(e.request, fed)
    return [first[i] for i in range(6)]


def test_shortest_first_lowers_the_mean_wait_and_not_the_longest() -> None:
    in_turn, shortest = first_waits(first_come), first_waits(shortest_first)
    assert np.mean(shortest) < 0.6 * np.mean(in_turn)
    assert max(shortest) >= max(in_turn) - 3
    assert shortest.index(max(shortest)) == 0, "the longest prompt is the last"


def test_the_order_of_the_queues() -> None:
    lengths = {"a": 9, "b": 4, "c": 9, "d": 2, "e": 4}
    needed = {
        first_come: list("abcde"),
        shortest_first: list("dbeac"),  # of equals the first that came
        last_come: list("edcba"),
    }
    for queue, order in needed.items():
        cache = new_cache(MODEL, 1, 48)
        scheduler = Scheduler(MODEL, cache, queue=queue, stop_tokens=())
        for name, n in lengths.items():
            scheduler.add(name, text(1, n), 2)
        scheduler.run()
        assert begun(scheduler) == order


@pytest.mark.parametrize("queue", [first_come, shortest_first])
def test_a_preempted_request_comes_before_those_that_wait(queue) -> None:
    """Two run until one gives way; a third request, and a shorter one, came in between."""
    scheduler = Scheduler(MODEL, paged(10, 4), queue=queue, stop_tokens=())
    scheduler.add("a", text(1, 15), 14)
    scheduler.add("b", text(2, 15), 14)
    scheduler.step()
    scheduler.step()
    scheduler.add("c", text(3, 12), 3)
    scheduler.run()
    kinds = [(e.request, e.kind) for e in scheduler.events]
    gone = kinds.index(("b", "preempt"))
    again = next(i for i in range(gone, len(kinds)) if kinds[i][0] in "bc" and i > gone)
    assert kinds[again][0] == "b", "the request whose reader has seen tokens keeps its turn"
    assert kinds.index(("c", "prefill")) > again


@pytest.mark.parametrize(("budget", "needed"), [
    (1, [1] * 6 + [2] * 6 + [3] * 6),  # a request that decodes fills the budget
    (2, [1] * 2 + [2] * 3 + [3] * 5), (None, [1, 2, 3, 3, 3]),
])
def test_the_queue_is_asked_when_a_prompt_can_begin_and_not_before(budget, needed) -> None:
    """Three prompts of 4 tokens that get 3; how many times it was asked, after each step."""
    asked: list[str] = []

    def watched(waiting):
        assert isinstance(waiting, tuple) and all(r.state == WAITING for r in waiting)
        asked.append("".join(r.name for r in waiting))
        return waiting[0]

    cache = new_cache(MODEL, 4, 48)
    scheduler = Scheduler(MODEL, cache, budget=budget, queue=watched, stop_tokens=())
    for name in "abc":
        scheduler.add(name, text(1, 4), 3)
    counted = []
    while scheduler.busy:
        scheduler.step()
        counted.append(len(asked))
    assert counted == needed and asked == ["abc", "bc", "c"]


# Who gives way ----------------------------------------------------------------------------------


def fed_again(victim) -> tuple[list, int]:
    """A short request that began first, and two long ones; who gave way, and all tokens fed."""
    scheduler = Scheduler(MODEL, paged(14, 4), victim=victim, stop_tokens=())
    for name, n in (("short", 6), ("long", 24), ("longer", 20)):
        scheduler.add(name, text(n, n), 9)
    found = scheduler.run()
    prompts = {"short": text(6, 6), "long": text(24, 24), "longer": text(20, 20)}
    assert found == alone(prompts, dict.fromkeys(prompts, 9))
    fed = sum(e.tokens for e in scheduler.events if e.kind in ("prefill", "decode", "hit"))
    return [e.request for e in scheduler.events if e.kind == "preempt"], fed


def test_fewest_lost_computes_fewer_tokens_again() -> None:
    (gone, last), (kept, first) = fed_again(youngest), fed_again(fewest_lost)
    assert gone[0] == "longer" and kept[0] == "short"
    needed = 6 + 24 + 20 + 3 * 8
    assert needed < first < last


def test_tokens_in_the_cache_are_what_is_lost_and_of_equals_the_youngest_goes() -> None:
    a, b, c = (
        Request(name, [1] * n, held=held)
        for name, n, held in (("a", 9, 2), ("b", 3, 3), ("c", 9, 2))
    )
    assert fewest_lost((a, b, c)) is c and fewest_lost((a, b)) is a
    assert youngest((c, b, a)) is a


def test_what_a_victim_policy_is_given() -> None:
    given: list[dict] = []

    def watched(running):
        assert isinstance(running, tuple) and len(running) > 1
        given.append({r.name: (r.state, r.held) for r in running})
        return running[-1]

    scheduler = Scheduler(MODEL, paged(10, 4), victim=watched, stop_tokens=())
    for name in "ab":
        scheduler.add(name, text(ord(name), 15), 20)
    while not given:
        held = {n: scheduler.cache.seq_len(n) for n in scheduler.cache.seq_ids}
        scheduler.step()
    assert given == [{"a": (DECODING, held["a"]), "b": (DECODING, held["b"])}]
    event = next(e for e in scheduler.events if e.kind == "preempt")
    assert (event.request, event.tokens) == ("b", held["b"])
    assert scheduler.requests["b"].held == 0 and scheduler.requests["b"].state == WAITING


def test_a_chunk_waits_before_anyone_gives_way() -> None:
    """Also where several prompts are read: the newest chunk first, and its tokens stay."""
    settings = {"max_prefills": None, "prefill_chunk": 4, "stop_tokens": ()}
    scheduler = Scheduler(MODEL, paged(9, 4), **settings)
    prompts = {name: text(ord(name), 16) for name in "abc"}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 2)
    for _ in range(3):
        assert [e.kind for e in scheduler.step()] == ["prefill"] * 3
    # three blocks each: now no request gets a fourth one unless another gives way
    assert [(e.request, e.kind) for e in scheduler.step()] == [
        ("c", "wait"), ("b", "wait"), ("c", "preempt"), ("a", "prefill"),
    ]
    assert scheduler.requests["b"].held == 12 == scheduler.cache.seq_len("b")
    assert scheduler.run() == alone(prompts, dict.fromkeys(prompts, 2))


def test_a_victim_that_had_its_turn_alone_gives_it_to_a_chunk_that_waits() -> None:
    """The policy picks the only request that remains in the step."""
    scheduler = Scheduler(MODEL, paged(6, 4), budget=5, victim=oldest, stop_tokens=())
    prompts = {"a": text(1, 4), "b": text(2, 20)}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 5 + 10 * (name == "a"))
    for _ in range(5):
        scheduler.step()
    assert [r.held for r in scheduler.requests.values()] == [8, 16], "six blocks are full"
    assert [(e.request, e.kind) for e in scheduler.step()] == [
        ("b", "wait"), ("a", "preempt"), ("b", "prefill"),
    ]
    assert scheduler.run() == alone(prompts, {"a": 15, "b": 5})


def test_without_a_victim_the_error_is_the_callers() -> None:
    prompts = {"a": text(1, 15), "b": text(2, 15)}
    scheduler = Scheduler(MODEL, cache := paged(10, 4), victim=None, stop_tokens=())
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 20)
    with pytest.raises(OutOfBlocks, match="request 'a' holds 20 tokens and 1 more"):
        scheduler.run()
    held = {n: r.held for n, r in scheduler.requests.items()}
    assert held == {"a": 20, "b": 19} == {n: cache.seq_len(n) for n in cache.seq_ids}
    assert not {"wait", "preempt"} & {e.kind for e in scheduler.events}
    scheduler.cancel("b")
    assert scheduler.run()["a"] == alone({"a": prompts["a"]}, {"a": 20})["a"]
    scheduler = Scheduler(MODEL, new_cache(MODEL, 1, 40), victim=None, stop_tokens=())
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 4)
    scheduler.step()
    with pytest.raises(CacheFull, match="no row for request 'b'"):
        scheduler.step()
    assert [r.state for r in scheduler.requests.values()] == [DECODING, WAITING]


# Policies that are none -------------------------------------------------------------------------


def state(scheduler: Scheduler) -> tuple:
    """All that a step may change."""
    requests = {n: (r.state, r.held, list(r.new)) for n, r in scheduler.requests.items()}
    cache = scheduler.cache
    held = {n: (cache.seq_len(n), *map(np.copy, cache.read(0, n)[:2])) for n in cache.seq_ids}
    waiting = [r.name for r in scheduler._waiting], [r.name for r in scheduler._running]
    pool = (cache.pool.num_free, cache.pool.num_published) if hasattr(cache, "pool") else ()
    text = {n: (a, b.tobytes(), c.tobytes()) for n, (a, b, c) in held.items()}
    return requests, text, waiting, pool, list(scheduler.events), scheduler.num_steps


ANSWERS = {
    "None": (lambda given: None, "got None"),
    "a name": (lambda given: given[0].name, r"got 'a"),
    "a place": (lambda given: 0, "got 0"), "all": (lambda given: given, r"got \(Request\("),
    "another request": (lambda given: Request("x", [1]), "got the request 'x'"),
    "a copy": (lambda given: Request(given[0].name, given[0].prompt), "got the request 'a"),
}


@pytest.mark.parametrize("kind", ["queue", "victim"])
@pytest.mark.parametrize(("answer", "words"), ANSWERS.values(), ids=ANSWERS)
def test_a_request_that_is_not_there_is_refused(answer, words, kind) -> None:
    asked = iter(range(100))

    def wrong_at_first(given):
        return answer(given) if next(asked) == 0 else given[-1]

    scheduler = Scheduler(MODEL, paged(10, 4), **{kind: wrong_at_first}, stop_tokens=())
    prompts = {name: text(i, 15) for i, name in enumerate(("a0", "a1"))}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 20)
    while kind == "victim" and scheduler.requests["a0"].held < 20:
        scheduler.step()
    before = state(scheduler)
    start = rf"the {kind} policy must return one of the requests that it was given \('a0', 'a1'\), "
    with pytest.raises(ValueError, match=start + words):
        scheduler.step()
    assert state(scheduler) == before
    assert scheduler.run() == alone(prompts, dict.fromkeys(prompts, 20))


def test_many_requests_are_not_all_named() -> None:
    scheduler = Scheduler(MODEL, paged(20, 4), queue=lambda waiting: None)
    for i in range(7):
        scheduler.add(i, [1])
    with pytest.raises(ValueError, match=r"given \(0, 1, 2, 3, 4 and 2 more\), got None"):
        scheduler.step()


def test_an_error_of_a_policy_is_its_own() -> None:
    def breaks(given):
        raise KeyError("priority")

    scheduler = Scheduler(MODEL, paged(20, 4), queue=breaks)
    scheduler.add("a", [1])
    before = state(scheduler)
    with pytest.raises(KeyError, match="priority"):
        scheduler.step()
    assert state(scheduler) == before


@pytest.mark.parametrize(("settings", "error", "words"), [
    ({"queue": "fcfs"}, TypeError, r"queue must be a function .*first_come, got 'fcfs'"),
    ({"queue": None}, TypeError, r"queue must be a function .*first_come, got None"),
    ({"victim": 3}, TypeError, r"victim must be a function .*youngest, got 3"),
    *(({limit: 0}, ValueError, f"{limit} must be an integer of at least 1, got")
      for limit in ("budget", "prefill_chunk", "max_prefills")),
])
def test_settings_that_are_refused(settings, error, words) -> None:
    with pytest.raises(error, match=words):
        Scheduler(MODEL, new_cache(MODEL, 1, 8), **settings)

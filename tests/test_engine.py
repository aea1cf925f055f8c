"""The step that `generate` and `Scheduler` share: several prompts at a time, and its end."""

import pytest
from models import text
from test_decoder import new_cache
from test_scheduling import MODEL, alone, paged

from kvlib import generate, stream
from kvlib.serve import CANCELLED, Scheduler

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize("make", [lambda: new_cache(MODEL, 6, 48), lambda: paged(96, 4)])
def test_stream_is_the_scheduler_in_a_loop(make, chunk) -> None:
    """The same steps in the same order, also where prompts wait for one that begins alike."""
    common = text(7, 13)
    prompts = [[*common, *text(i, 2 + i)] for i in range(3)] + [text(9, 11), [5], common]
    settings = {"prefill_chunk": chunk, "stop_tokens": [3]}
    scheduler = Scheduler(MODEL, make(), max_prefills=None, **settings)
    for i, prompt in enumerate(prompts):
        scheduler.add(i, prompt, 6)
    scheduler.run()
    drawn = [(e.request, e.token) for e in scheduler.events if e.token is not None]
    assert drawn == list(stream(MODEL, prompts, max_new_tokens=6, cache=make(), **settings))


def test_max_prefills_is_how_many_prompts_are_read_at_a_time() -> None:
    for most in (1, 2, 3, None):
        scheduler = Scheduler(
            MODEL, new_cache(MODEL, 5, 48), max_prefills=most, prefill_chunk=3, stop_tokens=()
        )
        for i in range(5):
            scheduler.add(i, text(i, 9), 2)
        fed = [e.request for e in scheduler.step()]
        assert fed == list(range(most or 5))
        scheduler.run()


def test_prompts_that_begin_alike_do_not_read_the_same_at_the_same_time() -> None:
    common = text(5, 16)
    scheduler = Scheduler(MODEL, paged(96, 4), max_prefills=None, stop_tokens=())
    prompts = {i: [*common, i] for i in range(4)} | {"other": text(6, 9)}
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 3)
    assert [e.request for e in scheduler.step()] == [0, "other"]
    assert scheduler.run() == alone(prompts, dict.fromkeys(prompts, 3))
    hits = {e.request: e.tokens for e in scheduler.events if e.kind == "hit"}
    assert hits == dict.fromkeys((1, 2, 3), 16)


def test_a_budget_is_shared_by_prompts_of_which_the_cache_holds_much() -> None:
    """What is found is not fed, so a second prompt fits into the same step."""
    common = text(5, 16)
    cache = paged(96, 4)
    generate(MODEL, [common], max_new_tokens=1, cache=cache)
    scheduler = Scheduler(MODEL, cache, budget=6, max_prefills=None, stop_tokens=())
    scheduler.add("a", [*common, 1, 2], 2)
    scheduler.add("b", text(6, 9), 2)
    fed = {e.request: e.tokens for e in scheduler.step() if e.kind == "prefill"}
    assert fed == {"a": 2, "b": 4}


def test_nobody_overtakes_a_request_that_waits_for_a_row() -> None:
    """One row, four requests: in each step the next one waits, and the others are not tried."""
    scheduler = Scheduler(MODEL, new_cache(MODEL, 1, 48), max_prefills=None, stop_tokens=())
    for name in "abcd":
        scheduler.add(name, text(ord(name), 5), 3)
    for _ in range(3):
        waited = [e.request for e in scheduler.step() if e.kind == "wait"]
        assert waited == ["b"]
    assert [(e.request, e.kind) for e in scheduler.step()] == [("c", "wait"), ("b", "prefill")]


def test_close_ends_all_requests() -> None:
    cache = paged(96, 4)
    scheduler = Scheduler(MODEL, cache, budget=4, stop_tokens=())
    for name in "abc":
        scheduler.add(name, text(1, 6), 9)
    for _ in range(3):
        scheduler.step()
    scheduler.close()
    assert not scheduler.busy and cache.seq_ids == () and cache.pool.num_free == 96
    assert {r.state for r in scheduler.requests.values()} == {CANCELLED}
    assert scheduler.step() == [] and [e.kind for e in scheduler.events[-3:]] == ["cancel"] * 3
    scheduler.add("a", [1, 2], 3)
    assert len(scheduler.run()["a"]) == 3


def test_generate_keeps_no_record_of_its_steps(monkeypatch) -> None:
    """The events of a long run would take more memory than its tokens."""
    from kvlib.serve import generation

    made = []

    class Watched(generation.Scheduler):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr(generation, "Scheduler", Watched)
    for _ in stream(MODEL, [text(1, 5), text(2, 9)], max_new_tokens=20, stop_tokens=()):
        assert len(made[0].events) <= 4

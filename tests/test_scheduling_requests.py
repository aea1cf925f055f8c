"""What the scheduler does for its requests: prefixes found, draws, cancellation, names."""

from __future__ import annotations

import numpy as np
import pytest
from models import decoder, text
from test_decoder import new_cache

from kvlib import BlockPool, PagedCache, generate
from kvlib.serve import CANCELLED, DECODING, DONE, WAITING, Event, Scheduler, waits

pytestmark = pytest.mark.filterwarnings("error")
MODEL = decoder("llama", seed=3)


def paged(blocks: int = 96, size: int = 4) -> PagedCache:
    return PagedCache(MODEL.layer_specs, BlockPool(blocks, size), xp=np)


# Prefixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, 9])
def test_a_prefix_is_found_in_the_very_next_step(budget):
    """Five prompts of 33 tokens, 32 of them shared: only the first computes those."""
    common = text(5, 32)
    prompts = {i: [*common, i] for i in range(5)}
    scheduler = Scheduler(MODEL, paged(), budget=budget, stop_tokens=())
    for name, prompt in prompts.items():
        scheduler.add(name, prompt, 6)
    found = scheduler.run()
    assert found == {n: generate(MODEL, [p], max_new_tokens=6)[0] for n, p in prompts.items()}
    hits = {e.request: e.tokens for e in scheduler.events if e.kind == "hit"}
    assert hits == dict.fromkeys(range(1, 5), 32)


def test_a_settled_step_can_be_found_and_not_be_taken_back():
    cache = paged()
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
    cache = paged()
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

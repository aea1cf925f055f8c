"""One rule of random draws: a request's own seed and the position decide each of its tokens."""

import numpy as np
import pytest
from models import decoder, text
from test_decoder import new_cache

from kvlib import BlockPool, PagedCache, generate, stream
from kvlib.serve import DECODING, Request, Scheduler, rng_at, sample
from kvlib.serve.request import Draw, draw_tokens

pytestmark = pytest.mark.filterwarnings("error")
MODEL = decoder("llama", seed=3)
PROMPTS = [text(1, 9), text(2, 1), text(3, 17), text(1, 9)]  # the last is the first again
SEEDS = [3, 0, 3, 2**40]
NEW = 10
SETTINGS = {"max_new_tokens": NEW, "temperature": 1.3, "stop_tokens": ()}


def alone(prompt: list[int], seed: int, new: int = NEW) -> list[int]:
    return generate(MODEL, [prompt], **{**SETTINGS, "max_new_tokens": new}, seed=seed)[0]


@pytest.fixture(scope="module")
def needed() -> list[list[int]]:
    """What each prompt with its seed draws alone."""
    return [alone(prompt, seed) for prompt, seed in zip(PROMPTS, SEEDS)]


def test_the_draws_are_draws(needed):
    greedy = generate(MODEL, PROMPTS, max_new_tokens=NEW, stop_tokens=())
    assert all(drawn != likeliest for drawn, likeliest in zip(needed, greedy))
    assert needed[0] != needed[3], "another seed gives another text"


@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 1, 0)])
def test_generate_and_stream_in_any_company(needed, order, chunk):
    prompts, seeds = [PROMPTS[i] for i in order], [SEEDS[i] for i in order]
    wanted = [needed[i] for i in order]
    assert generate(MODEL, prompts, **SETTINGS, seed=seeds, prefill_chunk=chunk) == wanted
    streamed: list[list[int]] = [[] for _ in order]
    for i, token in stream(MODEL, prompts, **SETTINGS, seed=tuple(seeds), prefill_chunk=chunk):
        streamed[i].append(token)
    assert streamed == wanted


@pytest.mark.parametrize("budget", [None, 3])
@pytest.mark.parametrize("blocks", [9, 60])
def test_a_scheduler_draws_what_generate_draws(needed, blocks, budget):
    """Also where the pool holds hardly one request, so that requests are preempted."""
    cache = PagedCache(MODEL.layer_specs, BlockPool(blocks, 3), xp=np)
    scheduler = Scheduler(MODEL, cache, budget=budget, stop_tokens=())
    for i in (3, 1, 0, 2):
        scheduler.add(i, PROMPTS[i], NEW, temperature=1.3, seed=SEEDS[i])
    assert scheduler.run() == dict(enumerate(needed))
    if blocks == 9:
        assert any(e.kind in ("preempt", "wait") for e in scheduler.events)


def test_a_text_goes_on_as_the_longer_run_did(needed):
    """The position counts from the beginning of the text, not of what is new."""
    for prompt, seed, drawn in zip(PROMPTS, SEEDS, needed):
        for done in (1, 6):
            assert alone(prompt + drawn[:done], seed, NEW - done) == drawn[done:]
    scheduler = Scheduler(MODEL, new_cache(MODEL, 1, 48), stop_tokens=())
    scheduler.add("a", PROMPTS[0] + needed[0][:4], NEW - 4, temperature=1.3, seed=SEEDS[0])
    assert scheduler.run()["a"] == needed[0][4:]


def test_one_seed_for_all_or_one_for_each():
    prompts = [PROMPTS[0]] * 3
    same = generate(MODEL, prompts, **SETTINGS, seed=3)
    assert same == [alone(PROMPTS[0], 3)] * 3
    several = generate(MODEL, prompts, **SETTINGS, seed=range(3))
    assert several == [alone(PROMPTS[0], i) for i in range(3)]
    assert several[0] != several[1] != several[2] != several[0]
    assert generate(MODEL, prompts, **SETTINGS, seed=np.arange(3)) == several
    assert generate(MODEL, prompts, **SETTINGS) == generate(MODEL, prompts, **SETTINGS, seed=0)
    assert generate(MODEL, [], **SETTINGS, seed=[]) == []


@pytest.mark.parametrize(("seed", "words"), [
    ([1, 2], "seed must hold one integer per prompt, got 2 for 3 prompts; one integer"),
    ([1, True, 2], "seed 1 must be an integer of at least 0, got True"),
    ("123", "a sequence with one such integer per prompt, got '123'"),
    ({1, 2, 3}, "a sequence with one such integer per prompt, got {1, 2, 3}"),
    (1.0, "seed must be an integer of at least 0, .* got 1.0"),
    (np.zeros((3, 1), int), "a sequence with one such integer per prompt"),
])
def test_seeds_that_are_refused(seed, words):
    cache = new_cache(MODEL, 3, 48)
    for entrance in (generate, stream):
        with pytest.raises(ValueError, match=words):
            entrance(MODEL, PROMPTS[:3], seed=seed, cache=cache)
    assert cache.seq_ids == ()


def test_requests_of_one_step_are_drawn_by_their_own_settings():
    logits = np.random.default_rng(1).normal(0, 3, (9, 31)).astype(np.float32)
    kinds = [(0.0, None, None), (1.5, None, None), (1.5, 3, None), (1.5, None, 0.5), (0.7, 3, 0.5)]
    requests = [
        Request(i, [1] * (i + 1), 9, [2] * (i % 3), DECODING, *kinds[i % 5], seed=i // 4)
        for i in range(30)
    ]
    for rows in (range(9), [0, 3, 4, 8], [5], []):
        for first in range(0, 30, 9):
            asked = dict(zip(requests[first : first + 9], rows))
            needed = {
                r: sample(
                    logits[row : row + 1], *(r.temperature, r.top_k, r.top_p),
                    rngs=rng_at(r.seed, r.length),
                )[0]
                for r, row in asked.items()
            }
            draws = [Draw(r, row) for r, row in asked.items()]
            assert draw_tokens(draws, logits) == list(needed.values())

"""The differential test of a scheduler: each request must get the tokens that it gets alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from kvlib.caches import BlockPool, Cache, DenseCache, PagedCache, Step
from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights
from kvlib.serve.generation import generate
from kvlib.testing.check import Trial, in_words
from kvlib.testing.schedule import seeded

LONGEST = 24  # tokens of a request, prompt and answer
STEPS = 400  # after which a scheduler counts as stuck
MakeScheduler = Callable[[Decoder, Cache], Any]


def check_scheduler(
    make_scheduler: MakeScheduler,
    *,
    schedules: int = 20,
    seed: int = 0,
    budget: int | None = None,
) -> Trial:
    """Serve random requests at random times, on caches with room for all of them and for few.

    make_scheduler(model, cache) returns a scheduler without requests, with `add(name, prompt,
    max_new_tokens)`, `step()`, `busy`, and `requests` by name, each with its `new` tokens, as
    `kvlib.serve.Scheduler` has them. Whatever its order, its chunks and its preemptions: every
    request must end, with the greedy tokens it gets alone; the cache must be empty then; and no
    step may take more than `budget` tokens, where one is given.
    """
    compared, name = 0, "scheduler"
    for number in range(1, schedules + 1):
        log: list[str] = []
        try:
            name, results = _serve(make_scheduler, seed + number - 1, budget, log)
        except Exception as error:  # whatever it raises becomes words
            words, run_seed = in_words(error), seed + number - 1
            return Trial(name, number, compared, words, run_seed, len(log), tuple(log))
        compared += results
    return Trial(name, schedules, compared)


def _serve(
    make_scheduler: MakeScheduler, seed: int, budget: int | None, log: list[str]
) -> tuple[str, int]:
    """Play one run; return the scheduler's name and how many answers were compared."""
    choose, model = seeded(seed), _model()
    cache = _watched(model, choose(0, 2), budget)
    server = make_scheduler(model, cache)
    wanted: dict[str, tuple[list[int], int]] = {}
    coming = choose(1, 7)
    for _ in range(STEPS):
        if coming and (not server.busy or choose(0, 2) == 0):
            prompt = [choose(1, 60) for _ in range(choose(1, LONGEST - 4))]
            name, new = f"r{len(wanted)}", choose(1, LONGEST - len(prompt))
            log.append(f"add {name}: prompt of {len(prompt)}, {new} new")
            server.add(name, list(prompt), new)
            wanted[name], coming = (prompt, new), coming - 1
        elif server.busy:
            server.step()
            log.append("step")
        else:
            break
    assert not server.busy and not coming, f"after {STEPS} steps a request is still not done"
    assert cache.seq_ids == (), f"all requests are done, but the cache still holds {cache.seq_ids}"
    for name, (prompt, new) in wanted.items():
        got = list(server.requests[name].new)
        alone = generate(model, [prompt], max_new_tokens=new, stop_tokens=(), progress=False)[0]
        assert got == alone, f"{name} got the tokens {got}, but alone it gets {alone}"
    return type(server).__name__, len(wanted)


def _watched(model: Decoder, kind: int, budget: int | None) -> Any:
    """Return a dense cache with room, one with two rows, or a pool for about two requests."""
    specs = model.layer_specs
    cache: Any
    if kind == 2:
        cache = PagedCache(specs, BlockPool(2 * LONGEST // 4, 4), xp=np)
    else:
        cache = DenseCache(specs, (8, 2)[kind], LONGEST, xp=np)
    plan = cache.plan

    def watched(
        seq_ids: Sequence[Hashable], q_lens: Sequence[int], tokens: Sequence[int] | None = None
    ) -> Step:
        fed = sum(q_lens)
        assert budget is None or fed <= budget, (
            f"a step takes {fed} tokens, more than the budget of {budget}"
        )
        return plan(seq_ids, q_lens, tokens)  # type: ignore[no-any-return]

    cache.plan = watched
    return cache


@functools.cache
def _model() -> Decoder:
    """Return a random Llama of two layers."""
    config = ModelConfig(
        model_type="llama",
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
    )
    return Decoder(config, random_weights(config, seed=8, xp=np))

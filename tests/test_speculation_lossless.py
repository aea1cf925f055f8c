"""Ten thousand greedy tokens, of every drafter and in every cache, are those without guesses.

At the level "whole", each case has 10,008 tokens, in batches of 1 to 8, with requests that are
preempted in between; `make test` runs a sample. Every cache is compared, to the byte, with one that
never had a guess cached (`Watch`).

A step of five rows adds up in another order than five steps of one. The first test computes in
float64; in float32, a text may leave the one without guesses only at a token whose rival is within
TIE. Of codecs that let the newest tokens wait, only the bytes are compared (WAITING).
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from effort import number
from models import decoder, text

from kvlib import (
    BlockPool,
    Cache,
    Decoder,
    DenseCache,
    PagedCache,
    QuantizedCache,
    Scheduler,
    generate,
    reference,
)
from kvlib.caches import Quest
from kvlib.codecs import Codec, bfloat16, fp8, int8, int8_per_channel, kivi
from kvlib.errors import OutOfBlocks
from kvlib.kernels import use_kernels
from kvlib.serve import Request
from kvlib.speculation import (
    DraftModel,
    PromptLookup,
    Rehearsed,
    adaptive,
    best_tree,
    branches,
    lower_layers,
)

NEW = number(quick=6, usual=8, whole=278)  # of each text; the batches have 36 texts
BATCHES = {6: (2, 3), 8: (1, 3, 8), 278: tuple(range(1, 9))}[NEW]
ROOM = -(-(40 + NEW + 10) // 8) * 8
LENGTHS = (3, 17, 8, 40, 5, 5, 29, 11)
TEXTS = {i: text(seed=i, length=n) for i, n in enumerate(LENGTHS)}
MODEL = decoder("llama", seed=3, dtype=np.float64, max_position_embeddings=512)
HYBRID = decoder("hybrid", seed=5, dtype=np.float64, max_position_embeddings=512)
OTHER = decoder("qwen3", seed=4, max_position_embeddings=512)
TIE = 1e-3  # of a logit; float32 is off by about 1e-5

Make = Callable[[int], Cache]  # requests → a cache with room for them


def any_gamma(request: Request) -> int:
    """0 to 9 guesses, another number in each step."""
    return (3 * request.length + len(request.prompt)) % 10


class Watch:
    """Records what a cache is given, refuses plans now and then, and compares at the end.

    Before a request is freed, an empty cache gets the same keys and values, the prompt in one step
    and then token by token, and must hold the same bytes. In batches of even size, a cache knows
    the tokens and finds those of a preempted request, so only the tokens are compared.
    """

    def __init__(self, cache, make, prompts, shares) -> None:
        self.cache, self.make, self.prompts, self.shares = cache, make, prompts, shares
        self.plan, self.append = cache.plan, cache.append
        self.add, self.free, self.keep = cache.add, cache.free, cache.keep
        self.appended: dict[Hashable, list[dict[int, tuple[np.ndarray, np.ndarray]]]] = {}
        self.begun: dict[Hashable, int] = {}  # lengths before the last plan
        self.rng, self.refusals, self.compared = np.random.default_rng(1), 0, 0
        for name in ("plan", "append", "keep", "add", "free"):
            setattr(cache, name, getattr(self, f"on_{name}"))

    def on_add(self, name: Hashable, tokens: Any = ()) -> int:
        self.appended[name] = [{} for _ in self.cache.layers]
        return self.add(name, tokens if self.shares else ())

    def on_plan(self, names: Any, lengths: Any, tokens: Any = None, parents: Any = None) -> Any:
        """Three refusals in a row every other ten steps: guesses are dropped, and requests too."""
        if not self.refusals and self.rng.random() < 0.06:
            self.refusals = 3
        if self.refusals and len(self.cache) > 1:
            self.refusals -= 1
            raise OutOfBlocks("no room, says the test")
        self.begun |= {name: self.cache.seq_len(name) for name in names}
        return self.plan(names, lengths, tokens if self.shares else None, parents)

    def on_append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        at = 0
        for name, end, n in zip(step.seq_ids, step.seq_lens, step.q_lens, strict=True):
            for i in range(n):
                self.appended[name][layer][end - n + i] = np.array(k[at + i]), np.array(v[at + i])
            at += n
        self.append(layer, k, v, step)

    def on_keep(self, name: Hashable, path: Sequence[int]) -> None:
        first = self.begun[name]
        for rows in self.appended[name]:
            rows |= dict(enumerate([rows[first + number] for number in path], first))
        self.keep(name, path)

    def on_free(self, name: Hashable) -> None:
        if not self.shares and self.cache.seq_len(name) >= len(self.prompts[name]):
            self.compare(name)
        self.free(name)

    def compare(self, name: Hashable) -> None:
        """AssertionError unless the cache holds of a request what one without guesses holds."""
        length, first = self.cache.seq_len(name), len(self.prompts[name])
        plain = self.make(1)
        plain.add(name)
        for start, end in [(0, first), *((n, n + 1) for n in range(first, length))]:
            step = plain.plan([name], [end - start])
            for layer, rows in enumerate(self.appended[name]):
                k, v = zip(*(rows[p] for p in range(start, end)))
                plain.append(layer, np.stack(k), np.stack(v), step)
        for either in (self.cache, plain):  # what waits to be encoded waits for the next plan
            either.settle(name)
        for layer, spec in enumerate(self.cache.layers):
            own, needed = self.cache.read(layer, name), plain.read(layer, name)
            seen = max(0, length + 1 - (spec.window or length + 1))  # by the next query
            for _, _, positions in (own, needed):  # a window gives back in the next plan
                assert set(range(seen, length)) <= set(map(int, positions))
            keep = [np.asarray(x[2]) >= seen for x in (own, needed)]
            for x, y in zip(own, needed, strict=True):
                x, y = np.asarray(x)[keep[0]], np.asarray(y)[keep[1]]
                assert x.dtype == y.dtype and x.tobytes() == y.tobytes(), (layer, name)
        self.compared += 1


def alone(model, make, texts, new) -> dict[int, list[int]]:
    """The new tokens of each text without guesses, each alone in a cache."""
    settings = dict(max_new_tokens=new, stop_tokens=())
    return {i: generate(model, [t], cache=make(1), **settings)[0] for i, t in texts.items()}


def live(model, make, drafter, gamma, texts, new, batches):
    """Tokens by (batch, text) of requests served together with guesses, and what happened."""
    found, counts = {}, dict.fromkeys(("preempted", "drafted", "accepted", "compared"), 0)
    for batch in batches:
        names = [(3 * i + batch) % len(texts) for i in range(batch)]
        cache = make(batch)
        watch = Watch(cache, make, texts, shares=batch % 2 == 0)
        settings: Any = dict(budget=40, prefill_chunk=11, stop_tokens=())
        scheduler = Scheduler(model, cache, drafter=drafter(), gamma=gamma, **settings)
        for name in names:
            scheduler.add(name, texts[name], new)
        scheduler.run()
        assert not cache.seq_ids
        found |= {(batch, name): scheduler.requests[name].new for name in names}
        counts["preempted"] += sum(e.kind == "preempt" for e in scheduler.events)
        counts["compared"] += watch.compared
        for r in scheduler.requests.values():
            counts["drafted"] += r.drafted
            counts["accepted"] += r.accepted
    return found, counts


def rows(codec: Codec | None = None) -> Callable[[Decoder, Any], Make]:
    if codec is None:
        return lambda m, dtype: lambda n: DenseCache(m.layer_specs, n, ROOM, dtype=dtype)
    return lambda m, dtype: lambda n: QuantizedCache(m.layer_specs, codec, n, ROOM, dtype=dtype)


def blocks(size: int, codec: Codec | None = None, **settings: Any) -> Callable:
    def make(model: Decoder, dtype: Any) -> Make:
        each = len({s.window for s in model.layer_specs}) * -(-ROOM // size)
        return lambda n: PagedCache(
            model.layer_specs, BlockPool(n * each, size), codec=codec, dtype=dtype, **settings
        )

    return make


CACHES = {
    "dense": rows(), "blocks of 4": blocks(4), "windows in rows": rows(),
    "windows in blocks": blocks(2), "int8": rows(int8()), "int8 in blocks": blocks(8, int8()),
    "fp8 in blocks": blocks(4, fp8("e4m3")), "bfloat16": rows(bfloat16()),
}
WAITING = {
    "int8, residual": rows(int8(residual=5)), "int8 per channel": rows(int8_per_channel(4)),
    "int4, residual, in blocks": blocks(8, kivi(4, group=8, residual=8)),
}
DRAFTERS = {
    "lookup": (lambda m, t: PromptLookup(longest=3, shortest=1), any_gamma),
    "another model": (lambda m, t: DraftModel(OTHER, max_seqs=5), any_gamma),
    "itself": (lambda m, t: DraftModel(m), any_gamma),
    "lower layers": (lambda m, t: DraftModel(lower_layers(m, 1)), adaptive(most=6)),
    "rehearsed": (lambda m, t: Rehearsed(t, 0.8, m.config.vocab_size), any_gamma),
    "rehearsed, adaptive": (lambda m, t: Rehearsed(t, 0.8, m.config.vocab_size), adaptive(most=7)),
    "lookup, tree": (lambda m, t: PromptLookup(longest=3, shortest=1, places=3), any_gamma),
    "another model, tree": (
        lambda m, t: DraftModel(OTHER, max_seqs=5, tree=branches(2, 2, 1)), any_gamma,
    ),
    "rehearsed, tree": (
        lambda m, t: Rehearsed(t, [0.5, 0.3], m.config.vocab_size, tree=branches(2, 2, 2)),
        any_gamma,
    ),
}


@cache
def plain(where: str) -> dict[int, list[int]]:
    model = HYBRID if "windows" in where else MODEL
    return alone(model, (CACHES | WAITING)[where](model, np.float64), TEXTS, NEW)


@pytest.mark.every(7)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("where", [*CACHES, *WAITING])
def test_tokens_and_caches_are_those_without_guesses(where: str, name: str) -> None:
    model = HYBRID if "windows" in where else MODEL
    drafter, gamma = DRAFTERS[name]
    needed = plain(where)
    written = {i: TEXTS[i] + new for i, new in needed.items()}
    make = (CACHES | WAITING)[where](model, np.float64)
    found, counts = live(model, make, lambda: drafter(model, written), gamma, TEXTS, NEW, BATCHES)
    assert sum(map(len, found.values())) == sum(BATCHES) * NEW
    assert where in WAITING or found == {(batch, i): needed[i] for batch, i in found}
    assert counts["drafted"] > 0 and (counts["preempted"] > 0 or NEW == 6)  # few steps at "quick"
    assert counts["compared"] >= sum(n for n in BATCHES if n % 2)


# The models that are shipped ----------------------------------------------------------------------

SAMPLE = reference.sample_text().encode()
PROMPTS = {i: list(SAMPLE[1500 * i : 1500 * i + n]) for i, n in enumerate(LENGTHS)}


@cache
def shipped(dtype: Any) -> Decoder:
    return reference.load_reference_model(dtype=dtype, xp=np)


def by_kernels(make: Callable) -> Callable:
    return lambda model, dtype: lambda n: use_kernels(make(model, dtype)(n))


SHIPPED = {
    "dense": (np.float64, rows()), "blocks of 16": (np.float64, blocks(16)),
    "int8": (np.float64, rows(int8())), "dense, float32": (np.float32, rows()),
    "blocks of 16, float32": (np.float32, blocks(16)),
    "int8 in blocks, float32": (np.float32, blocks(16, int8())),
    "kernels": (np.float32, by_kernels(rows())),
    "kernels on blocks": (np.float32, by_kernels(blocks(16))),
    "kernels on int8": (np.float32, by_kernels(rows(int8()))),
    "quest that reads all": (np.float32, blocks(16, attention=Quest(4096))),
}
GUESSES = {
    "shipped drafter": (lambda m: DraftModel(reference.load_draft_model(xp=np)), any_gamma),
    "shipped drafter, adaptive": (
        lambda m: DraftModel(reference.load_draft_model(xp=np)), adaptive(most=7),
    ),
    "shipped drafter, tree": (
        lambda m: DraftModel(reference.load_draft_model(xp=np), tree=best_tree([0.6, 0.2, 0.1], 7)),
        any_gamma,
    ),
}


@pytest.mark.every(7)
@pytest.mark.parametrize("name", GUESSES)
@pytest.mark.parametrize("where", SHIPPED)
def test_the_shipped_models_write_what_they_write_without_guesses(where: str, name: str) -> None:
    dtype, build = SHIPPED[where]
    model, (drafter, gamma) = shipped(dtype), GUESSES[name]
    make = build(model, dtype)
    needed = alone(model, make, PROMPTS, NEW)
    found, counts = live(model, make, lambda: drafter(model), gamma, PROMPTS, NEW, BATCHES)
    left = {key for key, new in found.items() if new != needed[key[1]]}
    assert not left or dtype == np.float32
    for key in left:
        assert tied(model, make, PROMPTS[key[1]], needed[key[1]], found[key]), key
    assert len(left) <= 1 + len(found) // 20
    assert counts["accepted"] > 0 and (counts["preempted"] > 0 or NEW == 6)
    assert counts["compared"] >= sum(n for n in BATCHES if n % 2)


def tied(model: Decoder, make: Make, prompt: list[int], one: list[int], two: list[int]) -> bool:
    """Whether the first tokens in which two texts differ have logits within TIE of each other."""
    at = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
    held, before = make(1), [*prompt, *one[:at]]
    held.add("a")
    logits = model.forward(before, held, held.plan(["a"], [len(before)]))[0]
    return bool(abs(logits[one[at]] - logits[two[at]]) < TIE)

"""Guessing changes no token: whatever a drafter says, in every cache, with every setting."""

from collections.abc import Sequence
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from effort import LEVEL, number
from models import decoder, text
from test_guess_trees import CHI_1, chi_square, distributions

from kvlib import BlockPool, Decoder, DenseCache, PagedCache, QuantizedCache, Scheduler, generate
from kvlib.caches import Quest
from kvlib.caches.trees import depths
from kvlib.codecs import kivi
from kvlib.serve import DECODING, PREFILLING, Request, probabilities, rng_at
from kvlib.serve.request import Decoding
from kvlib.speculation import (
    Draft,
    Drafter,
    DraftModel,
    PromptLookup,
    Rehearsed,
    Text,
    accept,
    accept_tree,
    adaptive,
    best_gamma,
    best_tree,
    branches,
    checking,
    draft_model,
    expected_tokens,
    expected_tree_tokens,
    lower_layers,
    speed_up,
)
from kvlib.speculation.acceptance import DRAFTED, JUDGED, inverse
from kvlib.speculation.checking import Speculation, accept_matching
from kvlib.speculation.draft import ranks

# float64: two orders of summation then choose the same token unless two logits are equal
MODEL = decoder("llama", seed=3, dtype=np.float64, max_position_embeddings=512)
MODEL_1 = lower_layers(MODEL, 1)
HYBRID = decoder("hybrid", seed=5, dtype=np.float64, max_position_embeddings=512)
OTHER = decoder("qwen3", seed=4, dtype=np.float64, max_position_embeddings=512)
VOCABULARY = MODEL.config.vocab_size


class Coin(Drafter):
    """Guesses any tokens, any number of them."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        counts = [int(self.rng.integers(0, t.most + 1)) for t in texts]
        return [Draft(self.rng.integers(0, VOCABULARY, n).tolist()) for n in counts]


class Sower(Drafter):
    """Random trees, chains and no guesses by turns, of which about half are right."""

    def __init__(self, texts: dict, vocabulary: int = VOCABULARY, seed: int = 0) -> None:
        self.texts, self.vocabulary, self.rng = texts, vocabulary, np.random.default_rng(seed)
        self.trees = 0

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [self.sow(text) for text in texts]

    def sow(self, text: Text) -> Draft:
        right = self.texts[text.name][len(text.tokens) :]
        chain, tokens, parents, paths = self.rng.random() < 0.2, [], [], []
        for j in range(int(self.rng.integers(0, text.most + 1))):
            parent = j - 1 if chain else int(self.rng.integers(-1, j))
            before = paths[parent] if parent >= 0 else []
            taken = {t for t, at in zip(tokens, parents) if at == parent}
            token = right[len(before)] if self.rng.random() < 0.6 else -1
            while token in taken or token < 0:
                token = int(self.rng.integers(0, self.vocabulary))
            tokens, parents = [*tokens, token], [*parents, parent]
            paths.append([*before, token])
        self.trees += parents != list(range(-1, len(parents) - 1))
        return Draft(tokens, parents=tuple(parents))


def paged(model, blocks=400, size=4, **settings):
    cache = PagedCache(model.layer_specs, BlockPool(blocks, size), dtype=np.float64, **settings)
    for x in cache.storage():
        x[...] = np.nan
    return cache


TEXTS = {i: text(seed=i, length=n) for i, n in enumerate((3, 17, 8, 40, 5, 5, 29, 11))}
NEW = number(quick=24, usual=40, whole=120)  # tokens of each text; all cases: 18 * 2 * 8 times that


CACHES = {
    "dense": lambda m: DenseCache(m.layer_specs, 8, 400, dtype=np.float64),
    "blocks of 4": lambda m: paged(m, 8 * 100 * 3),
    "blocks of 4, room for 2 of 8": lambda m: paged(m, 30 + 6 * NEW // 10),
}


def alone(model, temperature=0.0) -> dict[int, list[int]]:
    settings = dict(max_new_tokens=NEW, temperature=temperature, stop_tokens=())
    return {i: generate(model, [t], seed=i, **settings)[0] for i, t in TEXTS.items()}


ALONE = {id(m): alone(m) for m in (MODEL, HYBRID)}
RIGHT = {id(m): {i: TEXTS[i] + new for i, new in ALONE[id(m)].items()} for m in (MODEL, HYBRID)}
CHAINS = {
    "lookup": lambda m: PromptLookup(longest=3, shortest=1),
    "lower layers": lambda m: DraftModel(lower_layers(m, 1)),
    "another model": lambda m: DraftModel(OTHER, max_seqs=3),
    "itself": lambda m: DraftModel(m, paged(m, 1500)),
    "rehearsed": lambda m: Rehearsed(RIGHT[id(m)], 0.8, VOCABULARY),
    "coin": lambda m: Coin(),
}
TREES = {
    "sower": lambda m: Sower(RIGHT[id(m)]),
    "lower layers, tree": lambda m: DraftModel(lower_layers(m, 1), tree=branches(3, 2, 1)),
    "itself, tree": lambda m: DraftModel(m, paged(m, 1500), tree=best_tree([0.6, 0.3], 9)),
    "lookup, tree": lambda m: PromptLookup(longest=3, shortest=1, places=3),
    "rehearsed, tree": lambda m: Rehearsed(
        RIGHT[id(m)], [0.5, 0.3], VOCABULARY, tree=best_tree([0.5, 0.3], 9)
    ),
}
DRAFTERS = CHAINS | TREES


def serve(model, cache, drafter, names, temperature=0.0, **settings) -> Scheduler:
    scheduler = Scheduler(model, cache, drafter=drafter, stop_tokens=(), **settings)
    for name in names:
        scheduler.add(name, TEXTS[name], NEW, temperature=temperature, seed=name)
    scheduler.run()
    assert cache.seq_ids == ()
    return scheduler


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("where", CACHES)
def test_tokens_are_those_without_guesses(name: str, where: str) -> None:
    """Eight texts a case and model; with preemptions where the cache has room for two of them."""
    cases = [(MODEL, 12 if name in TREES else 4, None), (HYBRID, adaptive(most=9), 23)]
    if LEVEL != "whole":  # in turn
        cases = [cases[(list(DRAFTERS).index(name) + list(CACHES).index(where)) % 2]]
    for model, gamma, budget in cases:
        cache, drafter = CACHES[where](model), DRAFTERS[name](model)
        found = serve(model, cache, drafter, TEXTS, gamma=gamma, budget=budget)
        assert {i: r.new for i, r in found.requests.items()} == ALONE[id(model)]
        assert ("room" in where) == any(e.kind == "preempt" for e in found.events)
        if name == "itself" and budget is None and "room" not in where:
            assert found.num_steps < NEW / 2 + 10
        fed = {}
        for e in found.events:
            fed[e.step] = fed.get(e.step, 0) + e.tokens * (e.kind in ("decode", "prefill"))
        assert budget is None or max(fed.values()) <= budget
        assert name != "sower" or drafter.trees > 20


@pytest.mark.parametrize("name", ["rehearsed", "sower"])
@pytest.mark.parametrize(
    ("gamma", "batch"), [(0, 2), (1, 1), (1, 8), (2, 2), (3, 1), (3, 8), (9, 2), (40, 2), (200, 8)]
)
def test_any_number_of_guesses_and_of_requests(name: str, gamma: int, batch: int) -> None:
    names = list(TEXTS)[:batch]
    found = serve(MODEL, CACHES["dense"](MODEL), DRAFTERS[name](MODEL), names, gamma=gamma)
    assert all(found.requests[i].new == ALONE[id(MODEL)][i] for i in names)
    assert all(r.accepted <= r.drafted for r in found.requests.values())
    assert (sum(r.drafted for r in found.requests.values()) > 0) == (gamma > 0)


@cache
def drawn_texts() -> dict[int, list[int]]:
    return {i: TEXTS[i] + new for i, new in alone(MODEL, temperature=1.5).items()}


@pytest.mark.parametrize("name", ["lookup", "rehearsed", "coin", "sower"])
def test_guesses_that_were_not_drawn_change_no_draw(name: str) -> None:
    """At a temperature, too: they equal the token that the seed draws, or are refused."""
    drafter = DRAFTERS[name](MODEL)
    if name in ("rehearsed", "sower"):
        drafter.texts = drawn_texts()
    found = serve(MODEL, CACHES["dense"](MODEL), drafter, TEXTS, temperature=1.5, gamma=9)
    assert {i: TEXTS[i] + r.new for i, r in found.requests.items()} == drawn_texts()


@pytest.mark.parametrize(
    "name", ["lower layers", "another model", "itself", "lower layers, tree", "itself, tree"]
)
def test_drawn_guesses_repeat_with_their_seed_in_any_company(name: str) -> None:
    make = DRAFTERS[name]
    together = serve(MODEL, paged(MODEL, 3000), make(MODEL), [0, 1, 2], temperature=1.0, gamma=6)
    for i in (0, 1, 2):
        cache = CACHES["dense"](MODEL)
        single = serve(MODEL, cache, make(MODEL), [i], temperature=1.0, gamma=6)
        assert single.requests[i].new == together.requests[i].new
    right = [e for e in together.events if e.kind == "accept"]
    requests = together.requests.values()
    assert len(right) == sum(r.accepted for r in requests) > 10
    if name == "itself":  # p = q: all right, up to rounding
        assert all(r.accepted == r.drafted for r in requests)
    if name == "itself, tree":  # so the first guess of each level is right
        full = [e for e in together.events if e.kind == "decode" and e.tokens == 7]
        assert len(right) >= 2 * len(full) > 20


@pytest.mark.parametrize("gamma", [1, 4])
def test_right_guesses_cost_no_step(gamma: int) -> None:
    """A step gives gamma + 1 tokens if all guesses are right; the prompt's step gives the first."""
    drafter = Rehearsed({3: TEXTS[3] + ALONE[id(MODEL)][3]}, 1.0, VOCABULARY)
    found = serve(MODEL, CACHES["dense"](MODEL), drafter, [3], gamma=gamma)
    steps = 1 + -(-(NEW - 1) // (gamma + 1))
    assert found.num_steps == found.requests[3].steps == steps
    assert found.requests[3].tokens_per_step == NEW / steps
    assert found.requests[3].acceptance == 1.0


def test_a_stop_token_among_the_guesses_ends_the_text() -> None:
    plain = ALONE[id(MODEL)][3]
    stop = plain[20]
    drafter = Rehearsed({3: TEXTS[3] + plain}, 1.0, VOCABULARY)
    cache = CACHES["blocks of 4"](MODEL)
    scheduler = Scheduler(MODEL, cache, drafter=drafter, gamma=7, stop_tokens=[stop])
    scheduler.add(3, TEXTS[3], NEW)
    assert scheduler.run()[3] == plain[: plain.index(stop)]
    tokens = [e.token for e in scheduler.events if e.token is not None]
    assert tokens == scheduler.requests[3].new


# What the cache holds -----------------------------------------------------------------------------

RNG = np.random.default_rng(1)
LAYERS, PLACES, V = 3, 5, 7
LOGITS = RNG.standard_normal((V, PLACES, V))
KEYS = RNG.standard_normal((2, LAYERS, V, 96, 2, 8)).astype(np.float32)


class Table(Decoder):
    """A model whose numbers are looked up by token and position, so they repeat to the byte."""

    shift = 0

    def forward(self, tokens, cache, step, rows="last"):
        ids, at = np.asarray(tokens), step.positions
        for layer in range(len(cache.layers)):
            cache.append(layer, *KEYS[:, layer, ids, at], step)
        return LOGITS[(ids + self.shift) % V, at % PLACES][
            step.last_rows if rows == "last" else rows
        ]


def table(kind: str = "llama") -> Table:
    made = decoder(kind, vocab_size=V, num_hidden_layers=3, max_position_embeddings=96)
    return Table(made.config, made.weights)


def continued(prompt: list[int], n: int) -> list[int]:
    text = list(prompt)
    while len(text) < len(prompt) + n:
        text.append(int(LOGITS[text[-1], (len(text) - 1) % PLACES].argmax()))
    return text


STORES = {
    "dense": lambda m: DenseCache(m.layer_specs, 3, 96),
    "blocks of 4": lambda m: PagedCache(m.layer_specs, BlockPool(300, 4)),
    "quantised": lambda m: QuantizedCache(m.layer_specs, kivi(4, group=8, residual=8), 3, 96),
    "int8 in blocks": lambda m: PagedCache(m.layer_specs, BlockPool(200, 8), codec="int8"),
    "quantised in blocks": lambda m: PagedCache(
        m.layer_specs, BlockPool(200, 8), codec=kivi(2, group=8, residual=16)
    ),
    "blocks that are looked up": lambda m: PagedCache(
        m.layer_specs, BlockPool(300, 4), attention=Quest(16)
    ),
    "windows": lambda m: DenseCache(m.layer_specs, 3, 96),
    "windows in blocks": lambda m: PagedCache(m.layer_specs, BlockPool(300, 4)),
}
PROMPTS = {"a": [1, 2, 3], "b": [4] * 9, "c": [0, 6, 5, 1, 1]}


@pytest.mark.parametrize("where", STORES)
def test_the_cache_holds_what_it_would_hold_without_guesses(where: str) -> None:
    model = table("hybrid" if "window" in where else "llama")
    right = {name: continued(prompt, 70) for name, prompt in PROMPTS.items()}
    cache = STORES[where](model)
    for x in cache.storage():
        x.view(np.uint8)[...] = 255
    drafter = Sower(right, V)
    scheduler = Scheduler(model, cache, drafter=drafter, gamma=7, max_prefills=None, stop_tokens=())
    alone = {name: Scheduler(model, STORES[where](model), stop_tokens=()) for name in PROMPTS}
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, 70)
        alone[name].add(name, prompt, 70)
    compared = 0
    while scheduler.busy:
        scheduler.step()
        if scheduler.num_steps % 5:
            continue
        for name in cache.seq_ids:
            length, plain = cache.seq_len(name), alone[name].cache
            while length > (plain.seq_len(name) if name in plain else 0):
                alone[name].step()
            assert plain.seq_len(name) == length
            for layer in range(LAYERS):
                seen = min(length, model.layer_specs[layer].window or length)
                x, y = cache.read(layer, name), plain.read(layer, name)
                for a, b in zip(x, y, strict=True):  # a window may not have given back as much yet
                    assert a[-seen:].tobytes() == b[-seen:].tobytes() and len(a) >= seen - 1
            compared += 1
    assert compared > 6 and drafter.trees > 20
    assert {r.name: r.text for r in scheduler.requests.values()} == right


def test_prefixes_are_published_from_accepted_tokens_only() -> None:
    model = table()
    cache, right = STORES["blocks of 4"](model), {n: continued(p, 70) for n, p in PROMPTS.items()}
    scheduler = Scheduler(model, cache, drafter=Sower(right, V), gamma=9, stop_tokens=())
    for name, prompt in PROMPTS.items():
        scheduler.add(name, prompt, 70)
    scheduler.run()
    for tokens in right.values():
        assert cache.add("again", tokens) == (len(tokens) - 1) // 4 * 4
        at = np.arange(cache.seq_len("again"))
        for layer in range(LAYERS):
            k, v, _ = cache.read(layer, "again")
            assert (np.stack([k, v]) == KEYS[:, layer, np.asarray(tokens)[at], at]).all()
        cache.free("again")
        for place in range(len(PROMPTS) + 9, len(tokens) - 5, 7):
            for wrong in range(V):
                if wrong != tokens[place]:
                    other = [*tokens[:place], wrong, *tokens[place + 1 :]]
                    assert cache.add("other", other) <= place // 4 * 4
                    cache.free("other")


class Counted(Drafter):
    """One tree after another, and then no more."""

    def __init__(self, *drafts: Draft) -> None:
        self.drafts = list(drafts)

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        return [self.drafts.pop(0) if self.drafts else Draft() for _ in texts]


def test_what_was_right_is_counted_by_level() -> None:
    """Of guesses for one and the same token, one verdict goes into `lately`."""
    text = continued([1], 9)
    x, y, z = text[2:5]
    drafter = Counted(
        Draft([(x + 1) % V, x, (y + 1) % V, y, z], parents=(-1, -1, 1, 1, 0)),  # x, y; z elsewhere
        Draft([(text[5] + 1) % V, (text[5] + 2) % V], parents=(-1, -1)),  # none
    )
    scheduler = Scheduler(table(), STORES["dense"](table()), drafter=drafter, gamma=5)
    scheduler.add("a", [1], 9)
    request = scheduler.requests["a"]
    scheduler.step()
    events = scheduler.step()
    assert [(e.kind, e.tokens, e.token) for e in events] == [
        ("decode", 6, x), ("accept", 0, y), ("accept", 0, z),
    ]
    assert (request.drafted, request.accepted, request.held) == (5, 2, 4)
    assert request.lately == 0.5 * (7 / 8) ** 2 + 1 / 8 * (7 / 8) + 1 / 8
    before = request.lately
    scheduler.step()
    assert (request.drafted, request.accepted, request.held) == (7, 2, 5)
    assert request.lately == before * 7 / 8
    assert scheduler.run()["a"] == text[1:]


def test_a_budget_feeds_the_first_guesses() -> None:
    text = continued([1], 9)
    wrong = [(t + 1) % V for t in text]
    draft = Draft([wrong[2], text[2], wrong[3], text[3]], parents=(-1, -1, 1, 1))
    for budget, got in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3)):
        cache = STORES["blocks of 4"](table())
        scheduler = Scheduler(table(), cache, drafter=Counted(draft), budget=budget)
        scheduler.add("a", [1], 9)
        scheduler.step()
        events = scheduler.step()
        assert events[0].tokens == budget and scheduler.requests["a"].new == text[1 : 2 + got]
        assert scheduler.run()["a"] == text[1:]


@pytest.mark.parametrize("when", ["plan", "forward", "cancel"])
def test_a_tree_whose_step_fails_is_tried_again(when: str) -> None:
    class Failing(Table):
        fails = False

        def forward(self, tokens, cache, step, rows="last"):
            found = super().forward(tokens, cache, step, rows)
            if Failing.fails:
                Failing.fails = False
                raise MemoryError("of the model")
            return found

    text = continued([1, 2], 9)
    draft = Draft([text[3], 6 - text[3], text[4]], parents=(-1, -1, 0))
    model = Failing(table().config, table().weights)
    cache = PagedCache(model.layer_specs, BlockPool(4, 4))
    scheduler = Scheduler(model, cache, drafter=Counted(draft))
    scheduler.add("a", [1, 2], 9)
    scheduler.step()
    if when == "plan":  # no room for guesses: another request holds the other blocks
        cache.add("other")
        cache.plan(["other"], [12])
        scheduler.step()
        assert scheduler.requests["a"].drafted == 0
        cache.free("other")
    else:
        Failing.fails = True
        with pytest.raises(MemoryError):
            scheduler.step()
        assert cache.seq_len("a") == 2
    if when == "cancel":
        scheduler.cancel("a")
        assert cache.pool.num_free == 4
    else:
        assert scheduler.run()["a"] == text[2:]
        assert scheduler.requests["a"].accepted == (0 if when == "plan" else 2)


def test_where_a_cache_takes_no_tree_the_scheduler_says_why() -> None:
    def by_positions(cache, layer, q, step, return_lse):
        return cache.attend(layer, q, step, return_lse)

    cache = DenseCache(table().layer_specs, 1, 96, attention=by_positions)
    scheduler = Scheduler(
        table(), cache, drafter=Counted(Draft([1, 2], parents=(-1, -1)), Draft([3]))
    )
    scheduler.add("a", [1], 9)
    scheduler.step()
    with pytest.raises(ValueError, match="parents must be left out"):
        scheduler.step()
    scheduler.requests["a"].draft, scheduler.decoding = None, Decoding()
    assert scheduler.run()["a"] == continued([1], 9)[1:]


# Draws --------------------------------------------------------------------------------------------


@pytest.mark.untraced
def test_the_numbers_of_a_request_are_independent(n=100_000) -> None:
    """Guess, verdict and draw at all positions of a seed: the chain as a request draws it."""
    p, q = distributions(3, 1)[0], distributions(4, 1)[0]
    streams = [rng_at(0, 0, stream).random(n + 1) for stream in (DRAFTED, JUDGED, 0)]
    found = np.zeros(8)
    for guessed, verdict, drawn in zip(*streams, strict=True):
        draft = inverse(q, guessed)
        found[accept(np.stack([p, p]), [draft], q[None], [verdict], [drawn, 0.5])[0]] += 1
    assert chi_square(found, p) < CHI_1


def test_each_guess_is_judged_by_its_own_row_and_stream() -> None:
    """Four requests of a step: a tree that was drawn, one that was not, a chain, and a prompt."""
    q = np.array([[0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.1]] * 5)
    tree = (-1, -1, 0, 1, 1)
    drafts = [
        Draft([2, 1, 5, 2, 4], q, tree), Draft([6, 2, 1, 3, 0], None, tree), Draft([1, 2], q[:2]),
    ]
    paths = set()
    for seed in range(60):
        logits = np.random.default_rng(seed).standard_normal((6 + 6 + 3 + 2, V))
        state = dict(state=DECODING, temperature=1.0, seed=seed)
        requests = [
            Request(i, [1] * i, new=[3], held=i, draft=draft, **state)
            for i, draft in enumerate(drafts, start=1)
        ]
        requests.append(Request("prompt", [1, 2], state=PREFILLING, temperature=1.0, seed=seed))
        feed = {r: r.next_tokens(9) for r in requests}
        guesses = Speculation(MODEL, MODEL.new_cache(1), PromptLookup(), 5)
        found = guesses.tokens(feed, logits[guesses.logit_rows(feed)])
        drawn_tree, tree_, drawn_chain, prompt = requests
        p = probabilities(logits)
        assert found[prompt] == [inverse(p[-1], rng_at(seed, 2).random())]
        for r, begun, parents in ((drawn_tree, 0, tree), (drawn_chain, 12, (-1, 0))):
            n, at, rank = len(parents), depths(parents), ranks(parents)
            verdicts = [
                rng_at(seed, r.length + d, JUDGED + 2 * k).random() for d, k in zip(at, rank)
            ]
            numbers = [rng_at(seed, r.length + d).random() for d in (0, *(1 + d for d in at))]
            rows = p[begun : begun + n + 1]
            path, token = accept_tree(rows, r.draft.tokens, parents, r.draft.q, verdicts, numbers)
            assert found[r] == [*(r.draft.tokens[j] for j in path), token]
            paths.add((r.name, *path))
        ahead = (0, *(1 + d for d in depths(tree)))
        tokens = [
            inverse(row, rng_at(seed, tree_.length + d).random())
            for row, d in zip(p[6:12], ahead, strict=True)
        ]
        assert found[tree_] == accept_matching(tokens, tree_.draft.tokens, tree)
        paths.add((2, *tree_.draft.path(found[tree_][:-1])))
    assert paths > {(1,), (1, 0), (1, 1, 3), (1, 1, 4), (2,), (2, 0), (2, 1), (3, 0, 1)}


def test_no_random_number_of_a_step_is_used_twice() -> None:
    """Every guess is drawn, judged and replaced by different numbers: siblings share none."""
    tree = branches(5, 2)
    drafter = DraftModel(table(), max_seqs=1, tree=tree)
    drawn: list[float] = []
    judged: list[tuple[Sequence[float], ...]] = []

    def draw(q: np.ndarray, numbers: Sequence[float]) -> list[int]:
        drawn.extend(numbers)
        return list(range(len(numbers)))

    def judge(p: np.ndarray, tokens: list[int], parents: Sequence[int], q: np.ndarray, *two):
        assert tuple(parents) == tree
        judged.append(two)
        return accept_tree(p, tokens, parents, q, *two)

    scheduler = Scheduler(table(), table().new_cache(1), drafter=drafter, gamma=len(tree))
    scheduler.add("a", [1], 20, temperature=1.0, seed=7)
    scheduler.step()
    with (
        patch.object(draft_model, "without_replacement", draw),
        patch.object(checking, "accept_tree", judge),
    ):
        scheduler.step()
    ((verdicts, numbers),) = judged
    levels = dict(zip(zip(depths(tree), ranks(tree)), verdicts))
    assert verdicts == [levels[place] for place in zip(depths(tree), ranks(tree))]
    every = [*drawn, *levels.values(), *set(numbers)]
    assert len(drawn) == len(tree) == 15 and len(levels) == 7 and len(set(numbers)) == 3
    assert len(set(every)) == len(every)


def test_drawn_trees_keep_the_law(requests: int = number(quick=100, usual=500, whole=50_000)):
    """Tokens 2 and 3 of texts with different seeds: drafter, verdicts and draws together."""
    model, small = table(), table()
    small.shift = 3  # its tables are others
    drafter = DraftModel(small, max_seqs=50, tree=branches(2, 2))
    counts = np.zeros((V, V))
    for first in range(0, requests, 50):
        cache = DenseCache(model.layer_specs, 50, 8)
        scheduler = Scheduler(model, cache, drafter=drafter, gamma=6, max_prefills=None)
        for seed in range(first, first + 50):
            scheduler.add(seed, [1], 8, temperature=1.0, seed=seed)
        scheduler.step()
        scheduler.step()
        for r in scheduler.requests.values():
            while len(r.new) < 3:
                scheduler.step()
            counts[r.new[1], r.new[2]] += 1
        scheduler.close()
    p = [probabilities(LOGITS[:, at % PLACES]) for at in range(3)]
    law = (p[0][1] @ p[1])[:, None] * p[2]
    # χ² with 48 degrees of freedom: chance exceeds 73.7 in 1 of 100 trials
    assert chi_square(counts.ravel(), law.ravel()) < 73.7


@pytest.mark.untraced
def test_a_drawn_guess_comes_from_the_distribution_it_states(texts=2000) -> None:
    """2,000 texts of one length, two guesses each: the second depends on the first."""
    drafter, text = DraftModel(lower_layers(MODEL, 1), paged(MODEL_1, 8)), [1, 2, 3]
    drafts = []
    for seed in range(texts):
        found = drafter.draft([Text("a", text, 2, temperature=0.4, seed=seed)])
        drafter.free("a")
        drafts.append(found[0])
    q = drafts[0].q[0]
    assert all((d.q[0] == q).all() for d in drafts)
    often = q * len(drafts) >= 20  # the others are counted together
    counts = np.bincount([d.tokens[0] for d in drafts], minlength=VOCABULARY)
    cells = np.append(q[often], q[~often].sum())
    counts = np.append(counts[often], counts[~often].sum())
    degrees = len(cells) - 1
    assert degrees >= 5
    # χ² with n degrees has mean n and variance 2 n
    assert chi_square(counts, cells) < degrees + 4 * (2 * degrees) ** 0.5
    after = {d.tokens[0]: d.q[1] for d in drafts}
    assert all((d.q[1] == after[d.tokens[0]]).all() for d in drafts)


# What drafters make -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("model", [MODEL, HYBRID], ids=["keeps all", "windows"])
def test_a_draft_model_guesses_as_if_it_had_read_the_text_anew(model, temperature) -> None:
    """Whatever it guessed before: a guess may be wrong, and the next one right by chance."""
    small, rng, text = lower_layers(model, 2), np.random.default_rng(0), [1, 2, 3]
    drafter = DraftModel(small, max_seqs=2)
    for _ in range(25):
        asked = Text("a", list(text), 4, temperature=temperature, seed=1)
        found = drafter.draft([asked])[0]
        fresh = DraftModel(small, max_seqs=1).draft([asked])[0]
        assert list(found.tokens) == list(fresh.tokens)
        if found.q is not None:
            np.testing.assert_allclose(found.q, fresh.q, atol=1e-12)
        kept = list(found.tokens[: int(rng.integers(0, 5))])
        if len(kept) < 3:  # one wrong guess, the next as it was guessed
            kept = [*kept, (found.tokens[len(kept)] + 1) % VOCABULARY, found.tokens[len(kept) + 1]]
        text += [*kept, int(rng.integers(0, VOCABULARY))]


@pytest.mark.parametrize("model", [MODEL, HYBRID], ids=["keeps all", "windows"])
@pytest.mark.parametrize(
    "tree", [branches(3, 2, 2), best_tree([0.5, 0.3, 0.2], 14), branches(1, 1, 1, 2, 2)]
)
def test_a_draft_model_makes_the_likeliest_guesses(model, tree) -> None:
    """After each guess those that the small model would choose if it read the path anew."""
    small, rng = lower_layers(model, 2), np.random.default_rng(0)
    drafter, text = DraftModel(small, max_seqs=2, tree=tree), [1, 2, 3]
    for _ in range(6):
        most = int(rng.integers(3, 16))
        draft, other = drafter.draft([Text("a", list(text), most), Text("b", [5], 2)])
        assert draft.parents == tree[:most] and other.parents == tree[:2] and draft.q is None
        for at in {-1, *draft.parents}:
            path = []
            while at >= 0:
                path, at = [draft.tokens[at], *path], draft.parents[at]
            siblings = [j for j in range(len(draft.tokens)) if spelt(draft, j)[:-1] == path]
            logits = read_anew(small, [*text, *path])
            assert [draft.tokens[j] for j in siblings] == np.argsort(-logits)[
                : len(siblings)
            ].tolist()
        text += [*spelt(draft, int(rng.integers(0, len(draft.tokens)))), int(rng.integers(0, 31))]


def spelt(draft: Draft, at: int) -> list[int]:
    return [*spelt(draft, draft.parents[at]), draft.tokens[at]] if at >= 0 else []


def read_anew(model: Decoder, text: list[int]) -> np.ndarray:
    cache = model.new_cache(1)
    cache.add("x")
    return model.forward(text, cache, cache.plan(["x"], [len(text)]))[0]


def test_drawn_siblings_differ_and_state_their_distribution() -> None:
    small = lower_layers(MODEL, 1)
    drafter = DraftModel(small, max_seqs=1, tree=branches(3, 2))
    p = probabilities(read_anew(small, [1, 2, 3])[None], 1.0, 4)[0]
    for seed in range(20):
        (draft,) = drafter.draft([Text("a", [1, 2, 3], 9, 1.0, 4, seed=seed)])
        drafter.free("a")
        assert draft.parents == branches(3, 2) and len(set(draft.tokens[:3])) == 3
        np.testing.assert_allclose(draft.q[:3], [p] * 3, atol=1e-12)
        assert all(draft.q[j, token] > 0 for j, token in enumerate(draft.tokens))
        after = probabilities(read_anew(small, [1, 2, 3, draft.tokens[1]])[None], 1.0, 4)[0]
        np.testing.assert_allclose(draft.q[5:7], [after] * 2, atol=1e-12)


def test_a_distribution_of_few_tokens_gives_few_siblings() -> None:
    drafter = DraftModel(lower_layers(MODEL, 1), max_seqs=1, tree=branches(3, 3))
    (draft,) = drafter.draft([Text("a", [1, 2, 3], 12, 1.0, top_k=2)])
    assert draft.parents == branches(2, 2)
    (draft,) = drafter.draft([Text("a", [1, 2, 3], 12, 1.0, top_k=1)])
    assert draft.parents == (-1, 0) and draft.tokens[0] == int(draft.q[0].argmax())


def test_a_draft_model_without_room_guesses_nothing() -> None:
    texts = [Text(name, [1, 2, 3], 3) for name in "abc"]
    drafts = DraftModel(OTHER, max_seqs=2).draft(texts)
    assert [len(d.tokens) for d in drafts] == [3, 3, 0]
    tiny = DraftModel(OTHER, DenseCache(OTHER.layer_specs, 1, 4, dtype=np.float64))
    assert [len(d.tokens) for d in tiny.draft(texts[:1])] == [2]  # and its own limit of 4 tokens
    long = [Text("d", [1] * 510, 3)]
    assert [len(d.tokens) for d in DraftModel(OTHER, max_seqs=1).draft(long)] == [0]


@pytest.mark.parametrize("most_places", [1, 3])
def test_a_lookup_merges_what_followed_at_several_places(most_places: int) -> None:
    """The definition: the longest match first, of several the latest, at most so many matches."""
    drafter, rng = PromptLookup(longest=4, shortest=1, places=most_places), np.random.default_rng(2)
    text, branched = [0], 0
    for _ in range(150):
        text = [*text, int(rng.integers(0, 3))]
        (draft,) = drafter.draft([Text("a", text, 6)])
        places = []
        for n in range(min(4, len(text) - 1), 0, -1):
            starts = [s for s in range(len(text) - n - 1, -1, -1) if text[s : s + n] == text[-n:]]
            places += [s + n for s in starts if s + n not in places]
        expected = {tuple(text[at : at + n]) for at in places[:most_places] for n in range(1, 7)}
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        found = [tuple(spelt(Draft(draft.tokens, parents=parents), j)) for j in range(len(parents))]
        lengths = [len(path) for path in found]
        assert len(set(found)) == len(found) == min(6, len({p for p in expected if p}))
        assert set(found) <= expected and lengths == sorted(lengths)
        assert not places or found[0] == (text[places[0]],)
        branched += len(set(parents)) < len(found)
    assert branched > 50 if most_places > 1 else not branched


# What it gains ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chances", "tree"), [([0.5, 0.2, 0.1], best_tree([0.5, 0.2, 0.1], 10)), (0.8, None)]
)
def test_expected_tokens_agree_with_what_is_counted(chances, tree) -> None:
    expected = expected_tree_tokens(tree, chances) if tree else expected_tokens(0.8, 10)
    gained, seeds = [], number(quick=4, usual=8, whole=80)
    text = continued([1], 90)
    for seed in range(seeds):
        drafter = Rehearsed({"a": text}, chances, V, seed, tree=tree)
        model = table()
        scheduler = Scheduler(model, STORES["dense"](model), drafter=drafter, gamma=10)
        scheduler.add("a", [1], 90)
        before = 0
        while scheduler.busy:
            whole = any(e.kind == "decode" and e.tokens == 11 for e in scheduler.step())
            gained += [len(scheduler.requests["a"].new) - before] * whole
            before = len(scheduler.requests["a"].new)
    error = np.std(gained) / len(gained) ** 0.5
    assert abs(np.mean(gained) - expected) < 4 * error


def test_formulas_have_the_published_values() -> None:
    """FLOPs aside: arXiv:2211.17192, equation 1 and theorem 3.8."""
    assert round(expected_tokens(0.8, 4), 3) == 3.362
    for cost, best in ((0.05, [(0.5, 3, 1.630), (0.7, 6, 2.353), (0.8, 8, 3.092)]),):
        for a, gamma, gain in best:
            assert best_gamma(a, cost) == gamma
            assert round(speed_up(a, gamma, cost), 3) == gain
    assert best_gamma(0.1, cost=0.2) == 0
    losing = [round(speed_up(0.5, gamma, 0.2), 3) for gamma in (1, 5, 7)]
    assert losing == [1.25, 0.984, 0.83]


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafts", "words"), [
    (None, "must return a list of 1 Drafts"), ([], "must return a list of 1 Drafts"),
    ([[1]], "must be a Draft"),
    ([Draft([1, 2, 3, 4, 5])], "at most 4 tokens, got 5"),
    ([Draft([31])], "0 ... 30, got 31"), ([Draft([1.0])], "token ids"),
    ([Draft([1], np.ones((1, 4)))], r"shape \(1, 31\)"),
])
def test_a_drafter_that_answers_nonsense_is_named(drafts, words) -> None:
    class Odd(Drafter):
        def draft(self, texts):
            return drafts

    cache = CACHES["blocks of 4"](MODEL)
    scheduler = Scheduler(MODEL, cache, drafter=Odd())
    scheduler.add("a", [1, 2, 3], 8)
    scheduler.step()
    before = cache.seq_len("a"), list(scheduler.requests["a"].new)
    with pytest.raises((ValueError, TypeError), match=words):
        scheduler.step()
    assert (cache.seq_len("a"), list(scheduler.requests["a"].new)) == before
    scheduler.decoding = Decoding()
    assert len(scheduler.run()["a"]) == 8


CACHE = MODEL.new_cache(1)


@pytest.mark.parametrize(("build", "words"), [
    (lambda: Scheduler(MODEL, CACHE, drafter="x"), "drafter must be a kvlib.speculation.Draft"),
    (lambda: Scheduler(MODEL, CACHE, drafter=PromptLookup), "instance .*class PromptLookup"),
    (lambda: PromptLookup(longest=1, shortest=2), "longest"),
    (lambda: PromptLookup(places=0), "places"), (lambda: lower_layers(MODEL, 3), "layers"),
    (lambda: DraftModel(MODEL, tree=(-1, 1)), r"tree\[1\] must be -1 or the number of an earl"),
    (lambda: Rehearsed({}, [0.4, 0.2], V), "probability for a chain, and a list for a tree"),
    (lambda: Rehearsed({}, [0.8, 0.4], V, tree=branches(2)), "together at most 1"),
    (lambda: Rehearsed({}, [0.4], 3, tree=branches(3)), "vocabulary must be .* at least 4"),
])
def test_bad_settings_are_refused(build, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        build()

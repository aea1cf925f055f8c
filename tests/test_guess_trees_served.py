"""Trees of guesses in the scheduler: no token changes, and the cache holds what it held without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from effort import LEVEL, number
from models import decoder
from test_guess_trees import chi_square
from test_speculation import ALONE, HYBRID, MODEL, NEW, TEXTS, VOCABULARY, paged, serve

from kvlib import BlockPool, Decoder, DenseCache, PagedCache, QuantizedCache, Scheduler
from kvlib.caches import Quest
from kvlib.caches.trees import depths
from kvlib.codecs import kivi
from kvlib.serve import DECODING, Request, probabilities, rng_at
from kvlib.serve.request import Decoding
from kvlib.speculation import (
    Draft,
    Drafter,
    DraftModel,
    PromptLookup,
    Rehearsed,
    Text,
    accept_tree,
    adaptive,
    best_tree,
    branches,
    checking,
    draft_model,
    expected_tree_tokens,
    lower_layers,
)
from kvlib.speculation.acceptance import JUDGED, inverse
from kvlib.speculation.checking import Speculation, accept_matching
from kvlib.speculation.draft import ranks


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


RIGHT = {id(m): {i: TEXTS[i] + new for i, new in ALONE[id(m)].items()} for m in (MODEL, HYBRID)}
CACHES = {
    "dense": lambda m: DenseCache(m.layer_specs, 8, 400, dtype=np.float64),
    "blocks of 4, room for 2 of 8": lambda m: paged(m, 30 + 6 * NEW // 10),
}
if LEVEL == "whole":
    CACHES["blocks of 4"] = lambda m: paged(m, 8 * 100 * 3)
DRAFTERS = {
    "sower": lambda m: Sower(RIGHT[id(m)]),
    "lower layers": lambda m: DraftModel(lower_layers(m, 1), tree=branches(3, 2, 1)),
    "itself": lambda m: DraftModel(m, paged(m, 1500), tree=best_tree([0.6, 0.3], 9)),
    "lookup": lambda m: PromptLookup(longest=3, shortest=1, places=3),
    "rehearsed": lambda m: Rehearsed(
        RIGHT[id(m)], [0.5, 0.3], VOCABULARY, tree=best_tree([0.5, 0.3], 9)
    ),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("where", CACHES)
def test_tokens_are_those_without_guesses(name: str, where: str) -> None:
    """Eight texts a case and model; with preemptions where the cache has room for two of them."""
    both = [(MODEL, 12, None), (HYBRID, adaptive(most=9), 23)]
    if LEVEL != "whole":  # in turn
        both = [both[(list(DRAFTERS).index(name) + list(CACHES).index(where)) % 2]]
    for model, gamma, budget in both:
        cache, drafter = CACHES[where](model), DRAFTERS[name](model)
        found = serve(model, cache, drafter, TEXTS, gamma=gamma, budget=budget)
        assert {i: r.new for i, r in found.requests.items()} == ALONE[id(model)]
        assert ("room" in where) == any(e.kind == "preempt" for e in found.events)
        fed = {}
        for e in found.events:
            fed[e.step] = fed.get(e.step, 0) + e.tokens * (e.kind in ("decode", "prefill"))
        assert budget is None or max(fed.values()) <= budget
        assert name != "sower" or drafter.trees > 20


@cache
def drawn_texts() -> dict[int, list[int]]:
    plain = serve(MODEL, CACHES["dense"](MODEL), None, [0, 1], temperature=1.5)
    return {i: TEXTS[i] + r.new for i, r in plain.requests.items()}


@pytest.mark.parametrize("batch", [1, 2, 8])
@pytest.mark.parametrize("gamma", [1, 3, 40])
def test_any_number_of_guesses_and_of_requests(gamma: int, batch: int) -> None:
    """Also for draws, because a guess that was not drawn equals the drawn token or is refused."""
    names = list(TEXTS)[:batch]
    found = serve(MODEL, CACHES["dense"](MODEL), Sower(RIGHT[id(MODEL)]), names, gamma=gamma)
    assert all(found.requests[i].new == ALONE[id(MODEL)][i] for i in names)
    drawn = drawn_texts()
    found = serve(
        MODEL, CACHES["dense"](MODEL), Sower(drawn), names[:2], temperature=1.5, gamma=gamma
    )
    assert all(TEXTS[i] + r.new == drawn[i] for i, r in found.requests.items())


def test_drawn_trees_repeat_with_their_seed_in_any_company() -> None:
    for small in (lower_layers(MODEL, 1), MODEL):
        drafter = [DraftModel(small, tree=branches(2, 2)) for _ in range(4)]
        together = serve(MODEL, paged(MODEL, 3000), drafter[3], [0, 1, 2], 1.0, gamma=6)
        for i in (0, 1, 2):
            alone = serve(MODEL, CACHES["dense"](MODEL), drafter[i], [i], 1.0, gamma=6)
            assert alone.requests[i].new == together.requests[i].new
        right = [e for e in together.events if e.kind == "accept"]
        assert len(right) == sum(r.accepted for r in together.requests.values()) > 20
        if small is MODEL:  # p = q: the first guess of each level is right, up to rounding
            assert all(e.tokens == 0 for e in right)
            full = [e for e in together.events if e.kind == "decode" and e.tokens == 7]
            assert len(right) >= 2 * len(full) > 20


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
    """To the byte, in every fifth step, whatever was kept and forgotten before."""
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
        ("decode", 6, x),
        ("accept", 0, y),
        ("accept", 0, z),
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
    """Or forgotten with its request."""

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
    """And no token is lost: without the drafter it goes on."""

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


def test_each_guess_is_judged_by_its_own_row_and_stream() -> None:
    """Three requests of one step: a tree that was drawn, one that was not, and a chain."""
    q = np.array([[0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.1]] * 5)
    tree = (-1, -1, 0, 1, 1)
    drafts = [
        Draft([2, 1, 5, 2, 4], q, tree),
        Draft([6, 2, 1, 3, 0], None, tree),
        Draft([1, 2], q[:2]),
    ]
    paths = set()
    for seed in range(60):
        logits = np.random.default_rng(seed).standard_normal((6 + 6 + 3, V))
        state = dict(state=DECODING, temperature=1.0, seed=seed)
        requests = [
            Request(i, [1] * i, new=[3], held=i, draft=draft, **state)
            for i, draft in enumerate(drafts, start=1)
        ]
        feed = {r: r.next_tokens(9) for r in requests}
        guesses = Speculation(MODEL, MODEL.new_cache(1), PromptLookup(), 5)
        found = guesses.tokens(feed, logits[guesses.logit_rows(feed)])
        drawn_tree, tree_, drawn_chain = requests
        p = probabilities(logits)
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
    """Every guess is drawn, judged and replaced by numbers of its own: siblings share none."""
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


# What drafters make -------------------------------------------------------------------------------


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


def test_a_lookup_merges_what_followed_at_several_places() -> None:
    """The definition: the longest match first, of several the latest, at most three places."""
    drafter, rng = PromptLookup(longest=4, shortest=1, places=3), np.random.default_rng(2)
    text, branched = [0], 0
    for _ in range(150):
        text = [*text, int(rng.integers(0, 3))]
        (draft,) = drafter.draft([Text("a", text, 6)])
        places = []
        for n in range(min(4, len(text) - 1), 0, -1):
            starts = [s for s in range(len(text) - n - 1, -1, -1) if text[s : s + n] == text[-n:]]
            places += [s + n for s in starts if s + n not in places]
        expected = {tuple(text[at : at + n]) for at in places[:3] for n in range(1, 7)}
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        found = [tuple(spelt(Draft(draft.tokens, parents=parents), j)) for j in range(len(parents))]
        lengths = [len(path) for path in found]
        assert len(set(found)) == len(found) == min(6, len({p for p in expected if p}))
        assert set(found) <= expected and lengths == sorted(lengths)
        assert not places or found[0] == (text[places[0]],)
        branched += len(set(parents)) < len(found)
    assert branched > 50


def test_expected_tokens_of_a_tree_agree_with_what_is_counted() -> None:
    chances = [0.5, 0.2, 0.1]
    tree = best_tree(chances, 10)
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
    assert abs(np.mean(gained) - expected_tree_tokens(tree, chances)) < 4 * error


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tree\[1\] must be -1 or the number of an earlier guess"):
        DraftModel(MODEL, tree=(-1, 1))
    with pytest.raises(ValueError, match="places"):
        PromptLookup(places=0)
    with pytest.raises(ValueError, match="one probability for a chain, and a list for a tree"):
        Rehearsed({}, [0.4, 0.2], V)
    with pytest.raises(ValueError, match="together at most 1"):
        Rehearsed({}, [0.8, 0.4], V, tree=branches(2))
    with pytest.raises(ValueError, match="vocabulary must be an integer of at least 4"):
        Rehearsed({}, [0.4], 3, tree=branches(3))

"""Guessing changes no token: whatever a drafter says, in every cache, with every setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from effort import number
from models import decoder, text

from kvlib import BlockPool, DenseCache, PagedCache, QuantizedCache, Scheduler, generate
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
    accept,
    adaptive,
    best_gamma,
    expected_tokens,
    lower_layers,
    speed_up,
)
from kvlib.speculation.acceptance import DRAFTED, JUDGED, inverse
from kvlib.speculation.checking import Speculation

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
DRAFTERS = {
    "lookup": lambda m: PromptLookup(longest=3, shortest=1),
    "lower layers": lambda m: DraftModel(lower_layers(m, 1)),
    "another model": lambda m: DraftModel(OTHER, max_seqs=3),
    "itself": lambda m: DraftModel(m, paged(m, 1500)),
    "rehearsed": lambda m: Rehearsed(
        {i: TEXTS[i] + new for i, new in ALONE[id(m)].items()}, 0.8, VOCABULARY
    ),
    "coin": lambda m: Coin(),
}


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
    for model, gamma, budget in ((MODEL, 4, None), (HYBRID, adaptive(most=7), 19)):
        cache = CACHES[where](model)
        found = serve(model, cache, DRAFTERS[name](model), TEXTS, gamma=gamma, budget=budget)
        assert {i: r.new for i, r in found.requests.items()} == ALONE[id(model)]
        if "room" in where:
            assert any(e.kind == "preempt" for e in found.events)
        if name == "itself" and budget is None and "room" not in where:
            assert found.num_steps < NEW / 2 + 10
        fed = {}
        for e in found.events:
            fed[e.step] = fed.get(e.step, 0) + e.tokens * (e.kind in ("decode", "prefill"))
        assert budget is None or max(fed.values()) <= budget


@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 9, 200])
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_any_number_of_guesses_and_of_requests(gamma: int, batch: int) -> None:
    names = list(TEXTS)[:batch]
    drafter = DRAFTERS["rehearsed"](MODEL)
    found = serve(MODEL, CACHES["dense"](MODEL), drafter, names, gamma=gamma)
    assert all(found.requests[i].new == ALONE[id(MODEL)][i] for i in names)
    assert all(r.accepted <= r.drafted for r in found.requests.values())
    assert (sum(r.drafted for r in found.requests.values()) > 0) == (gamma > 0)


@pytest.mark.parametrize("name", ["lookup", "rehearsed", "coin"])
def test_guesses_that_were_not_drawn_change_no_draw(name: str) -> None:
    """At a temperature, too: they equal the token that the seed draws, or are refused."""
    reference = alone(MODEL, temperature=1.5)
    drafter = DRAFTERS[name](MODEL)
    if name == "rehearsed":
        drafter = Rehearsed({i: TEXTS[i] + t for i, t in reference.items()}, 0.8, VOCABULARY)
    found = serve(MODEL, CACHES["dense"](MODEL), drafter, TEXTS, temperature=1.5)
    assert {i: r.new for i, r in found.requests.items()} == reference


@pytest.mark.parametrize("name", ["lower layers", "another model", "itself"])
def test_drawn_guesses_repeat_with_their_seed_in_any_company(name: str) -> None:
    together = serve(MODEL, paged(MODEL, 3000), DRAFTERS[name](MODEL), [0, 1, 2], temperature=1.0)
    for i in (0, 1, 2):
        single = serve(MODEL, CACHES["dense"](MODEL), DRAFTERS[name](MODEL), [i], temperature=1.0)
        assert single.requests[i].new == together.requests[i].new
    if name == "itself":  # p = q: all right, up to rounding
        assert all(r.accepted == r.drafted for r in together.requests.values())


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


def test_the_cache_holds_what_it_would_hold_without_guesses() -> None:
    """To the byte, in all its arrays that hold tokens, whatever was stored of wrong guesses."""
    spec = MODEL.layer_specs
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 90, 2, 8)).astype(np.float32)
    for make in (
        lambda: DenseCache(spec, 1, 100),
        lambda: PagedCache(spec, BlockPool(40, 4)),
        lambda: QuantizedCache(spec, kivi(4, group=8, residual=8), 1, 104),
        lambda: PagedCache(spec, BlockPool(20, 8), codec=kivi(4, group=8, residual=8)),
        lambda: DenseCache(HYBRID.layer_specs, 1, 100),
    ):
        cache, plain = make(), make()
        for c in (cache, plain):
            for x in c.storage():
                x.view(np.uint8)[...] = 255
            c.add("a")
            append(c, k[:7], v[:7])
        length = 7
        while length < 80:
            gamma, right = int(rng.integers(0, 6)), 0
            right = int(rng.integers(0, gamma + 1))
            wrong = rng.standard_normal((2, gamma - right, 2, 8)).astype(np.float32)
            end = length + 1 + right
            append(cache, *(np.concat([x[length:end], w]) for x, w in zip((k, v), wrong)))
            cache.truncate("a", end)
            for at in range(length, end):
                append(plain, k[at : at + 1], v[at : at + 1])
            length = end
        for c in (cache, plain):  # a window gives tokens back in the next plan
            append(c, k[-1:], v[-1:])
        for layer in range(len(cache.layers)):
            for x, y in zip(cache.read(layer, "a"), plain.read(layer, "a"), strict=True):
                assert x.dtype == y.dtype and x.tobytes() == y.tobytes()
        assert cache.memory().payload == plain.memory().payload


def append(cache, k, v) -> None:
    step = cache.plan(["a"], [len(k)])
    for layer in range(len(cache.layers)):
        cache.append(layer, k, v, step)


def test_prefixes_are_published_from_accepted_tokens_only() -> None:
    cache = paged(MODEL, 600)
    serve(MODEL, cache, Coin(1), [0, 1], gamma=9)
    right = {i: TEXTS[i] + ALONE[id(MODEL)][i] for i in (0, 1)}
    for tokens in right.values():
        held = cache.add("again", [*tokens, 0])
        assert held % 4 == 0 and held >= len(tokens) - 5  # all full blocks of the true text
        k, _, _ = cache.read(0, "again")
        cache.free("again")
        fresh = paged(MODEL, 600)
        fresh.add("a")
        step = fresh.plan(["a"], [len(tokens)])
        MODEL.forward(tokens, fresh, step)
        np.testing.assert_allclose(k, fresh.read(0, "a")[0][:held], atol=1e-12)
        for wrong in range(VOCABULARY):  # and no block of a guess that was refused
            other = [*tokens[:8], wrong, *tokens[9:]]
            if wrong != tokens[8]:
                assert cache.add("other", other) <= 8
                cache.free("other")


# Distributions ----------------------------------------------------------------------------------

# χ² with 7 degrees of freedom: what chance exceeds in 1 of 100 and in 1 of 10^6 trials
CHI_1, CHI_MILLIONTH = 18.475, 40.522


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    expected = p * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def distributions(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(8), rows)


@pytest.mark.untraced
def test_first_and_second_tokens_are_distributed_as_the_model_says(draws=100_000) -> None:
    """100,000 draws: the first token as p, and the second as p after the first."""
    p, q = distributions(1, 3), distributions(2, 2)
    first, second = np.zeros(8), np.zeros(8)
    for u in np.random.default_rng(0).random((draws, 7)):
        draft = [inverse(q[i], u[i]) for i in (0, 1)]
        found = accept(p, draft, q, u[2:4], u[4:])
        first[found[0]] += 1
        if len(found) > 1:
            second[found[1]] += 1
    assert chi_square(first, p[0]) < CHI_1
    assert chi_square(second, p[1]) < CHI_1


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


def test_the_biased_control_is_found_out() -> None:
    """A redraw from p in place of max(0, p − q) is the mistake that this test exists for."""
    p, q = distributions(1, 1)[0], distributions(2, 1)[0]
    rng = np.random.default_rng(3)
    x = rng.choice(8, 100_000, p=q)
    taken = rng.random(100_000) < p[x] / q[x]
    x[~taken] = rng.choice(8, int((~taken).sum()), p=p)
    assert chi_square(np.bincount(x, minlength=8).astype(float), p) > CHI_MILLIONTH


def test_acceptance_is_what_the_distributions_share() -> None:
    p, q = distributions(1, 2), distributions(2, 1)
    u = np.random.default_rng(5).random((4000, 4))
    right = sum(len(accept(p, [inverse(q[0], x[0])], q, x[1:2], x[2:])) == 2 for x in u)
    share = float(np.minimum(p[0], q[0]).sum())
    assert abs(right / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def true_rows(text: list[int], start: int) -> np.ndarray:
    """What the model says after each token of a text, from number `start` on."""
    alone = DenseCache(MODEL.layer_specs, 1, 40, dtype=np.float64)
    alone.add("x")
    rows = MODEL.forward(text, alone, alone.plan(["x"], [len(text)]), "all")
    return probabilities(rows[start:, :])


@pytest.mark.parametrize("seed", range(6))
def test_each_request_is_judged_by_its_own_rows(seed: int) -> None:
    """Three requests in one step: a prompt, guesses that were drawn, guesses that were not."""
    first = true_rows([1, 2, 3], 2)[0]
    guess = int(first.argmax())
    q = np.stack([first, first])
    q[0, guess] *= 2  # so that it is right about every other time
    q[0] /= q[0].sum()
    cache = DenseCache(MODEL.layer_specs, 3, 40, dtype=np.float64)
    state = dict(state=DECODING, temperature=1.0, seed=seed)
    a, b, c = requests = [
        Request("a", [1, 2, 3], temperature=1.0, seed=seed),
        Request("b", [1, 2], new=[3], held=2, draft=Draft([guess, 5], q), **state),
        Request("c", [1], new=[3], held=1, draft=Draft([6]), **state),
    ]
    for r in requests:
        cache.add(r.name)
    MODEL.forward([1, 2, 1], cache, cache.plan(["b", "c"], [2, 1]))
    feed = {r: r.next_tokens(3) for r in requests}
    guesses = Speculation(MODEL, cache, PromptLookup(), 2)
    fed = [t for part in feed.values() for t in part]
    step = cache.plan(["a", "b", "c"], [3, 3, 2], fed, **guesses.parents(feed))
    rows = guesses.logit_rows(feed)
    assert rows == [2, 3, 4, 5, 6, 7]
    found = guesses.tokens(feed, MODEL.forward(fed, cache, step, rows))
    p = {
        r: true_rows([*r.text, *(r.draft.tokens if r.draft else ())], r.length - 1)
        for r in requests
    }
    assert found[a] == [inverse(p[a][0], rng_at(seed, 3).random())]
    verdicts = [rng_at(seed, 3 + i, JUDGED).random() for i in range(2)]
    numbers = [rng_at(seed, 3 + i).random() for i in range(3)]
    assert found[b] == accept(p[b], [guess, 5], q, verdicts, numbers)
    drawn = [inverse(p[c][i], rng_at(seed, 2 + i).random()) for i in (0, 1)]
    assert found[c] == (drawn if drawn[0] == 6 else drawn[:1])


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


# What drafters keep ------------------------------------------------------------------------------


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


def test_a_draft_model_without_room_guesses_nothing() -> None:
    texts = [Text(name, [1, 2, 3], 3) for name in "abc"]
    drafts = DraftModel(OTHER, max_seqs=2).draft(texts)
    assert [len(d.tokens) for d in drafts] == [3, 3, 0]
    tiny = DraftModel(OTHER, DenseCache(OTHER.layer_specs, 1, 4, dtype=np.float64))
    assert [len(d.tokens) for d in tiny.draft(texts[:1])] == [2]  # and its own limit of 4 tokens
    long = [Text("d", [1] * 510, 3)]
    assert [len(d.tokens) for d in DraftModel(OTHER, max_seqs=1).draft(long)] == [0]


def test_a_lookup_guesses_what_followed_last() -> None:
    """The definition: of the longest run that ends the text and stands in it before, the latest."""
    drafter, rng, text = PromptLookup(longest=4, shortest=1), np.random.default_rng(2), [0]
    for _ in range(300):
        text = [*text, int(rng.integers(0, 3))]
        found = drafter.draft([Text("a", text, 3)])[0].tokens
        assert found == by_definition(text, 4, 1, 3)


def by_definition(text: list[int], longest: int, shortest: int, most: int) -> list[int]:
    for n in range(min(longest, len(text) - 1), shortest - 1, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + most]
    return []


# What it gains ----------------------------------------------------------------------------------


def test_expected_tokens_agree_with_what_is_counted() -> None:
    """1 + a + a² + … against steps of a drafter whose guesses are right with probability 0.8."""
    texts = {i: TEXTS[i] + new for i, new in ALONE[id(MODEL)].items()}
    tokens = steps = 0
    for seed in range(4):
        drafter = Rehearsed(texts, 0.8, VOCABULARY, seed)
        found = serve(MODEL, CACHES["dense"](MODEL), drafter, TEXTS, gamma=4, max_prefills=None)
        decodes = [e for e in found.events if e.kind == "decode" and e.tokens == 5]
        steps += len(decodes)
        tokens += sum(r.accepted for r in found.requests.values())
    # those near the end of a text have fewer guesses and are left out of the steps; bounds for 4 σ
    mean, spread = expected_tokens(0.8, 4), 1.6
    per_step = 1 + tokens / steps
    assert abs(per_step - mean) < 4 * spread / steps**0.5 + 0.05


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


@pytest.mark.parametrize(
    ("drafts", "words"),
    [
        (None, "must return a list of 1 Drafts"),
        ([], "must return a list of 1 Drafts"),
        ([[1]], "must be a Draft"),
        ([Draft([1, 2, 3, 4, 5])], "at most 4 tokens, got 5"),
        ([Draft([31])], "0 ... 30, got 31"),
        ([Draft([1.0])], "token ids"),
        ([Draft([1], np.ones((1, 4)))], r"shape \(1, 31\)"),
    ],
)
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


def test_bad_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="drafter must be a kvlib.speculation.Drafter"):
        Scheduler(MODEL, CACHES["dense"](MODEL), drafter="lookup")
    with pytest.raises(TypeError, match="an instance .*, got the class PromptLookup"):
        Scheduler(MODEL, CACHES["dense"](MODEL), drafter=PromptLookup)
    for wrong in (-1, 1.5, "4", True):
        with pytest.raises(ValueError, match="gamma must be an integer"):
            generate(MODEL, [[1]], drafter=PromptLookup(), gamma=wrong)
    with pytest.raises(ValueError, match="longest"):
        PromptLookup(longest=1, shortest=2)
    with pytest.raises(ValueError, match="layers"):
        lower_layers(MODEL, 3)

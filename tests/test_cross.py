"""Cross-attention: a text that is stored once and seen by every query of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bart import Bart
from caches import feed

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache
from kvlib.caches import Scored, Sinks, cross_step, run_alone, run_cascade
from kvlib.caches.retention.policies import KNorm

GOLDEN = Path(__file__).parent / "golden" / "bart.npz"
START = 2  # what BART's decoder begins with


class Golden:
    """transformers' own numbers, and the model that they came from."""

    def __init__(self) -> None:
        found = np.load(GOLDEN)
        self.bart = Bart({x: found[x] for x in found.files if x.startswith("model.")}, heads=3)
        cuts = np.cumsum(found["lengths"])[:-1]
        self.texts = [x.tolist() for x in np.split(found["texts"], cuts)]
        self.states = np.split(found["states"], cuts)
        self.given, self.greedy = found["given"].tolist(), found["greedy"].tolist()
        self.logits = found["logits"]


GIVEN = Golden()
HOMES: dict[str, Any] = {
    "rows": lambda specs, **more: DenseCache(specs, 6, 32, xp=np, **more),
    "blocks of 4": lambda specs, **more: PagedCache(specs, BlockPool(60, 4), xp=np, **more),
    "blocks, cascade": lambda specs: PagedCache(
        specs, BlockPool(60, 4), xp=np, attention=run_cascade
    ),
    "one by one": lambda specs: DenseCache(specs, 6, 32, xp=np, attention=run_alone),
}


def test_the_encoder_is_that_of_transformers() -> None:
    for text, states in zip(GIVEN.texts, GIVEN.states, strict=True):
        np.testing.assert_allclose(GIVEN.bart.encode(text), states, atol=2e-5)


@pytest.mark.parametrize("chunks", [[5], [1] * 5, [2, 3]], ids=str)
@pytest.mark.parametrize("home", HOMES)
def test_logits_are_those_of_transformers(home: str, chunks: list[int]) -> None:
    """Three texts of 1, 9 and 14 tokens at once, the decoder's tokens at once or one by one."""
    bart, names = GIVEN.bart, list("abc")
    own, memory = HOMES[home](bart.specs), HOMES[home](bart.specs)
    bart.fill(memory, names, GIVEN.texts)
    for name in names:
        own.add(name)
    at, found = 0, []
    for n in chunks:
        step, seeing = own.plan(names, [n] * 3), cross_step(memory, names, [n] * 3)
        found.append(bart.decode(GIVEN.given[at : at + n] * 3, own, step, memory, seeing))
        at += n
    logits = np.concatenate([x.reshape(3, -1, x.shape[-1]) for x in found], axis=1)
    error = logits - GIVEN.logits
    assert np.sqrt(np.mean(error**2)) < 1e-5 and np.abs(error).max() < 1e-4


@pytest.mark.parametrize("home", HOMES)
def test_greedy_tokens_are_those_of_transformers_and_no_byte_is_added(home: str) -> None:
    bart, names = GIVEN.bart, list("abc")
    own, memory = HOMES[home](bart.specs), HOMES[home](bart.specs)
    bart.fill(memory, names, GIVEN.texts)
    before, payload = [x.tobytes() for x in memory.storage()], memory.memory().payload
    # layers · (k and v) · tokens of all texts · heads · head_dim · 4 bytes
    assert payload == 2 * 2 * sum(map(len, GIVEN.texts)) * 3 * 8 * 4
    tokens = {name: [START] for name in names}
    for name in names:
        own.add(name)
    while names:
        step, seeing = (
            own.plan(names, [1] * len(names)), cross_step(memory, names, [1] * len(names)),
        )
        logits = bart.decode([tokens[n][-1] for n in names], own, step, memory, seeing)
        for name, row in zip(names, logits, strict=True):
            tokens[name].append(int(row.argmax()))
        if len(tokens["a"]) == 12 and "a" in names:  # the batch changes, and its order
            names = ["c", "b"]
        names = [name for name in names if len(tokens[name]) <= 24]
    for name, needed in zip("abc", GIVEN.greedy, strict=True):
        assert tokens[name][1:] == needed[: len(tokens[name]) - 1]
    assert [x.tobytes() for x in memory.storage()] == before
    assert memory.memory().payload == payload


def test_beams_are_queries_of_one_request_or_forks_that_share_its_blocks() -> None:
    """Three beams of one text: the decoder's cache is forked, the encoder's is read three times."""
    bart, beams = GIVEN.bart, ["x", "y", "z"]
    memory = HOMES["blocks of 4"](bart.specs)
    bart.fill(memory, ["a"], GIVEN.texts[2:])
    used = memory.pool.num_blocks - memory.pool.num_free
    for beam in beams:
        memory.fork("a", beam)
    assert memory.pool.num_blocks - memory.pool.num_free == used == 4  # 14 tokens in blocks of 4
    logits = []
    for cross in (
        lambda: cross_step(memory, ["a"], [3]), lambda: cross_step(memory, beams, [1] * 3),
    ):
        own = HOMES["blocks of 4"](bart.specs)
        own.add("x")
        bart.decode([START], own, own.plan(["x"], [1]), memory, cross_step(memory, ["a"], [1]))
        own.fork("x", "y")
        own.fork("x", "z")
        step = own.plan(beams, [1] * 3)
        logits.append(bart.decode([7, 8, 9], own, step, memory, cross()))
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-5)
    assert memory.pool.num_blocks - memory.pool.num_free == used
    for name in ("a", *beams):
        memory.free(name)
    memory.pool.check()
    assert memory.pool.num_free == memory.pool.num_blocks


def filled(cache: Any, n: int = 6, tokens: Any = None) -> Any:
    cache.add("a")
    return feed(cache, ["a"], [n], tokens=tokens)[0]


def test_a_step_ends_like_any_other() -> None:
    cache = HOMES["blocks of 4"]([LayerSpec(1, 8)] * 2)
    filling, x = filled(cache), np.ones((1, 1, 8), np.float32)
    first = cross_step(cache, ["a"], [1])
    assert "1 token of 1 request" in repr(first) and first.positions.tolist() == [5]
    with pytest.raises(ValueError, match="is over"):
        cache.run(0, x, filling.last())
    with pytest.raises(ValueError, match="nor for a step that only attends: cross_step"):
        cache.append(0, x, x, first)
    with pytest.raises(ValueError, match=r"q of layer 0 must be \(T=1"):
        cache.run(0, np.ones((2, 1, 8), np.float32), first)
    cache.fork("a", "b")  # takes nothing away
    cache.run(0, x, first)
    second = cross_step(cache, ["a", "b"], [1, 1])
    with pytest.raises(ValueError, match="is over"):
        cache.run(0, x, first)
    cache.free("b")
    with pytest.raises(ValueError, match="is over"):
        cache.run(0, np.ones((2, 1, 8), np.float32), second)
    cache.truncate("a", 3)  # the step that filled it can still be undone
    assert cross_step(cache, ["a"], [1]).positions.tolist() == [2]
    filled_up = cache.plan(["a"], [2])  # a text that grows is planned again
    x = np.ones((2, 1, 8), np.float32)
    for layer in (0, 1):
        cache.append(layer, x, x, filled_up)
    assert cross_step(cache, ["a"], [1]).seq_lens == (5,)


def test_a_step_after_a_truncation_has_no_tokens_to_forget() -> None:
    cache = DenseCache([LayerSpec(1, 4)], 1, 32, xp=np)
    cache.add("a")
    feed(cache, ["a"], [10])
    feed(cache, ["a"], [3])
    cache.truncate("a", 5)
    cross_step(cache, ["a"], [1])
    cache.keep("a", [])
    assert cache.seq_len("a") == 5


def append_to(cache: Any, layers: Any, x: np.ndarray, step: Any) -> None:
    for layer in layers:
        cache.append(layer, x, x, step)


@pytest.mark.parametrize("home", ["rows", "blocks of 4"])
def test_a_text_that_is_filled_in_two_steps(home: str) -> None:
    """Each step may leave a gap, which stays one when the text is planned again or cut."""
    specs, x = [LayerSpec(1, 8)] * 2, np.random.default_rng(0).standard_normal((6, 1, 8))
    x, q = x.astype(np.float32), np.ones((1, 1, 8), np.float32)
    whole = HOMES[home](specs)
    whole.add("a")
    append_to(whole, (0, 1), x, whole.plan(["a"], [6]))
    right = whole.run(1, q, cross_step(whole, ["a"], [1]))
    for first in (0, 4):  # tokens that all layers hold when the gap begins
        cache = HOMES[home](specs)
        cache.add("a")
        if first:
            append_to(cache, (0, 1), x[:first], cache.plan(["a"], [first]))
        append_to(cache, (0,), x[first:5], cache.plan(["a"], [5 - first]))
        for cut in (None, 6, 5):  # planned once, planned again, and the last plan undone
            if cut == 6:
                cache.plan(["a"], [1])
            elif cut == 5:
                cache.truncate("a", 5)
            with pytest.raises(ValueError, match=f"request 'a' lacks keys from token {first} on"):
                cross_step(cache, ["a"], [1])
        cache.truncate("a", first)
        append_to(cache, (0, 1), x[first:], cache.plan(["a"], [6 - first]))
        np.testing.assert_allclose(cache.run(1, q, cross_step(cache, ["a"], [1])), right, atol=1e-6)


def test_what_cannot_be_seen_is_refused() -> None:
    cache = HOMES["rows"]([LayerSpec(1, 8)] * 2)
    cache.add("a")
    with pytest.raises(ValueError, match="request 'a' has no tokens yet"):
        cross_step(cache, ["a"], [1])
    step, x = cache.plan(["a"], [6]), np.ones((6, 1, 8), np.float32)
    cache.append(0, x, x, step)
    with pytest.raises(ValueError, match="request 'a' lacks keys from token 0 on: append the enc"):
        cross_step(cache, ["a"], [1])
    cache.append(1, x, x, step)  # the refusal has changed nothing
    with pytest.raises(ValueError, match="'b' is not open"):
        cross_step(cache, ["b"], [1])
    with pytest.raises(ValueError, match="'a' appears twice"):
        cross_step(cache, ["a", "a"], [1, 1])
    for home in ("rows", "blocks of 4"):
        windowed = HOMES[home]([LayerSpec(1, 8), LayerSpec(1, 8, window=4)])
        filled(windowed)
        with pytest.raises(ValueError, match="layer 1 looks at a window of 4 tokens"):
            cross_step(windowed, ["a"], [1])
        for rule in (Sinks(1, 4), Scored(KNorm(), 4)):
            ruled = HOMES[home]([LayerSpec(1, 8)], retention=rule)
            filled(ruled)
            with pytest.raises(ValueError, match="of layer 0 would never be applied: a plan does"):
                cross_step(ruled, ["a"], [1])
    found = HOMES["blocks of 4"]([LayerSpec(1, 8)])
    filled(found, tokens=range(6))
    with pytest.raises(ValueError, match="planned with tokens, so other requests could find"):
        cross_step(found, ["a"], [1])

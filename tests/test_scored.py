"""Eviction by score: what stays is what each policy's definition says, computed in float64."""

from dataclasses import dataclass, field
from typing import Any

import array_api_strict
import numpy as np
import pytest
from caches import poison_all, snapshot
from retention_model import Held
from test_retention import HOMES

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, testing
from kvlib.caches import H2O, ExpectedAttention, KNorm, Policy, Scored, SnapKV, Tova, pyramid
from kvlib.caches.retention.policies import turned
from kvlib.caches.retention.scored import Seen
from kvlib.testing.rounding import sum_bound

HEADS, GROUP, DIM = 2, 3, 8
SPEC = LayerSpec(HEADS, DIM)
RNG = np.random.default_rng(0)  # of a text of 60 tokens
Q = RNG.standard_normal((60, HEADS * GROUP, DIM), dtype=np.float32)
K, V = RNG.standard_normal((2, 60, HEADS, DIM), dtype=np.float32)
POLICIES: dict[str, Policy] = {
    "k-norm": KNorm(recent=2), "tova": Tova(), "h2o": H2O(recent=3),
    "h2o by mean": H2O(recent=3, mean=True), "snapkv": SnapKV(window=4, kernel=3),
    "snapkv, the largest": SnapKV(window=4, kernel=3, pooling="max"),
    "expected": ExpectedAttention((1.0, 0.4, 0.1, 0.02), future=5, sinks=3),
    "expected by mean": ExpectedAttention((1.0, 0.4, 0.1, 0.02), 5, 3, False, recent=2),
}


@pytest.mark.untraced
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("policy", POLICIES)
def test_any_life(policy: str, home: str, effort: Any) -> None:
    def build(layers: list[LayerSpec]) -> Any:
        cache = HOMES[home](layers, retention=Scored(POLICIES[policy], 9, every=2))
        poison_all(cache)
        return cache

    lives = len(effort.share("lives under scores", range(8), usual=2, quick=1))
    lengths = [DIM] if policy.startswith("expected") else None  # its frequencies are for these
    terms = dict(keeps=lambda length: [], lengths=lengths)
    trial = testing.check_cache(build, schedules=lives, xp=np, **terms)
    assert trial and trial.compared > 5 * lives, trial


@dataclass(frozen=True)
class Wrong(H2O):
    """H2O that answers nonsense for texts of 12 tokens."""

    method: str = "fold"
    answer: Any = field(default=None, compare=False)

    def fold(self, notes: Any, p: Any) -> Any:
        return self.given("fold", super().fold(notes, p), p.shape[-1])

    def score(self, notes: Any, k: Any, v: Any) -> Any:
        return self.given("score", super().score(notes, k, v), k.shape[1])

    def given(self, method: str, right: Any, n: int) -> Any:
        if n != 12 or method != self.method:
            return right
        if self.answer is RuntimeError:
            raise RuntimeError("no answer")
        return None if self.answer is None else right[self.answer]


@pytest.mark.parametrize("budget", (6, 40))  # with 40, the plan only takes notes
@pytest.mark.parametrize("home", ("rows", "blocks of 4", "codes in blocks"))
@pytest.mark.parametrize("answer", (None, RuntimeError, np.s_[:, 1:], np.s_[0]), ids=str)
@pytest.mark.parametrize("method", ("fold", "score"))
def test_a_policy_that_fails_for_one_request_moves_no_other(method, answer, home, budget) -> None:
    rule = Scored(Wrong(recent=2, method=method, answer=answer), budget)
    cache = HOMES[home]([SPEC], retention=rule)
    poison_all(cache)
    rng = np.random.default_rng(0)
    for name, n in (("a", 11), ("b", 12)):
        cache.add(name)
        step = cache.plan([name], [n])
        cache.append(0, *rng.standard_normal((2, n, HEADS, DIM), dtype=np.float32), step)
        cache.run(0, rng.standard_normal((n, HEADS * GROUP, DIM), dtype=np.float32), step)
    before = snapshot(cache)
    if (method, budget) == ("score", 40):
        cache.plan(["a", "b"], [1, 1])
        return
    with pytest.raises((ValueError, RuntimeError), match="must have|must give|no answer"):
        cache.plan(["a", "b"], [1, 1])
    assert snapshot(cache) == before
    cache.truncate("b", 10)
    cache.append(0, *np.ones((2, 2, HEADS, DIM), np.float32), cache.plan(["a", "b"], [1, 1]))


def feed(cache: Any, n: int, name: str = "a", times: int = 1) -> None:
    """The next n tokens of the text, in a separate step that runs so many times."""
    rows = slice(cache.seq_len(name), cache.seq_len(name) + n)
    step = cache.plan([name], [n])
    cache.append(0, K[rows], V[rows], step)
    for _ in range(times):
        q = Q[rows].copy()
        cache.run(0, q, step)
        q[...] = 0  # the array is the caller's again


def held_by(cache: Any, seq_id: str = "a") -> list[list[int]]:
    positions = cache.read(0, seq_id)[2]
    return np.broadcast_to(positions, (HEADS, positions.shape[-1])).tolist()


def opened(home: str, policy: Policy, budget: int) -> Any:
    cache = HOMES[home]([SPEC], retention=Scored(policy, budget))
    cache.add("a")
    return cache


@pytest.mark.parametrize("home", ["rows", "blocks of 4"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("steps", [[20, *[1] * 20], [7, 9, 1, 5, 1, 1, 12], [1] * 30])
def test_each_head_holds_what_the_definition_says(policy: str, home: str, steps: list[int]) -> None:
    cache = opened(home, POLICIES[policy], 12)
    model = Held(SPEC, Scored(POLICIES[policy], 12), GROUP)
    for n in steps:
        at = cache.seq_len("a")
        feed(cache, n)
        close = model.plan(at, n, lambda: K, lambda: V, np.array(held_by(cache)))
        model.run(Q[at : at + n], at)
        assert held_by(cache) == model.positions and not close, f"after {at + n} tokens"
        k = cache.read(0, "a")[0]
        for head, held in enumerate(model.positions):
            assert (k[:, head] == K[held, head]).all()
    if home == "blocks of 4":
        assert len(cache.blocks("a")) == -(-len(model.positions[0]) // 4)
        cache.pool.check()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("back", [15, 17, 19])
def test_a_step_that_is_undone_was_never_seen(policy: str, back: int) -> None:
    undone, straight = (opened("blocks of 4", POLICIES[policy], 12) for _ in range(2))
    for cache in (undone, straight):
        feed(cache, 15)
    feed(undone, 5)
    undone.truncate("a", back)
    if back > 15:
        feed(straight, back - 15)
    for cache in (undone, straight):
        for _ in range(3):
            feed(cache, 1)
    assert held_by(undone) == held_by(straight)


def test_running_twice_counts_once() -> None:
    once, thrice = (opened("rows", H2O(2), 8) for _ in range(2))
    for n in (9, 4, 1, 1):
        feed(once, n)
        feed(thrice, n, times=3)
    assert held_by(once) == held_by(thrice)


def test_a_fork_goes_its_own_way_from_the_same_notes() -> None:
    cache = opened("blocks of 4", H2O(2), 8)
    feed(cache, 14)
    cache.fork("a", "b")
    before = [x.copy() for x in cache.read(0, "b")]
    for _ in range(4):
        feed(cache, 1)
    for was, now in zip(before, cache.read(0, "b"), strict=True):
        assert (was == now).all()
    for _ in range(4):
        feed(cache, 1, "b")
    assert held_by(cache, "b") == held_by(cache)
    cache.free("a")
    cache.free("b")
    cache.pool.check()


def test_layers_choose_for_themselves_and_budgets_may_differ() -> None:
    rules = [Scored(KNorm(), budget) for budget in (12, 6)]
    cache = PagedCache([SPEC, SPEC], BlockPool(40, 2), retention=rules, xp=np)
    cache.add("a")
    for n in (20, 1):
        rows = slice(cache.seq_len("a"), cache.seq_len("a") + n)
        step = cache.plan(["a"], [n])
        for layer, scale in ((0, 1), (1, 0.5)):
            cache.append(layer, K[rows] * np.float32(scale) + np.float32(layer), V[rows], step)
            cache.run(layer, Q[rows], step)
    assert [cache.read(i, "a")[0].shape[0] for i in range(2)] == [13, 7]
    assert held_by(cache) != cache.read(1, "a")[2].tolist()
    same = PagedCache([SPEC, SPEC], BlockPool(40, 2), retention=Scored(KNorm(), 8), xp=np)
    assert len(same.groups) == 2


def test_statistics_do_not_depend_on_how_a_text_is_cut_into_steps() -> None:
    """They are the mean and the covariance of the queries before rotation, sinks left out."""
    rng = np.random.default_rng(6)
    raw = (3 + rng.standard_normal((50, HEADS * GROUP, DIM))).astype(np.float32)
    policy: Any = POLICIES["expected"]
    angles = np.arange(50)[:, None] * np.array(policy.frequencies)
    q = turned(raw, np.exp(1j * angles)[:, None, :])
    for lens in ([50], [1, 1, 1, 1, 46], [2, 30, 18], [3] * 16 + [2]):
        notes, at = None, 0
        for n in lens:
            notes = policy.look(notes, Seen(q[at : at + n], None, None, at, at, SPEC))
            at += n
        assert notes.queries == 47 and notes.end == 50
        heads = raw[3:].reshape(47, HEADS, GROUP, DIM).astype(np.float64) / np.sqrt(DIM)
        close = sum_bound(50, 6.0)
        np.testing.assert_allclose(notes.mean, heads.mean(axis=0), rtol=0, atol=close)
        off = heads - heads.mean(axis=0)
        both = np.einsum("thgd,thge->hgde", off, off) / 47
        np.testing.assert_allclose(notes.covariance, both, rtol=0, atol=close)
        assert notes.mean.dtype == notes.covariance.dtype == np.float32


def test_pyramid_is_the_papers_sum() -> None:
    assert pyramid(128, 32)[0] == 242 and pyramid(128, 32)[-1] == 25
    assert sum(pyramid(128, 32)) == 4272
    assert len(pyramid(64, 1)) == 1
    for wrong in ((8, 4), (64, 0), (64, 4, 0)):
        with pytest.raises(ValueError, match="must be"):
            pyramid(*wrong)


def test_what_cannot_be_combined_is_said() -> None:
    with pytest.raises(TypeError, match="policy must be a Policy such as KNorm"):
        Scored("k-norm", 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"budget is 8 tokens, and SnapKV\(.* newest 32 alone"):
        Scored(SnapKV(), 8)
    for wrong in ((), (1.0, -1.0), (1.0, np.nan), ["1"]):
        with pytest.raises(ValueError, match="frequencies must hold Dk / 2 numbers of radians"):
            ExpectedAttention(wrong)
    with pytest.raises(ValueError, match=r"frequencies are 4, .* this layer's keys have 16"):
        DenseCache([LayerSpec(1, 16)], 1, 40, retention=Scored(POLICIES["expected"], 8))
    with pytest.raises(ValueError, match="kernel must be odd"):
        SnapKV(kernel=4)
    for wrong in ("avg", None, ["max"]):
        with pytest.raises(ValueError, match=r"pooling must be 'mean' or 'max', got"):
            SnapKV(pooling=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"kivi.* encodes tokens later and together, and Scored"):
        QuantizedCache([SPEC], "kivi4", 1, 64, retention=Scored(KNorm(), 8))
    with pytest.raises(ValueError, match="looks at a window of 4 tokens: Scored"):
        DenseCache([LayerSpec(1, 8, window=4)], 1, 40, retention=[Scored(KNorm(), 8)])
    cache = opened("rows", H2O(2), 30)
    for n in (6, 2, 1):
        feed(cache, n)
    with pytest.raises(ValueError, match="cannot be truncated to 7 tokens: the scores of layer 0"):
        cache.truncate("a", 7)
    cache.truncate("a", 8)
    cache.truncate("a", 0)
    feed(cache, 9)
    assert held_by(cache) == [list(range(9))] * HEADS


@pytest.mark.parametrize("policy", POLICIES)
def test_the_standard_alone(policy: str) -> None:
    """On array_api_strict the same tokens stay, head by head."""
    positions = []
    for xp in (np, array_api_strict):
        cache = PagedCache([SPEC], BlockPool(30, 4), retention=Scored(POLICIES[policy], 9), xp=xp)
        cache.add("a")
        for n in (14, 1, 3, 1):
            rows = slice(cache.seq_len("a"), cache.seq_len("a") + n)
            step = cache.plan(["a"], [n])
            k, v, q = (xp.asarray(x[rows].copy()) for x in (K, V, Q))
            cache.append(0, k, v, step)
            cache.run(0, q, step)
        positions.append(np.asarray(cache.read(0, "a")[2]).tolist())
    assert positions[0] == positions[1]

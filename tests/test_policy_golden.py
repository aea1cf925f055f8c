"""Each policy keeps what the code of its authors keeps of the same q, k and v.

tests/golden/policies.npz holds the inputs and what kvpress and the repositories of SnapKV, H2O,
TOVA and Quest make of them, at the commits under ``sources``; tools/make_policy_golden.py wrote it.

Where several definitions are in use, kvlib is set to the one that it is compared with:

* SnapKV's and H2O's own code choose a set per query head. kvlib chooses per kv head, so it is given
  a kv head for each query head. In kvpress, as in kvlib, the query heads of a group are averaged.
  "H2O per kv head" is H2O's own code, given the mean probabilities of each group.
* H2O's own code sums what queries gave a token. kvpress divides the sum by the number of queries
  that see the token (``mean=True``), protects no recent token, and looks at the prompt alone.
* SnapKV's own code sums over the window's queries, kvlib takes their mean. Under max pooling,
  neighbours share one score, so the tokens that stay are compared by their scores.
* TOVA's own code protects no token. kvpress protects the newest one (``recent=1``).
* kvpress scores a key by −‖k‖, kvlib by −‖k‖², which orders keys alike.
* kvpress scores Expected Attention from queries before rotation. kvlib gets them rotated.
* kvpress gives protected tokens a score above all others; in kvlib, ``recent`` protects them. So
  only the scores of the other tokens are compared.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvlib import BlockPool, LayerSpec, PagedCache
from kvlib.caches import H2O, ExpectedAttention, KNorm, Policy, Quest, Scored, SnapKV, Tova
from kvlib.caches.retention.policies import turned
from kvlib.caches.retention.quest import page_scores
from kvlib.caches.store import bounds_of
from kvlib.model import RopeConfig, rope

with np.load(Path(__file__).parent / "golden" / "policies.npz") as stored:
    GOLDEN = dict(stored)
Q, K, V = GOLDEN["q"], GOLDEN["k"], GOLDEN["v"]
PROMPT, RECENT = int(GOLDEN["prompt"]), int(GOLDEN["recent"])
BUDGETS = GOLDEN["budgets"].tolist()
FREQUENCIES = rope.frequencies(RopeConfig(theta=float(GOLDEN["theta"])), K.shape[2])
ANGLES = np.arange(len(Q))[:, None] * FREQUENCIES
SNAPKV = SnapKV(int(GOLDEN["window"]), int(GOLDEN["kernel"]))
PRESSES: dict[str, Policy] = {
    "SnapKV": SNAPKV, "TOVA": Tova(recent=1), "Knorm": KNorm(),
    "ObservedAttention": H2O(recent=0, mean=True),
    "ExpectedAttention": ExpectedAttention(FREQUENCIES),
}
AUTHORS: dict[str, Policy] = {
    "SnapKV": SNAPKV, "H2O": H2O(RECENT), "H2O per kv head": H2O(RECENT), "TOVA": Tova(),
}


def kept(policy: Policy, budget: int, kv_heads: int, steps: int) -> np.ndarray:
    """The positions (steps, Hkv, budget) that stay when each of so many tokens joins the prompt."""
    k, v = (np.repeat(x, kv_heads // x.shape[1], axis=1) for x in (K, V))
    rule = Scored(policy, budget)
    cache = PagedCache([LayerSpec(kv_heads, K.shape[2])], BlockPool(20, 4), retention=rule, xp=np)
    cache.add("a")
    found = []
    for n in [PROMPT] + [1] * steps:
        rows = slice(cache.seq_len("a"), cache.seq_len("a") + n)
        step = cache.plan(["a"], [n])  # gives back what the last step's queries left unseen
        cache.append(0, k[rows], v[rows], step)
        positions = cache.read(0, "a")[2]
        found.append(np.broadcast_to(positions, (kv_heads, positions.shape[-1]))[:, :-1])
        q = Q[rows]
        if isinstance(policy, ExpectedAttention):  # the golden queries are those before rotation
            q = turned(q, np.exp(1j * ANGLES[rows])[:, None, :])
        cache.run(0, q, step)
    return np.stack(found[1:])


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", PRESSES)
def test_kvpress_keeps_the_same(name: str, budget: int) -> None:
    expected = GOLDEN[f"kvpress {name} {budget}"]
    assert kept(PRESSES[name], budget, K.shape[1], 1)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("name", PRESSES)
def test_kvpress_gives_the_same_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, scores = PRESSES[name], heard(PRESSES[name], monkeypatch)
    kept(policy, BUDGETS[0], K.shape[1], 1)
    found, older = scores[0], PROMPT - policy.recent
    if name == "Knorm":
        found = -np.sqrt(-found)
    if name == "ExpectedAttention":  # sinks, which always stay
        assert (found[:, :4] == np.inf).all()
        found = np.where(found == np.inf, GOLDEN[f"kvpress {name} scores"], found)
    expected = GOLDEN[f"kvpress {name} scores"]
    np.testing.assert_allclose(found[:, :older], expected[:, :older], rtol=0, atol=1e-5)


def heard(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The list that each of the policy's scores (Hkv, S) will be added to."""
    scores, score = [], type(policy).score

    def listening(*given: Any) -> Any:
        scores.append(score(*given))
        return scores[-1]

    monkeypatch.setattr(type(policy), "score", listening)
    return scores


@pytest.mark.parametrize("budget", BUDGETS)
def test_snapkv_by_its_largest_scores(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = replace(SNAPKV, pooling="max")
    scores, expected = heard(policy, monkeypatch), GOLDEN["SnapKV max scores"]
    found = kept(policy, budget, Q.shape[1], 1)[0]
    older, count, close = PROMPT - policy.window, budget - policy.window, 1e-5 * policy.window
    sums = scores[0][:, :older] * policy.window
    np.testing.assert_allclose(sums, expected, rtol=0, atol=close)
    assert (found[:, count:] == np.arange(older, PROMPT)).all()
    worth = np.sort(np.take_along_axis(expected, found[:, :count], axis=1))
    np.testing.assert_allclose(worth, np.sort(expected)[:, -count:], rtol=0, atol=close)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", AUTHORS)
def test_the_authors_code_keeps_the_same(name: str, budget: int) -> None:
    """SnapKV chooses once, after the prompt; H2O and TOVA again after each of the next tokens."""
    expected = GOLDEN[f"{name} {budget}"]  # (steps, heads, budget); SnapKV's has no steps
    expected = expected.reshape(-1, *expected.shape[-2:])
    found = kept(AUTHORS[name], budget, expected.shape[1], len(expected))
    assert found.tolist() == expected.tolist()


def test_quest_reads_the_blocks_of_the_authors_highest_bounds() -> None:
    """Their evaluation code does not force the last block; their kernels do, as kvlib does."""
    size, bounds = int(GOLDEN["page"]), GOLDEN["Quest bounds"]  # (Hq, pages)
    heads, end = Q.shape[1], PROMPT + 1
    k, v = (np.repeat(x[:end], heads // x.shape[1], axis=1) for x in (K, V))
    padded = np.concatenate([k, np.repeat(k[-1:], -end % size, axis=0)])
    pages = padded.reshape(-1, size, heads, K.shape[2]).transpose(2, 0, 1, 3)
    found = page_scores(Q[PROMPT][:, None], bounds_of(pages).transpose(1, 0, 2))
    np.testing.assert_allclose(found, bounds, rtol=0, atol=1e-5 * np.abs(bounds).max())
    layers, pool = [LayerSpec(heads, K.shape[2])], BlockPool(20, size)
    cache = PagedCache(layers, pool, attention=Quest(3 * size, 0), xp=np)
    cache.add("a")
    for a, b in ((0, PROMPT), (PROMPT, end)):
        step = cache.plan(["a"], [b - a])
        cache.append(0, k[a:b], v[a:b], step)
        o = cache.run(0, Q[a:b], step)
    for head in range(heads):
        best = [*np.argsort(-bounds[head, :-1])[:2], bounds.shape[1] - 1]
        read = np.concatenate([np.arange(end)[page * size : (page + 1) * size] for page in best])
        s = k[read, head].astype(np.float64) @ Q[PROMPT, head] / np.sqrt(K.shape[2])
        p = np.exp(s - s.max())
        np.testing.assert_allclose(o[0, head], p @ v[read, head] / p.sum(), rtol=0, atol=1e-5)

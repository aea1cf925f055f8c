"""The explorer of eviction: its attention and lost keys against a cache, and its drawing."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from effort import Effort, number
from explorer_pages import SPACE, map_marks
from small_scenes import check_scene
from views import check_view, sweep

from kvbook.explorers import Explorer, eviction_explorer, svg
from kvbook.explorers.eviction import (
    ANSWER,
    BUDGETS,
    CHUNK,
    POLICIES,
    PROMPT,
    TEXT,
    attention,
    lived,
)
from kvlib.caches import KNorm, Scored

N, ASKED = len(TEXT), len(PROMPT)
STARTS = [*range(0, ASKED, CHUNK), *range(ASKED, N)]


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return eviction_explorer()


def map_of(scene: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = scene["panels"][0]
    return found


def told(scene: dict[str, Any], label: str) -> str:
    return {row["label"]: row["text"] for row in scene["numbers"]}[label]


@pytest.mark.parametrize("head", [0, 1])
def test_the_attention_is_what_the_cache_answers_with(model: Any, head: int) -> None:
    """attention × values is the mean of the answers that a cache gives the head's queries."""
    life = lived(model, None, TEXT, ASKED, 2, head)
    cache, answers = model.new_cache(1, N), {}
    run = cache.run

    def noted(layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        answers[layer] = run(layer, q, step)
        return run(layer, q, step, return_lse)

    cache.run = noted
    cache.add("text")
    model.forward(list(TEXT), cache, cache.plan(["text"], [N]), rows="last")
    spec, (_, v, _) = model.layer_specs[2], cache.read(2, "text")
    p = attention(life.q, life.k, head, spec.sm_scale)
    group = answers[2].shape[1] // spec.num_kv_heads
    right = answers[2][:, head * group : (head + 1) * group].mean(axis=1)
    scale = float(np.abs(v[:, head]).max())
    # chunks and one step sum in another order, in five layers of float32
    assert np.abs(p @ v[:, head].astype(np.float64) - right).max() < 1e-4 * scale
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (p[~np.tri(N, dtype=bool)] == 0).all()


def first_lost(kept: Any) -> list[int]:
    """First query without each key: kept(start) → positions that stay when a step begins there."""
    found = [N] * N
    for start in STARTS:
        for key in set(range(start)) - set(kept(start)):
            found[key] = min(found[key], start)
    return found


@pytest.mark.parametrize("budget", BUDGETS[::2])
def test_windows_and_sinks_lose_what_their_definitions_say(explorer: Explorer, budget: int) -> None:
    window = first_lost(lambda start: range(max(0, start - budget), start))
    assert map_of(explorer.scene(policy="window", budget=budget))["lost"] == window
    sinks = first_lost(lambda start: {0, 1, 2, 3, *range(max(0, start - budget + 4), start)})
    assert map_of(explorer.scene(policy="sinks", budget=budget))["lost"] == sinks


def test_a_score_decides_in_the_layer_and_head_that_is_drawn(model: Any) -> None:
    """In layer 0, keys don't depend on what was lost: the norms of a full cache decide."""
    text = bytes(range(32, 32 + N))
    k = lived(model, None, text, ASKED, 0, 1).k[:, 1].astype(np.float64)
    held: list[int] = []

    def kept(start: int) -> list[int]:
        held.extend(range(held[-1] + 1 if held else 0, start))
        while len(held) > 20:
            held.remove(max(held[:-8], key=lambda at: float(np.linalg.norm(k[at]))))
        return list(held)

    found = lived(model, Scored(KNorm(recent=8), 20), text, ASKED, 0, 1).lost
    assert found.tolist() == first_lost(kept) and len(set(found)) > 4


def test_what_is_held_is_counted_and_weighed(explorer: Explorer, model: Any) -> None:
    life = lived(model, POLICIES["TOVA"](48), TEXT, ASKED, 2, 0)
    whole = lived(model, None, TEXT, ASKED, 2, 0)
    p = attention(whole.q, whole.k, 0, model.layer_specs[2].sm_scale)
    scene = explorer.scene(policy="TOVA", budget=48)
    lost = map_of(scene)["lost"]
    shares = [sum(p[t, key] for key in range(N) if t < lost[key]) for t in range(N)]
    mean = f"{100 * np.mean(shares):.0f} %"
    assert told(scene, "Attention to cached keys, all queries") == mean
    assert map_of(scene)["shares"] == [int(20 * share + 0.5) for share in shares]
    token = sum(spec.num_kv_heads * 2 * spec.head_dim * 4 for spec in model.layer_specs)
    assert (life.payload, whole.payload) == (49 * token, N * token)
    assert told(scene, "Bytes of the cache") == "245 KiB of 320 KiB"
    read = [key for _, key in map_of(scene)["rings"]]
    assert read == p[-4:].argmax(axis=1).tolist()
    # the model finds each byte four positions after it was bound
    assert read == [PROMPT.index(ANSWER) + 4 + i for i in range(4)]
    assert told(scene, "Keys that the answer needs, cached") == "0 of 4"
    assert told(scene, "Bytes of the answer right") == "0 of 4", "94 % of the attention is held"


def test_the_whole_budget_keeps_all(explorer: Explorer) -> None:
    for policy in POLICIES:
        scene = explorer.scene(policy=policy, budget=N)
        assert set(map_of(scene)["lost"]) == {N} and set(map_of(scene)["shares"]) == {20}
        assert told(scene, "Bytes of the answer right") == "4 of 4"
        stay = [map_of(explorer.scene(policy=policy, budget=b))["lost"].count(N) for b in BUDGETS]
        assert stay == [*(b + 1 for b in BUDGETS[:-1]), N], "the newest token comes on top"


def test_every_scene_is_whole_and_drawn(explorer: Explorer) -> None:
    titles = set()
    for policy in POLICIES:
        for budget in BUDGETS:
            scene = explorer.scene(policy=policy, budget=budget)
            check_scene(scene)
            titles.add(scene["title"])
            if budget == 32:
                for width in (320, 720):
                    marks = [e for e in ET.fromstring(svg.draw(scene, width)).iter() if e.attrib]
                    drawn = [
                        (e.attrib["data-label"], float(e.attrib["data-value"]))
                        for e in marks
                        if e.tag == f"{SPACE}path" and "data-label" in e.attrib
                    ]
                    assert drawn == map_marks(map_of(scene))
    assert len(titles) == len(POLICIES) * len(BUDGETS)


def test_a_mark_stands_in_its_cell_and_its_area_is_the_weight() -> None:
    """Two tokens: the second query gives the first key a weight of 4/9 (level 6 of 9)."""
    panel = {
        "kind": "map", "label": "Map", "lines": [{"at": 0, "label": "<a"}], "letters": "<a",
        "levels": ["9", "67"], "lost": [1, 2], "shares": [20, 11], "ring": "here",
        "rings": [[1, 0]], "legend": [],
    }  # fmt: skip
    text = svg.draw({"panels": [panel]}, 720)
    assert "&lt;" in text
    paths = {e.attrib.get("data-label"): e for e in ET.fromstring(text).iter(f"{SPACE}path")}
    assert {k for k in paths if k} == {"held, 9 ninths", "held, 7 ninths", "lost, 6 ninths",
                                       "here", "held"}  # fmt: skip
    size = {}
    for label in ("held, 9 ninths", "lost, 6 ninths"):
        _, wide, high = re.split("[hv]", paths[label].attrib["d"])[:3]
        size[label] = float(wide) * float(high)
    full, six = size.values()
    assert six / full == pytest.approx(4 / 9, rel=0.01)
    assert 'stroke="var(--kv-free' in ET.tostring(paths["lost, 6 ninths"]).decode()


def test_nothing_lies_on_an_edge_of_rounding(explorer: Explorer, model: Any) -> None:
    """Kernels of six processors moved a level by at most 2e-6 and a share by 2e-5 of its step."""
    whole = lived(model, None, TEXT, ASKED, 2, 0)
    p = attention(whole.q, whole.k, 0, model.layer_specs[2].sm_scale)

    def nearest(x: np.ndarray) -> float:
        return float(np.abs(x + 0.5 - np.round(x + 0.5)).min())

    assert nearest(9 * np.sqrt(p[np.tri(N, dtype=bool)])) > 2e-5
    lost = [
        map_of(explorer.scene(policy=policy, budget=budget))["lost"]
        for policy in POLICIES
        for budget in BUDGETS
    ]
    held = np.array(lost)[:, None, :] > np.arange(N)[:, None]  # (scene, query, key)
    shares = (p * held).sum(axis=2)
    assert nearest(20 * shares) > 3e-4
    for mean in (shares.mean(axis=1), shares[:, -4:].mean(axis=1)):
        assert nearest(100 * mean) > 1e-3


@pytest.mark.untraced
def test_the_live_view_follows_its_controls(explorer: Explorer, effort: Effort) -> None:
    pytest.importorskip("ipywidgets")
    stops = len(BUDGETS) + 1 + len(POLICIES) + 1 + 4
    steps = 0
    for view, settings in sweep(explorer, number(quick=2, usual=3, whole=len(BUDGETS)), pairs=4):
        check_view(view, settings)
        steps += 1
    effort.ran("settings of the live slider of eviction", steps, stops)


@pytest.mark.parametrize(("budgets", "words"), [
    ([32, 65], "budgets must be an integer of at least 1 and at most 64, got 65"),
    ([4, 32], "budget is 4 tokens"),
])
def test_bad_budgets_are_refused(budgets: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        eviction_explorer({name: POLICIES[name] for name in ("k-norm", "H2O")}, budgets)

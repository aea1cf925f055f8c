"""The drawings and the explorer of the chapter on sampling: they show what they were given."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from drawn import heights, labels, texts, widths, ys
from scene_parts import numbers, settings_of

from kvbook.explorers.catalogue import sampling_explorer
from kvbook.explorers.scenes.sampling import kept_tokens, softmax_of
from kvbook.figures import sampling as draw
from kvlib.serve import probabilities

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))


pytestmark = pytest.mark.usefixtures("drawn")


def test_the_scenes_rows_are_the_models_own() -> None:
    from make_logit_rows import rows

    stored, fresh = sampling_explorer().tables["logit_rows"], rows()
    assert list(stored) == list(fresh)
    for key, row in fresh.items():
        assert row["title"] == stored[key]["title"] and len(row["logits"]) == 256
        np.testing.assert_allclose(stored[key]["logits"], row["logits"], atol=0.011)


def test_the_scene_keeps_what_the_library_keeps() -> None:
    rows = sampling_explorer().tables["logit_rows"]
    for settings in settings_of("sampling", 600, seed=1):
        logits = np.asarray([rows[settings["row"]]["logits"]])
        kept = (settings["temperature"], settings["top_k"], settings["top_p"] / 100)
        p = probabilities(logits, *kept)[0]
        before = softmax_of(logits[0].tolist(), settings["temperature"])
        found = kept_tokens(before, settings["top_k"], settings["top_p"] / 100)
        assert found == (p > 0).sum(), settings
        scene = sampling_explorer(**settings).scene()
        assert numbers(scene)["Tokens left"] == str(found)
        bars = scene["panels"][0]["bars"]
        for bar, share in zip(bars[:found], p, strict=False):
            assert bar["parts"][0]["value"] == pytest.approx(100 * share, rel=1e-6)
            assert bar["parts"][0]["role"] == "muted"
        assert {bar["parts"][0]["role"] for bar in bars[found:]} <= {"free"}


def test_a_row_is_sorted_and_its_probabilities_are_percent() -> None:
    logits = np.log(np.asarray([0.2, 0.5, 0.3]))
    left, right = draw.row(logits, ["a", "b", "c"], shown=2).axes
    assert heights(right) == pytest.approx([50, 30])
    assert labels(left.xaxis) == ["b", "c"]


def test_the_floor_stands_among_its_tiles() -> None:
    (ax,) = draw.floor([0.5, 1.0], [3, 1], np.asarray([0.0, 2, 1, 5]), 2).axes
    assert texts(ax) == ["3", "1"]
    assert [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()] == [
        [0, 2],
        [1, 5],
    ]
    assert ax.lines[0].get_ydata().tolist() == [0.5, 1.0]


def test_bars_of_bytes_and_times_end_with_the_one_that_reads_once() -> None:
    (ax,) = draw.moved({"three passes": 4.0, "one pass": 1.0}, "GB").axes
    assert widths(ax) == [4, 1]
    assert ax.patches[1].get_facecolor()[:3] != ax.patches[0].get_facecolor()[:3]
    fig = draw.times({"64 rows": {"torch": 2.0, "kvlib": 1.0}, "1 row": {"kvlib": 3.0}}, "ms")
    assert [widths(ax) for ax in fig.axes] == [[2, 1], [3]]


def test_operations_are_counted_a_logit() -> None:
    (ax,) = draw.operations([1, 10], {"heap": [100, 200], "radix": [400, 400]}, 100).axes
    assert ys(ax) == [[1, 2], [4, 4]]
    assert texts(ax) == ["heap", "radix"]


def test_draws_stand_beside_what_they_should_be() -> None:
    (ax,) = draw.draws([12, 4], [9.0, 4.0], ["a", "b"]).axes
    assert heights(ax) == [9, 4]
    assert ax.lines[0].get_ydata().tolist() == [12, 4]

"""Scenes made from a model run carry what can be seen, and not a processor's last bits."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from small_scenes import axis, check_scene, shelf_explorer

from kvbook.explorers import Explorer, Slider, svg
from kvbook.explorers.rounding import SEEN, rounded_scene
from kvbook.explorers.scenes.words import number_words


def bars(*values: float, top: float = 10.0) -> dict[str, Any]:
    parts = [{"label": "part", "value": value, "role": "cached"} for value in values]
    return {
        "kind": "bars",
        "label": "Bars",
        "unit": "%",
        "max": top,
        "bars": [{"label": "all", "parts": parts}],
        "marks": [{"label": "mark", "value": values[0]}],
    }


def curves(points: list[list[float]], y: dict[str, Any]) -> dict[str, Any]:
    line = {"label": "line", "role": "key", "points": points, "dashed": False}
    point = {"label": "here", "x": points[0][0], "y": points[0][1], "role": "key"}
    x = axis("token", "linear", [0, 4])
    shape = {"kind": "curves", "label": "Curves", "x": x, "y": y}
    return shape | {"lines": [line], "points": [point]}


def scene(*panels: dict[str, Any]) -> dict[str, Any]:
    words = {"title": "T", "summary": "S" * 50, "formula": ["1"], "numbers": []}
    return words | {"panels": list(panels)}


def test_a_bar_is_as_long_as_its_number_says() -> None:
    given = [12.345678, 0.0123456, 1234.5678, 99.951, 3, 0.0, -4.5678, 1e-9]
    (panel,) = rounded_scene(scene(bars(*given, top=1300.4)))["panels"]
    found = [part["value"] for part in panel["bars"][0]["parts"]]
    assert found == [12.3, 0.0123, 1235.0, 100.0, 3, 0.0, -4.57, 0.0]
    assert [number_words(x) for x in found[:-1]] == [number_words(x) for x in given[:-1]]
    assert panel["marks"][0]["value"] == 12.3 and panel["max"] == 1300.0
    assert isinstance(found[4], int), "whole numbers stay as they are"


def test_a_point_keeps_what_a_plot_shows() -> None:
    y = axis("bits", "linear", [-10.0, 10.0]) | {"min": -10.292481136322023}
    points = [[0, 3.14159265], [1, -0.004], [2, 9.999]]
    (panel,) = rounded_scene(scene(curves(points, y)))["panels"]
    assert panel["lines"][0]["points"] == [[0, 3.14], [1, 0.0], [2, 10.0]]
    assert (panel["y"]["min"], panel["y"]["max"]) == (-10.29, 10.0)
    assert panel["points"][0]["y"] == 3.14
    assert "-0.0" not in json.dumps(panel), "zero has no sign that rounding could change"
    log = axis("bytes", "log", [1.0, 1e6])
    (panel,) = rounded_scene(scene(curves([[0, 123456.789], [1, 1.00049]], log)))["panels"]
    assert panel["lines"][0]["points"] == [[0, 123500.0], [1, 1.0]]


@pytest.mark.parametrize("span", [0.013, 0.99, 1.0, 7.7, 35.9, 4096.0, 2e7])
def test_a_rounded_curve_moves_by_less_than_a_quarter_of_a_pixel(span: float) -> None:
    y = axis("y", "linear", [0, span / 2, span])
    points = [[t, float(v)] for t, v in enumerate(np.random.default_rng(0).random(200) * span)]
    (panel,) = rounded_scene(scene(curves(points, y)))["panels"]
    for (_, before), (_, after) in zip(points, panel["lines"][0]["points"], strict=True):
        assert abs(after - before) <= span / SEEN / 2 and 240 * abs(after - before) / span < 0.25
    assert len({after for _, after in panel["lines"][0]["points"]}) > 150


def test_last_bits_do_not_reach_the_page_or_the_picture() -> None:
    slider = Slider("step", "Step", [1, 2])
    values = np.float32([1.234567, 7.654321, 0.5])

    def page(noise: float) -> str:
        y = axis("y", "linear", [-1.0, 9.0]) | {"max": float(values[1] * 1.1 * (1 + noise))}
        found = [[i, float(v) * (1 + noise)] for i, v in enumerate(values)]
        made = scene(curves(found, y), bars(*(v for _, v in found)))
        return Explorer.from_frames("noise", "Noise", slider, [made, made]).to_html()

    assert page(0) == page(1e-6) == page(-1e-6)
    assert page(0) != page(1e-2), "what can be seen is shown"
    assert "7.654" in page(0) and "7.6543" not in page(0)


def test_the_rest_of_a_scene_and_the_argument_stay() -> None:
    before = shelf_explorer().scene()
    kept = copy.deepcopy(before)
    after = rounded_scene(before)
    assert before == kept
    assert {k: v for k, v in after.items() if k != "panels"} == {
        k: v for k, v in before.items() if k != "panels"
    }
    cells = [(a, b) for a, b in zip(before["panels"], after["panels"]) if a["kind"] == "cells"]
    assert cells and all(a == b for a, b in cells)
    check_scene(after)
    assert rounded_scene(after) == after and "<svg" in svg.draw(after)

"""Controls are checked when made, refuse what they do not offer, and say what is nearest."""

import dataclasses
import json

import numpy as np
import pytest

from kvbook.explorers import Choice, Slider

MODELS = {"llama-2-7b": "Llama 2 7B", "llama-3.1-8b": "Llama 3.1 8B", "gpt-oss-120b": "gpt-oss"}


def test_a_choice_is_data() -> None:
    choice = Choice("model", "Model", MODELS, "llama-3.1-8b")
    assert choice.to_json() == {
        "kind": "choice", "name": "model", "label": "Model",
        "options": [
            ["llama-2-7b", "Llama 2 7B"], ["llama-3.1-8b", "Llama 3.1 8B"],
            ["gpt-oss-120b", "gpt-oss"],
        ],
        "value": "llama-3.1-8b",
    }
    assert Choice("model", "Model", MODELS).value == "llama-2-7b", "the first, where none is named"
    assert Choice("model", "Model", list(MODELS.items())).options == choice.options


def test_a_long_choice_has_headings() -> None:
    choice = Choice("model", "Model", MODELS, groups=[("Meta", 2), ("OpenAI", 1)])
    assert choice.to_json()["groups"] == [["Meta", 2], ["OpenAI", 1]]
    assert "groups" not in Choice("model", "Model", MODELS).to_json()
    with pytest.raises(ValueError, match="model: groups have 2 options, needed: 3"):
        Choice("model", "Model", MODELS, groups=[("Meta", 2)])


def test_a_slider_is_data() -> None:
    slider = Slider("batch", "Batch", [1, 2, 1000], 2, "requests")
    assert slider.to_json() == {
        "kind": "slider", "name": "batch", "label": "Batch", "values": [1, 2, 1000],
        "texts": ["1 request", "2 requests", "1,000 requests"],
        "value": 2,
    }
    assert json.loads(json.dumps(slider.to_json())) == slider.to_json()
    playing = Slider("step", "Step", [1, 2], play=True)
    assert playing.to_json()["play"] and playing.at(2).to_json()["play"]
    assert Slider("share", "Share", [0, 0.5], texts=["none", "half"]).texts == ("none", "half")


def test_powers_double_and_may_stop_half_way() -> None:
    context = Slider.powers("context", "Context", 1024, 8192, value=4096, unit="tokens")
    assert context.values == (1024, 2048, 4096, 8192)
    assert context.texts[-1] == "8,192 tokens" and context.value == 4096
    batch = Slider.powers("batch", "Batch", 1, 16, halves=True)
    assert batch.values == (1, 2, 3, 4, 6, 8, 12, 16)
    for first, last, words in ((0, 8, "1 <= first"), (8, 8, "first < last"), (3, 32, "24 would")):
        with pytest.raises(ValueError, match=f"^context: .*{words}"):
            Slider.powers("context", "Context", first, last)


@pytest.mark.parametrize(("value", "nearest"), [
    ("llama3.1", "llama-3.1-8b"), ("LLAMA-2-7B", "llama-2-7b"), ("GPT-OSS", "gpt-oss-120b"),
    (None, None), (7, None),
])
def test_a_choice_names_the_nearest_by_spelling(value: object, nearest: str | None) -> None:
    choice = Choice("model", "Model", MODELS)
    with pytest.raises(ValueError, match="is not offered") as caught:
        choice.check(value)
    assert str(caught.value).startswith(f"model: {value!r} is not offered; the nearest is '")
    assert all(name in str(caught.value) for name in MODELS)
    if nearest is not None:
        assert choice.nearest(value) == nearest


@pytest.mark.parametrize(
    ("value", "nearest"), [(3, 2), (6.5, 8), (-1, 1), (10**9, 8), (np.int64(7), 8), (np.nan, 1)]
)
def test_a_slider_names_the_nearest_by_size(value: float, nearest: int) -> None:
    slider = Slider.powers("batch", "Batch", 1, 8)
    with pytest.raises(ValueError, match=f"batch: .* is not offered; the nearest is {nearest} "):
        slider.check(value)


def test_equal_numbers_are_the_offered_one_but_truth_is_not_a_number() -> None:
    slider = Slider.powers("batch", "Batch", 1, 8)
    for value in (8, 8.0, np.int32(8), np.float32(8)):
        assert type(slider.check(value)) is int
    with pytest.raises(ValueError, match="batch: True is not offered"):
        slider.check(True)
    with pytest.raises(ValueError, match="batch: '8' is not offered"):
        slider.check("8")


def test_at_makes_another_and_leaves_this_one() -> None:
    slider = Slider.powers("batch", "Batch", 1, 8, unit="requests")
    moved = slider.at(4)
    assert (moved.value, slider.value) == (4, 1)
    assert moved.texts == slider.texts and moved.to_json()["value"] == 4
    choice = Choice("model", "Model", MODELS).at("gpt-oss-120b")
    assert choice.value == "gpt-oss-120b"
    with pytest.raises(ValueError, match="model: 'x' is not offered"):
        choice.at("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        slider.value = 2  # type: ignore[misc]


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: Slider("a b", "A", [1, 2]), ValueError, "the name 'a b', needed a Python"),
    (lambda: Slider("a", " ", [1, 2]), ValueError, "a: the label or a text is empty"),
    (lambda: Slider("a", "A", [1, 2], texts=["", "x"]), ValueError, "a text is empty"),
    (lambda: Slider("a", "A", [1]), ValueError, "a: got 1 values, needed two"),
    (lambda: Slider("a", "A", [1, 1]), ValueError, "a: values are not unique: 1, 1"),
    (lambda: Slider("a", "A", [1, 2], texts=["x", "x"]), ValueError, "texts are not unique"),
    (lambda: Slider("a", "A", [1, 2], texts=["x"]), ValueError, "a: got 1 texts, needed 2"),
    (lambda: Slider("a", "A", [2, 1]), ValueError, "a: values must rise, got 2, 1"),
    (lambda: Slider("a", "A", [1, 2], 3), ValueError, "a: 3 is not offered; the nearest is 2"),
    (lambda: Slider("a", "A", ["1", "2"]), TypeError, "a: a slider steps through numbers"),
    (lambda: Slider("a", "A", [False, True]), TypeError, "a: .* got False"),
    (lambda: Choice("a", "A", {"x": "X"}), ValueError, "a: got 1 values"),
    (lambda: Choice("a", "A", {"x": "X", "y": "X"}), ValueError, "texts are not unique"),
    (lambda: Choice("a", "A", {None: "X", "y": "Y"}), TypeError, "a: .* got None"),
    (lambda: Choice("a", "A", {"x": "X", "y": "Y"}, "z"), ValueError, "a: 'z' is not offered"),
])
def test_bad_controls_are_refused(make: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()  # type: ignore[operator]


def test_a_long_list_is_cut_in_the_message() -> None:
    slider = Slider("a", "A", range(101))
    with pytest.raises(ValueError, match=r"offered: 0, 1, 2, .*9, \.\.\., 100\)$"):
        slider.check(101)

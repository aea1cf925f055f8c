"""An explorer: its settings, its markup for the page, its widgets in Jupyter, and neither."""

import html
import inspect
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import run
from small_scenes import TABLES, shelf_explorer, shelf_scene
from views import Markup, check_view, move

from kvbook.explorers import Choice, Explorer, Slider, svg
from kvbook.explorers.explorer import numbers_table
from kvbook.explorers.live import LiveView

pytest.importorskip("ipywidgets")
TESTS = Path(__file__).resolve().parent


def test_settings_are_checked_and_leave_the_original_alone() -> None:
    explorer = shelf_explorer()
    assert explorer.settings == {"card": "small", "kind": "plain", "boxes": 4}
    other = explorer.set(boxes=8, card="large")
    assert other.settings == {"card": "large", "kind": "plain", "boxes": 8}
    assert explorer.settings["boxes"] == 4
    assert other.scene()["title"] == "8 boxes on a large card"
    assert explorer.scene(boxes=16)["title"] == "16 boxes on a small card"
    assert explorer.scene() == shelf_scene(explorer.settings, TABLES)
    for act in (explorer.set, explorer.scene, explorer.svg, explorer.call):
        with pytest.raises(ValueError, match="shelf: there is no control 'box', .*card, kind, box"):
            act(box=3)
        with pytest.raises(ValueError, match="boxes: 3 is not offered; the nearest is 2"):
            act(boxes=3)


def test_help_and_completion_know_the_controls() -> None:
    explorer = shelf_explorer().set(boxes=2)
    for method in (explorer.set, explorer.scene, explorer.svg, explorer.call):
        signature = inspect.signature(method)
        assert str(signature) == "(*, card='small', kind='plain', boxes=2)"
        assert method.__doc__
    assert "explorer.set(batch=8)" in inspect.getdoc(Explorer)
    assert Explorer.set.__name__ == "set", "the class has the method, for its own help"
    assert repr(explorer) == "<Explorer shelf: 2 boxes on a small card>"


def test_the_call_names_what_differs() -> None:
    explorer = shelf_explorer()
    assert explorer.call() == "set()"
    words = explorer.call(boxes=8, kind="packed", card="small")
    assert words == "set(kind='packed', boxes=8)"
    assert eval(f"explorer.{words}").settings == {"card": "small", "kind": "packed", "boxes": 8}


@pytest.mark.parametrize(("changes", "words"), [
    ({"name": "a-b"}, "the name 'a-b', needed a Python identifier"),
    ({"title": " "}, "explorer shelf: got no title"),
    ({"controls": []}, "explorer shelf: got no controls"),
    ({"controls": [Slider("a", "A", [1, 2])] * 2}, "control names are not unique: a, a"),
    ({"anchor": "a b"}, "got the anchor 'a b'"), ({"anchor": ""}, "got the anchor ''"),
])
def test_bad_explorers_are_refused(changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "name": "shelf", "title": "Boxes", "controls": [Slider("boxes", "Boxes", [1, 2])],
        "scene_function": shelf_scene,
    }
    with pytest.raises(ValueError, match=re.escape(words)):
        Explorer(**(given | changes))


def test_a_second_one_on_a_page_gets_another_anchor() -> None:
    explorer = shelf_explorer()
    second = explorer.with_anchor("shelf-2").set(boxes=8)
    assert (second.anchor, explorer.anchor) == ("shelf-2", "shelf")
    assert Markup(second.to_html()).attributes["kv-explorer"]["id"] == "shelf-2"
    with pytest.raises(ValueError, match="shelf: got the anchor '2x'"):
        explorer.with_anchor("2x")


def test_the_markup_carries_the_first_view_and_the_controls() -> None:
    explorer = shelf_explorer(anchor="shelf-2").set(boxes=2)
    text = explorer.to_html()
    markup = Markup(text)
    assert markup.open == [], "a tag stays open"
    root = markup.attributes["kv-explorer"]
    assert root["id"] == "shelf-2"
    data = json.loads(root["data-explorer"])
    assert data == {
        "name": "shelf", "title": "Boxes on a shelf",
        "controls": [control.to_json() for control in explorer.controls],
    }
    assert data["controls"][2]["value"] == 2
    scene = explorer.scene()
    assert svg.draw(scene) in text and markup.tags.count("script") == 0
    assert markup.attributes["kv-figure"]["role"] == "img"
    assert markup.attributes["kv-figure"]["aria-label"] == scene["summary"]
    assert scene["summary"] in markup.words and scene["title"] in markup.words
    assert {row["text"] for row in scene["numbers"]} <= set(markup.words)
    assert "\n".join(scene["formula"]) in markup.words


def test_hostile_words_stay_words() -> None:
    nasty = "\"><script>alert('1')</script>&amp;'"

    def scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
        made = shelf_scene({"card": "small", "kind": "plain", "boxes": settings["boxes"]}, TABLES)
        return made | {"title": nasty, "summary": nasty, "formula": [nasty]}

    slider = Slider("boxes", nasty, [1, 2], texts=[nasty, "two"])
    explorer = Explorer("nasty", nasty, [slider], scene)
    markup = Markup(explorer.to_html())
    assert "script" not in markup.tags and markup.open == []
    assert markup.words.count(nasty) == 3
    data = json.loads(markup.attributes["kv-explorer"]["data-explorer"])
    assert data["title"] == nasty and data["controls"][0]["texts"][0] == nasty
    for words in (numbers_table({"numbers": [{"label": nasty, "text": nasty}]}),):
        assert "<script" not in words and html.unescape(words).count(nasty) == 2
    view = LiveView(explorer)
    for widget in (view.words, view.box.children[0]):
        assert nasty in Markup(widget.value).words and "<script" not in widget.value


def test_the_markup_is_the_same_in_another_process() -> None:
    code = "from small_scenes import *; print(shelf_explorer().to_html())"
    places = f"{TESTS}:{TESTS.parent}"
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": places, "PATH": "/usr/bin:/bin"}
    text = shelf_explorer().to_html()
    assert run(sys.executable, "-c", code, env=environment, cwd=Path("/")) == text + "\n"
    assert not re.search(r"/(?:home|root|tmp|work|usr)/|0x[0-9a-f]{6}", text)


def test_text_and_markup_without_a_kernel_widgets_with_one(monkeypatch: Any) -> None:
    explorer = shelf_explorer()
    assert set(explorer._repr_mimebundle_()) == {"text/plain", "text/html"}
    monkeypatch.setattr("kvbook.explorers.explorer._in_kernel", lambda: True)
    bundle = explorer._repr_mimebundle_()
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert set(view) == {"version_major", "version_minor", "model_id"}
    assert bundle["text/html"] == explorer.to_html()
    assert bundle["text/plain"] == repr(explorer)


def test_frames_are_shown_in_order_and_travel_with_the_page() -> None:
    slider = Slider("step", "Step", [0, 1, 2], 1)
    base = shelf_explorer()
    scenes = [base.scene(boxes=boxes) for boxes in (1, 2, 4)]
    explorer = Explorer.from_frames("growth", "Growing", slider, scenes)
    assert [explorer.scene(step=i) for i in range(3)] == scenes
    data = json.loads(Markup(explorer.to_html()).attributes["kv-explorer"]["data-explorer"])
    assert data["frames"] == scenes and data["controls"] == [slider.to_json()]
    assert svg.draw(scenes[1]) in explorer.to_html()
    moved = explorer.set(step=2)
    assert svg.draw(scenes[2]) in moved.to_html() and moved.scene() == scenes[2]
    view = LiveView(explorer)
    move(view.controls["step"], 0)
    assert html.escape(scenes[0]["summary"]) in view.words.value


def test_frames_of_two_controls_are_found_by_both() -> None:
    kind, step = Choice("kind", "Kind", {"a": "A", "b": "B"}), Slider("step", "Step", [0, 1, 2], 1)
    base = shelf_explorer()
    scenes = [base.scene(kind=k, boxes=n) for k in ("plain", "packed") for n in (1, 2, 4)]
    explorer = Explorer.from_frames("growth", "Growing", [kind, step], scenes)
    assert [explorer.scene(kind=k, step=i) for k in "ab" for i in range(3)] == scenes
    assert explorer.scene() == scenes[1] and explorer.set(kind="b").scene() == scenes[4]
    data = json.loads(Markup(explorer.to_html()).attributes["kv-explorer"]["data-explorer"])
    assert data["frames"] == scenes and [c["name"] for c in data["controls"]] == ["kind", "step"]
    with pytest.raises(ValueError, match="got 5 scenes, .* each of 2 x 3 values of kind x step"):
        Explorer.from_frames("growth", "Growing", [kind, step], scenes[:5])


def test_frames_must_be_as_many_as_values_and_plain() -> None:
    slider = Choice("step", "Step", {"a": "A", "b": "B"})
    scene = shelf_explorer().scene()
    with pytest.raises(ValueError, match="got 1 scenes, needed one for each of 2 values of step"):
        Explorer.from_frames("growth", "Growing", slider, [scene])
    with pytest.raises(ValueError, match="growth: scene 1 of step"):
        Explorer.from_frames("growth", "Growing", slider, [scene, {"x": float("nan")}])
    with pytest.raises(TypeError, match="growth: scene 0 of step"):
        Explorer.from_frames("growth", "Growing", slider, [{"x": object()}, scene])


@pytest.mark.untraced
def test_every_setting_changes_the_picture_and_the_words() -> None:
    explorer = shelf_explorer()
    view = LiveView(explorer)
    seen: dict[str, set[str]] = {"picture": set(), "words": set()}
    sizes = [range(len(control.values)) for control in explorer.controls]
    for indices in itertools.product(*sizes):
        for control, index in zip(explorer.controls, indices, strict=True):
            move(view.controls[control.name], index)
        check_view(view, view.settings)
        seen["picture"].add(view.picture.value)
        seen["words"].add(view.words.value)
    assert len(seen["picture"]) == len(seen["words"]) == 2 * 2 * 5


def test_controls_are_labelled_and_follow_the_slider_as_it_moves() -> None:
    view = LiveView(shelf_explorer())
    card, _, boxes = view.controls.values()
    assert (card.description, boxes.description) == ("Card", "Boxes")
    assert card.label == "Small card" and boxes.label == "4 crates"
    assert boxes.continuous_update and boxes.readout
    assert boxes.options[0] == ("1 crate", 1) and boxes.options[4] == ("16 crates", 16)
    assert view.box.children[1].layout.flex_flow == "row wrap"


def test_two_views_of_one_explorer_move_on_their_own() -> None:
    explorer = shelf_explorer()
    one, other = LiveView(explorer), LiveView(explorer)
    before = other.words.value
    move(one.controls["boxes"], 0)
    assert other.words.value == before and other.settings["boxes"] == 4
    assert explorer.settings["boxes"] == 4


def test_an_error_is_shown_and_raised_and_goes_away() -> None:
    def scene(settings: dict[str, Any], tables: Any) -> dict[str, Any]:
        if settings["boxes"] == 8:
            raise ZeroDivisionError("<8> boxes")
        return shelf_scene(settings, tables)

    view = LiveView(shelf_explorer(scene_function=scene))
    with pytest.raises(ZeroDivisionError):
        move(view.controls["boxes"], 3)
    shown = Markup(view.words.value)
    assert "kv-error" in shown.attributes
    assert "ZeroDivisionError: <8> boxes" in shown.words and "set(boxes=8)" in shown.words
    move(view.controls["boxes"], 4)
    check_view(view, view.settings)


WITHOUT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import kvbook.explorers.explorer as module
from small_scenes import shelf_explorer
module._in_kernel = lambda: True
explorer = shelf_explorer()
bundle = explorer._repr_mimebundle_()
{code}
"""


def without(blocked: list[str], code: str) -> str:
    return run(sys.executable, "-c", WITHOUT.format(blocked=blocked, code=code), cwd=TESTS)


def test_without_ipywidgets_the_first_view_and_what_to_install() -> None:
    code = "assert set(bundle) == {'text/plain', 'text/html'}; print(bundle['text/html'])"
    for blocked in (["ipywidgets"], ["ipywidgets", "matplotlib"]):
        shown = Markup(without(blocked, code))
        assert "To move the sliders, install ipywidgets: pip install 'kvlib[book]'" in shown.words
        assert "svg" in shown.tags and shown.open == []
    assert "kv-note" not in shelf_explorer().to_html(), "the page's markup has no such words"


def test_the_widgets_need_no_matplotlib() -> None:
    code = """
from kvbook.explorers.live import LiveView
assert "application/vnd.jupyter.widget-view+json" in bundle
view = LiveView(explorer)
view.controls["boxes"].set_state({"index": 0})
assert explorer.svg(boxes=1) in view.picture.value
"""
    without(["matplotlib"], code)

"""The sliders of the built book in a headless Chromium: every control of every explorer on every
page, moved by keyboard and by mouse, shows what Python computes. From a file and from a server,
with every request to the outside blocked and listed.

Runs after the build (`make browser`, part of `make test`). Skips where there is no Chromium, but
never under CI=true. The page `all.html`, made here, has every explorer of the book and one whose
scenes were made beforehand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explorer_pages import (
    GRID,
    check,
    digest,
    explorer,
    explorers_of,
    fixture_explorers,
    grid,
    same,
    values_of,
    write_fixture,
)
from explorer_probes import BATCH, FAULTS, MARKS, STATE, TEXTS
from rendered import (
    HTML,
    MATH,
    NARROW,
    WIDE,
    contrast,
    running_browser,
    served,
    take_picture,
    watch,
)
from rendered import PAGES as BUILT

pytestmark = pytest.mark.browser

ALL_IN_ONE = "all.html"
PAGES = [ALL_IN_ONE, *(name for name in BUILT if explorers_of(HTML / name))]
SET = "(e, i) => { e.value = i; e.dispatchEvent(new Event('input')); }"
# Whether the last summary was read out; and six steps of a slider, noting what is read out.
SPOKEN = """id => {
  const e = document.getElementById(id);
  return e.querySelector('.kv-voice').textContent === e.kvState.scene.summary;
}"""
SIX_STEPS = """id => {
  const slider = document.getElementById(id), root = slider.closest('.kv-explorer');
  window.said = [];
  new MutationObserver(() => said.push(1)).observe(
    root.querySelector('.kv-voice'), {childList: true});
  for (let i = 6; i >= 0; i--) {
    slider.value = +slider.min + i;
    slider.dispatchEvent(new Event('input'));
  }
}"""
UNCOVERED = ".bd-header-article, .skip-link, #pst-skip-link { display: none !important; }"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser(HTML, BUILT) as running:
        yield running


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """{"folder", "file", "http"} of the book and of the page made here."""
    made = tmp_path_factory.mktemp("explorers")
    write_fixture(made, fixture_explorers())
    with served(HTML) as book, served(made) as own:
        yield {
            "book": {"folder": HTML, "file": HTML.resolve().as_uri(), "http": book},
            "own": {"folder": made, "file": made.resolve().as_uri(), "http": own},
        }


class Opened:
    """A page of the book or the one made here, open and watched."""

    def __init__(self, browser: Any, places: dict[str, Any], name: str, scheme: str, **more: Any):
        place = places["own" if name == ALL_IN_ONE else "book"]
        query = more.pop("query", "")
        self.context = browser.new_context(**({"viewport": WIDE, "color_scheme": "light"} | more))
        self.explorers = explorers_of(place["folder"] / name)
        assert self.explorers, f"{name} has no explorer"
        self.watched = watch(self.context, place[scheme])
        self.page = self.watched.page
        self.address = f"{place[scheme]}/{name}{query}"
        self.page.goto(self.address, wait_until="load")
        self.page.wait_for_function(
            "[...document.querySelectorAll('.kv-explorer')].every(e => e.kvState)"
        )

    def state(self, data: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate(STATE, data["id"])
        return found

    def control(self, data: dict[str, Any], control: dict[str, Any]) -> Any:
        return self.page.locator(f"[id='{data['id']}-{control['name']}']")

    def index(self, data: dict[str, Any], control: dict[str, Any]) -> int:
        return int(self.control(data, control).input_value())

    def close(self) -> None:
        assert self.watched.outside == [], "asked for from outside"
        assert self.watched.errors == []
        self.context.close()


def defaults(data: dict[str, Any]) -> dict[str, Any]:
    return {control["name"]: control["value"] for control in data["controls"]}


# every explorer from a server, too, but on the one page that has them all
@pytest.mark.parametrize(
    "name, scheme", [(ALL_IN_ONE, "http"), *((name, "file") for name in PAGES)]
)
def test_every_control_moves_its_figure(
    browser: Any, places: dict[str, Any], name: str, scheme: str
) -> None:
    opened = Opened(browser, places, name, scheme)
    for data in opened.explorers:
        settings = defaults(data)
        check(data, opened.state(data), settings)
        for control in data["controls"]:
            values = values_of(control)
            for index in moves(opened, data, control, len(values)):
                check(data, opened.state(data), settings | {control["name"]: values[index]})
            # back to where it was, so that each control is seen alone
            opened.control(data, control).evaluate(
                SET,
                str(values.index(control["value"])),
            )
            check(data, opened.state(data), settings)
    opened.close()


def moves(opened: Opened, data: Any, control: Any, n: int) -> Iterator[int]:
    """Move one control by keyboard, then by mouse; after each move yield where it must stand."""
    element = opened.control(data, control)
    element.scroll_into_view_if_needed()
    element.focus()
    keys = [("End", n - 1), ("ArrowLeft", n - 2), ("Home", 0), ("ArrowRight", 1), ("ArrowUp", 2)]
    if control["kind"] == "choice":
        keys = [("End", n - 1), ("ArrowUp", n - 2), ("Home", 0), ("ArrowDown", 1)]
    for key, index in keys:
        element.press(key)
        assert opened.index(data, control) == min(index, n - 1), f"{control['name']}: {key}"
        yield min(index, n - 1)
    if control["kind"] == "choice":
        for index in range(n):
            element.select_option(str(index))
            yield index
        return
    # the browser says what a page of steps is; that it moves, and which way, is what counts
    for key, up in (("PageUp", True), ("PageDown", False)):
        before = opened.index(data, control)
        element.press(key)
        after = opened.index(data, control)
        assert after > before or (before == n - 1) if up else after < before
        yield after
    size = element.bounding_box()
    y = size["y"] + size["height"] / 2
    opened.page.mouse.click(size["x"] + size["width"] - 3, y)
    assert opened.index(data, control) == n - 1
    yield n - 1
    opened.page.mouse.down()
    for share in (0.75, 0.5, 0.25):
        opened.page.mouse.move(size["x"] + share * size["width"], y)
        index = opened.index(data, control)
        assert abs(index - share * (n - 1)) <= max(1, 0.1 * n), "the thumb follows the mouse"
        yield index
    opened.page.mouse.move(size["x"] + 1, y)
    opened.page.mouse.up()
    assert opened.index(data, control) == 0
    yield 0


def test_page_and_python_agree_on_a_grid(browser: Any, places: dict[str, Any]) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "http")
    settings = grid()
    assert len(settings) >= GRID
    for start in range(0, len(settings), 201):
        batch = settings[start : start + 201]
        answers = opened.page.evaluate(BATCH, [list(item) for item in batch])
        for i, ((name, at, width), (scene, sum_of_drawing)) in enumerate(zip(batch, answers)):
            expected = explorer(name).scene(**at)
            try:
                same(expected, scene)
                if i % 16 == 0:  # the drawing is compared as text, which takes longer than its data
                    assert digest(expected, width) == sum_of_drawing, "drawn differently"
            except AssertionError as error:
                raise AssertionError(f"{name} at {at}: {error}") from error
    opened.close()


@pytest.mark.parametrize("name", PAGES[1:] or [ALL_IN_ONE])
def test_the_address_carries_the_settings(browser: Any, places: dict[str, Any], name: str) -> None:
    opened = Opened(browser, places, name, "http")
    page = opened.page
    settings = []
    for data in opened.explorers:  # each one step on
        settings.append({})
        for control in data["controls"]:
            values = values_of(control)
            index = (values.index(control["value"]) + 1) % len(values)
            settings[-1][control["name"]] = values[index]
            opened.control(data, control).evaluate(SET, str(index))
        last = data["controls"][-1]["name"]
        page.wait_for_function(f"location.search.includes('{data['name']}.{last}=')")
    link = page.url
    page.goto("about:blank")
    page.goto(link, wait_until="load")
    for data, at in zip(opened.explorers, settings):
        check(data, opened.state(data), at)
    in_view = "id => { const r = document.getElementById(id).getBoundingClientRect();"
    in_view += " return r.top < innerHeight && r.bottom > 0; }"
    page.wait_for_function(in_view, arg=data["id"])
    for data in opened.explorers:
        root = page.locator(f"[id='{data['id']}']")
        root.get_by_role("button", name="Reset").click()
        check(data, opened.state(data), defaults(data))
    page.wait_for_function("!location.search.includes('.')")
    opened.close()


def test_an_address_that_says_nonsense_changes_nothing(
    browser: Any, places: dict[str, Any]
) -> None:
    data = explorers_of(places["own"]["folder"] / ALL_IN_ONE)[0]
    first = data["controls"][0]["name"]
    query = f"?{data['name']}.{first}=%3Cscript%3E&{data['name']}.other=1&other=2"
    opened = Opened(browser, places, ALL_IN_ONE, "http", query=query)
    check(data, opened.state(data), defaults(data))
    opened.close()


def test_copy_link_gives_an_address_that_opens_the_same(
    browser: Any, places: dict[str, Any]
) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "http")
    origin = places["own"]["http"]
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
    data = opened.explorers[0]
    control = next(c for c in data["controls"] if c["kind"] == "slider")
    opened.control(data, control).press("End")
    opened.page.get_by_role("button", name="Copy link").first.click()
    opened.page.get_by_role("button", name="Copied").wait_for()
    link = opened.page.evaluate("navigator.clipboard.readText()")
    assert link.endswith(f"#{data['id']}")
    opened.page.goto("about:blank")
    opened.page.goto(link, wait_until="load")
    settings = defaults(data) | {control["name"]: values_of(control)[-1]}
    check(data, opened.state(data), settings)
    opened.close()


def test_a_file_has_no_link_to_copy(browser: Any, places: dict[str, Any]) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "file")
    assert opened.page.get_by_role("button", name="Reset").first.is_visible()
    assert opened.page.get_by_role("button", name="Copy link").count() == 0
    opened.close()


@pytest.mark.parametrize("name", PAGES)
def test_words_and_marks_can_be_seen(browser: Any, places: dict[str, Any], name: str) -> None:
    opened = Opened(browser, places, name, "file")
    page = opened.page
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        page.wait_for_timeout(300)  # the theme fades its colours
        for turn in ("Home", "End", None):  # at both ends of all sliders, and where they begin
            spread_out(opened, turn)
            texts, marks = page.evaluate(TEXTS), page.evaluate(MARKS)
            assert len(texts) > 10 and marks
            for words, colour, back in texts:
                assert contrast(colour, back) >= 4.5, f"{theme}, {words!r}: {colour} on {back}"
            for label, colours, card in marks:
                least = max(contrast(c, card) for c in colours)
                assert least >= 3, f"{theme}, {label!r}: {colours} on {card}"
        take_pictures(opened, name, theme)
    opened.close()


@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("name", PAGES)
def test_controls_are_labelled_and_words_stand_clear(
    browser: Any, places: dict[str, Any], name: str, viewport: dict[str, int]
) -> None:
    opened = Opened(browser, places, name, "file", viewport=viewport)
    page = opened.page
    page.evaluate(MATH)
    rng = random.Random(name)
    for turn in ("Home", "End", *[rng] * 8, None):
        spread_out(opened, turn)
        assert page.evaluate(FAULTS) == []
        assert page.evaluate("document.scrollingElement.scrollWidth") <= viewport["width"]
    if viewport is NARROW:
        take_pictures(opened, name, "narrow")
    opened.close()


def spread_out(opened: Opened, turn: str | random.Random | None) -> None:
    """All controls of all explorers to an end, to values drawn, or (None) where they began."""
    for data in opened.explorers:
        for control in data["controls"]:
            values = values_of(control)
            if isinstance(turn, random.Random):
                index = turn.randrange(len(values))
            elif turn is None:
                index = values.index(control["value"])
            else:
                index = 0 if turn == "Home" else len(values) - 1
            opened.control(data, control).evaluate(SET, str(index))


def take_pictures(opened: Opened, name: str, kind: str) -> None:
    opened.page.add_style_tag(content=UNCOVERED)
    for data in opened.explorers:
        figure = opened.page.locator(f"[id='{data['id']}']")
        take_picture(figure, f"explorer-{Path(name).stem}-{data['id']}-{kind}")


def test_nothing_jumps_and_the_summary_is_read_out_once(
    browser: Any, places: dict[str, Any]
) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "file")
    page = opened.page
    for data in opened.explorers:
        root = page.locator(f"[id='{data['id']}']")
        voice = root.locator(".kv-voice")
        assert voice.get_attribute("aria-live") == "polite" and voice.text_content() == ""
        sliders = [c for c in data["controls"] if c["kind"] == "slider"]
        heights = []
        for control in sliders:
            element = opened.control(data, control)
            element.press("Home")
            for _ in range(6):
                element.press("ArrowRight")
                heights.append(root.bounding_box()["height"])
        assert heights == sorted(heights), "a figure shrank while a slider moved"
        page.wait_for_function(SPOKEN, arg=data["id"])
        # six steps without a pause, as a hand on the slider makes them
        page.evaluate(SIX_STEPS, f"{data['id']}-{sliders[0]['name']}")
        page.wait_for_function("said.length > 0")
        page.wait_for_function(SPOKEN, arg=data["id"])
        assert page.evaluate("said.length") == 1, "spoken at every step"
    opened.close()


def test_another_width_gets_another_layout(browser: Any, places: dict[str, Any]) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "file")
    data = opened.explorers[0]
    assert opened.state(data)["width"] == 720
    opened.page.set_viewport_size(NARROW)
    ids = "id => document.getElementById(id).kvState.width < 400"
    opened.page.wait_for_function(ids, arg=data["id"])
    check(data, opened.state(data), defaults(data))
    opened.close()


def test_print_shows_the_present_state_in_light_colours(
    browser: Any, places: dict[str, Any]
) -> None:
    opened = Opened(browser, places, ALL_IN_ONE, "file")
    page = opened.page
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    data = opened.explorers[0]
    control = next(c for c in data["controls"] if c["kind"] == "slider")
    opened.control(data, control).press("End")
    page.emulate_media(media="print")
    for selector in ("button", "input"):
        assert not page.locator(f".kv-explorer {selector}").first.is_visible()
    shown = page.locator(f"output[for='{data['id']}-{control['name']}']")
    assert shown.is_visible() and shown.text_content() == control["texts"][-1]
    assert page.locator(".kv-figure svg").first.is_visible()
    for words, colour, back in page.evaluate(TEXTS):
        assert contrast(colour, back) >= 4.5, f"{words!r}: {colour} on {back}"
    for _label, _colours, card in page.evaluate(MARKS):
        assert card == [255, 255, 255]
    opened.close()

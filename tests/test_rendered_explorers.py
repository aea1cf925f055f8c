"""Every explorer of the book in a headless Chromium, and one whose scenes were made beforehand.

Runs after the build (`make browser`). Skips where there is no Chromium, but never under CI=true.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from explorer_pages import (
    GRID,
    digest,
    explorer,
    explorers_of,
    fixture_explorers,
    frames_explorer,
    grid,
    same,
    values_of,
    write_fixture,
)
from explorer_probes import BATCH, HEIGHTS, MARKS, SIX_STEPS, SPOKEN, TEXTS
from page_sliders import Sliders, defaults
from rendered import HTML, NARROW, PAGES, WHOLE, WIDE, contrast
from visits import STILL, served, visit, visit_apart

pytestmark = pytest.mark.browser

ALL = "all.html"
# Where a chapter has an explorer, the chapter's own is moved; all.html moves the others.
IN_CHAPTERS = {data["name"] for name in PAGES for data in explorers_of(HTML / name)}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """{"folder", "file", "http"} of the page made here."""
    made = tmp_path_factory.mktemp("explorers")
    write_fixture(made, fixture_explorers())
    with served(made) as address:
        yield {"folder": made, "file": made.resolve().as_uri(), "http": address}


@pytest.fixture
def opened(browser: Any, places: dict[str, Any]) -> Callable[..., Any]:
    """Open all.html, which asks for nothing from outside; no error is logged."""

    @contextmanager
    def open_it(scheme: str, go: Any = visit, **how: Any) -> Iterator[Sliders]:
        with go(browser, places[scheme], ALL, **how) as seen:
            yield Sliders(seen.page, explorers_of(places["folder"] / ALL))
            assert seen.outside == [], "asked for from outside"
            assert seen.errors == []

    return open_it


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_every_control_moves_its_figure(opened, record_property, scheme) -> None:
    with opened(scheme) as sliders:
        names = [data["name"] for data in sliders.explorers]
        if not WHOLE:
            sliders.explorers = [d for d in sliders.explorers if d["name"] not in IN_CHAPTERS]
        assert sliders.explorers and sliders.move_everything() > 10
        moved = f"{len(sliders.explorers)} of {len(names)}"
    record_property("sampled", f"explorers moved again outside their chapters: {moved}")


@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["narrow", "wide"])
def test_words_and_marks_stand_clear_and_can_be_seen(opened, viewport) -> None:
    with opened("file", viewport=viewport) as sliders:
        if not WHOLE:
            sliders.keep_only([d for d in sliders.explorers if d["name"] not in IN_CHAPTERS])
        sliders.words_stand_clear(8)
        if viewport is WIDE:
            sliders.page.add_style_tag(content=STILL)
            for theme in ("light", "dark"):
                sliders.colours_can_be_seen(theme)


def test_page_and_python_agree_on_a_grid(opened, record_property) -> None:
    whole = grid(GRID)
    settings = whole if WHOLE else grid(GRID // 5)
    record_property("sampled", f"settings of explorers: {len(settings):,} of {len(whole):,}")
    with opened("http") as sliders:
        for start in range(0, len(settings), 250):
            # the drawing is compared as text, which takes longer than its data: every 17th
            batch = [
                (name, at, 0 if i % 17 else width)
                for i, (name, at, width) in enumerate(settings[start : start + 250], start)
            ]
            answers = json.loads(sliders.page.evaluate(BATCH, json.dumps(batch)))
            for (name, at, width), (scene, sum_of_drawing) in zip(batch, answers, strict=True):
                expected = explorer(name).scene(**at)
                try:
                    same(expected, scene)
                    if width:
                        assert digest(expected, width) == sum_of_drawing, "drawn differently"
                except AssertionError as error:
                    raise AssertionError(f"{name} at {at}: {error}") from error


def test_an_address_that_says_nonsense_changes_nothing(opened, places) -> None:
    data = explorers_of(places["folder"] / ALL)[0]
    first = data["controls"][0]["name"]
    query = f"?{data['name']}.{first}=%3Cscript%3E&{data['name']}.other=1&other=2"
    with opened("http", query=query) as sliders:
        sliders.check(data, defaults(data))


def test_copy_link_gives_an_address_that_opens_the_same(opened, places) -> None:
    with opened("http", visit_apart) as sliders:
        page = sliders.page
        permissions = ["clipboard-read", "clipboard-write"]
        page.context.grant_permissions(permissions, origin=places["http"])
        data = sliders.explorers[0]
        control = next(c for c in data["controls"] if c["kind"] == "slider")
        page.locator(f"[id='{data['id']}-{control['name']}']").press("End")
        page.get_by_role("button", name="Copy link").first.click()
        page.get_by_role("button", name="Copied").wait_for()
        link = page.evaluate("navigator.clipboard.readText()")
        assert link.endswith(f"#{data['id']}")
        page.goto("about:blank")
        page.goto(link, wait_until="load")
        sliders = Sliders(page, sliders.explorers)
        sliders.check(data, defaults(data) | {control["name"]: values_of(control)[-1]})


def test_a_file_has_no_link_to_copy(opened: Callable[..., Any]) -> None:
    with opened("file") as sliders:
        assert sliders.page.get_by_role("button", name="Reset").first.is_visible()
        assert sliders.page.get_by_role("button", name="Copy link").count() == 0


def test_nothing_jumps_and_the_summary_is_read_out_once(opened: Callable[..., Any]) -> None:
    with opened("file") as sliders:
        page = sliders.page
        voices = page.locator(".kv-explorer .kv-voice")
        assert voices.count() == len(sliders.explorers)
        assert page.locator(".kv-voice[aria-live=polite]:empty").count() == voices.count()
        ids = [data["id"] for data in sliders.explorers]
        for data in sliders.explorers:
            for control in data["controls"]:
                if control["kind"] == "slider":
                    heights = page.evaluate(HEIGHTS, f"{data['id']}-{control['name']}")
                    assert heights == sorted(heights), "a figure shrank while a slider moved"
        page.wait_for_function(SPOKEN, arg=ids)
        # six steps without a pause, as a hand on the slider makes them
        firsts = [
            next(c["name"] for c in data["controls"] if c["kind"] == "slider")
            for data in sliders.explorers
        ]
        page.evaluate(SIX_STEPS, [f"{id_}-{name}" for id_, name in zip(ids, firsts, strict=True)])
        page.wait_for_function("ids => ids.every(id => said[id] > 0)", arg=ids)
        page.wait_for_function(SPOKEN, arg=ids)
        assert page.evaluate("Object.values(said)") == [1] * len(ids), "spoken at every step"


AT = "document.getElementById('replay').kvState.settings.step"


@pytest.fixture
def played(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open a page with one explorer that plays."""
    write_fixture(tmp_path, [frames_explorer(play=True)])

    @contextmanager
    def open_it(query: str = "", **media: str) -> Iterator[Any]:
        with served(tmp_path) as address, visit(browser, address, ALL, query, **media) as seen:
            yield seen.page
            assert seen.errors == []

    return open_it


def test_a_slider_plays_once_by_itself_and_stops_at_the_end(played: Callable[..., Any]) -> None:
    with played() as page:
        assert page.evaluate(AT) == 0, "it begins with the first step"
        button = page.get_by_role("button", name="Pause Step of the log")
        button.wait_for()
        page.wait_for_function(f"{AT} === 5")
        page.get_by_role("button", name="Play Step of the log").wait_for()
        page.wait_for_timeout(1500)
        assert page.evaluate(AT) == 5 and "step" not in page.evaluate("location.search")
        assert page.locator(".kv-voice").text_content() == "", "nobody asked for it"
        page.get_by_role("button", name="Play Step of the log").press("Enter")
        assert page.evaluate(AT) == 0, "from the start again"
        page.wait_for_function(f"{AT} === 2")
        button.press("Space")
        page.wait_for_timeout(1500)
        assert page.evaluate(AT) == 2, "paused"
        assert "2" in page.locator(".kv-voice").text_content()


def test_a_reader_who_moves_a_slider_stops_it(played: Callable[..., Any]) -> None:
    with played() as page:
        page.locator("#replay-step").press("End")
        page.locator("#replay-step").press("ArrowLeft")
        page.wait_for_timeout(2000)
        assert page.evaluate(AT) == 4
        page.get_by_role("button", name="Reset").click()
        page.wait_for_timeout(2000)
        assert page.evaluate(AT) == 2


@pytest.mark.parametrize(
    ("query", "media", "at"), [("", {"reduced_motion": "reduce"}, 2), ("?replay.step=3", {}, 3)]
)
def test_nothing_plays_by_itself_for_less_motion_or_at_an_address_with_a_setting(
    played: Callable[..., Any], query: str, media: dict[str, str], at: int
) -> None:
    with played(query, **media) as page:
        page.wait_for_timeout(2000)
        assert page.evaluate(AT) == at
        page.get_by_role("button", name="Play Step of the log").click()
        page.wait_for_function(f"{AT} === {at + 1}")


def test_another_width_gets_another_layout(opened: Callable[..., Any]) -> None:
    with opened("file") as sliders:
        data = sliders.explorers[0]
        assert sliders.state(data)["width"] == 720
        sliders.page.set_viewport_size(NARROW)
        ids = "id => document.getElementById(id).kvState.width < 400"
        sliders.page.wait_for_function(ids, arg=data["id"])
        sliders.check(data, defaults(data))


def test_print_shows_the_present_state_in_light_colours(opened: Callable[..., Any]) -> None:
    with opened("file") as sliders:
        page = sliders.page
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        data = sliders.explorers[0]
        control = next(c for c in data["controls"] if c["kind"] == "slider")
        page.locator(f"[id='{data['id']}-{control['name']}']").press("End")
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

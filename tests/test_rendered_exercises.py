"""Ticks on the rendered pages: set by mouse and keyboard, kept over a reload, saved as a file."""

import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from page_checks import SET_THEME
from rendered import WHOLE, contrast
from visits import STILL, visit, visit_apart

from kvbook.exercises.catalogue import exercises, of_chapter

pytestmark = pytest.mark.browser

TABLE = "book/exercises.html"
BROKEN = ("{", "[]", "null", '{"exercises": 3}', '{"exercises": {"paged-append": null}}')
# The colours of the buttons and the count, with the page under them.
SEEN = """() => ['#exercise-progress button', '.kv-count'].map(selector => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number).slice(0, 3);
  const style = getComputedStyle(document.querySelector(selector));
  return [rgb(style.color), rgb(getComputedStyle(document.body).backgroundColor)];
})"""
# A browser that keeps nothing for us; the theme, which asks too and minds, is left alone.
DENIED = """for (const name of ['getItem', 'setItem']) {
  const real = Storage.prototype[name];
  Storage.prototype[name] = function (key, ...rest) {
    if (key === 'kvlib.progress') throw new Error('denied');
    return real.call(this, key, ...rest);
  };
}"""


@pytest.fixture(params=["file", "http"])
def base(request: pytest.FixtureRequest, book: dict[str, str]) -> str:
    """The book's address: ticks are kept for a file and for a server separately."""
    return book[request.param]


@pytest.fixture(params=["file", "http"] if WHOLE else ["file"])
def either(request: pytest.FixtureRequest, book: dict[str, str]) -> str:
    """The book's address, where it makes no difference which."""
    return book[request.param]


def ticks(page: Any) -> list[str]:
    """Names of the boxes that are ticked, as a screen reader says them."""
    return page.eval_on_selector_all(
        ".kv-tick:checked", "all => all.map(e => e.getAttribute('aria-label'))"
    )


def test_ticks_are_kept_counted_and_saved(browser: Any, base: str, tmp_path: Path) -> None:
    with visit_apart(browser, base, "book/paged.html", accept_downloads=True) as seen:
        tick_count_and_save(seen.page, base, tmp_path)
        assert seen.outside == [] and seen.errors == []


def tick_count_and_save(page: Any, base: str, tmp_path: Path) -> None:
    boxes = page.locator(".exercise .kv-tick")
    assert boxes.count() == len(of_chapter("paged")) and ticks(page) == []
    first, second = of_chapter("paged")[:2]
    page.get_by_role("checkbox", name=f"Done: {first.title}").check()
    box = page.get_by_role("checkbox", name=f"Done: {second.title}")
    box.focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(200)  # a browser stores what a page keeps a moment later
    page.reload()
    assert ticks(page) == [f"Done: {e.title}" for e in (first, second)], "kept over a reload"

    page.goto(f"{base}/{TABLE}")
    assert ticks(page) == [f"Done: {e.title}" for e in (first, second)]
    assert page.locator("table .kv-tick").count() == len(exercises())
    points = sum(e.points for e in exercises())
    count = page.get_by_role("status").filter(has_text="exercises done")
    words = f"2 of {len(exercises())} exercises done, {first.points + second.points} of {points}"
    assert count.inner_text().startswith(words)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a file").click()
    assert download.value.suggested_filename == "kvlib-progress.json"
    download.value.save_as(tmp_path / "mine.json")
    saved = json.loads((tmp_path / "mine.json").read_text())
    assert saved["version"] == 1 and saved["exercises"].keys() == {first.label, second.label}
    day = date.fromisoformat(saved["exercises"][first.label]["passed"])
    assert abs(day - date.today()) <= timedelta(days=1)

    page.get_by_role("checkbox", name=f"Done: {first.title}").uncheck()
    assert count.inner_text().startswith("1 of ")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget all ticks").click()
    assert ticks(page) == [] and count.inner_text().startswith("0 of ")
    page.reload()
    assert ticks(page) == []


def test_a_broken_or_forbidden_record_breaks_no_page(browser: Any, either: str) -> None:
    with visit_apart(browser, either, TABLE) as seen:
        page = seen.page
        for text in BROKEN:
            page.evaluate("text => localStorage.setItem('kvlib.progress', text)", text)
            page.reload()
            assert ticks(page) == [], text
        page.add_init_script(DENIED)
        page.reload()
        page.locator("table .kv-tick").first.check()
        assert re.match("1 of ", page.locator(".kv-count").inner_text())
        assert seen.errors == []


def test_it_can_be_read_in_both_themes(browser: Any, either: str) -> None:
    with visit(browser, either, TABLE) as seen:
        seen.page.add_style_tag(content=STILL)
        for theme in ("light", "dark"):
            seen.page.evaluate(SET_THEME, theme)
            for colour, back in seen.page.evaluate(SEEN):
                assert contrast(colour, back) >= 4.5, f"{theme}: {colour} on {back}"


def test_without_scripts_the_table_is_whole(browser: Any, either: str) -> None:
    with visit_apart(browser, either, TABLE, java_script_enabled=False) as seen:
        rows = seen.page.locator("table tbody tr")
        assert rows.count() == len(exercises())
        for e, text in zip(exercises(), rows.all_inner_texts(), strict=True):
            assert e.title in text and str(e.minutes) in text and "☐" in text

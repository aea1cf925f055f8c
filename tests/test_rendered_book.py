"""Every page of the built book in a headless Chromium: from a file and from a server, with every
request to the outside blocked and listed. The list has to stay empty.

Runs after the build (`make browser`, part of `make test`). Skips where there is no Chromium, but
never under CI=true.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from rendered import (
    BAD_IMAGES,
    CARD,
    COLOURS,
    CUT_OFF,
    HTML,
    MATH,
    NARROW,
    PAGES,
    WIDE,
    contrast,
    running_browser,
    served,
    take_picture,
    watch,
)

pytestmark = pytest.mark.browser

HEAVIEST = 3e6  # bytes of a page and all it loads, compressed


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser(HTML, PAGES) as running:
        yield running


@pytest.fixture(scope="module")
def bases() -> Iterator[dict[str, str]]:
    """Where the book lies, by scheme: its folder as a file address, and a server on it."""
    with served(HTML) as address:
        yield {"file": HTML.resolve().as_uri(), "http": address}


@pytest.mark.parametrize("scheme", ["file", "http"])
@pytest.mark.parametrize("name", PAGES or ["no page is built"])
def test_page_is_whole_in_both_themes_and_loads_nothing_from_outside(
    browser: Any, bases: dict[str, str], name: str, scheme: str
) -> None:
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    watched = watch(context, bases[scheme])
    page = watched.page
    loaded: dict[str, Any] = {}
    page.on("response", lambda answer: loaded.setdefault(answer.url, answer))
    page.goto(f"{bases[scheme]}/{name}", wait_until="load")
    math = page.evaluate(MATH)
    assert math["drawn"] == math["wanted"], f"{math['wanted'] - math['drawn']} formulas not drawn"
    assert math["errors"] == []
    for picture in page.query_selector_all("img"):
        picture.scroll_into_view_if_needed()  # pictures may be lazy
    page.wait_for_function("[...document.images].every(image => image.complete)")
    assert page.evaluate(BAD_IMAGES) == [], "pictures without alt text, or that do not load"
    dead = page.query_selector_all(".jupyter-widgets, [type*='jupyter.widget-view']")
    assert dead == [], "a widget view that no kernel stands behind"
    assert page.title().strip() and page.query_selector("h1")
    watched.until_it_asks_no_more()
    assert watched.outside == []
    assert watched.errors == []
    if scheme == "http":
        assert all(answer.ok for answer in loaded.values())
        weight = sum(len(gzip.compress(answer.body(), mtime=0)) for answer in loaded.values())
        assert 1e4 < weight < HEAVIEST, f"{weight / 1e6:.2f} MB in {len(loaded)} files"
    else:  # opening a page takes seconds: what it looks like in the dark is seen in the same one
        take_picture(page, f"{Path(name).stem}-light", full_page=True)
        dark_mode_is_readable(page)
        take_picture(page, f"{Path(name).stem}-dark")  # whole pages take seconds, too
        assert watched.outside == [] and watched.errors == []
    context.close()


def dark_mode_is_readable(page: Any) -> None:
    button = page.query_selector(".bd-header-article .theme-switch-button")
    assert button, "no switch between light and dark"
    for _ in range(3):  # the switch goes round: as the system, light, dark
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
        button.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)  # the theme fades its colours
    selector = ".bd-article :is(p, li, td, th, h1, h2, h3, a, code), mjx-container"
    texts = page.evaluate(COLOURS, selector)
    assert texts
    for words, colour, back in texts:
        assert contrast(colour, back) >= 4.5, f"{words!r}: {colour} on {back}"
    for picture in page.query_selector_all(".bd-article .cell_output img"):
        assert picture.evaluate(CARD) == ["none", "rgb(255, 255, 255)"], "dimmed, or no card"
    for explorer in page.query_selector_all(".text_html:has(> .kv-explorer)"):
        assert explorer.evaluate(CARD) == ["none", "rgba(0, 0, 0, 0)"], "a frame around a slider"


@pytest.mark.parametrize("name", PAGES or ["no page is built"])
def test_narrow_screen_needs_no_sideways_scrolling(
    browser: Any, bases: dict[str, str], name: str
) -> None:
    context = browser.new_context(viewport=NARROW, color_scheme="light")
    watched = watch(context, bases["file"])
    page = watched.page
    page.goto(f"{bases['file']}/{name}", wait_until="load")
    page.evaluate(MATH)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= NARROW["width"]
    take_picture(page, f"{Path(name).stem}-narrow")
    # what is wider than the screen has to be reachable: it, or a box around it, scrolls
    cut = page.evaluate(CUT_OFF)
    assert cut == [], "wider than the screen, and nothing to scroll it by"
    context.close()


def test_print_is_the_text_alone_dark_on_white(browser: Any, bases: dict[str, str]) -> None:
    context = browser.new_context(viewport=WIDE, color_scheme="dark")
    page = watch(context, bases["file"]).page
    page.goto(f"{bases['file']}/{PAGES[-1]}", wait_until="load")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    for selector in (".bd-sidebar-primary", ".bd-header-article", ".prev-next-area"):
        found = page.query_selector(selector)
        assert found is None or not found.is_visible(), f"{selector} is printed"
    headings = [h for h in page.query_selector_all("h1") if h.is_visible()]
    assert len(headings) == 1, "the title is printed once"
    page.wait_for_timeout(300)  # the theme fades its colours
    texts = page.evaluate(COLOURS, ".bd-article :is(p, li, td, th, h2, h3, a, code)")
    assert texts
    for words, colour, back in texts:
        assert contrast(colour, [255, 255, 255]) >= 4.5, f"{words!r} is printed in {colour}"
        assert contrast(back, [255, 255, 255]) < 1.3, f"{words!r} is printed on {back}"
    context.close()


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_search_finds_a_word_of_the_glossary(
    browser: Any, bases: dict[str, str], scheme: str
) -> None:
    context = browser.new_context(viewport=WIDE)
    watched = watch(context, bases[scheme])
    watched.page.goto(f"{bases[scheme]}/search.html?q=prefill", wait_until="load")
    # results come one after the other
    watched.page.wait_for_selector("#search-results li a[href*='book/glossary.html']")
    assert watched.outside == []
    # a browser lets no script read another file:, so there the results come without excerpts
    allowed = ("Access to fetch", "Failed to fetch", "net::ERR_FAILED") if scheme == "file" else ()
    assert [e for e in watched.errors if not any(text in e for text in allowed)] == []
    context.close()


def test_the_front_door_leads_to_the_first_page(browser: Any, bases: dict[str, str]) -> None:
    context = browser.new_context(viewport=WIDE)
    watched = watch(context, bases["file"])
    watched.page.goto(f"{bases['file']}/index.html")
    watched.page.wait_for_url("**/book/*.html")
    watched.page.wait_for_selector(".bd-article h1")
    assert watched.outside == []
    context.close()


@functools.cache
def links_and_anchors(page: Path) -> tuple[list[str], set[str]]:
    """What a page's links say, and the places in it that a link can name."""
    links, anchors = [], set()

    def note(tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        anchors.update(given[key] or "" for key in ("id", "name") if key in given)
        if tag == "a" and given.get("href"):
            links.append(given["href"] or "")

    reader = HTMLParser()
    reader.handle_starttag = note  # type: ignore[method-assign]
    reader.feed(page.read_text(encoding="utf-8"))
    return links, anchors


@pytest.mark.parametrize("name", PAGES or ["no page is built"])
def test_links_inside_the_book_lead_somewhere(name: str) -> None:
    page = HTML / name
    links, _ = links_and_anchors(page)
    broken = []
    for link in links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = ((HTML / name).parent / unquote(parts.path)).resolve() if parts.path else page
        anchor = unquote(parts.fragment) if target.suffix == ".html" else ""
        if not target.is_file() or (anchor and anchor not in links_and_anchors(target)[1]):
            broken.append(link)
        for notebook in parse_qs(parts.query).get("path", []):  # what a Run button opens
            if not (HTML / "lite" / "files" / notebook).is_file():
                broken.append(link)
    assert links and broken == []

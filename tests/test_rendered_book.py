"""Every page of the built book in a headless Chromium that reaches nothing but this machine.

A page is visited twice: from a file, on a wide screen, in both themes, with its sliders moved and
axe-core's rules; and from a server, on a narrow screen, with its sliders set by the address.

Runs after the build (`make browser`). Skips where there is no Chromium, but never under CI=true.
"""

import functools
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import page_checks
import pytest
import yaml
from explorer_pages import explorers_of
from page_axe import LOOKS, faults_of, looks_at, pale_on_a_narrow_screen
from page_sliders import Sliders, address_of, one_step_on
from rendered import HTML, NARROW, PAGES, ROOT, WHOLE, tags_of, take_picture
from visits import STILL, visit

pytestmark = pytest.mark.browser

TURNS = 8 if WHOLE else 5  # settings drawn for all sliders of a page at once, at each width
every_page = pytest.mark.parametrize("name", PAGES or ["no page is built"])
# Each page wide from a file and narrow from a server; KVLIB_TESTS=whole visits the other two, too.
wide_from = pytest.mark.parametrize("scheme", ["file", "http"] if WHOLE else ["file"])
narrow_from = pytest.mark.parametrize("scheme", ["http", "file"] if WHOLE else ["http"])


def test_every_page_of_the_contents_is_visited(record_property) -> None:
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    listed = {f"{name}.html" for name in [contents["root"], *chapters]}
    assert listed <= set(PAGES), "in the contents, and not built: run `make book`"
    visits = (4 if WHOLE else 2) * len(PAGES)
    record_property("sampled", f"visits of a page: {visits} of {4 * len(PAGES)}")
    record_property("sampled", f"settings drawn for a page's sliders: {TURNS} of 8")
    looks = sum(len(looks_at(turn)) for turn in range(len(PAGES)))
    record_property("sampled", f"looks of axe-core at a page: {looks} of {len(LOOKS) * len(PAGES)}")


@wide_from
@every_page
def test_page_holds_on_a_wide_screen_and_axe_finds_nothing(browser, book, subtests, name, scheme):
    with visit(browser, book[scheme], name, reduced_motion="reduce") as seen:
        with seen.part(subtests, "whole") as page:
            page_checks.is_whole(page)
        if WHOLE:
            take_picture(page, f"{Path(name).stem}-light", full_page=True)
        page.add_style_tag(content=STILL)
        if explorers := explorers_of(HTML / name):
            sliders_on_a_wide_screen(seen, subtests, explorers)
        with seen.part(subtests, "dark mode is readable"):
            page_checks.dark_mode_is_readable(page)
        if explorers:
            slider_colours(seen, subtests, explorers, "dark")
        if WHOLE:
            take_picture(page, f"{Path(name).stem}-dark")
        with seen.part(subtests, "axe"):
            faults = faults_of(page, looks_at(PAGES.index(name)))
            assert faults == [], "\n".join(map(str, faults[:20]))
        with seen.part(subtests, "loads nothing from outside, no errors"):
            seen.is_quiet()


def sliders_on_a_wide_screen(seen, subtests, explorers) -> None:
    sliders = Sliders(seen.page, explorers)
    with seen.part(subtests, "every control moves its figure"):
        sliders.move_everything()
    with seen.part(subtests, "words of figures stand clear"):
        sliders.words_stand_clear(TURNS)
    slider_colours(seen, subtests, explorers, "light")


def slider_colours(seen, subtests, explorers, theme) -> None:
    """In the theme that the page has now: each change of it draws the whole page anew."""
    sliders = Sliders(seen.page, explorers)
    with seen.part(subtests, f"words and marks can be seen, {theme}"):
        sliders.colours_can_be_seen(theme)
    if WHOLE:
        sliders.take_pictures(seen.name, theme)


@narrow_from
@every_page
def test_page_arrives_and_holds_on_a_narrow_screen(browser, book, subtests, name, scheme) -> None:
    explorers = explorers_of(HTML / name)
    settings = [one_step_on(data) for data in explorers]
    served = scheme == "http"  # a file's address cannot carry settings
    query = address_of(explorers, settings) if explorers and served else ""
    with visit(browser, book[scheme], name, query, viewport=NARROW) as seen:
        page = seen.page
        if explorers:
            sliders = Sliders(page, explorers)
        if explorers and served:
            with seen.part(subtests, "the address carries the settings"):
                sliders.address_carries_the_settings(settings)
        with seen.part(subtests, "whole"):
            page_checks.is_whole(page)
        with seen.part(subtests, "no sideways scrolling"):
            page_checks.needs_no_sideways_scrolling(page)
        if WHOLE or PAGES.index(name) % 3 == 0:
            with seen.part(subtests, "the header's words can be read"):
                page.add_style_tag(content=STILL)
                assert pale_on_a_narrow_screen(page) == []
                page.evaluate(page_checks.SET_THEME, "light")
        if WHOLE:
            take_picture(page, f"{Path(name).stem}-narrow")
        if explorers:
            with seen.part(subtests, "words of figures stand clear"):
                sliders.words_stand_clear(TURNS)
            if WHOLE:
                sliders.take_pictures(name, "narrow")
        with seen.part(subtests, "loads nothing from outside, no errors"):
            seen.is_quiet()
        if served:
            with seen.part(subtests, "arrives, and is light"):
                page_checks.arrives_and_is_light(HTML, seen.answers)


def test_print_is_the_text_alone_dark_on_white(browser: Any, book: dict[str, str]) -> None:
    with visit(browser, book["file"], PAGES[-1], color_scheme="dark") as seen:
        assert seen.page.evaluate(page_checks.THEME) == "dark"
        seen.page.add_style_tag(content=STILL)
        seen.page.emulate_media(media="print")
        page_checks.prints_its_text_alone_dark_on_white(seen.page)


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_search_finds_a_word_of_the_glossary(browser, book, scheme) -> None:
    with visit(browser, book[scheme], "search.html", "?q=prefill") as seen:
        # results come one after the other
        seen.page.wait_for_selector("#search-results li a[href*='book/glossary.html']")
        assert seen.outside == []
        # a browser lets no script read another file:, so there the results come without excerpts
        fetches = ("Access to fetch", "Failed to fetch", "net::ERR_FAILED")
        allowed = fetches if scheme == "file" else ()
        assert [e for e in seen.errors if not any(text in e for text in allowed)] == []


def test_the_front_door_leads_to_the_first_page(browser: Any, book: dict[str, str]) -> None:
    with visit(browser, book["file"], "index.html") as seen:
        seen.page.wait_for_url("**/book/*.html")
        seen.page.wait_for_selector(".bd-article h1")
        assert seen.outside == []


def test_what_a_page_asks_for_from_outside_is_listed_and_does_not_come(browser, book) -> None:
    with visit(browser, book["file"], PAGES[0]) as seen:
        for url in ("https://example.org/font.woff2", "http://198.51.100.1/picture.png"):
            assert seen.page.evaluate("url => fetch(url).then(() => 1, () => 0)", url) == 0
            assert seen.outside.pop() == url


@functools.cache
def links_and_anchors(page: Path) -> tuple[list[str], set[str]]:
    """What a page's links say, and the ids in it that a link can name."""
    tags = tags_of(page.read_text(encoding="utf-8"))
    anchors = {at[key] for _, at in tags for key in ("id", "name") if key in at}
    return [at["href"] for tag, at in tags if tag == "a" and at.get("href")], anchors


@every_page
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

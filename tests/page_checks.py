"""What the browser tests check on a page that is open: AssertionError where it does not hold."""

import functools
import gzip
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from page_probes import BAD_ICONS, BAD_IMAGES, CARD, COLOURS, CUT_OFF, LOAD_IMAGES, MATH
from rendered import contrast

HEAVIEST = 2e6  # bytes of a page and all it loads, compressed
TEXTS = ".bd-article :is(p, li, td, th, h1, h2, h3, a, code), mjx-container"
PRINTED = ".bd-article :is(p, li, td, th, h2, h3, a, code)"
SET_THEME = "theme => { document.documentElement.dataset.theme = theme; }"
THEME = "document.documentElement.dataset.theme"


def is_whole(page: Any) -> None:
    """Formulas, icons and pictures are there, with words, and nothing waits for a kernel."""
    math = page.evaluate(MATH)
    assert math["drawn"] == math["wanted"], f"{math['wanted'] - math['drawn']} formulas not drawn"
    assert math["errors"] == []
    page.evaluate(LOAD_IMAGES)
    page.wait_for_function("[...document.images].every(image => image.complete)")
    assert page.evaluate(BAD_IMAGES) == [], "pictures without alt text, or that do not load"
    assert page.evaluate(BAD_ICONS) == [], "icons that are not drawn, or not as high as words"
    dead = page.query_selector_all(".jupyter-widgets, [type*='jupyter.widget-view']")
    assert dead == [], "a widget view that no kernel stands behind"
    assert page.title().strip() and page.query_selector("h1")


@functools.cache
def compressed(path: Path) -> int:
    """Bytes of a file, as a server sends it."""
    return len(gzip.compress(path.read_bytes(), mtime=0))


def arrives_and_is_light(folder: Path, answers: dict[str, Any]) -> None:
    """All that the page asked a server for came, and weighs no more than a page may."""
    # 304: not changed since another page of this tab asked for it; soon after a build it asks again
    failed = [url for url, answer in answers.items() if not (answer.ok or answer.status == 304)]
    assert failed == [], "asked for, and not there"
    fonts = [url for url in answers if "/webfonts/" in url]
    assert fonts == [], "the theme's fonts of icons: does icons.woff lack one?"
    parts = [urlsplit(url) for url in answers]
    files = [folder / unquote(part.path).lstrip("/") for part in parts if part.netloc]
    weight = sum(compressed(file) for file in files)
    assert 1e4 < weight < HEAVIEST, f"{weight / 1e6:.2f} MB in {len(files)} files"


def dark_mode_is_readable(page: Any) -> None:
    """The page's own switch makes it dark; every word can be read, every figure has its card."""
    button = page.query_selector(".bd-header-article .theme-switch-button")
    assert button, "no switch between light and dark"
    for _ in range(3):  # the switch goes round: as the system, light, dark
        if page.evaluate(THEME) == "dark":
            break
        button.click()
    assert page.evaluate(THEME) == "dark"
    page.mouse.move(0, 0)
    texts = page.evaluate(COLOURS, TEXTS)
    assert texts
    for words, colour, back in texts:
        assert contrast(colour, back) >= 4.5, f"{words!r}: {colour} on {back}"
    for card in cards(page, ".bd-article .cell_output img"):
        assert card == ["none", "rgb(255, 255, 255)"], "dimmed, or no card"
    for card in cards(page, ".text_html:has(> .kv-explorer)"):
        assert card == ["none", "rgba(0, 0, 0, 0)"], "a frame around a slider"


def cards(page: Any, selector: str) -> list[list[str]]:
    """The filter and the background of each element."""
    found: list[list[str]] = page.eval_on_selector_all(selector, f"all => all.map({CARD})")
    return found


def needs_no_sideways_scrolling(page: Any) -> None:
    """Nothing is wider than 320 pixels (WCAG 2.2, 1.4.10), but for what scrolls in a box."""
    size = page.viewport_size
    for width in (size["width"], 320):
        page.set_viewport_size({**size, "width": width})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == [], "wider than the screen, and nothing to scroll it by"
    page.set_viewport_size(size)


def prints_its_text_alone_dark_on_white(page: Any) -> None:
    """What a printer gets of the page: no bars around the text, one title, dark words on white."""
    for selector in (".bd-sidebar-primary", ".bd-header-article", ".prev-next-area"):
        found = page.query_selector(selector)
        assert found is None or not found.is_visible(), f"{selector} is printed"
    headings = [h for h in page.query_selector_all("h1") if h.is_visible()]
    assert len(headings) == 1, "the title is printed once"
    texts = page.evaluate(COLOURS, PRINTED)
    assert texts
    for words, colour, back in texts:
        assert contrast(colour, [255, 255, 255]) >= 4.5, f"{words!r} is printed in {colour}"
        assert contrast(back, [255, 255, 255]) < 1.3, f"{words!r} is printed on {back}"

"""What the browser tests share: where the book is, how much of it is tried, pictures, contrasts."""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import effort

WHOLE = effort.LEVEL == "whole"
ROOT = Path(__file__).resolve().parent.parent
HTML = Path(os.environ.get("KVLIB_HTML", ROOT / "_build" / "html")).resolve()  # the built book
FILES = HTML.as_uri()  # where it is, as an address
PICTURES = ROOT / "_build" / "screenshots"  # to be looked at
PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.glob("book/**/*.html"))
NARROW = {"width": 400, "height": 800}
WIDE = {"width": 1280, "height": 900}
# Milliseconds between looks at what takes long. By itself, Playwright looks at every frame drawn.
SELDOM = 100


def take_picture(what: Any, name: str, **how: Any) -> None:
    """A picture of a page or of a part of one, for people: nothing is tested by it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    what.screenshot(path=PICTURES / f"{name}.png", **how)


def tags_of(page: str) -> list[tuple[str, dict[str, str]]]:
    """Return (tag, attributes) of every element of a page, in order."""
    tags: list[tuple[str, dict[str, str]]] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attributes: tags.append(  # type: ignore[method-assign]
        (tag, {name: value or "" for name, value in attributes})
    )
    reader.feed(page)
    return tags


def luminance(rgb: list[float]) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.2)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)

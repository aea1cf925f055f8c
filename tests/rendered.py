"""What the browser test asks of a page, and how it watches one."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chromium import find_chromium, launch

ROOT = Path(__file__).resolve().parent.parent
HTML = Path(os.environ.get("KVLIB_HTML", ROOT / "_build" / "html"))  # the built book
PICTURES = ROOT / "_build" / "screenshots"  # of every page, to be looked at
PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.glob("book/**/*.html"))
NARROW = {"width": 400, "height": 800}
WIDE = {"width": 1280, "height": 900}

# Opens what is folded: code, hints, solutions.
UNFOLD = """() => {
  for (const e of document.querySelectorAll('details')) e.open = true;
  for (const e of document.querySelectorAll('.toggle-hidden')) {
    const button = e.querySelector('button.toggle-button');
    if (button) button.click(); else e.classList.remove('toggle-hidden');
  }
}"""
# Runs in the page: every picture, with what is wrong with it.
BAD_IMAGES = """() => [...document.images].filter(
  image => !(image.alt || '').trim() || !image.complete || image.naturalWidth === 0
).map(image => image.getAttribute('src') + ' alt=' + JSON.stringify(image.alt))"""
MATH = """async () => {
  const formulas = [...document.querySelectorAll('.math')], wanted = formulas.length;
  if (wanted && !window.MathJax?.startup?.promise)
    return {wanted, drawn: 0, errors: ['no MathJax']};
  if (wanted) await window.MathJax.startup.promise;
  // a formula that MathJax cannot read, or one with a command it does not know (drawn in red)
  const broken = '[data-mml-node=merror], [data-mml-node=mtext][fill=red]';
  const errors = formulas.filter(e => e.querySelector(broken));
  return {
    wanted,
    drawn: formulas.filter(e => e.querySelector('mjx-container')).length,
    errors: errors.map(e => e.textContent || e.closest('p')?.textContent || 'a formula'),
  };
}"""
# Every visible text: a few words, its colour and its background (the nearest opaque one), as sRGB.
# The same pair of colours is given once for each kind of element.
COLOURS = """selector => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const back = element => {
    for (let node = element; node; node = node.parentElement) {
      const c = rgb(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = new Map();
  for (const e of document.querySelectorAll(selector)) {
    const words = e.textContent.trim();
    if (!words || !e.checkVisibility()) continue;
    const answer = [words.slice(0, 60), rgb(getComputedStyle(e).color).slice(0, 3), back(e)];
    const key = [e.tagName, ...answer[1], ...answer[2]].join();
    if (!found.has(key)) found.set(key, answer);
  }
  return [...found.values()];
}"""
# Style of a figure: nothing may dim it, and it has a card of its own.
CARD = "e => { const s = getComputedStyle(e); return [s.filter, s.backgroundColor]; }"
# What is wider than the screen has to be reachable: it, or a box around it, scrolls.
CUT_OFF = """() => [...document.querySelectorAll(
    '.bd-article :is(table, pre, img, mjx-container[display=true])')].filter(element => {
  const width = window.innerWidth;
  if (element.scrollWidth <= width && element.getBoundingClientRect().right <= width) return false;
  for (let n = element; n && !n.classList.contains('bd-article'); n = n.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(n).overflowX)) return false;
  return true;
}).map(element => element.tagName + ' ' + element.textContent.slice(0, 60))"""


@dataclass
class Watched:
    """A page, and what it did that it should not."""

    page: Any
    asked: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def until_it_asks_no_more(self) -> None:
        """Half a second without a new request: what scripts fetch late has had its chance."""
        seen = -1
        while seen < len(self.asked):
            seen = len(self.asked)
            self.page.wait_for_timeout(500)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    # a browser opens many connections at once; beyond the queue (5 in Python) some get lost
    request_queue_size = 128


@contextmanager
def running_browser(html: Path, pages: list[str]) -> Iterator[Any]:
    """A headless Chromium for the pages built under `html`.

    Fails where nothing is built; skips where there is no Chromium, but fails under CI=true.
    """
    if not pages:
        pytest.fail(f"no pages under {html}: run `make book` first")
    if find_chromium() is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        in_ci = os.environ.get("CI", "").lower() == "true"
        pytest.fail(reason) if in_ci else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = launch(playwright)
        yield running
        running.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server on `folder` at a free port of this machine; gives its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def watch(context: Any, base: str) -> Watched:
    """A new page that lets through requests under `base` only, and lists the rest."""
    watched = Watched(context.new_page())
    watched.page.set_default_timeout(120_000)  # milliseconds; a busy machine is slow, not wrong

    def route(handler: Any) -> None:
        url = handler.request.url
        watched.asked.append(url)
        if url.startswith((base, "data:", "blob:")):
            handler.continue_()
        else:
            watched.outside.append(url)
            handler.abort()

    def console(message: Any) -> None:
        if message.type == "error":
            watched.errors.append(message.text)

    watched.page.route("**/*", route)
    watched.page.on("console", console)
    watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
    return watched


def take_picture(what: Any, name: str, **how: Any) -> None:
    """A picture of a page or of a part of one, for people: nothing is tested by it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    what.screenshot(path=PICTURES / f"{name}.png", **how)


def luminance(rgb: list[float]) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.2)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: list[float], b: list[float]) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)

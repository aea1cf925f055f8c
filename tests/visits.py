"""One Chromium for the browser tests, and visits of pages that are watched."""

import functools
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chromium import HOW_TO_INSTALL, find_chromium, launch
from rendered import FILES, HTML, PAGES, WIDE, take_picture

PATIENCE = 120_000  # milliseconds that a page has; a busy machine is slow, not wrong
SCREEN = {"media": "screen", "color_scheme": "light", "reduced_motion": "no-preference"}
# Colours change at once instead of fading: no check has to wait for them.
STILL = """*, *::before, *::after {
  transition: none !important; animation: none !important; scroll-behavior: auto !important;
}"""


@dataclass
class Watched:
    """A page, and what it did that it should not."""

    page: Any
    name: str = ""
    asked: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    def until_it_asks_no_more(self) -> None:
        """Half a second without a new request: what scripts fetch late has had its chance."""
        seen = -1
        while seen < len(self.asked):
            seen = len(self.asked)
            self.page.wait_for_timeout(500)

    def is_quiet(self) -> None:
        """AssertionError if the page asked for something outside, or logged an error."""
        self.until_it_asks_no_more()
        assert self.outside == [], "asked for from outside"
        assert self.errors == []

    @contextmanager
    def part(self, subtests: pytest.Subtests, name: str) -> Iterator[Any]:
        """One part of a visit: it fails alone, and the parts after it still run."""
        with subtests.test(name), pictured(self):
            yield self.page


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    # a browser opens many connections at once; beyond the queue (5 in Python) some get lost
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves a page drops its connections: no news, and no traceback."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@dataclass
class Browser:
    """A running Chromium, and the tab in which one visit follows another."""

    engine: Any  # Playwright's Browser
    tab: Any = None

    def take_tab(self) -> Any:
        """The tab, for one visit; `give_tab_back` when it is over."""
        tab, self.tab = self.tab or self.engine.new_context().new_page(), None
        tab.set_default_timeout(PATIENCE)
        return tab

    def give_tab_back(self, tab: Any) -> None:
        """The next visit finds a tab without a page, a record, or a mouse over something."""
        tab.evaluate("localStorage.clear(), sessionStorage.clear()")
        tab.mouse.move(0, 0)
        tab.goto("about:blank")
        self.tab = tab


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless Chromium. Skips where there is none, but fails under CI=true."""
    if find_chromium() is None:
        in_ci = os.environ.get("CI", "").lower() == "true"
        reason = f"The pages were not tried in a browser. {HOW_TO_INSTALL}"
        pytest.fail(reason, pytrace=False) if in_ci else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        engine = launch(playwright)
        yield Browser(engine)
        engine.close()


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


@contextmanager
def the_book() -> Iterator[dict[str, str]]:
    """Addresses of the built book by scheme: its folder, and a server on it."""
    if not PAGES:
        pytest.fail(f"no pages under {HTML}: run `make book` first", pytrace=False)
    with served(HTML) as address:
        yield {"file": FILES, "http": address}


@contextmanager
def watched(page: Any, base: str, name: str = "") -> Iterator[Watched]:
    """Notes all that a page asks for, and what of it is not under `base`."""
    seen = Watched(page, name)

    def request(asked: Any) -> None:
        seen.asked.append(asked.url)
        if not asked.url.startswith((base, "data:", "blob:", "about:")):
            seen.outside.append(asked.url)

    def response(answer: Any) -> None:
        seen.answers.setdefault(answer.url, answer)

    def console(message: Any) -> None:
        if message.type == "error":
            seen.errors.append(f"{message.text} ({message.location['url']})")

    def error(exception: Any) -> None:
        seen.errors.append(str(exception))

    listeners = {"request": request, "response": response, "console": console, "pageerror": error}
    for event, listener in listeners.items():
        page.on(event, listener)
    with pictured(seen):
        yield seen
    for event, listener in listeners.items():
        page.remove_listener(event, listener)


@contextmanager
def visit(browser, base, name, query="", viewport=WIDE, **media) -> Iterator[Watched]:
    """A page, loaded in the tab that all visits share: light unless `media` says otherwise."""
    page = browser.take_tab()
    try:
        page.set_viewport_size(viewport)
        page.emulate_media(**(SCREEN | media))
        with watched(page, base, name) as seen:
            page.goto(f"{base}/{name}{query}", wait_until="load")
            yield seen
        browser.give_tab_back(page)
    finally:
        if browser.tab is None:  # something failed: the next visit gets another tab
            page.context.close()


@contextmanager
def visit_apart(browser, base, name, query="", **how) -> Iterator[Watched]:
    """A page in a separate context, for a visit that changes what is stored."""
    context = browser.engine.new_context(**({"viewport": WIDE, "color_scheme": "light"} | how))
    try:
        context.set_default_timeout(PATIENCE)
        with watched(context.new_page(), base, name) as seen:
            seen.page.goto(f"{base}/{name}{query}", wait_until="load")
            yield seen
    finally:
        context.close()


@contextmanager
def pictured(seen: Watched) -> Iterator[None]:
    """Where what is done here fails, the screen at that moment is kept as a picture."""
    try:
        yield
    except Exception:
        if not seen.page.is_closed():
            take_picture(seen.page, f"failed-{Path(seen.name).stem}")
        raise

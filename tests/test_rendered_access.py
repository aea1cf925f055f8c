"""axe-core's rules on every page, in light and dark, wide and narrow, with everything unfolded; and
a walk over a page by the Tab key.

Runs after the build (`make browser`, part of `make test`). Skips where there is no Chromium, but
never under CI=true.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rendered import (
    COLOURS,
    HTML,
    NARROW,
    PAGES,
    UNFOLD,
    WIDE,
    contrast,
    running_browser,
    watch,
)

pytestmark = pytest.mark.browser

AXE = Path(__file__).resolve().parent / "vendor" / "axe-core" / "axe.min.js"
OTHERS = ["search.html", "genindex.html"]
# axe's impacts are minor, moderate, serious and critical; a heading out of order is moderate
REFUSED = ("moderate", "serious", "critical")
# All rules once; the dark theme changes colours alone, and a narrow screen no colours.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
LOOKS = [
    (WIDE, "light", {}),
    (WIDE, "dark", {"runOnly": COLOUR_RULES}),
    (NARROW, "light", {"rules": {rule: {"enabled": False} for rule in COLOUR_RULES}}),
]
RUN = """async some => {
  const found = await axe.run(document, {resultTypes: ['violations'], ...some});
  return {
    rules: found.passes.length + found.violations.length,
    violations: found.violations.map(rule => [rule.id, rule.impact, rule.help,
      rule.nodes.slice(0, 5).map(node => node.target.join(' ') + ' ' + node.html.slice(0, 120))]),
  };
}"""
# A page has thousands of coloured words of code, and axe takes seconds over them: their colours are
# looked at once by a probe of our own, after that each block is one piece of text.
CODE = ".highlight pre span"
FLATTEN = """() => {
  for (const pre of document.querySelectorAll('.highlight pre')) pre.textContent = pre.textContent;
}"""
HEADER = ".bd-header-article *, .bd-header *, .skip-link a, footer *"
THEME = "theme => { document.documentElement.dataset.theme = theme; }"
# What has the focus: how to name it, and whether one can see that it has it.
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
  const line = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1;
  return {
    at: [...document.querySelectorAll('*')].indexOf(e),
    name: `${e.tagName}.${e.className} ${e.getAttribute('aria-label') || e.textContent.trim()}`,
    seen: (line || s.boxShadow !== 'none') && box.width > 0 && box.height > 0,
  };
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser(HTML, PAGES) as running:
        yield running


def opened(browser: Any, name: str, viewport: dict[str, int]) -> Any:
    """The page, without moving parts, when its formulas are drawn and its sliders are there."""
    context = browser.new_context(viewport=viewport, color_scheme="light", reduced_motion="reduce")
    page = watch(context, HTML.resolve().as_uri()).page
    page.goto((HTML / name).resolve().as_uri(), wait_until="load")
    page.evaluate("window.MathJax?.startup?.promise")
    return page


@pytest.mark.parametrize("name", [*PAGES, *OTHERS] if PAGES else ["no page is built"])
def test_axe_finds_nothing(browser: Any, name: str) -> None:
    page = opened(browser, name, WIDE)
    page.evaluate(UNFOLD)
    faults: list[object] = []
    for theme in ("light", "dark"):
        page.evaluate(THEME, theme)
        for words, colour, back in page.evaluate(COLOURS, CODE):
            if contrast(colour, back) < 4.5:
                faults.append((theme, words, colour, back))
    page.evaluate(FLATTEN)
    page.add_script_tag(path=AXE)
    for viewport, theme, rules in LOOKS:
        if page.viewport_size != viewport:
            page.set_viewport_size(viewport)
            # the theme's script looks 300 ms after a change of size which boxes scroll
            page.wait_for_timeout(500)
        page.evaluate(THEME, theme)
        answer = page.evaluate(RUN, rules)
        assert answer["rules"] > (0 if theme == "dark" else 20), "axe has seen no page"
        faults += [
            (theme, viewport["width"], *violation)
            for violation in answer["violations"]
            if violation[1] in REFUSED
        ]
    # what only a narrow screen shows (its header has other buttons) must have its colours, too
    for theme in ("light", "dark"):
        page.evaluate(THEME, theme)
        for words, colour, back in page.evaluate(COLOURS, HEADER):
            if contrast(colour, back) < 4.5:
                faults.append((theme, "narrow header", words, colour, back))
    page.context.close()
    assert faults == [], "\n".join(map(str, faults[:20]))


@pytest.mark.parametrize("rules", [{}, {"runOnly": COLOUR_RULES}], ids=["all", "colours"])
def test_axe_sees_what_is_wrong(browser: Any, rules: dict[str, Any]) -> None:
    """A page with three faults: what finds nothing on the book finds these."""
    page = browser.new_context().new_page()
    page.set_content(
        '<!doctype html><html lang="en"><title>Faults</title><main><h1>One</h1>'
        '<img src="data:,"><p style="color: #999; background: #fff">pale</p><button></button>'
        "</main></html>"
    )
    page.add_script_tag(path=AXE)
    found = {rule: impact for rule, impact, *_ in page.evaluate(RUN, rules)["violations"]}
    page.context.close()
    wanted = {"color-contrast"} if rules else {"color-contrast", "image-alt", "button-name"}
    assert wanted <= {rule for rule, impact in found.items() if impact in REFUSED}


@pytest.mark.parametrize("name", [n for n in PAGES if "memory" in n or "notation" in n])
def test_tab_goes_over_the_page_and_shows_where_it_is(browser: Any, name: str) -> None:
    page = opened(browser, name, WIDE)
    stops: list[dict[str, Any]] = []
    for _ in range(100):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if any(stop["at"] == earlier["at"] for earlier in stops) or stop["name"].startswith("BODY"):
            break  # once round
        stops.append(stop)
    page.context.close()
    assert "Skip to main content" in stops[0]["name"], "the first stop leads past the side bar"
    assert stop["at"] == stops[0]["at"] or stop["name"].startswith("BODY") or len(stops) == 100, (
        f"the Tab key is caught at {stop['name']}"
    )
    unseen = [stop["name"] for stop in stops if not stop["seen"]]
    assert unseen == [], "has the focus, and looks as if it had not"
    for button in ("Search", "Download this page", "Color mode"):
        assert any(button in stop["name"] for stop in stops), f"no key reaches {button}"

"""axe-core's rules on pages that are no chapters and on one with known faults; the Tab key.

Runs after the build (`make browser`). Skips where there is no Chromium, but never under CI=true.
"""

from typing import Any

import page_checks
import pytest
from page_axe import AXE, COLOUR_RULES, REFUSED, RUN, faults_of, pale, pale_on_a_narrow_screen
from rendered import NARROW, PAGES
from visits import visit

pytestmark = pytest.mark.browser

OTHERS = ["search.html", "genindex.html"]
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


@pytest.mark.parametrize("name", OTHERS)
def test_axe_finds_nothing(browser: Any, book: dict[str, str], name: str) -> None:
    with visit(browser, book["file"], name, reduced_motion="reduce") as seen:
        faults = faults_of(seen.page)
        seen.page.set_viewport_size(NARROW)
        page_checks.needs_no_sideways_scrolling(seen.page)
        faults += pale_on_a_narrow_screen(seen.page)
        assert faults == [], "\n".join(map(str, faults[:20]))


@pytest.mark.parametrize("rules", [{}, {"runOnly": COLOUR_RULES}], ids=["all", "colours"])
def test_axe_sees_what_is_wrong(browser: Any, rules: dict[str, Any]) -> None:
    """A page with three faults: what finds nothing on the book finds these."""
    page = browser.engine.new_context().new_page()
    page.set_content(
        '<!doctype html><html lang="en"><title>Faults</title><main><h1>One</h1>'
        '<img src="data:,"><p style="color: #999; background: #fff">pale</p><button></button>'
        "</main></html>"
    )
    page.add_script_tag(path=AXE)
    found = {rule: impact for rule, impact, *_ in page.evaluate(RUN, rules)["violations"]}
    assert [words for _, _, words, *_ in pale(page, "p", "words")] == ["pale", "pale"]
    page.context.close()
    wanted = {"color-contrast"} if rules else {"color-contrast", "image-alt", "button-name"}
    assert wanted <= {rule for rule, impact in found.items() if impact in REFUSED}


@pytest.mark.parametrize("name", [n for n in PAGES if "memory" in n or "notation" in n])
def test_tab_goes_over_the_page_and_shows_where_it_is(browser, book, name) -> None:
    stops: list[dict[str, Any]] = []
    with visit(browser, book["file"], name, reduced_motion="reduce") as seen:
        page = seen.page
        page.evaluate("window.MathJax?.startup?.promise")
        for _ in range(100):
            page.keyboard.press("Tab")
            stop = page.evaluate(FOCUSED)
            once_round = any(stop["at"] == earlier["at"] for earlier in stops)
            if once_round or stop["name"].startswith("BODY"):
                break
            stops.append(stop)
    assert "Skip to main content" in stops[0]["name"], "the first stop leads past the side bar"
    assert stop["at"] == stops[0]["at"] or stop["name"].startswith("BODY") or len(stops) == 100, (
        f"the Tab key is caught at {stop['name']}"
    )
    unseen = [stop["name"] for stop in stops if not stop["seen"]]
    assert unseen == [], "has the focus, and looks as if it had not"
    for button in ("Search", "Download this page", "Color mode"):
        assert any(button in stop["name"] for stop in stops), f"no key reaches {button}"

"""axe-core's rules on an open page: light and dark, wide and narrow, with everything unfolded."""

from pathlib import Path
from typing import Any

from page_checks import SET_THEME, THEME
from page_probes import COLOURS, UNFOLD
from rendered import NARROW, WHOLE, WIDE, contrast

AXE = Path(__file__).resolve().parent / "vendor" / "axe-core" / "axe.min.js"
# axe's impacts are minor, moderate, serious and critical; a heading out of order is moderate
REFUSED = ("moderate", "serious", "critical")
# All rules but those of colours, those of colours in either theme, and a narrow screen.
Look = tuple[dict[str, int], str, dict[str, Any]]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
ALL_BUT_COLOURS = {"rules": {rule: {"enabled": False} for rule in COLOUR_RULES}}
LOOKS: list[Look] = [
    (WIDE, "light", ALL_BUT_COLOURS), (WIDE, "light", {"runOnly": COLOUR_RULES}),
    (WIDE, "dark", {"runOnly": COLOUR_RULES}), (NARROW, "light", ALL_BUT_COLOURS),
]


def looks_at(turn: int) -> list[Look]:
    """The first look at every page; each of the others usually at a third of the pages."""
    return LOOKS if WHOLE else [LOOKS[0], LOOKS[1 + turn % 3]]


# Nothing is fetched: from a file, a page may not read its own style sheets again.
RUN = """async some => {
  const found = await axe.run(document, {resultTypes: ['violations'], preload: false, ...some});
  return {
    rules: found.passes.length + found.violations.length,
    violations: found.violations.map(rule => [rule.id, rule.impact, rule.help,
      rule.nodes.slice(0, 5).map(node => node.target.join(' ') + ' ' + node.html.slice(0, 120))]),
  };
}"""
# A page has thousands of coloured words of code, in blocks, in signatures and amid text. axe takes
# seconds over them: their colours are looked at once by another probe, after that what holds
# no link or button is one piece of text.
WORDS = ".sig :is(span, em), code > span"
FLATTEN = """words => {
  for (const pre of document.querySelectorAll('.highlight pre')) pre.textContent = pre.textContent;
  for (const e of document.querySelectorAll(words))
    if (e.isConnected && !e.querySelector('a, button')) e.replaceWith(e.textContent);
  document.body.normalize();
}"""
# The theme's script looks which boxes scroll 300 ms after the last change of the page or its size.
SETTLED = """width => new Promise(done => {
  let timer = null;
  const wait = () => { clearTimeout(timer); timer = setTimeout(done, 400); };
  const begin = () => innerWidth === width ? wait() : requestAnimationFrame(begin);
  addEventListener('resize', wait);
  new MutationObserver(wait).observe(document.body, {subtree: true, childList: true});
  requestAnimationFrame(begin);
})"""
HEADER = ".bd-header-article *, .bd-header *, .skip-link a, footer *"
KINDS = (
    "p, li, td, th, h1, h2, h3, h4, a:not(.headerlink), code, dt, dd, summary, figcaption, label, "
    "output, button"
)
ALL_WORDS = (
    f":is(.bd-article, .bd-sidebar, .bd-toc) :is({KINDS}), .highlight pre span, mjx-container, "
    f"{HEADER}, {WORDS}"
)


def pale(page: Any, selector: str, where: str) -> list[object]:
    """Texts whose colour is too near to their background, in either theme."""
    found: list[object] = []
    now = page.evaluate(THEME)
    for theme in sorted(("light", "dark"), key=lambda theme: theme != now):
        page.evaluate(SET_THEME, theme)
        for words, colour, back in page.evaluate(COLOURS, selector):
            if contrast(colour, back) < 4.5:
                found.append((theme, where, words, colour, back))
    return found


def faults_of(page: Any, looks: list[Look] = LOOKS) -> list[object]:
    """What axe and our own probe find on the page. It ends unfolded, its code in one colour."""
    page.evaluate(UNFOLD)
    found = pale(page, ALL_WORDS, "words")
    page.evaluate(FLATTEN, WORDS)
    page.add_script_tag(path=AXE)
    for viewport, theme, rules in looks:
        if page.viewport_size != viewport:
            page.set_viewport_size(viewport)
        page.evaluate(SETTLED, viewport["width"])
        page.evaluate(SET_THEME, theme)
        answer = page.evaluate(RUN, rules)
        assert answer["rules"] > (0 if "runOnly" in rules else 20), "axe has seen no page"
        found += [
            (theme, viewport["width"], *violation)
            for violation in answer["violations"]
            if violation[1] in REFUSED
        ]
    return found


def pale_on_a_narrow_screen(page: Any) -> list[object]:
    """What only a narrow screen shows (its header has other buttons) has its colours, too."""
    assert page.viewport_size == NARROW
    return pale(page, HEADER, "narrow header")

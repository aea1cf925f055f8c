"""Sphinx extension: pages that load what they use, and no more.

The theme gives every page fontawesome.js: 1.5 MB of drawings, of which a page shows about twenty.
The script replaces the icons of an open page by inline SVG, and from then on it looks for icons in
every change of the page. Here the same SVG is written into the page when it is built, with the
drawings of that script. An icon that another script makes later is shown by the theme's font.

The style sheets show icons, too, such as those of admonitions, with that font, which has 156 KB.
icons.woff is a font of their icons alone, in 2 KB, which book.css puts before the theme's.

The scripts of the search and of the sliders are left out of pages that do not use them.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pydata_sphinx_theme
from fontTools import subset
from sphinx.jinja2glue import BuiltinTemplateLoader

ICONS = "_static/scripts/fontawesome.js"
# The dialog of the search needs them only if it searches while one types; search.html always does.
SEARCH = ("_static/searchtools.js", "_static/language_data.js", "searchindex.js")
SLIDERS = ("explorers/scenes.js", "explorers/explorer.js")
FONT = "_static/icons.woff"
THEME_FONT = "_static/vendor/fontawesome/webfonts/fa-solid-900.ttf"
THEME_STYLE = "_static/styles/pydata-sphinx-theme.css"

# What an icon's class says of its style: the pack that fontawesome.js keeps its drawing in.
PACKS = {
    name: pack
    for pack, names in {
        "fas": ("fa", "fas", "fa-solid"),
        "far": ("far", "fa-regular"),
        "fab": ("fab", "fa-brands"),
    }.items()
    for name in names
}
# name:[width,height,[code points and other names],"code point","path"], and what ends a pack
DRAWING = re.compile(r'"?([\w-]+)"?:\[(\d+),(\d+),(\[[^]]*\]),"[0-9a-f]+",("[^"]+")\]')
END_OF_PACK = re.compile(r'\("(fa[srb])",\w+\)')
EMPTY_ELEMENT = re.compile(r'<(\w+)((?:\s[^<>]*)?)\sclass="([^"<>]*)"([^<>]*)></\1>')
STYLE = rf'(?:[^"]*\s)?(?:{"|".join(PACKS)})(?:\s[^"]*)?'
STYLED = re.compile(rf'<(?!svg\b)\w[^<>]*\sclass="{STYLE}"[^>]*>')


def theme_path(name: str) -> Path:
    """The theme's own copy of a file that it puts under _static."""
    theme = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme"
    return theme / name.replace("_static", "static")


def theme_file(name: str) -> str:
    return theme_path(name).read_text(encoding="utf-8")


@functools.cache
def drawings() -> dict[tuple[str, str], tuple[int, int, str]]:
    """(pack, name) → width, height and path of every icon that the theme has."""
    script = theme_file(ICONS)
    ends = [(end.start(), end[1]) for end in END_OF_PACK.finditer(script)]
    found = {}
    for match in DRAWING.finditer(script):
        pack = ends[bisect.bisect(ends, (match.start(),))][1]
        name, width, height, others, path = match.groups()
        drawing = (int(width), int(height), json.loads(path))
        others = [other for other in json.loads(others) if isinstance(other, str)]
        found |= {(pack, called): drawing for called in (name, *others)}
    return found


def licence() -> str:
    """What the licence of the icons asks to be said beside them."""
    lines = theme_file(f"{ICONS}.LICENSE.txt").splitlines()
    return " ".join(line.strip(" */!") for line in lines).strip()


def drawn(element: re.Match[str]) -> str:
    """An empty element as the SVG that fontawesome.js makes of it, if its classes name an icon."""
    _, before, classes, after = element.groups()
    packs = [PACKS[name] for name in classes.split() if name in PACKS]
    if not packs:
        return element[0]
    kept = [name for name in classes.split() if name not in PACKS]
    named = [drawings().get((packs[-1], name.removeprefix("fa-"))) for name in kept]
    found = [drawing for drawing in named if drawing]
    if len(found) != 1:
        raise ValueError(
            f"{element[0]} should name one icon of Font Awesome Free, but names {len(found)}; "
            "https://fontawesome.com/v6/search?o=r&m=free lists the names"
        )
    width, height, path = found[0]
    attributes = f"{before}{after}".replace(' aria-hidden="true"', "")
    return (
        f'<svg class="{" ".join(["svg-inline--fa", *kept])}"{attributes} aria-hidden="true" '
        f'viewBox="0 0 {width} {height}"><path fill="currentColor" d="{path}"/></svg>'
    )


def with_icons(page: str) -> str:
    """The page with its icons as SVG, and their licence in its head."""
    changed = EMPTY_ELEMENT.sub(drawn, page)
    if left := STYLED.search(changed):
        raise ValueError(f"{left[0]} is styled as an icon, but is not an empty element")
    said = f"<!-- {licence()} -->\n</head>" if changed != page else "</head>"
    return changed.replace("</head>", said, 1)


def icon_font() -> bytes:
    """A font of the icons that the theme's style sheet names in its variables, --pst-icon-…

    Its licence wants a changed font to have another name.
    """
    options = subset.Options(flavor="woff", recalc_timestamp=False, name_IDs=[0, 5])
    named = re.findall(r'--pst-icon-[\w-]+:"(.)"', theme_file(THEME_STYLE))
    subsetter = subset.Subsetter(options)
    subsetter.populate(text="".join(named))
    written = io.BytesIO()
    with subset.load_font(str(theme_path(THEME_FONT)), options) as font:
        subsetter.subset(font)
        for number, words in {1: "Book icons", 4: "Book icons", 13: licence()}.items():
            font["name"].setName(words, number, 3, 1, 0x409)  # Windows, Unicode, English
        subset.save_font(font, written, options)
    return written.getvalue()


def without(page: str, script: str) -> str:
    """The page without the element that loads a script."""
    loads = rf'[ \t]*<script\b[^<>]*\ssrc="(?:[^"]*/)?{re.escape(script)}(?:\?[^"]*)?"[^<>]*>'
    changed = re.sub(rf"{loads}\s*</script>\n?", "", page)
    if left := re.search(rf'="[^"]*{re.escape(script)}', changed):
        raise ValueError(f"the page still loads a script that it should not need: {left[0]}")
    return changed


def lightened(page: str, name: str, live_search: bool) -> str:
    """A page as the theme makes it, with its icons, and without what it does not use."""
    unused = [ICONS]
    if name != "search" and not live_search:
        unused += SEARCH
    if "kv-explorer" not in page:
        unused += SLIDERS
    return functools.reduce(without, unused, with_icons(page))


class Templates(BuiltinTemplateLoader):
    """Sphinx's templates, whose pages are lightened before they are written."""

    def render(self, template: str, context: dict[str, Any]) -> str:  # type: ignore[override]
        page = super().render(template, context)
        if "pagename" not in context:
            return page
        live = str(context.get("theme_search_as_you_type", False)).lower() == "true"
        return lightened(page, context["pagename"], live)


def use_templates(app: Any, config: Any) -> None:
    config.template_bridge = "light_pages.Templates"


def change_files(app: Any, exception: Exception | None) -> None:
    """The site gets the small font, and need not carry the script that no page loads any more."""
    if exception is None:
        (Path(app.outdir) / FONT).write_bytes(icon_font())
        for path in (Path(app.outdir) / ICONS).parent.glob(f"{Path(ICONS).name}*"):
            path.unlink()


def setup(app: Any) -> dict[str, Any]:
    # a change to this file makes every page anew
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    app.add_config_value("light_pages_digest", digest, "html")
    app.connect("config-inited", use_templates)
    app.connect("build-finished", change_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

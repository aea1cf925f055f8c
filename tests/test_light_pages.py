"""The pages of the book hold their icons as drawings, and load no script that they do not use."""

import gc
import io
import re

import light_pages
import pytest
from fontTools.ttLib import TTFont
from light_pages import ICONS, SEARCH, SLIDERS, drawings, lightened, with_icons
from repository import ROOT

HEAD = "<html><head><title>A page</title></head>"
SVG = re.compile(
    r'<svg class="([^"]*)"([^>]*) viewBox="0 0 (\d+) (\d+)"><path [^>]*d="([^"]*)"/></svg>'
)


def drawn(element: str) -> tuple[str, ...]:
    """Classes, other attributes, width, height and path of what an element becomes."""
    page = with_icons(f"{HEAD}{element}</html>")
    assert page.count("<svg") == 1
    drawing = SVG.search(page)
    assert drawing, page
    return drawing.groups()


def test_the_drawings_are_those_of_the_theme() -> None:
    assert len(drawings()) > 2000
    script = light_pages.theme_file(ICONS)
    for key in (("fas", "play"), ("far", "sun"), ("fab", "github")):
        width, height, path = drawings()[key]
        assert re.search(rf'\b{key[1]}"?:\[{width},{height},\[[^]]*\],"\w+","{path}"\]', script)
        assert path.startswith("M")


def test_an_icon_becomes_a_drawing_that_no_screen_reader_speaks() -> None:
    classes, attributes, *drawing, path = drawn('<i class="fas fa-play"></i>')
    assert (classes, attributes) == ("svg-inline--fa fa-play", ' aria-hidden="true"')
    assert (*map(int, drawing), path) == drawings()["fas", "play"]


def test_an_icon_keeps_its_classes_and_attributes() -> None:
    sun = '<i data-mode="light" class="theme-switch fa-solid fa-sun fa-lg" aria-hidden="true"></i>'
    classes, attributes, *_ = drawn(sun)
    assert classes.split() == ["svg-inline--fa", "theme-switch", "fa-sun", "fa-lg"]
    assert attributes == ' data-mode="light" aria-hidden="true"'


def test_an_icon_may_have_another_style_tag_or_name() -> None:
    solid, regular = (drawn(f'<i class="{style} fa-sun"></i>')[-1] for style in ("fas", "far"))
    assert solid != regular
    assert drawn('<i class="fa-regular fa-sun"></i>')[-1] == regular
    assert drawn('<span class="fa-solid fa-sun"></span>')[-1] == solid
    assert drawn('<i class="fa fa-search"></i>')[-1] == drawings()["fas", "magnifying-glass"][-1]
    assert drawn('<i class="fab fa-github"></i>')[-1] == drawings()["fab", "github"][-1]


@pytest.mark.parametrize(("element", "message"), [
    ('<i class="fas fa-plya"></i>', "but names 0"),
    ('<i class="fab fa-play"></i>', "but names 0"),  # the pack of brands has none of this name
    ('<i class="fas"></i>', "but names 0"),
    ('<i class="fas fa-play fa-sun"></i>', "but names 2"),
    ('<i class="fas fa-play">Run</i>', "not an empty element"),
    ('<button class="btn fas fa-play" type="button"> Run</button>', "not an empty element"),
])
def test_an_icon_that_cannot_be_drawn_stops_the_build(element: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        with_icons(f"{HEAD}{element}</html>")
    assert element.partition(">")[0] in str(refused.value)


def test_what_is_no_icon_stays() -> None:
    for page in (
        f'{HEAD}<i class="facts"></i><i></i><em class="fa-sun">sun</em></html>',
        f"{HEAD}<code>&lt;i class='fas fa-play'&gt;&lt;/i&gt;</code></html>",
        with_icons(f'{HEAD}<i class="fas fa-play"></i></html>'),
    ):
        assert with_icons(page) == page


def test_the_licence_stands_in_pages_with_icons() -> None:
    page = with_icons(f'{HEAD}<i class="fas fa-play"></i><i class="fas fa-sun"></i></html>')
    (comment,) = re.findall(r"<!-- (.*?) -->", page)
    assert "Font Awesome Free" in comment and "CC BY 4.0" in comment
    assert "https://fontawesome.com/license/free" in comment and "Fonticons, Inc." in comment
    assert page.index(comment) < page.index("</head>")


@pytest.mark.filterwarnings("error")
def test_the_font_has_the_icons_of_the_style_sheet_and_no_others() -> None:
    made = light_pages.icon_font()
    assert made == light_pages.icon_font(), "each build makes the same"
    gc.collect()  # a file left open is noticed when it is collected
    assert len(made) < 5000
    font = TTFont(io.BytesIO(made))
    theme = TTFont(io.BytesIO(light_pages.theme_path(light_pages.THEME_FONT).read_bytes()))
    style = light_pages.theme_file(light_pages.THEME_STYLE)
    has = font.getBestCmap()
    for name in ("admonition-note", "admonition-tip", "admonition-warning", "external-link"):
        (value,) = re.findall(rf"--pst-icon-{name}:([^;}}]*)", style)
        while value.startswith("var("):
            (value,) = re.findall(rf"{value[4:-1]}:([^;}}]*)", style)
        assert ord(value.strip('"')) in has, name
    assert set(has) < set(theme.getBestCmap())
    for code, glyph in has.items():
        assert font["hmtx"][glyph] == theme["hmtx"][theme.getBestCmap()[code]]


def test_the_font_is_named_as_its_licence_asks() -> None:
    names = TTFont(io.BytesIO(light_pages.icon_font()))["name"]
    assert "Awesome" not in names.getDebugName(1) + names.getDebugName(4)
    assert "SIL OFL 1.1" in names.getDebugName(13)
    style = (ROOT / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    assert f'font-family: "{names.getDebugName(1)}";' in style
    assert f'url("{light_pages.FONT.removeprefix("_static/")}")' in style


def page_that_loads_all(body: str = "") -> str:
    sliders = [f"_static/../{name}" for name in SLIDERS]  # as Sphinx writes what _config.yml names
    tags = "".join(
        f'  <script defer="defer" src="../{name}?v=1"></script>\n'
        for name in (ICONS, *SEARCH, *sliders, "_static/doctools.js")
    )
    return f"<html><head>\n{tags}</head>{body}</html>"


@pytest.mark.parametrize(("name", "body", "live_search", "kept"), [
    ("book/intro", "", False, ()),
    ("book/intro", "", True, SEARCH),  # a dialog that finds while one types
    ("book/intro", '<div class="kv-explorer" id="e"></div>', False, SLIDERS),
    ("search", "", False, SEARCH),
])
def test_a_page_loads_what_it_uses(name, body, live_search, kept) -> None:
    page = lightened(page_that_loads_all(body), name, live_search)
    loaded = re.findall(r'src="\.\./(?:_static/\.\./)?([^"?]*)\?v=1"', page)
    assert loaded == [*kept, "_static/doctools.js"]
    assert page.endswith(f"</head>{body}</html>") and page.count("\n") == 2 + len(kept)


def test_a_script_that_cannot_be_dropped_stops_the_build() -> None:
    """A newer theme may load it in a way that is not known here."""
    preload = f'<link rel="preload" as="script" href="../{ICONS}?digest=1" />'
    with pytest.raises(ValueError, match=r"still loads.*fontawesome\.js"):
        lightened(f"<html><head>{preload}</head></html>", "book/intro", False)

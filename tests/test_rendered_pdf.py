"""The book as one PDF, tried on three of its pages: numbers, outline, links, and nothing folded."""

import re
import shutil
from pathlib import Path
from typing import Any

import build_pdf
import pytest
from pypdf import PdfReader
from rendered import HTML

pytestmark = pytest.mark.browser

TOC = {
    "root": "book/intro",
    "parts": [
        {
            "caption": "Appendix",
            "chapters": [{"file": "book/notation"}, {"file": "book/bibliography"}],
        }
    ],
}


@pytest.fixture(scope="module")
def pdf(browser: Any, book: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    for name in ("_static", "_images", "vendor", "explorers"):
        shutil.copytree(HTML / name, site / name)
    for _, name in build_pdf.order(TOC):
        (site / "book").mkdir(exist_ok=True)
        shutil.copy(HTML / f"{name}.html", site / f"{name}.html")
    output = site / "book.pdf"
    count = build_pdf.build(browser.engine, site, TOC, "A title", "Its authors", output)
    assert count == len(PdfReader(output).pages)
    assert not (site / build_pdf.JOINED).exists()
    return output


def flat(outline: list[Any]) -> list[Any]:
    return [e for entry in outline for e in (flat(entry) if isinstance(entry, list) else [entry])]


def test_contents_and_outline_lead_to_the_chapters(pdf: Path) -> None:
    reader = PdfReader(pdf)
    top = [entry for entry in reader.outline if not isinstance(entry, list)]
    titles = [str(entry.title) for entry in top]
    assert titles == ["A title", "Contents", "The KV Cache Book", "Notation", "Bibliography"]
    listed = reader.pages[1].extract_text()
    for entry in top[2:]:
        number = (reader.get_destination_page_number(entry) or 0) + 1
        assert re.search(rf"{entry.title}\W*{number}\b", listed), listed
        text = reader.pages[number - 1].extract_text()
        assert str(entry.title) in text and re.search(rf"\b{number}\s*$", text), "no page number"
    deeper = {str(entry.title) for entry in flat(reader.outline)}
    assert {"Small letters", "References", "What to remember"} <= deeper
    assert reader.metadata and reader.metadata.title == "A title"


def test_links_between_pages_stay_inside(pdf: Path) -> None:
    reader = PdfReader(pdf)
    links = [note.get_object() for page in reader.pages for note in page.get("/Annots", [])]
    inside = [link for link in links if "/Dest" in link]
    outside = [str(link["/A"]["/URI"]) for link in links if "/URI" in link.get("/A", {})]
    assert len(inside) > 20
    assert [
        u for u in outside if u.startswith("file:") and re.search("notation|biblio|intro", u)
    ] == []
    assert any("arxiv.org" in address for address in outside)


def test_what_is_folded_on_the_screen_is_printed(pdf: Path) -> None:
    text = " ".join(page.extract_text() for page in PdfReader(pdf).pages)
    words = " ".join(text.split())
    assert "def solution_" in words, "the solutions are folded"
    assert "Copy link" not in words and "Show code cell" not in words


@pytest.mark.parametrize("link, wanted", [
    ("#here", "#book-cached--here"), ("naive.html", "#book-naive"),
    ("naive.html#x", "#book-naive--x"), ("../_images/a.png", "_images/a.png"),
    ("../search.html", "search.html"), ("https://doi.org/10.1", "https://doi.org/10.1"),
    ("data:image/png;base64,AA", "data:image/png;base64,AA"),
])
def test_links_of_a_page_at_the_root(link: str, wanted: str) -> None:
    assert build_pdf.moved(link, "book/cached", {"book/cached", "book/naive"}) == wanted


def test_a_page_that_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"book/intro.html is not built: run `make book`"):
        build_pdf.read_chapters(tmp_path, build_pdf.order(TOC))

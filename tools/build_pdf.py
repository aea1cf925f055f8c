"""Print the whole book into one PDF: all built pages, in the order of the contents.

One document is made of all pages and printed once, so that page numbers run through, the headings
become the outline and links between pages lead to pages of the PDF. The contents get their numbers
from a first print: the second has the same lines, and so the same pages.
"""
# Long, because it is one way from the built pages to the PDF, read in order.

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from bs4 import BeautifulSoup, Tag
from chromium import launch
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Destination, NameObject, TextStringObject

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
OUTPUT = ROOT / "_build" / "the-kv-cache-book.pdf"
JOINED = "whole-book.html"  # made beside the pages, removed after the print
# what a page has only for a screen
DROPPED = "a.headerlink, button, .kv-note, script, .launch-buttons, #jb-print-docs-body"
LINKS = ("href", "src")
FOOTER = (
    '<div style="width: 100%; font: 8pt sans-serif; color: #57606a; text-align: center">'
    '<span class="pageNumber"></span></div>'
)
# what a chapter wants on paper, beyond the print style of every page
STYLE = """
  body { display: block !important; background: #fff; }
  section.page { break-before: page; }
  #cover { text-align: center; padding-top: 30vh; }
  #cover h1 { font-size: 3rem; }
  #contents ol, #contents ul { list-style: none; padding-left: 0; }
  #contents li { display: flex; gap: 0.5em; }
  #contents li span { flex: 1; border-bottom: 1px dotted #57606a; margin-bottom: 0.4em; }
  #contents h2 { font-size: 1.1rem; margin: 1.2rem 0 0.3rem; }
"""


@dataclass(frozen=True)
class Chapter:
    """A page of the book: its name, the part it belongs to, its title and its article."""

    name: str
    part: str
    title: str
    article: Tag


def order(toc: dict[str, Any]) -> list[tuple[str, str]]:
    """(part, file) of every page, in the order of _toc.yml; the first page has no part."""
    chapters = [(p["caption"], c["file"]) for p in toc["parts"] for c in p["chapters"]]
    return [("", toc["root"]), *chapters]


def own(name: str, fragment: str = "") -> str:
    """The id that an anchor of a page has in the joined document."""
    return f"{name.replace('/', '-')}--{fragment}" if fragment else name.replace("/", "-")


def moved(link: str, page: str, names: set[str]) -> str:
    """A link of `page` as the joined document has it, which is at the root of the site."""
    if re.match(r"[a-z]+:|//", link):
        return link
    address, _, fragment = link.partition("#")
    path = (Path(page).parent / address).as_posix() if address else f"{page}.html"
    parts: list[str] = []
    for part in path.split("/"):
        parts = parts[:-1] if part == ".." else [*parts, part]
    path = "/".join(parts)
    target = path.removesuffix(".html")
    return f"#{own(target, fragment)}" if target in names else path


def article(page: Path, name: str, names: set[str]) -> Tag:
    """The article of a built page, with ids and links that are unique in one document."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    found = soup.select_one("article.bd-article")
    if found is None:
        raise ValueError(f"{page.name} has no article, needed: a page built by make book")
    for gone in found.select(DROPPED):
        gone.decompose()
    for element in found.find_all(True):
        if element.get("id"):
            element["id"] = own(name, str(element["id"]))
        for key in LINKS:
            if element.get(key):
                element[key] = moved(str(element[key]), name, names)
    for folded in found.select("details"):
        folded["open"] = ""
    for folded in found.select(".dropdown"):
        folded["class"] = [c for c in folded["class"] if c != "dropdown"]
    return found


def read_chapters(site: Path, pages: list[tuple[str, str]]) -> list[Chapter]:
    """Every page of the contents. FileNotFoundError where one is not built."""
    names = {name for _, name in pages}
    found = []
    for part, name in pages:
        page = site / f"{name}.html"
        if not page.exists():
            raise FileNotFoundError(f"{name}.html is not built: run `make book` first")
        body = article(page, name, names)
        heading = body.find("h1")
        title = heading.get_text(" ", strip=True) if heading else name
        found.append(Chapter(name, part, title, body))
    return found


def contents(chapters: list[Chapter], numbers: dict[str, int]) -> str:
    """The table of contents; a chapter's page number is at the right, once it is known."""
    lines, part = ['<section class="page" id="contents"><h1>Contents</h1><ul>'], ""
    for chapter in chapters:
        if chapter.part != part:
            part = chapter.part
            lines.append(f"</ul><h2>{html.escape(part)}</h2><ul>")
        number = numbers.get(chapter.name, "")
        link = f'<a href="#{own(chapter.name)}">{html.escape(chapter.title)}</a>'
        lines.append(f"<li>{link}<span></span>{number}</li>")
    return "".join([*lines, "</ul></section>"])


def document(title: str, head: str, chapters: list[Chapter], numbers: dict[str, int]) -> str:
    """All chapters as one page of HTML."""
    body = "".join(
        f'<section class="page" id="{own(chapter.name)}">{chapter.article}</section>'
        for chapter in chapters
    )
    cover = f'<section id="cover"><h1>{html.escape(title)}</h1></section>'
    return (
        f'<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>{head}<style>{STYLE}</style></head><body>"
        f'<main class="bd-article">{cover}{contents(chapters, numbers)}{body}</main></body></html>'
    )


def head_of(page: Path, name: str) -> str:
    """Style sheets and the formulas' script of a built page, for a document at the root."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    kept = []
    for element in soup.head.find_all(["link", "script"]) if soup.head else []:
        source = str(element.get("src", ""))
        configures = "MathJax" in element.get_text()
        if "stylesheet" in (element.get("rel") or []) or "mathjax" in source or configures:
            for key in LINKS:
                if element.get(key):
                    element[key] = moved(str(element[key]), name, set())
            kept.append(str(element))
    return "".join(kept)


def print_pdf(browser: Any, page_file: Path) -> bytes:
    """The PDF of a page, A4, numbered, with its headings as outline."""
    page = browser.new_page()
    page.set_default_timeout(300_000)  # milliseconds; the whole book is long
    page.goto(page_file.as_uri(), wait_until="load")
    page.evaluate("window.MathJax?.startup?.promise")
    data: bytes = page.pdf(
        format="A4",
        outline=True,
        tagged=True,
        display_header_footer=True,
        header_template="<span></span>",
        footer_template=FOOTER,
        margin={"top": "18mm", "bottom": "18mm", "left": "17mm", "right": "17mm"},
        print_background=True,
    )
    page.close()
    return data


def outline(writer: PdfWriter) -> Iterator[tuple[int, Any]]:
    """(depth, entry) of the whole outline, in the order of the text."""

    def walk(parent: Any, depth: int) -> Iterator[tuple[int, Any]]:
        entry = parent.get("/First")
        while entry is not None:
            entry = entry.get_object()
            yield depth, entry
            yield from walk(entry, depth + 1)
            entry = entry.get("/Next")

    yield from walk(writer.get_outline_root(), 0)


def name_outline(writer: PdfWriter, titles: list[str]) -> None:
    """Give the outline the headings' own words: Chromium runs broken lines together.

    Raises ValueError unless there is one title for each entry.
    """
    entries = [entry for _, entry in outline(writer)]
    if len(entries) != len(titles):
        raise ValueError(
            f"titles: got {len(titles)}, needed one for each of {len(entries)} entries"
        )
    for entry, title in zip(entries, titles):
        entry[NameObject("/Title")] = TextStringObject(title)


def headings(joined: str) -> list[str]:
    """The headings of the document, in order, each on one line."""
    found = BeautifulSoup(joined, "html.parser").find_all(re.compile(r"^h[1-6]$"))
    return [" ".join(heading.get_text().split()) for heading in found]


def first_pages(pdf: Path) -> list[int]:
    """Page number (from 1) of every entry at the top of the outline, in order."""
    reader = PdfReader(pdf)
    top = [entry for entry in reader.outline if isinstance(entry, Destination)]
    return [(reader.get_destination_page_number(entry) or 0) + 1 for entry in top]


def build(
    browser: Any, site: Path, toc: dict[str, Any], title: str, author: str, output: Path
) -> int:
    """Write the PDF, printed by a running browser; returns its number of pages."""
    pages = order(toc)
    chapters = read_chapters(site, pages)
    head = head_of(site / f"{pages[0][1]}.html", pages[0][1])
    joined = site / JOINED
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        numbers: dict[str, int] = {}
        for _ in range(2):
            text = document(title, head, chapters, numbers)
            joined.write_text(text, encoding="utf-8")
            output.write_bytes(print_pdf(browser, joined))
            # before the chapters are the cover and the contents
            numbers = dict(zip([c.name for c in chapters], first_pages(output)[2:]))
    finally:
        joined.unlink(missing_ok=True)
    writer = PdfWriter(clone_from=output)
    name_outline(writer, headings(text))
    writer.add_metadata({"/Title": title, "/Author": author})
    writer.write(output)
    return len(writer.pages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--html", type=Path, default=HTML, help="the built book (default: _build/html)"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where to write the PDF")
    given = parser.parse_args()
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    site, output = given.html.resolve(), given.output
    with sync_playwright() as playwright:
        browser = launch(playwright)
        count = build(browser, site, toc, config["title"], config["author"], output)
        browser.close()
    print(f"{output.name}: {count} pages, {output.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

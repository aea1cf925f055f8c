"""The form of book/references.bib, checked offline: numbers one can look up, nothing twice."""

import re

import prose
import pytest

TEXT = (prose.ROOT / "book" / "references.bib").read_text(encoding="utf-8")
ENTRIES = {
    match[1]: dict(re.findall(r"(?m)^  (\w+) = \{(.*)\},$", match[2]))
    for match in re.finditer(r"(?ms)^@\w+\{([\w-]+),\n(.*?)^\}$", TEXT)
}
ARXIV = re.compile(r"(\d\d)(0[1-9]|1[0-2])\.\d{4,5}")  # since April 2007: year, month, number
DOI = re.compile(r"10\.\d{4,9}/[^\s{}]+")


def test_every_entry_is_read() -> None:
    assert len(ENTRIES) == len(re.findall(r"(?m)^@", TEXT)) >= 40


@pytest.mark.parametrize("key", ENTRIES)
def test_entry_can_be_looked_up(key: str) -> None:
    entry = ENTRIES[key]
    assert {"author", "title", "year"} <= set(entry)
    assert re.fullmatch(r"(19|20)\d\d", entry["year"])
    if "doi" in entry:
        assert DOI.fullmatch(entry["doi"]), "a DOI has no address before it: 10.1145/..."
    if "eprint" in entry:
        number = ARXIV.fullmatch(entry["eprint"])
        assert number and entry.get("archiveprefix") == "arXiv", entry["eprint"]
        # what appeared in print did so in the year of its preprint or in the few after it
        assert 0 <= int(entry["year"]) - 2000 - int(number[1]) <= 4, (
            "year and arXiv number disagree"
        )
    assert {"doi", "eprint"} & set(entry), "a source without a number is a link where it is cited"


@pytest.mark.parametrize("field", ["doi", "eprint", "title"])
def test_no_work_is_listed_twice(field: str) -> None:
    given = [entry[field].lower() for entry in ENTRIES.values() if field in entry]
    assert len(given) > 5
    assert sorted(set(given)) == sorted(given)


def test_every_entry_is_cited() -> None:
    book = "\n".join(
        part.text
        for path in prose.pages()
        for kind, part in prose.parts(path)
        if kind == "markdown"
    )
    keys = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", book)
    cited = {key.strip() for group in keys for key in group.split(",")}
    assert set(ENTRIES) <= cited, "listed, and no page says what for"

"""List the long sentences of the book, to be read again.

    python tools/prose.py --words 30

The tests use this module, too: it has the prose and the code of the book as plain text, and the
words that the book avoids.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
# what "How we write" in CONTRIBUTING.md rules out: praise, and words that hurry the reader
FORBIDDEN = re.compile(
    r"\b(simply|delv(?:e|es|ing)|powerful|crucial(?:ly)?|dramatic(?:ally)?|seamless(?:ly)?|"
    r"leverag(?:e|es|ed|ing)|cutting[- ]edge|game[- ]chang\w+|blazing\w*|obviously|trivially|"
    r"revolutionary|in this chapter,? we)\b",
    re.IGNORECASE,
)
# expressions that read like a translation, in prose, docstrings and comments: the field has its own
# words (other requests in a step, forward passes, truncate), data *is* somewhere, a sentence names
# its subject, and rates are written with "per"
TRANSLATED = re.compile(
    r"\b(?:company|one top|token[- ]pass(?:es)?|that which|rooms|doors?|noted|gone|mended)\b|"
    r"\b(?:stood|standing(?! for)|stands?(?!-in| (?:for|out|alone|up|in for)\b))\b|"
    r"\b(?:lies?|lying|in front|behind (?:it|them)|how often|for ever)\b|"
    r"\b(?:the other way round|in place of)\b|"
    r"\b(?:(?<!decimal )places|(?<!in )(?:its|their|whose) place)\b|"
    r"\bheld(?!-out| (?:out|back|against|for|by)\b)|\bkept by\b|"
    r"\b(?:is|are|was|were|be|been|nothing|what|none|some|any) left(?! (?:out|alone|as|to)\b)|"
    r"\bof (?:its|their|your|one's|his|our|my) own(?=\W*$|[^\w ]|"
    r" (?:a[nst]d?|for|if|in|of|on|so|that|to|when|where|which|with)\b)|"
    r"\bhand(?:s|ed|ing)? (?:out|over|it|them|in)\b|"
    r"\b(?:tak(?:es?|en|ing)|took|go(?:es|ing)?|went) back\b|"
    r"\b(?:another than|other than (?:it|they) w\w+)\b|"
    r"\btimes the (?:operations|bytes|work|arithmetic)\b|"
    r"(?:^|(?<=[.!?:] ))(?:Who|Whoever)\b(?![^.?!]*\?)|"
    r"\b(?:operations?|bytes?|bits?|tokens?|numbers?|scales?|requests?|rows?) an? "
    r"(?:byte|group|key|lane|layer|number|request|row|second|step|token|value)\b"
    r"(?! (?:begins|costs|gets|has|holds|is|itself|keeps|looks|may|needs|reads|sees|takes|time)\b)",
)
NAMELESS = re.compile(r"\{doc\}`[^`<]*`")  # shows the title of the page, which fits tables alone
FILE_NAME = re.compile(r"\{doc\}`(\w+) <\1>`")  # write {doc}`the chapter on memory <memory>`
DOUBLED = re.compile(r"\b([a-z]+)[ \n]+\1\b", re.IGNORECASE)
TWICE = {"at", "had", "that"}  # words that may occur twice: "looks at at once"
LONG = 40  # words of a sentence that is worth a second look
PASTED = 4  # lines of the library that a listing may not repeat


@dataclass(frozen=True)
class Text:
    """Prose or code of one file, and where it is (a cell or a line)."""

    path: Path
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}, {self.place}"


def pages() -> list[Path]:
    """The notebooks and Markdown pages that readers get."""
    found = [*(ROOT / "book").glob("*.ipynb"), *(ROOT / "book").glob("*.md")]
    return [*sorted(found), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@functools.cache
def notebook(path: Path) -> Any:
    """A notebook, read once."""
    return nbformat.read(path, as_version=4)


def parts(path: Path) -> Iterator[tuple[str, Text]]:
    """("markdown" or "code", its text) for each cell of a notebook; a page of Markdown is one."""
    if path.suffix != ".ipynb":
        yield "markdown", Text(path, "page", path.read_text(encoding="utf-8"))
        return
    for i, cell in enumerate(notebook(path).cells):
        yield cell.cell_type, Text(path, f"cell {i}", cell.source)


def prose(markdown: str) -> str:
    """Markdown without what is not read as sentences: code, formulas, options, addresses."""
    # a fence of backticks is code unless it opens a box: ```{admonition}
    text = re.sub(r"(?ms)^(```+|~~~+)(?!\{(?!code)).*?^\1", "", markdown)
    text = re.sub(r"(?m)^ {4,}.*$|^\s*:[a-z-]+:.*$|^(:::+|```+).*$|^\s*\|.*$", "", text)
    text = re.sub(r"(?s)\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", "x", text)
    text = re.sub(r"\{[a-z:]+\}|\]\([^)]*\)|<[^>]*>|https?://\S+", " ", text)
    return re.sub(r"(?m)^Not: .*$", "", text)  # "How we write" shows what it rules out


def translated(path: Path) -> list[str]:
    """Words of a Python file's docstrings and comments that read like a translation.

    Examples, code in backticks, and words that are names in the file don't count.
    """
    with tokenize.open(path) as file:
        tokens = list(tokenize.generate_tokens(file.readline))
    names, faults = {token.string for token in tokens if token.type == tokenize.NAME}, []
    for token in tokens:
        quoted = token.type == tokenize.STRING and token.line.lstrip().startswith(('"""', 'r"""'))
        if quoted or token.type == tokenize.COMMENT:
            words = re.sub(r"(?m)^ *(?:>>>|\.\.\.).*$|`+[^`\n]*`+", "x", token.string)
            for found in TRANSLATED.finditer(words):
                if found[0] not in names:
                    line = token.start[0] + words[: found.start()].count("\n")
                    faults.append(f"{path.relative_to(ROOT)}:{line}: {found[0]!r}")
    return faults


def listings(markdown: str) -> list[str]:
    """The code blocks of a Markdown text: fenced or indented."""
    fenced = re.findall(r"(?ms)^(```+)(?:python|py|\{code[^}]*\}[^\n]*)?\n(.*?)^\1", markdown)
    indented = re.findall(r"(?m)(?:^ {4,}.*\n?)+", markdown)
    return [body for _, body in fenced] + [textwrap.dedent(body) for body in indented]


def sentences(text: str) -> list[str]:
    """Sentences of prose, each on one line. A list item or a heading is a sentence."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#>]|\d+\.) )", text)
    joined = [" ".join(block.split()) for block in blocks]
    return [s for block in joined for s in re.split(r"(?<=[.!?:])\s+(?=[A-Z*])", block) if s]


def doubled(text: str) -> list[str]:
    """Words that occur twice in a row."""
    return [m[0] for m in DOUBLED.finditer(text) if m[1].lower() not in TWICE and m[1] != "x"]


def code_lines(source: str) -> list[str]:
    """The lines of code that say something: no indentation, comments, imports, lists of names."""
    source = re.sub(r"(?m)^\s*from \S+ import \([^)]*\)$", "", source)
    lines = (re.sub(r"\s+#.*$", "", line).strip() for line in source.splitlines())
    skipped = re.compile(r"#|import |from |@|\"\"\"|[\w\"']+,$")
    return [line for line in lines if len(line) > 1 and not skipped.match(line)]


def runs(lines: list[str]) -> Iterator[tuple[str, ...]]:
    """Every run of PASTED lines."""
    for i in range(len(lines) - PASTED + 1):
        yield tuple(lines[i : i + PASTED])


def library_runs() -> dict[tuple[str, ...], str]:
    """Every run of PASTED lines and its file. Right answers to exercises may be on a page, too."""
    return {
        run: path.relative_to(ROOT).as_posix()
        for name in ("kvlib", "kvbook")
        for path in sorted((ROOT / name).rglob("*.py"))
        if path.parent.name != "exercises"
        for run in runs(code_lines(path.read_text(encoding="utf-8")))
    }


def pasted(source: str, library: dict[tuple[str, ...], str]) -> dict[str, str]:
    """File of the library -> first line, for each file that `source` repeats PASTED lines of."""
    found: dict[str, str] = {}
    for run in runs(code_lines(source)):
        if run in library:
            found.setdefault(library[run], run[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--words", type=int, default=LONG, help=f"list sentences with more words (default: {LONG})"
    )
    limit: int = parser.parse_args().words
    count = 0
    for path in pages():
        for kind, part in parts(path):
            if kind == "markdown":
                for sentence in sentences(prose(part.text)):
                    if len(sentence.split()) > limit:
                        count += 1
                        print(f"{part} ({len(sentence.split())} words): {sentence}\n")
    print(f"{count} sentences of more than {limit} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Link the first use of every glossary term in each chapter to the glossary.

The tool looks for terms only in prose: not in headings, code, formulas, links or the lines of
directives. It rewrites the chapters. With --check it changes nothing, and exits with 1 if a first
use is not linked or no chapter uses a term.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

BOOK = Path(__file__).resolve().parent.parent / "book"
GLOSSARY = BOOK / "glossary.md"
# Where the plain word with an s is not how a chapter writes it, or is something else as well.
FORMS = {
    "bits per byte": r"bits (?:per|a) byte",
    "block pool": r"(?:block )?pool",
    "causal mask": r"(?:causal )?mask",
    "chunk": r"chunks?",
    "codec": r"codecs?",
    "decode step": r"decode steps?|decoding steps?",
    "eviction": r"evictions?|evict(?:s|ed)?",
    "extend": r"(?<=an )extend|extend steps?",
    "fork": r"forks?",
    "greedy": r"greedy|greedily",
    "key/value head": r"key/value heads?|kv heads?",
    "latency": r"latency|latencies",
    "logits": r"logits",
    "lse": r"lse",
    "paged cache": r"paged caches?|paged attention|cache in blocks|memory in blocks",
    "prefill": r"prefill",
    "quantise": r"quanti[sz](?:e|es|ed|ing|ation)",
    "radix tree": r"radix tree",
    "residual": r"residual(?! stream| distribution)",
    "scale": r"scales?",
    "step": r"steps?(?! through)",
    "truncate": r"truncat(?:e|es|ed|ing)|roll-?backs?|tak(?:e|en) back",
    "window": r"windows?",
}
# In these chapters the word means something else.
NOT_IN = {
    "block": {
        *("layernorm", "memory", "museum", "batched", "cached", "quantized", "gpu", "sampling")
    },
    "latency": {"gpu"},
    "residual": {"layernorm"},
    "scale": {"batched", "chunked", "layernorm", "roofline", "naive", "memory", "gpu", "sampling"},
    "step": {"layernorm", "sampling", "gpu"},
    "tile": {"naive"},
    "truncate": {"memory", "paged"},
    "window": {"naive"},
    "lse": {"layernorm"},
    "slot": {"memory"},
}
LINK = re.compile(r"\{term\}`([^`<]+?)(?: <([^`>]+)>)?`")
# What is not prose inside a line: roles and code, formulas, links and their text, raw HTML.
NOT_PROSE = re.compile(r"(?:\{[\w:]+\})?`[^`]*`|\$[^$]*\$|\[[^\]]*\]\([^)]*\)|<[^>]*>|https?://\S+")


def terms(text: str) -> list[str]:
    """The terms of the glossary, in its order."""
    body = text[text.index("{glossary}") :].split("::::")[0]
    return [line.strip() for line in body.splitlines()[1:] if re.match(r"\w", line)]


def pattern(term: str) -> re.Pattern[str]:
    """How the term is written in prose."""
    form = FORMS.get(term, re.escape(term).replace(r"\ ", " ") + "s?")
    return re.compile(rf"(?<![\w/-])(?:{form})(?![\w/-])", re.IGNORECASE)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """(index, line) of the lines of a markdown cell in which a reader reads sentences."""
    opened: list[bool] = []  # fences of ``` around this line; whether each holds prose
    formula = False
    for i, line in enumerate(source.splitlines()):
        bare = line.strip()
        mark = re.match(r"(?:(```+|~~~+)|:::+)(.*)", bare)
        if mark:
            if mark[1] and opened and not mark[2].strip():
                opened.pop()
            elif mark[1]:
                opened.append(mark[2].strip().startswith("{admonition}"))
            continue
        if bare.startswith("$$"):
            formula = not formula and not (len(bare) > 2 and bare.endswith("$$"))
            continue
        if not all(opened) or formula or bare.startswith(("#", ":", "*Difficulty")):
            continue
        yield i, line


def unlinked(source: str) -> str:
    """The text without links to the glossary."""
    return LINK.sub(lambda m: m[1], source)


def link(sources: list[str], names: Iterable[str]) -> tuple[list[str], set[str]]:
    """Markdown cells with the first use of each term linked, and the terms that were found.

    Longer terms first, so that a block table is not taken for a block.
    """
    cells = [unlinked(source).splitlines() for source in sources]
    found = set()
    for term in sorted(names, key=len, reverse=True):
        find = pattern(term)
        for lines in cells:
            for i, line in prose("\n".join(lines)):
                masked = NOT_PROSE.sub(lambda m: "\0" * len(m[0]), line)
                match = find.search(masked)
                if match:
                    found.add(term)
                    same = match[0] == term
                    role = f"{{term}}`{match[0]}`" if same else f"{{term}}`{match[0]} <{term}>`"
                    lines[i] = line[: match.start()] + role + line[match.end() :]
                    break
            else:
                continue
            break
    return ["\n".join(lines) for lines in cells], found


def linked(path: Path, names: list[str]) -> tuple[list[str], list[str], set[str]]:
    """(markdown as it is, as it should be, terms found) of one chapter."""
    notebook = nbformat.read(path, as_version=4)
    sources = [c["source"] for c in notebook["cells"] if c["cell_type"] == "markdown"]
    here = [name for name in names if path.stem not in NOT_IN.get(name, set())]
    return sources, *link(sources, here)


def write(path: Path, new: list[str]) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [c for c in notebook["cells"] if c["cell_type"] == "markdown"]
    for cell, source in zip(cells, new, strict=True):
        cell["source"] = source
    nbformat.write(notebook, path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", help="names of chapters (default: all)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit with 1 if a first use is not linked, or a term is used nowhere",
    )
    args = parser.parse_args(argv)
    names = terms(GLOSSARY.read_text(encoding="utf-8"))
    used: set[str] = set()
    wrong = 0
    for path in sorted(BOOK.glob("*.ipynb")):
        if args.chapters and path.stem not in args.chapters:
            continue
        old, new, found = linked(path, names)
        used |= found
        if old == new:
            continue
        if args.check:
            wrong += 1
            lines = [
                b
                for x, y in zip(old, new)
                for a, b in zip(x.splitlines(), y.splitlines())
                if a != b
            ]
            print(f"{path.name}: first uses to link:", *lines[:3], sep="\n    ")
        else:
            write(path, new)
            print(f"{path.name}: {len(found)} terms linked")
    if not args.chapters and set(names) - used:
        wrong += 1
        print("no chapter uses:", ", ".join(sorted(set(names) - used)))
    return 1 if wrong and args.check else 0


if __name__ == "__main__":
    sys.exit(main())

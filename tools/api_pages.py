"""Sphinx extension: kvlib's docstrings, which are plain text, become the page of the API.

kvlib writes docstrings to be read in a terminal: shapes in columns, names in single backquotes.
autodoc takes them for reStructuredText. `as_rst` turns one into the other when the book is built,
so the page cannot be older than the code. A parameter that the words explain, as in "window: how
many tokens a query sees", gets a separate line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

LITERAL = re.compile(r"``(?P<two>[^`]+)``|(?::\w+:)?`~?(?P<one>[^`]+)`")
PAPER = re.compile(r"(?P<kind>arXiv|doi):(?P<number>10\.\d+/[\w.()/-]*\w|\d{4}\.\d{4,5})")
WHERE = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
SPECIAL = re.compile(r"([\\*_|`])")
EXPLAINED = re.compile(r"(?:^|(?<=[.;)] ))([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")
RAISES = re.compile(r"(?<=\. )(?=Raises [A-Z])")


def as_rst(lines: list[str], names: Collection[str] = ()) -> list[str]:
    """A docstring's lines as reStructuredText that reads the same.

    names: the parameters that get a separate line where the docstring explains them.
    """
    done: list[str] = []
    for block in _blocks(lines):
        if block[0].lstrip().startswith(">>>"):
            done += [".. code-block:: pycon", "", *_indented(block)]
        elif block[0].startswith(("* ", "- ")):
            done += _items(block)
        elif any(line.startswith(" ") or "   " in line.strip() for line in block):
            done += ["::", "", *_indented([_bare(line) for line in block])]
        else:
            done += _explained(" ".join(block), names) or [_line(line) for line in block]
        done.append("")
    return done


def _blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines between empty ones; an example that follows text is a separate block."""
    found: list[list[str]] = [[]]
    for line in lines:
        starts = line.lstrip().startswith(">>>")
        if not line.strip():
            found.append([])
        elif starts and found[-1] and not found[-1][0].lstrip().startswith(">>>"):
            found.append([line])
        else:
            found[-1].append(line)
    return [block for block in found if block]


def _explained(text: str, names: Collection[str]) -> list[str]:
    """A paragraph that explains parameters: what comes before them, and a list. Else nothing."""
    found = [m for m in EXPLAINED.finditer(text) if set(m[1].split(", ")) <= set(names)]
    if not found:
        return []
    before = text[: found[0].start()].strip()
    done = [_line(before), ""] if before else []
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        words, *after = RAISES.split(text[match.end() : end].strip(), maxsplit=1)
        code = ", ".join(f"`{name}`" for name in match[1].split(", "))
        done.append(f"- {_line(f'{code}: {words.strip()}')}")
        if after:
            done += ["", _line(after[0]), ""]
    return done[:-1] if not done[-1] else done


def _items(block: list[str]) -> list[str]:
    """A list, with what an item says on further lines."""
    return [
        f"- {_line(line[2:])}" if line.startswith(("* ", "- ")) else f"  {_line(line.strip())}"
        for line in block
    ]


def _indented(block: list[str]) -> list[str]:
    return ["   " + line for line in block]


def _bare(text: str) -> str:
    """Names without backquotes and roles, for lines that are shown as they are."""
    return LITERAL.sub(lambda match: match["two"] or match["one"], text)


def _line(text: str) -> str:
    """One line of prose: names as code, papers as links, and nothing else that means something."""
    parts, end = [], 0
    for match in LITERAL.finditer(text):
        code = match["two"] or match["one"]
        parts += [_papers(text[end : match.start()]), f"\\ ``{code}``\\ "]
        end = match.end()
    # What ends a line escapes the space after it: two lines would be joined without one.
    return "".join([*parts, _papers(text[end:])]).removesuffix("\\ ").strip()


def _papers(text: str) -> str:
    parts, end = [], 0
    for match in PAPER.finditer(text):
        link = f"`{match[0]} <{WHERE[match['kind']]}{match['number']}>`__"
        parts += [SPECIAL.sub(r"\\\1", text[end : match.start()]), link]
        end = match.end()
    return "".join([*parts, SPECIAL.sub(r"\\\1", text[end:])])


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines, names_of(obj))


def names_of(obj: Any) -> set[str]:
    """The parameters of a function, or those of a class and its fields; none of anything else."""
    if not isinstance(obj, Callable):
        return set()
    try:
        names = set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):  # some classes of C have no signature
        names = set()
    return names | {name for kind in getattr(obj, "__mro__", ()) for name in vars(kind)}


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    doc = getattr(obj, "__doc__", None) or ""
    return True if doc.startswith("Alias for field number") else None


def setup(app: Any) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-skip-member", _skip)
    return {"version": "1", "parallel_read_safe": True}

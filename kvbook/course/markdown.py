"""MyST as the Markdown that Jupyter shows: roles become words and links, directives become quotes.

The chapters are written for the rendered book. Where a notebook itself is the page, as in the
JupyterLite site and in a course, `{doc}` and `:::{admonition}` would be shown there as typed.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

ROLE = re.compile(r"(?<!`)\{([\w:-]+)\}`([^`]+)`")
TARGET = re.compile(r"^\([\w-]+\)=\n", re.M)
OPEN = re.compile(r"^(:{3,}|`{3,})\{([\w-]+)\}[ \t]*(.*)$")
OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")
_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,\s]+),(?P<body>.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^\s*(\w+)\s*=\s*[{\"](.*)[}\"],?\s*$", re.M)
_PLACES = (("https://doi.org/", "doi"), ("https://arxiv.org/abs/", "eprint"), ("", "url"))


def named(text: str) -> tuple[str, str]:
    """What a role shows and what it points at: `words <target>`, or the target alone."""
    found = re.fullmatch(r"(.*?)\s*<(.+)>", text, re.S)
    return (found[1], found[2]) if found else (text, text)


def without_roles(
    text: str, titles: Mapping[str, str], cited: Callable[[str], str], notebooks: set[str]
) -> str:
    """`text` with its roles replaced.

    titles: page name -> title. cited: what stands for a key of the bibliography. notebooks: the
    pages that a link can lead to; any other is named only.
    """

    def replace(match: re.Match[str]) -> str:
        role, content = match[1], match[2]
        words, target = named(content)
        if role == "doc":
            shown = words if words != target else titles.get(target, target)
            return f"[{shown}]({target}.ipynb)" if target in notebooks else shown
        if role.startswith("cite"):
            return ", ".join(cited(key.strip()) for key in content.split(","))
        return words

    return ROLE.sub(replace, text)


def box(title: str, body: list[str], folded: bool) -> list[str]:
    """An admonition: a quote under a bold title, or a fold."""
    while body and not body[0].strip():
        body = body[1:]
    while body and not body[-1].strip():
        body = body[:-1]
    if folded:
        return [f"<details><summary>{title}</summary>", "", *body, "", "</details>", ""]
    return [f"> **{title}**", ">", *(f"> {line}".rstrip() for line in body), ""]


def without_directives(lines: list[str]) -> list[str]:
    """The lines with their directives replaced, from the outermost in."""
    out: list[str] = []
    i = 0
    while i < len(lines):
        opened = OPEN.match(lines[i])
        if opened is None:
            out.append(lines[i])
            i += 1
            continue
        fence, name, argument = opened.groups()
        end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == fence), len(lines))
        body, options = lines[i + 1 : end], {}
        while body and (option := OPTION.match(body[0])):
            options[option[1]] = option[2]
            body = body[1:]
        i = end + 1
        if name in ("exercise-end", "solution-end"):
            continue
        if name == "exercise-start":
            out += [f"**Exercise: {argument}**", "", *without_directives(body)]
            continue
        if name == "solution-start":  # what follows in this cell is its text
            return out + box("Solution", without_directives(body + lines[i:]), folded=True)
        folded = "dropdown" in options.get("class", "")
        out += box(argument or name.capitalize(), without_directives(body), folded)
    return out


def plain(
    text: str, titles: Mapping[str, str], cited: Callable[[str], str], notebooks: set[str]
) -> str:
    """A cell's MyST as plain Markdown; see `without_roles` for what it looks up."""
    lines = without_directives(TARGET.sub("", text).split("\n"))
    return without_roles("\n".join(lines).rstrip("\n"), titles, cited, notebooks)


@cache
def titles(folder: Path) -> dict[str, str]:
    """The title of every page of a book, by the name that links use."""
    found = {}
    for path in sorted([*folder.glob("*.md"), *folder.glob("*.ipynb")]):
        heading = re.search(
            r'^(?:\s*")?# (.+?)(?:\\n)?"?,?$', path.read_text(encoding="utf-8"), re.M
        )
        found[path.stem] = heading[1] if heading else path.stem
    return found


@cache
def cited(bibliography: Path) -> Callable[[str], str]:
    """A function from a key of a BibTeX file to authors and year, with a link where there is one.

    It raises KeyError for a key that the file does not have.
    """
    text = bibliography.read_text(encoding="utf-8") if bibliography.exists() else ""
    entries = {match["key"]: match["body"] for match in _ENTRY.finditer(text)}

    def cite(key: str) -> str:
        said = dict(_FIELD.findall(entries[key]))
        people = [p for p in re.split(r"\s+and\s+", said.get("author", "")) if p]
        names = [_last_name(person) for person in people]
        who = " and ".join(names) if len(names) <= 2 else f"{names[0]} et al."
        shown = f"{who or said['title']} {said.get('year', '')}".strip()
        shown = re.sub(r"[{}]", "", shown)
        for start, name in _PLACES:
            if where := said.get(name):
                return f"[{shown}]({start}{where})"
        return shown

    return cite


def _last_name(person: str) -> str:
    """The last name of "Last, First", of "First Last" and of "{A Team}"."""
    if "," in person or person.startswith("{"):
        return person.split(",")[0]
    return person.split()[-1]

"""One alphabet: every letter of a formula in the book is on the notation page."""

import re
from pathlib import Path

import prose
import pytest

NOTATION = prose.ROOT / "book" / "notation.md"
PAGES = [path for path in prose.pages() if path.parent == NOTATION.parent]
GREEK = re.compile(
    "alpha|beta|gamma|delta|(var)?epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|"
    "(var)?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega|ell"
)
NAME = re.compile(r"\\(?:mathrm|mathit|operatorname)\{([^}]*)\}")
LEFT_OUT = re.compile(r"\\text\{[^}]*\}|\\(?:begin|end|label|tag)\{[^}]*\}")


def formulas(markdown: str) -> list[str]:
    """The formulas of a Markdown text: between dollars, and in the directive `math`."""
    bodies = [body for _, body in re.findall(r"(?ms)^(```+)\{math\}.*?\n(.*?)^\1", markdown)]
    text = re.sub(r"(?ms)^(```+)(?!\{(?!code)).*?^\1", "", markdown)
    text = re.sub(r"`[^`\n]*`", "", text)
    bodies += re.findall(r"(?s)\$\$(.*?)\$\$", text)
    text = re.sub(r"(?s)\$\$.*?\$\$", " ", text)
    return bodies + re.findall(r"(?<!\\)\$([^$]+?)(?<!\\)\$", text)


def symbols(formula: str) -> set[str]:
    """Its letters, Greek ones as \\names, and what is upright (\\mathrm) as a word."""
    formula = LEFT_OUT.sub(" ", formula)
    letters = {name.strip() for name in NAME.findall(formula)}
    formula = NAME.sub(" ", formula)
    commands = re.findall(r"\\([A-Za-z]+)", formula)
    letters |= {f"\\{name}" for name in commands if GREEK.fullmatch(name)}
    return letters | set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", " ", formula)))


def used(path: Path) -> dict[str, str]:
    """Symbol -> a formula of the page that uses it."""
    texts = [part.text for kind, part in prose.parts(path) if kind == "markdown"]
    return {s: f for text in texts for f in formulas(text) for s in symbols(f)}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_symbol_stands_on_the_notation_page(path: Path) -> None:
    known = set(used(NOTATION))
    assert {"B", "T", "S", "D", "L", "lse", "q", "o"} <= known
    unknown = {symbol: formula for symbol, formula in used(path).items() if symbol not in known}
    assert unknown == {}, "write it in the letters of book/notation.md, or add it there"


def test_no_letter_is_defined_twice() -> None:
    """In the first column of the tables of letters, each letter comes once."""
    text = NOTATION.read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (\$[^|]*) \|", text.split("## Arrays")[0])
    letters = [formula for row in rows for formula in formulas(row)]
    assert len(letters) > 15 and len(letters) == len(set(letters))


def test_symbols_are_read_from_formulas() -> None:
    text = "$x_i$ costs \\$5, `$z$`\n\n$$\n\\mathrm{lse} = \\ln \\sum_j e^{s_j} \\text{if}\n$$\n"
    assert [symbols(f) for f in formulas(text)] == [{"lse", "j", "e", "s"}, {"x", "i"}]
    assert symbols(r"\frac{\alpha}{B} \cdot \mathrm{KV}") == {"\\alpha", "B", "KV"}
    assert formulas("```python\nprice = '$a$'\n```\n\n```{math}\n:label: one\na + b\n```\n") == [
        ":label: one\na + b\n"
    ]

"""Sphinx extension: what the rendered pages need beyond the theme.

Markup that a screen reader and a keyboard can use where the libraries' own falls short, and each
chapter as a Python script (`_sources/book/name.py`) beside its notebook.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import jupytext

# (pattern, replacement): applied in this order to the body of every page
MENDED = (
    # the words inside name a folded cell; another name would hide them from who speaks to the page
    (re.compile(r'<summary aria-label="Toggle hidden content">'), "<summary>"),
    # doc-biblioentry is withdrawn (DPUB-ARIA 1.1); the entries are in an element of role list
    (re.compile(r'role="doc-biblioentry"'), 'role="listitem"'),
    # a figure that is wider than a phone scrolls in a box that the theme's script lets one focus
    (
        re.compile(r'^(<img [^>]*src="[^"]*_images/[^>]*>)$', re.MULTILINE),
        r'<div class="output book-figure">\1</div>',
    ),
)


def mend(body: str) -> str:
    """The body of a page with MENDED applied; once or twice gives the same."""
    for pattern, replacement in MENDED:
        body = pattern.sub(replacement, body)
    return body


def script(notebook: Path) -> str:
    """The notebook as a Python script in the percent format, prose in comments, no outputs."""
    text: str = jupytext.writes(jupytext.read(notebook), fmt="py:percent")
    return text


def change_page(app: Any, pagename: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Mend the page, write its script and offer it for download."""
    if "body" in context:
        context["body"] = mend(context["body"])
    source = Path(app.srcdir) / f"{pagename}.ipynb"
    if tree is None or not source.exists():
        return
    target = Path(app.outdir) / "_sources" / f"{pagename}.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script(source), encoding="utf-8")
    button = {
        "type": "link",
        "url": context["pathto"](f"_sources/{pagename}.py", 1),
        "text": ".py",
        "icon": "fas fa-file-code",
        "tooltip": "Download as a Python script",
        "label": "download-script-button",
    }
    for group in context["header_buttons"]:
        if group.get("label") == "download-buttons":
            group["buttons"].insert(1, button)


def setup(app: Any) -> dict[str, Any]:
    # a change to this file makes every page anew
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    app.add_config_value("book_pages_digest", digest, "html")
    app.connect("html-page-context", change_page, priority=600)  # after the theme's own buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}

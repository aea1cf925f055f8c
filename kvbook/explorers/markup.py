"""An explorer as HTML: its first view, and the data from which the page's script makes controls.

No script and no style of its own: `assets/explorers` has both. The same settings give the same
text, so that a notebook's committed output can be compared.
"""

from __future__ import annotations

import html
import json
from typing import Any

from kvbook.explorers import svg


def explorer_html(anchor: str, data: dict[str, Any], scene: dict[str, Any], note: str = "") -> str:
    """The element of one explorer; data: what the script reads; note: words below the view."""
    summary = html.escape(scene["summary"])
    return "\n".join(
        [
            f'<div class="kv-explorer" id="{anchor}"',
            f" data-explorer='{_attribute(data)}'>",
            f'<p class="kv-title">{html.escape(scene["title"])}</p>',
            f'<div class="kv-figure" role="img" aria-label="{summary}">',
            svg.draw(scene),
            "</div>",
            f'<p class="kv-summary">{summary}</p>',
            numbers_table(scene),
            formula_lines(scene),
            *([f'<p class="kv-note">{html.escape(note)}</p>'] if note else []),
            "</div>",
        ]
    )


def numbers_table(scene: dict[str, Any]) -> str:
    """The key results as an HTML list of terms."""
    rows = [
        f"<div><dt>{html.escape(row['label'])}</dt><dd>{html.escape(row['text'])}</dd></div>"
        for row in scene["numbers"]
    ]
    return f'<dl class="kv-numbers">{"".join(rows)}</dl>'


def formula_lines(scene: dict[str, Any]) -> str:
    """The formula with its numbers filled in, as preformatted HTML."""
    return f'<pre class="kv-formula">{html.escape(chr(10).join(scene["formula"]))}</pre>'


def _attribute(data: Any) -> str:
    """JSON for an attribute in single quotes."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")

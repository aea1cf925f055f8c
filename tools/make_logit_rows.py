"""Write kvbook/explorers/logit_rows.json: rows of logits of the reference model, largest first.

The sampling explorer shows them on the rendered page, where no model can run.

    python tools/make_logit_rows.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import kvlib

OUTPUT = Path(__file__).resolve().parent.parent / "kvbook" / "explorers" / "logit_rows.json"
PROMPTS = {
    "return": ("\u201cdef add(a, b): return\u201d", "def add(a, b):\n    return "),
    "range": ("\u201cfor i in range(\u201d", "for i in range("),
    "comment": ("a comment\u2019s \u201c#\u201d", "# "),
}
NAMES = {10: "newline", 32: "space", 9: "tab", 13: "return", 0: "end of text"}


def token_name(token: int) -> str:
    """A byte as a reader would name it."""
    return NAMES.get(token) or (chr(token) if 32 < token < 127 else f"byte {token}")


def rows() -> dict[str, Any]:
    """key → title, tokens (V names) and logits (V, two decimals), largest first."""
    model = kvlib.load_reference_model(xp=np)
    found = {}
    for key, (title, prompt) in PROMPTS.items():
        cache, tokens = model.new_cache(1, len(prompt)), list(prompt.encode())
        cache.add("row")
        logits = model.forward(tokens, cache, cache.plan(["row"], [len(tokens)]))[0]
        order = np.argsort(-logits, kind="stable").tolist()
        found[key] = {
            "title": title,
            "prompt": prompt,
            "tokens": [token_name(i) for i in order],
            "logits": [round(float(logits[i]), 2) for i in order],
        }
    return found


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    text = json.dumps(rows(), ensure_ascii=False, separators=(",", ":"))
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    print(f"{OUTPUT.name}: {len(text)} characters written")

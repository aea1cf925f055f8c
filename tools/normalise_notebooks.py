"""Give every notebook one reproducible form, so that a diff shows what an author changed.

The tool keeps text, code, outputs, and the cell metadata that has a meaning. It removes execution
times, widget state, the Python version and the metadata of editors, and counts executions 1, 2, …
It rewrites notebooks in place. With --check it changes nothing, and exits with 1 if something would
change or if an output does not belong on a page, such as an error that no tag expects, a warning, a
picture without alt text or a path of this machine. With --execute it first runs each notebook.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from tqdm.auto import tqdm

BOOK = Path(__file__).resolve().parent.parent / "book"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
CELL_METADATA = ("tags", "mystnb", "nbgrader", "jupyter", "editable", "deletable")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_TEXT = re.compile(r"(?:\w*Box|\w*Slider|Dropdown|Output|interactive|Tab|Accordion)\(\w+=")
ANCHOR = re.compile(r'<div class="kv-explorer" id="([^"]*)"')
IGNORE = "nbval-ignore-output"
ALT = 'cell metadata: {"mystnb": {"image": {"alt": "..."}}}'
# What an output that others will see must not show: a path on a disk, an address in memory.
PRIVATE = re.compile(
    r"(?<![\w/.])/(?:home|root|tmp|Users|work|var|mnt)/[\w.]|\\Users\\|ipykernel_\d|"
    r"\b0x[0-9a-f]{8,}\b"
)


def normalise_outputs(outputs: Iterable[Any], count: int) -> list[Any]:
    """Join pieces of the same stream, number results, drop metadata and widget views."""
    result: list[Any] = []
    for output in outputs:
        output = nbformat.from_dict(output)
        kind = output["output_type"]
        if kind == "stream":
            if result and result[-1].get("name") == output["name"]:
                result[-1]["text"] += output["text"]
                continue
        elif kind in ("display_data", "execute_result"):
            output["metadata"] = nbformat.from_dict({})
            output["data"].pop(WIDGET_VIEW, None)
            if kind == "execute_result":
                output["execution_count"] = count
        result.append(output)
    return result


def normalise(notebook: Any) -> Any:
    """Return the notebook in its one form; the argument is not changed."""
    new = nbformat.from_dict(notebook)
    new["nbformat"], new["nbformat_minor"] = 4, 5
    new["metadata"] = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    count, seen = 0, set()
    for index, cell in enumerate(new["cells"]):
        metadata = {k: cell["metadata"][k] for k in CELL_METADATA if k in cell["metadata"]}
        if not metadata.get("tags", True):
            del metadata["tags"]
        cell["metadata"] = nbformat.from_dict(metadata)
        cell["source"] = cell["source"].rstrip("\n")
        identity = cell.get("id")
        if not identity or identity in seen:
            text = f"{index}:{cell['cell_type']}:{cell['source']}"
            identity = hashlib.sha256(text.encode()).hexdigest()[:8]
            cell["id"] = identity
        seen.add(identity)
        if cell["cell_type"] != "code":
            if not cell.get("attachments"):
                cell.pop("attachments", None)
            continue
        if cell["source"].strip():
            count += 1
            cell["execution_count"] = count
        else:
            cell["execution_count"] = None
        cell["outputs"] = normalise_outputs(cell["outputs"], count)
    return new


def dumps(notebook: Any) -> str:
    """The notebook as text: sorted keys, indent 1, a newline at the end."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def texts_of(output: Any) -> Iterable[str]:
    """Every text of an output that a reader sees or a comparison reads."""
    if output["output_type"] == "stream":
        yield output["text"]
    elif output["output_type"] in ("display_data", "execute_result"):
        for kind, data in output["data"].items():
            if kind.startswith("text/") or kind.endswith(("+xml", "json")):
                yield data if isinstance(data, str) else str(data)


def problems(notebook: Any) -> list[str]:
    """What in the outputs should not be committed, in words, one line each."""
    found, anchors = [], set()
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        tags = cell["metadata"].get("tags", [])
        for output in cell["outputs"]:
            kind = output["output_type"]
            if kind == "error" and "raises-exception" not in tags:
                found.append(f"cell {index}: ends in {output['ename']}, with no tag that says so")
            if kind == "stream" and output["name"] == "stderr" and IGNORE not in tags:
                found.append(f"cell {index}: writes to stderr: {output['text'].strip()[:80]!r}")
            if kind == "display_data" and any(k.startswith("image/") for k in output["data"]):
                alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
                if not alt.strip():
                    found.append(f"cell {index}: a picture without alt text ({ALT})")
            plain = output.get("data", {}).get("text/plain", "")
            if WIDGET_TEXT.match(plain) and "text/html" not in output["data"]:
                found.append(f"cell {index}: a widget that a page cannot show: use an Explorer")
            for anchor in ANCHOR.findall(output.get("data", {}).get("text/html", "")):
                if anchor in anchors:
                    found.append(f"cell {index}: a second explorer {anchor!r}: use with_anchor()")
                anchors.add(anchor)
            for text in texts_of(output):
                if match := PRIVATE.search(text):
                    found.append(f"cell {index}: an output holds {match.group()!r}")
    return found


def execute(notebook: Any, folder: Path, timeout: int) -> Any:
    """Run every cell, in `folder`, with the Python at hand; at most `timeout` seconds a cell."""
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    return client.execute()


def treat(path: Path, *, check: bool, run: bool, timeout: int) -> list[str]:
    """Bring one notebook into its form (or only look); return what is wrong with it."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    if run:
        notebook = execute(notebook, path.parent, timeout)
    notebook = normalise(notebook)
    nbformat.validate(notebook)
    after, wrong = dumps(notebook), problems(notebook)
    if check and before != after:
        wrong.append("is not normalised: run tools/normalise_notebooks.py on it")
    if not check and before != after:
        path.write_text(after, encoding="utf-8")
    return [f"{path.name}: {line}" for line in wrong]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks (default: all in book/)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if something would change"
    )
    mode.add_argument(
        "--execute", action="store_true", help="run each notebook first, in its own folder"
    )
    parser.add_argument(
        "--timeout", type=int, default=120, help="time limit of one cell in seconds (default: 120)"
    )
    given = parser.parse_args(arguments)
    paths = given.notebooks or sorted(BOOK.glob("*.ipynb"))
    wrong: list[str] = []
    for path in tqdm(paths, unit="notebook", disable=not given.execute):
        wrong += treat(path, check=given.check, run=given.execute, timeout=given.timeout)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

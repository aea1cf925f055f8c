"""What a release needs: one version everywhere, a citation, templates, and who to tell."""

import re
import shutil
import sys
from datetime import date
from pathlib import Path
from typing import Any

import check_release
import pytest
import yaml
from repository import ROOT, run, version

TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
# What version 1.2.0 of the citation file format knows and Zenodo reads.
CITED = {
    *("cff-version", "message", "title", "type", "authors", "version", "date-released"),
    *("license", "abstract", "keywords"),
}


def copied(folder: Path) -> Path:
    (folder / "kvlib").mkdir()
    for name in ("CITATION.cff", "CHANGELOG.md", "kvlib/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_version_changelog_and_citation_agree() -> None:
    assert check_release.version() == version()
    assert check_release.faults(None) == []


def test_the_citation_has_what_zenodo_reads() -> None:
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert set(citation) == CITED and citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software" and citation["version"] == version()
    assert isinstance(citation["date-released"], date)
    assert all(set(author) == {"name"} for author in citation["authors"])
    assert all(isinstance(word, str) for word in citation["keywords"])


def test_the_changelog_is_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings[0] == "Unreleased"
    versions = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\)", h) for h in headings[1:]]
    assert all(versions), headings
    numbers = [tuple(map(int, found.groups())) for found in versions if found]
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize(("file", "old", "new", "words"), [
    ("CITATION.cff", "\nversion: ", "\nversion: 9", "CITATION.cff has version 9"),
    ("CITATION.cff", "date-released: 2", "date-released: 3", "CHANGELOG.md needs the heading"),
    ("CHANGELOG.md", f"## {version()} ", "## 0.0.9 ", "CHANGELOG.md needs the heading"),
    ("kvlib/__init__.py", '__version__ = "', '__version__ = "8', "expected 8"),
    ("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- A line.\n", "lines under Unrel"),
])
def test_what_does_not_agree_is_not_released(file, old, new, words, tmp_path) -> None:
    root = copied(tmp_path)
    changes = root / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8")
    done = re.sub(r"(## Unreleased\n).*?(?=^## )", r"\1\n", text, flags=re.S | re.M)
    changes.write_text(done, encoding="utf-8")
    assert check_release.faults(f"v{version()}", root) == []
    assert "The tag is v9" in check_release.faults("v9", root)[0]
    text = (root / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (root / file).write_text(text.replace(old, new), encoding="utf-8")
    assert any(words in fault for fault in check_release.faults(f"v{version()}", root))


def test_the_check_runs_on_any_python() -> None:
    with pytest.raises(AssertionError, match="The tag is v0.0.0, expected v"):
        run(sys.executable, "-S", "tools/check_release.py", "v0.0.0")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_is_one(path: Path) -> None:
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"name", "about", "labels"}
    assert body.count("**") >= 6 and len(body.splitlines()) < 15


def test_there_is_a_template_for_what_readers_find() -> None:
    assert [path.stem for path in TEMPLATES] == ["bug", "idea", "wrong-statement"]


def test_security_says_whom_to_tell_and_states_the_limits_as_they_are() -> None:
    from kvlib.config.json_files import MOST_BYTES

    text = " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    assert "private vulnerability report" in text
    assert f"up to {MOST_BYTES // 10**6} MB" in text
    assert "http" not in text and "@" not in text

"""Numbers of the table of evictions that kvlib ships, computed again; weekly from every row."""

import sys
from pathlib import Path

import effort
import pytest

from kvbook.figures.windows import eviction_table
from kvlib.reference import sample_text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import make_eviction_table as maker

WHOLE = effort.LEVEL == "whole"
TEXTS = maker.TEXTS if WHOLE else 2
ROWS = [(name, share) for share in maker.SHARES for name in maker.rules(512)]


@pytest.fixture(scope="module")
def table():
    return eviction_table()


def test_the_settings_are_those_of_the_tool(table) -> None:
    settings = table["settings"]
    assert settings["chunks"] == maker.CHUNKS and settings["trials"] == maker.TRIALS
    assert [settings[k] for k in ("text", "texts", "shares", "distances", "narrow")] == [
        maker.TEXT, maker.TEXTS, list(maker.SHARES), list(maker.DISTANCES), maker.NARROW,
    ]


def test_the_texts_are_all_whole_stretches_of_the_sample() -> None:
    assert len(sample_text().encode()) // maker.TEXT == maker.TEXTS


@pytest.mark.parametrize("name, share", ROWS if WHOLE else [("TOVA", 25)])
def test_bits_and_bytes(model, table, name, share) -> None:
    rule = maker.rules(maker.TEXT * share // 100)[name]
    row = table["rows"][name][str(share)]
    # Where two tokens score nearly alike, rounding chooses: the mean over 2,047 bytes hardly moves.
    bits = maker.bits(model, maker.new_cache(model, rule), TEXTS)
    assert bits == pytest.approx(row["bits"][:TEXTS], rel=1e-3)
    assert maker.held(model, rule) == row["bytes"]


@pytest.mark.parametrize("part", ["windows", "one full layer", "sinks"])
def test_bits_under_windows_and_sinks(model, table, part, monkeypatch) -> None:
    if not WHOLE:
        monkeypatch.setattr(maker, "WIDE", (32,))
        monkeypatch.setattr(maker, "SHORT", (16,))
    ways = {"windows": maker.by_window, "one full layer": maker.by_full_layer}
    found = {part: (ways | {"sinks": maker.by_sinks})[part](model, maker.TEXTS if WHOLE else 1)}
    if part == "sinks":
        found, table = found[part], table[part]
    for name, losses in found.items():
        for key, bits in losses.items():
            assert bits == pytest.approx(table[name][key][: len(bits)], rel=1e-4)


@pytest.mark.parametrize("name, share", ROWS if WHOLE else [("SnapKV", 25)])
def test_first_answers(model, table, name, share) -> None:
    rule = maker.rules(maker.TEXT * share // 100)[name]
    for way, marks in table["rows"][name][str(share)]["recall"].items():
        trials = 6 if WHOLE else 2
        found = maker.recalled(model, rule, 256, way, trials)
        assert sum(a != b for a, b in zip(found, marks["256"], strict=False)) <= trials // 3

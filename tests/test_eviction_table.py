"""Numbers of the table of evictions that kvlib ships, computed again; weekly from every row."""

from __future__ import annotations

import sys
from pathlib import Path

import effort
import numpy as np
import pytest

from kvlib import load_reference_model
from kvlib.show.windows import eviction_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import make_eviction_table as maker

WHOLE = effort.LEVEL == "whole"
ROWS = [(name, share) for share in maker.SHARES for name in maker.rules(512, 5)]


@pytest.fixture(scope="module")
def model():
    return load_reference_model(xp=np)


@pytest.fixture(scope="module")
def table():
    return eviction_table()


def test_the_settings_are_those_of_the_tool(table) -> None:
    settings = table["settings"]
    assert settings["chunks"] == maker.CHUNKS and settings["trials"] == maker.TRIALS
    assert [settings[k] for k in ("text", "shares", "distances")] == [
        maker.TEXT,
        list(maker.SHARES),
        list(maker.DISTANCES),
    ]


@pytest.mark.parametrize("name, share", ROWS if WHOLE else [("TOVA", 25)])
def test_bits_and_bytes(model, table, name, share) -> None:
    rule = maker.rules(maker.TEXT * share // 100, len(model.layer_specs))[name]
    bits, held = maker.bits(model, rule)
    row = table["rows"][name][str(share)]
    # Where two tokens score nearly alike, rounding chooses: the mean over 2,047 bytes hardly moves.
    assert bits == pytest.approx(row["bits"], rel=1e-3) and held == row["bytes"]


@pytest.mark.parametrize("name, share", ROWS if WHOLE else [("SnapKV", 25)])
def test_first_answers(model, table, name, share) -> None:
    rule = maker.rules(maker.TEXT * share // 100, len(model.layer_specs))[name]
    for way, marks in table["rows"][name][str(share)]["recall"].items():
        trials = 6 if WHOLE else 2
        found = maker.recalled(model, rule, 256, way, trials)
        assert sum(a != b for a, b in zip(found, marks["256"], strict=False)) <= trials // 3

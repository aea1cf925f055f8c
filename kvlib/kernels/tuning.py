"""Choices measured on a card: tuned.json, which `make gpu ONLY=tune` writes and plans read.

A choice is a dict of keyword arguments of a plan. It has a reasoned default for each of them, and
uses these on a card that the table doesn't name, and on a machine without one.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from kvlib.devices import node_exists, trouble

STORED = Path(__file__).with_name("tuned.json")
_tried: dict[str, tuple[str | None, Mapping[str, Any]]] = {}


@cache
def table() -> dict[str, dict[str, dict[str, Mapping[str, Any]]]]:
    """Name of a device → kernel → case → choice; empty without a file."""
    return dict(json.loads(STORED.read_text(encoding="utf-8"))) if STORED.exists() else {}


@cache
def _here() -> dict[str, dict[str, Mapping[str, Any]]]:
    """What the table says of the device here; empty without one."""
    if not table() or not node_exists() or trouble():
        return {}
    from kvlib.kernels.launch import here

    return table().get(here().name, {})


def choice(kernel: str, case: str) -> Mapping[str, Any]:
    """What is being tried for a kernel, else the fastest for its case on this card, else {}."""
    tried, variant = _tried.get(kernel, ("", {}))
    if tried in (None, case):
        return variant
    return _here().get(kernel, {}).get(case, {})


@contextmanager
def trying(kernel: str, variant: Mapping[str, Any], case: str | None = None) -> Iterator[None]:
    """Let every plan of a kernel, or of one case, choose `variant` inside the `with` block."""
    _tried[kernel] = case, variant
    try:
        yield
    finally:
        del _tried[kernel]


def store(device: str, kernel: str, case: str, variant: Mapping[str, Any]) -> None:
    """Write a choice into the table."""
    table().setdefault(device, {}).setdefault(kernel, {})[case] = variant
    STORED.write_text(json.dumps(table(), indent=1) + "\n", encoding="utf-8")
    _here.cache_clear()

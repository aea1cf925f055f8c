"""Figures and sliders. matplotlib and ipywidgets load when something is drawn, not before."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlib.show.controls import Choice, Slider
    from kvlib.show.draw import (
        annotate,
        bars,
        bytes_axis,
        cells,
        figure,
        finish,
        heatmap,
        label_ends,
        lines,
    )
    from kvlib.show.explorer import Explorer
    from kvlib.show.explorers import (
        growth_explorer,
        memory_explorer,
        padding_explorer,
        roofline_explorer,
        sampling_explorer,
    )
    from kvlib.show.style import COLORS, color, contrast, on_color, text_color, use_style
    from kvlib.show.units import byte_unit, format_bytes, format_number

_HOME = {
    **dict.fromkeys(("COLORS", "color", "contrast", "on_color"), "style"),
    **dict.fromkeys(("text_color", "use_style"), "style"),
    **dict.fromkeys(("byte_unit", "format_bytes", "format_number"), "units"),
    **dict.fromkeys(("annotate", "bars", "bytes_axis", "cells", "figure", "finish"), "draw"),
    **dict.fromkeys(("heatmap", "label_ends", "lines"), "draw"),
    **dict.fromkeys(("Choice", "Slider"), "controls"),
    "Explorer": "explorer",
    **dict.fromkeys(("growth_explorer", "memory_explorer"), "explorers"),
    **dict.fromkeys(("padding_explorer", "roofline_explorer"), "explorers"),
    "sampling_explorer": "explorers",
}

__all__ = [
    "COLORS",
    "Choice",
    "Explorer",
    "Slider",
    "annotate",
    "bars",
    "byte_unit",
    "bytes_axis",
    "cells",
    "color",
    "contrast",
    "figure",
    "finish",
    "format_bytes",
    "format_number",
    "growth_explorer",
    "heatmap",
    "label_ends",
    "lines",
    "memory_explorer",
    "on_color",
    "padding_explorer",
    "roofline_explorer",
    "sampling_explorer",
    "text_color",
    "use_style",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # the page of the API lists what dir names

"""The figures of the chapters. matplotlib loads when something is drawn, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvbook.figures.draw import annotate as annotate
    from kvbook.figures.draw import bars as bars
    from kvbook.figures.draw import bytes_axis as bytes_axis
    from kvbook.figures.draw import cells as cells
    from kvbook.figures.draw import figure as figure
    from kvbook.figures.draw import heatmap as heatmap
    from kvbook.figures.draw import label_ends as label_ends
    from kvbook.figures.draw import lines as lines
    from kvbook.figures.style import COLORS as COLORS
    from kvbook.figures.style import color as color
    from kvbook.figures.style import contrast as contrast
    from kvbook.figures.style import on_color as on_color
    from kvbook.figures.style import text_color as text_color
    from kvbook.figures.style import use_style as use_style
    from kvbook.figures.units import byte_unit as byte_unit
    from kvbook.figures.units import format_bytes as format_bytes
    from kvbook.figures.units import format_number as format_number
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)

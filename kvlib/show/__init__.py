"""Figures and sliders. matplotlib and ipywidgets load when something is drawn, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.show.controls import Choice as Choice
    from kvlib.show.controls import Slider as Slider
    from kvlib.show.draw import annotate as annotate
    from kvlib.show.draw import bars as bars
    from kvlib.show.draw import bytes_axis as bytes_axis
    from kvlib.show.draw import cells as cells
    from kvlib.show.draw import figure as figure
    from kvlib.show.draw import finish as finish
    from kvlib.show.draw import heatmap as heatmap
    from kvlib.show.draw import label_ends as label_ends
    from kvlib.show.draw import lines as lines
    from kvlib.show.explorer import Explorer as Explorer
    from kvlib.show.explorers import growth_explorer as growth_explorer
    from kvlib.show.explorers import memory_explorer as memory_explorer
    from kvlib.show.explorers import padding_explorer as padding_explorer
    from kvlib.show.explorers import roofline_explorer as roofline_explorer
    from kvlib.show.explorers import sampling_explorer as sampling_explorer
    from kvlib.show.explorers import speculation_explorer as speculation_explorer
    from kvlib.show.explorers_latent import latent_explorer as latent_explorer
    from kvlib.show.style import COLORS as COLORS
    from kvlib.show.style import color as color
    from kvlib.show.style import contrast as contrast
    from kvlib.show.style import on_color as on_color
    from kvlib.show.style import text_color as text_color
    from kvlib.show.style import use_style as use_style
    from kvlib.show.units import byte_unit as byte_unit
    from kvlib.show.units import format_bytes as format_bytes
    from kvlib.show.units import format_number as format_number
    from kvlib.show.windows_map import eviction_explorer as eviction_explorer
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)

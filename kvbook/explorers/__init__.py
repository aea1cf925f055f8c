"""The sliders of the chapters. ipywidgets loads when something is drawn, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvbook.explorers.catalogue import growth_explorer as growth_explorer
    from kvbook.explorers.catalogue import latent_explorer as latent_explorer
    from kvbook.explorers.catalogue import memory_explorer as memory_explorer
    from kvbook.explorers.catalogue import padding_explorer as padding_explorer
    from kvbook.explorers.catalogue import roofline_explorer as roofline_explorer
    from kvbook.explorers.catalogue import sampling_explorer as sampling_explorer
    from kvbook.explorers.catalogue import speculation_explorer as speculation_explorer
    from kvbook.explorers.controls import Choice as Choice
    from kvbook.explorers.controls import Slider as Slider
    from kvbook.explorers.eviction import eviction_explorer as eviction_explorer
    from kvbook.explorers.explorer import Explorer as Explorer
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)

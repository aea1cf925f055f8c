"""Draws a scene with matplotlib: the same panels, roles, labels and ticks as `kvlib.show.svg`.

One figure, 7.2 inches wide, its panels from top to bottom. Margins are computed from the words that
stand in them: matplotlib's own layout engine would take longer than the drawing.
"""

from __future__ import annotations

import io
from typing import Any

from kvlib.show.plot_bars import bars_height, cells_height, draw_bars, draw_cells
from kvlib.show.plot_curves import curves_height, draw_curves
from kvlib.show.plot_page import Page
from kvlib.show.style import _RC, import_pyplot

GAP = 0.14  # inches between panels
KINDS = {
    "bars": (bars_height, draw_bars),
    "curves": (curves_height, draw_curves),
    "cells": (cells_height, draw_cells),
}


def draw(scene: dict[str, Any]) -> Any:
    """The figure of a scene. Its panels' axes carry the panels' numbers, in order.

    ValueError names a kind of panel or a role that there is not; ImportError, what to install.
    """
    import_pyplot()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rc: dict[Any, Any] = {k: v for k, v in _RC.items() if not k.startswith("image.")}
    rc["figure.constrained_layout.use"] = False
    with matplotlib.rc_context(rc):
        fig = Figure()
        FigureCanvasAgg(fig)
        page = Page(fig)
        kinds = [_kind(panel) for panel in scene["panels"]]
        heights = [kind[0](panel, page) for kind, panel in zip(kinds, scene["panels"])]
        page.set_height(sum(heights) + GAP * len(heights))
        top = page.height - GAP / 2
        for kind, height, panel in zip(kinds, heights, scene["panels"]):
            kind[1](panel, page, top)
            top -= height + GAP
    return fig


def png(scene: dict[str, Any], dpi: float = 100.0) -> bytes:
    """The figure of a scene as PNG, compressed lightly: for a picture that a slider moves."""
    import_pyplot()
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"text.hinting": "none"}):  # hinting takes a sixth of the time
        draw(scene).savefig(file, format="png", dpi=dpi, pil_kwargs={"compress_level": 1})
    return file.getvalue()


def _kind(panel: dict[str, Any]) -> Any:
    if panel["kind"] not in KINDS:
        raise ValueError(f"panel: got the kind {panel['kind']!r}, needed one of {', '.join(KINDS)}")
    return KINDS[panel["kind"]]

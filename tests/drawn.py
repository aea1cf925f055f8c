"""What a figure shows, read back from its axes, and what holds for every figure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvbook import figures
from kvbook.figures import style

LEAST = 6  # points: names of 80 columns; words have 8 and more


def texts(ax: Any) -> list[str]:
    """What is written into the axes."""
    return [found for text in ax.texts if (found := text.get_text().strip())]


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def legend(holder: Any) -> list[str]:
    """The words of the legend of a figure or of axes."""
    found = holder.legends[0] if hasattr(holder, "legends") else holder.get_legend()
    return [text.get_text() for text in found.get_texts()]


def title(ax: Any) -> str:
    found: str = ax.get_title(loc="left")
    return found


def widths(ax: Any) -> list[float]:
    return [round(float(bar.get_width()), 6) for bar in ax.patches]


def heights(ax: Any) -> list[float]:
    return [round(float(bar.get_height()), 6) for bar in ax.patches]


def faces(ax: Any) -> list[str]:
    """The colours of bars and boxes, as #rrggbb."""
    from matplotlib.colors import to_hex

    return [to_hex(patch.get_facecolor()) for patch in ax.patches]


def xs(ax: Any) -> list[list[float]]:
    return [[float(x) for x in line.get_xdata()] for line in ax.lines]


def ys(ax: Any) -> list[list[float]]:
    """The heights of each line."""
    return [[float(y) for y in line.get_ydata()] for line in ax.lines]


def ends(collection: Any, axis: int = 1) -> list[tuple[float, float]]:
    """Both ends of each bar of an error, or of each upright line."""
    return [tuple(sorted(bar[:, axis].tolist())) for bar in collection.get_segments()]


@contextmanager
def figures_checked(monkeypatch: Any) -> Iterator[None]:
    """Draw in the book's style, and check at the end every figure that was finished."""
    import matplotlib
    import matplotlib.pyplot as plt

    finished: list[Any] = []
    close = plt.close

    def noted(fig: Any = None) -> None:
        finished.append(fig)
        close(fig)

    monkeypatch.setattr(plt, "close", noted)
    plt.switch_backend("agg")
    with matplotlib.rc_context():
        figures.use_style()
        yield
        for fig in finished:
            if hasattr(fig, "axes"):
                check_figure(fig)
    close("all")


def check_figure(fig: Any) -> None:
    """The book's width; words large enough, dark enough, on the card; axes with names."""
    from matplotlib.colors import to_hex
    from matplotlib.text import Text

    assert fig.get_size_inches()[0] == style.WIDTH
    fig.savefig(io.BytesIO(), dpi=50)  # lays it out as a notebook does
    card = fig.bbox.padded(1)
    for text in fig.findobj(Text):
        if not (text.get_text().strip() and text.get_visible()):
            continue
        said, size, ink = text.get_text(), text.get_fontsize(), to_hex(text.get_color())
        assert size >= LEAST, f"{said!r} has {size} points"
        on_card = style.contrast(ink, style.CARD)
        assert on_card >= 4.5 or ink in ("#ffffff", "#000000"), f"{said!r} in {ink} is too pale"
    for ax in fig.axes:
        for text in ax.texts:
            if text.get_text().strip():
                box = text.get_window_extent()
                inside = card.contains(box.x0, box.y0) and card.contains(box.x1, box.y1)
                assert inside, f"{text.get_text()!r} is cut off"
        named = [axis for axis in (ax.xaxis, ax.yaxis) if axis.get_visible()]
        words = [title(ax), *texts(ax)]
        words += [found for axis in named for found in (axis.get_label_text(), *labels(axis))]
        assert any(words), "axes without a word"

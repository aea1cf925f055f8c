"""What a figure shows, read back from its axes, and what holds for every figure."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from effort import untraced

from kvbook import figures
from kvbook.figures import style

LEAST = 6  # points: names of 80 columns; words have 8 and more


def texts(ax: Any) -> list[str]:
    """What is written into the axes."""
    return [words for text in ax.texts if (words := text.get_text().strip())]


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def legend(holder: Any) -> list[str]:
    """The words of the legend of a figure or of axes."""
    box = holder.legends[0] if hasattr(holder, "legends") else holder.get_legend()
    return [text.get_text() for text in box.get_texts()]


def title(ax: Any) -> str:
    words: str = ax.get_title(loc="left")
    return words


def role(color: Any) -> str:
    """What a colour means: a role of the palette, or "card"."""
    from matplotlib.colors import to_hex

    known = {figures.color(name): name for name in figures.COLORS} | {style.CARD: "card"}
    return known.get(to_hex(color), to_hex(color))


def faces(ax: Any) -> list[str]:
    """The roles of bars and boxes."""
    return [role(patch.get_facecolor()) for patch in ax.patches]


def ys(ax: Any) -> list[list[float]]:
    """The heights of each line."""
    return [np.asarray(line.get_ydata(), float).tolist() for line in ax.lines]


def ends(collection: Any, axis: int = 1) -> list[list[float]]:
    """Both ends of each bar of an error, or of each upright line."""
    return [sorted(bar[:, axis].tolist()) for bar in collection.get_segments()]


READ = {
    "texts": texts, "title": title,
    "legend": lambda ax: legend(ax if ax.get_legend() else ax.figure),
    "xlabel": lambda ax: ax.get_xlabel(), "ylabel": lambda ax: ax.get_ylabel(),
    "x": lambda ax: labels(ax.xaxis), "y": lambda ax: labels(ax.yaxis),
    "xlim": lambda ax: ax.get_xlim(), "bottom": lambda ax: ax.get_ylim()[0],
    "log": lambda ax: "".join(n for n in "xy" if getattr(ax, f"get_{n}scale")() == "log"),
    "faces": faces,
    "lefts": lambda ax: [bar.get_x() for bar in ax.patches],
    "bottoms": lambda ax: [bar.get_y() for bar in ax.patches],
    "widths": lambda ax: [bar.get_width() for bar in ax.patches],
    "heights": lambda ax: [bar.get_height() for bar in ax.patches],
    "xs": lambda ax: [np.asarray(line.get_xdata(), float).tolist() for line in ax.lines],
    "ys": ys,
    "roles": lambda ax: [role(line.get_color()) for line in ax.lines],
    "marks": lambda ax: [role(line.get_markerfacecolor()) for line in ax.lines],
    "styles": lambda ax: [line.get_linestyle() for line in ax.lines],
    "steps": lambda ax: [line.get_drawstyle() for line in ax.lines],
    "dots": lambda ax: [
        line.get_xydata().tolist() for line in ax.lines if line.get_marker() == "o"
    ],
    "uprights": lambda ax: ends(ax.collections[0]),
    "image": lambda ax: np.asarray(ax.images[0].get_array()).tolist(),
    "clim": lambda ax: ax.images[0].get_clim(),
}


def check_shown(fig: Any, panels: tuple[dict[str, Any], ...]) -> None:
    """Each panel shows what is wanted of it, by the names of READ; a set need not be all."""
    fig.draw_without_rendering()
    assert len(panels) <= len(fig.axes)
    for ax, wanted in zip(fig.axes, panels, strict=False):
        for what, right in wanted.items():
            shown = READ[what](ax)
            assert same(shown, right), f"{what}: {shown}, not {right}"


def same(shown: Any, wanted: Any) -> bool:
    if isinstance(wanted, set):
        return wanted <= set(shown)
    if isinstance(wanted, list | tuple):
        return len(shown) == len(wanted) and all(map(same, shown, wanted))
    right = wanted if isinstance(wanted, str) else pytest.approx(wanted, nan_ok=True)
    return bool(shown == right)


@contextmanager
def figures_checked(monkeypatch: Any) -> Iterator[None]:
    """Draw in the book's style, and check at the end every figure that was made."""
    import matplotlib
    from matplotlib.figure import Figure

    made: list[Any] = []
    initialise = Figure.__init__

    def recorded(fig: Any, *args: Any, **kwargs: Any) -> None:
        initialise(fig, *args, **kwargs)
        made.append(fig)

    monkeypatch.setattr(Figure, "__init__", recorded)
    with matplotlib.rc_context():
        figures.use_style()
        yield
        for fig in made:
            check_figure(fig)


def check_figure(fig: Any) -> None:
    """The book's width; words large enough, dark enough, on the card; axes with names."""
    from matplotlib.colors import to_hex
    from matplotlib.text import Text

    assert fig.get_size_inches()[0] == style.WIDTH
    with untraced():
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
        words += [word for axis in named for word in (axis.get_label_text(), *labels(axis))]
        assert any(words), "axes without a word"

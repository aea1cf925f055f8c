"""One palette with fixed meanings, one matplotlib style, and the contrast of both.

A colour means the same thing on every page: a key is always blue, recomputed work is always
magenta. The hues were chosen together so that the closest two stay apart for normal sight and for
the three dichromacies, and so that each stands out from the card by at least 3:1.
`tests/test_style.py` computes both, so a new colour must pass both.

Figures sit on an opaque white card. No single ink reaches 4.5:1 on a white page and on a nearly
black one (the luminances needed do not overlap), so the figure brings its own background instead
of borrowing the reader's. The figures with sliders, which the page draws, change to a dark card
with the theme: `assets/explorers/explorer.css` has the same roles for it, tested in the same way.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kvbook.explorers.svg import LIGHT

CARD, INK, MUTED, GRID = (LIGHT[role] for role in ("card", "ink", "muted", "grid"))
COLORS: Mapping[str, str] = MappingProxyType(
    {role: hexed for role, hexed in LIGHT.items() if role != "card"}
)
ROLES = ("query", "key", "value", "cached", "recomputed", "shared", "weights", "free")
WIDTH = 7.2  # inches; every figure is this wide, so that text has one size on every page
DPI = 200

_RC: dict[str, dict[str, Any]] = {
    "figure": {"figsize": (WIDTH, 3.2), "dpi": DPI, "facecolor": CARD},
    "figure.constrained_layout": {"use": True},
    "savefig": {"dpi": DPI, "facecolor": CARD, "transparent": False},
    "font": {"family": "DejaVu Sans", "size": 10},
    "axes": {"facecolor": CARD, "edgecolor": MUTED, "grid": True, "axisbelow": True},
    "axes.grid": {"axis": "y"},
    "axes.spines": {"top": False, "right": False},
    "axes.title": {"size": 11, "weight": "bold", "location": "left", "color": INK},
    "axes.label": {"size": 10, "color": INK},
    "xtick": {"labelsize": 9, "color": MUTED},
    "ytick": {"labelsize": 9, "color": MUTED},
    "legend": {"fontsize": 9, "frameon": False},
    "text": {"color": INK},
    "grid": {"color": GRID, "linewidth": 0.8},
    "lines": {"linewidth": 2.2, "markersize": 5},
    "image": {"cmap": "kvlib", "interpolation": "nearest"},
}


def color(role: str) -> str:
    """The colour of a meaning, as `#rrggbb`. ValueError for a role the palette does not have.

    >>> color("key")
    '#1d5ed5'
    """
    if role not in COLORS:
        raise ValueError(f"role: got {role!r}, needed one of {', '.join(COLORS)}")
    return COLORS[role]


def text_color(role: str) -> str:
    """The colour of a meaning, made darker until it can be read as text.

    Its contrast with the card, the background of a figure, is at least 4.5:1 (WCAG 1.4.3).
    ValueError for a role the palette does not have.

    >>> area, words = color("query"), text_color("query")  # 3:1 does for a bar
    >>> round(contrast(area, "#ffffff"), 1), round(contrast(words, "#ffffff"), 1)
    (3.8, 4.7)
    """
    rgb = _rgb(color(role))
    while contrast(_hex(rgb), CARD) < 4.6:
        rgb = tuple(0.96 * c for c in rgb)
    return _hex(rgb)


def on_color(role: str) -> str:
    """White where it can be read on the colour of `role` (4.5:1), else black.

    ValueError for a role the palette does not have.

    >>> on_color("key"), on_color("weights")
    ('#ffffff', '#000000')
    """
    return CARD if contrast(CARD, color(role)) >= 4.5 else "#000000"


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two `#rrggbb` colours, 1 to 21 (WCAG 2.2, relative luminance of sRGB).

    ValueError for a colour of another form.

    >>> contrast("#000000", "#ffffff"), contrast("#1d5ed5", "#1d5ed5")
    (21.0, 1.0)
    """
    la, lb = _luminance(a), _luminance(b)
    return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)


def use_style() -> None:
    """Give every figure of this process the book's style. Called once, at the top of a notebook.

    ImportError, with what to install, where there is no matplotlib.

    >>> import matplotlib
    >>> with matplotlib.rc_context():  # here for two lines only
    ...     use_style()
    ...     print(matplotlib.rcParams["figure.figsize"], matplotlib.rcParams["image.cmap"])
    [7.2, 3.2] kvlib
    """
    matplotlib = import_matplotlib()
    from matplotlib.colors import LinearSegmentedColormap

    maps = {
        "kvlib": [CARD, "#b9cdf3", "#1d5ed5", "#0f1934"],  # how much: none to most
        "kvlib_signed": ["#7a4a00", "#e3c9a0", CARD, "#b9cdf3", "#1d5ed5"],  # below, above zero
    }
    for name, stops in maps.items():
        cmap = LinearSegmentedColormap.from_list(name, stops)
        if name not in matplotlib.colormaps:
            matplotlib.colormaps.register(cmap, name=name)
    for group, settings in _RC.items():
        joint = "" if group in ("axes.title", "axes.label") else "."
        rc: dict[Any, Any] = {f"{group}{joint}{name}": x for name, x in settings.items()}
        matplotlib.rcParams.update(rc)
    _teach_notebook()


def import_matplotlib() -> Any:
    """Return matplotlib, or raise an ImportError that names the extra to install."""
    try:
        import matplotlib
    except ImportError as err:
        raise ImportError(
            "The figures need matplotlib, which is not installed. Run: pip install 'kvlib[book]'"
        ) from err
    return matplotlib


def _teach_notebook() -> None:
    # The notebook's own habit is to crop every figure to its contents, which gives each one
    # another text size on the page. Without cropping all are WIDTH inches wide. A figure returned
    # from a cell is shown as PNG, once.
    if "IPython" not in sys.modules:
        return
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    if shell is None:
        return
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib_inline.config import InlineBackend

    backend: Any = InlineBackend.instance(parent=shell)
    backend.print_figure_kwargs = {"bbox_inches": None}
    select_figure_formats(shell, {"png"}, bbox_inches=None)


def _rgb(hex_color: str) -> tuple[float, ...]:
    digits = hex_color.removeprefix("#")
    if len(digits) != 6:
        raise ValueError(f"colour: got {hex_color!r}, needed the form #rrggbb")
    return tuple(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))


def _hex(rgb: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * min(1.0, max(0.0, c))):02x}" for c in rgb)


def _luminance(hex_color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(hex_color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

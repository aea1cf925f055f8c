"""Explorer: controls, and one function that turns their settings into a scene of plain data.

The last line of a cell shows it. In Jupyter it is a widget with a live figure; on the rendered page
the same markup carries the first view and what the page's script needs to make the same controls.
"""

from __future__ import annotations

import html
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial, update_wrapper
from importlib.util import find_spec
from itertools import product
from typing import Any

from kvbook.explorers import svg
from kvbook.explorers.controls import Control, Value
from kvbook.explorers.live import LiveView, formula_lines, numbers_table
from kvbook.explorers.rounding import rounded_scene


class takes_settings:
    """Decorator: one keyword for each control of the explorer, for help and tab completion."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, explorer: Any, owner: Any = None) -> Any:
        if explorer is None:
            return self.method
        call = update_wrapper(partial(self.method, explorer), self.method)
        keyword = inspect.Parameter.KEYWORD_ONLY
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(n, keyword, default=v) for n, v in explorer.settings.items()]
        )
        return call


Scene = dict[str, Any]
SceneFunction = Callable[[dict[str, Any], Any], Scene]
MISSING = "To move the sliders, install ipywidgets: pip install 'kvlib[book]'"


class Explorer:
    """A figure with controls: sliders and lists in Jupyter, the same on the rendered page.

    name: a Python identifier, the explorer's part of an address (`?memory.batch=8`). title: what
    it explores. controls: Choices and Sliders. scene_function(settings, tables): the scene, plain
    data. tables: what the function looks up. anchor: the id on the page (default: name).

        explorer                      # the last line of a cell: shows it
        explorer.set(batch=8)         # the same explorer at another setting
        explorer.scene(batch=8)       # the plain data behind the picture
        explorer.svg(batch=8)         # that picture
        explorer.controls             # what can be set; explorer.settings is what is set

    ValueError for a name that is no identifier, no title, no controls, or two of one name.

    >>> from kvbook.explorers import Slider
    >>> def scene(settings, tables):
    ...     return {"title": f"{settings['batch'] * tables['bytes']:,} bytes", "panels": []}
    >>> batch = Slider.powers("batch", "Requests", 1, 64)
    >>> explorer = Explorer("cache", "What a batch keeps", [batch], scene, {"bytes": 131072})
    >>> explorer.set(batch=8)
    <Explorer cache: 1,048,576 bytes>
    """

    def __init__(
        self,
        name: str,
        title: str,
        controls: Sequence[Control],
        scene_function: SceneFunction,
        tables: Mapping[str, Any] | None = None,
        anchor: str | None = None,
    ) -> None:
        if not name.isidentifier():
            raise ValueError(f"explorer: got the name {name!r}, needed a Python identifier")
        if not title.strip():
            raise ValueError(f"explorer {name}: got no title")
        if not controls:
            raise ValueError(f"explorer {name}: got no controls, needed one or more")
        names = [control.name for control in controls]
        if len(set(names)) < len(names):
            raise ValueError(f"explorer {name}: control names are not unique: {', '.join(names)}")
        self.name, self.title = name, title
        self.anchor = _checked_anchor(name, name if anchor is None else anchor)
        self.controls: tuple[Control, ...] = tuple(controls)
        self.tables = {} if tables is None else tables
        self._function = scene_function
        self._frames: list[Scene] | None = None

    @classmethod
    def from_frames(
        cls,
        name: str,
        title: str,
        slider: Control | Sequence[Control],
        scenes: Sequence[Scene],
        anchor: str | None = None,
    ) -> Explorer:
        """An explorer whose scenes were made beforehand, one for each value of its control.

        With two controls, give the scenes in the order of two nested loops, the second control in
        the inner one. Use this for results that need a run of the model. The page carries all
        scenes, so keep them few. Numbers in their panels are rounded to what can be seen
        (`kvbook.explorers.rounding`).
        """
        controls = [slider] if isinstance(slider, Control) else list(slider)
        frames, named = list(scenes), " x ".join(control.name for control in controls)
        every = list(product(*(control.values for control in controls)))
        if len(frames) != len(every):
            values = " x ".join(str(len(control.values)) for control in controls)
            raise ValueError(
                f"explorer {name}: got {len(frames)} scenes, needed one for each of "
                f"{values} values of {named}"
            )
        for i, scene in enumerate(frames):
            try:
                json.dumps(scene, allow_nan=False)
            except (TypeError, ValueError) as error:
                what = f"explorer {name}: scene {i} of {named} is not plain data: {error}"
                raise type(error)(what) from None
        frames = [rounded_scene(scene) for scene in frames]

        def frame(settings: dict[str, Any], _tables: Any) -> Scene:
            return frames[every.index(tuple(settings[control.name] for control in controls))]

        made = cls(name, title, controls, frame, anchor=anchor)
        made._frames = frames
        return made

    @property
    def settings(self) -> dict[str, Value]:
        """The setting of every control, by name."""
        return {control.name: control.value for control in self.controls}

    @takes_settings
    def set(self, **settings: Any) -> Explorer:
        """This explorer at other settings; the original stays as it is.

        ValueError for a control that it does not have, or for a value that is not offered.
        """
        wanted = self._checked(settings)
        made = copy(self)
        made.controls = tuple(control.at(wanted[control.name]) for control in self.controls)
        return made

    def with_anchor(self, anchor: str) -> Explorer:
        """This explorer with another id, for a page that shows it twice."""
        made = copy(self)
        made.anchor = _checked_anchor(self.name, anchor)
        return made

    @takes_settings
    def scene(self, **settings: Any) -> Scene:
        """The scene at these settings: title, summary, formula, numbers and panels, plain data."""
        return self._function(self._checked(settings), self.tables)

    @takes_settings
    def svg(self, **settings: Any) -> str:
        """The figure of the scene at these settings, as SVG."""
        return svg.draw(self.scene(**settings))

    def widget(self) -> Any:
        """The ipywidgets view: controls, live figure, numbers. ImportError without ipywidgets."""
        return LiveView(self).box

    @takes_settings
    def call(self, **settings: Any) -> str:
        """The call that sets an explorer to these settings: 'set(batch=8)', to be copied.

        Names only what differs from this explorer's own settings.
        """
        wanted = self._checked(settings)
        changed = [f"{n}={v!r}" for n, v in wanted.items() if v != self.settings[n]]
        return f"set({', '.join(changed)})"

    def __repr__(self) -> str:
        return f"<Explorer {self.name}: {self.scene()['title']}>"

    def to_html(self, note: str = "") -> str:
        """The first view, with the data for the page's script in `data-explorer`, but no script.

        The same settings give the same text, so that a notebook's output can be compared.
        """
        data: dict[str, Any] = {"name": self.name, "title": self.title}
        data["controls"] = [control.to_json() for control in self.controls]
        if self._frames is not None:
            data["frames"] = self._frames
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        for letter, entity in (("&", "&amp;"), ("<", "&lt;"), ("'", "&#39;")):
            text = text.replace(letter, entity)
        scene = self.scene()
        summary = html.escape(scene["summary"])
        lines = [
            f'<div class="kv-explorer" id="{self.anchor}"',
            f" data-explorer='{text}'>",
            f'<p class="kv-title">{html.escape(scene["title"])}</p>',
            f'<div class="kv-figure" role="img" aria-label="{summary}">',
            svg.draw(scene),
            "</div>",
            f'<p class="kv-summary">{summary}</p>',
            numbers_table(scene),
            formula_lines(scene),
            *([f'<p class="kv-note">{html.escape(note)}</p>'] if note else []),
            "</div>",
        ]
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Text, the page's markup and, where a Jupyter kernel runs, the live widget."""
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if _in_kernel() and find_spec("ipywidgets") is None:
            return bundle | {"text/html": self.to_html(note=MISSING)}
        view = self.widget()._repr_mimebundle_() if _in_kernel() else {}
        view.pop("text/plain", None)
        return bundle | {"text/html": self.to_html()} | view

    def _checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = {control.name: control for control in self.controls}
        for name in settings:
            if name not in known:
                raise ValueError(
                    f"explorer {self.name}: there is no control {name!r}, "
                    f"needed one of {', '.join(known)}"
                )
        return self.settings | {name: known[name].check(v) for name, v in settings.items()}


def _checked_anchor(name: str, anchor: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w-]*", anchor, re.ASCII):
        raise ValueError(
            f"explorer {name}: got the anchor {anchor!r}, needed letters, digits, _ and -"
        )
    return anchor


def _in_kernel() -> bool:
    """Whether this process serves a notebook (IPython is loaded and has a kernel)."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    return getattr(shell, "kernel", None) is not None

"""An explorer as Jupyter widgets: its controls, a figure that follows them, and the words.

The figure is the SVG of the rendered page, in an HTML widget: drawing it takes less than a
millisecond. Nothing is printed and no Output widget is used, because each would keep what it was
given before. An error is written where the reader looks, and raised.
"""

import html
from typing import Any

from kvbook.explorers import svg
from kvbook.explorers.controls import Control

# The text takes JupyterLab's colours, light or dark; the figure keeps its white card.
STYLE = """<style>
.kv-live { color: var(--jp-ui-font-color1, inherit); line-height: 1.45; max-width: 45rem }
.kv-live p { margin: 0.3em 0 }
.kv-live .kv-numbers { display: flex; flex-wrap: wrap; gap: 0.4em 1.6em; margin: 0.4em 0 }
.kv-live .kv-numbers > div { min-width: 11rem }
.kv-live :is(dt, dd) { float: none; display: block; width: auto; margin: 0; padding: 0 }
.kv-live dt { color: var(--jp-ui-font-color2, inherit); font-weight: normal }
.kv-live dd { font-weight: 600 }
.kv-live pre { color: var(--jp-ui-font-color1, inherit); background: none; white-space: pre-wrap;
  margin: 0.4em 0; padding: 0 }
.kv-live .kv-call { color: var(--jp-ui-font-color2, inherit) }
.kv-live .kv-error { border-left: 4px solid #c62828; padding-left: 0.6em }
.kv-live .kv-card { background: #fff; max-width: 720px }
.kv-live .kv-card svg { display: block; width: 100%; height: auto }
.kv-live-controls .widget-inline-hbox { flex-flow: row wrap; align-content: flex-start;
  height: auto; margin: 2px 12px 6px 2px }
.kv-live-controls .widget-label { flex: 1 0 100%; max-width: none; height: auto; text-align: left }
.kv-live-controls .widget-readout { flex: none; width: auto; max-width: none; text-align: right }
</style>"""


def numbers_table(scene: dict[str, Any]) -> str:
    """The key results as an HTML list of terms."""
    pairs = [(html.escape(row["label"]), html.escape(row["text"])) for row in scene["numbers"]]
    rows = [f"<div><dt>{label}</dt><dd>{text}</dd></div>" for label, text in pairs]
    return f'<dl class="kv-numbers">{"".join(rows)}</dl>'


def formula_lines(scene: dict[str, Any]) -> str:
    """The formula with its numbers filled in, as preformatted HTML."""
    return f'<pre class="kv-formula">{html.escape(chr(10).join(scene["formula"]))}</pre>'


class LiveView:
    """One view of an explorer; each has separate controls. `box` is what Jupyter shows.

    controls: name → widget. picture and words: HTML widgets.
    """

    def __init__(self, explorer: Any) -> None:
        import ipywidgets

        self.explorer = explorer
        self.controls = {c.name: _widget(ipywidgets, c) for c in explorer.controls}
        self.picture = ipywidgets.HTML()
        self.words = ipywidgets.HTML()
        self.draw()
        for widget in self.controls.values():
            widget.observe(self._changed, names="value")
        heading = ipywidgets.HTML(f"{STYLE}<b class='kv-live'>{html.escape(explorer.title)}</b>")
        row = {"flex_flow": "row wrap", "max_width": "740px"}
        controls = ipywidgets.Box(list(self.controls.values()), layout=row)
        controls.add_class("kv-live-controls")
        self.box = ipywidgets.VBox([heading, controls, self.picture, self.words])

    @property
    def settings(self) -> dict[str, Any]:
        """What the widgets are set to, by name."""
        return {name: widget.value for name, widget in self.controls.items()}

    def draw(self) -> None:
        """Show the scene at the widgets' settings."""
        scene = self.explorer.scene(**self.settings)
        self.picture.value = (
            f'<div class="kv-live"><div class="kv-card">{svg.draw(scene)}</div></div>'
        )
        self.words.value = self._words(scene)

    def _changed(self, _change: Any) -> None:
        try:
            self.draw()
        except Exception as error:
            # the kernel would only log it; the reader would see a slider that does nothing
            words = f"{type(error).__name__}: {error}"
            call = self.explorer.call(**self.settings)
            self.words.value = (
                f'<div class="kv-live"><div class="kv-error"><p>The figure does not show this '
                f"setting, for drawing it failed.</p><pre>{html.escape(words)}</pre>"
                f"<p>{html.escape(call)}</p></div></div>"
            )
            raise

    def _words(self, scene: dict[str, Any]) -> str:
        call = self.explorer.call(**self.settings)
        here = f'<p class="kv-call">This view: <code>{html.escape(call)}</code></p>'
        return (
            f'<div class="kv-live"><p><b>{html.escape(scene["title"])}</b></p>'
            f'<p role="status">{html.escape(scene["summary"])}</p>'
            f"{numbers_table(scene)}{formula_lines(scene)}"
            f"{'' if call == 'set()' else here}</div>"
        )


def _widget(ipywidgets: Any, control: Control) -> Any:
    """A drop-down list or a slider with the control's words; a slider moves the figure live."""
    common = {
        "options": list(zip(control.texts, control.values, strict=True)),
        "value": control.value,
        "description": control.label,
        "style": {"description_width": "initial"},
        "layout": {"width": "14rem", "max_width": "100%"},
    }
    if control.kind == "choice":
        return ipywidgets.Dropdown(**common)
    return ipywidgets.SelectionSlider(continuous_update=True, **common)

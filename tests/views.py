"""Move an explorer's widgets as a browser does, read what is shown, compare with the scene."""

import random
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from kvbook.explorers import svg
from kvbook.explorers.live import LiveView


def move(widget: Any, index: int) -> None:
    """Move a control as the browser does: by the index of the option."""
    widget.set_state({"index": index})


class Markup(HTMLParser):
    """Tags that are open, attributes by class, text by class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: dict[str, dict[str, Any]] = {}
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        attributes = dict(attrs)
        self.attributes[attributes.get("class", tag)] = attributes

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def sweep(explorer, most, pairs=10) -> Iterator[tuple[LiveView, dict[str, Any]]]:
    """Every control through `most` of its values and back, then jumps of two controls at once."""
    view = LiveView(explorer)
    for control in explorer.controls:
        last = len(control.values) - 1
        n = min(most, last + 1)
        spread = [i * last // (n - 1) for i in range(n)]  # the first and the last among them
        for index in [*spread, control.values.index(control.value)]:
            move(view.controls[control.name], index)
            yield view, view.settings
    rng = random.Random(0)
    for _ in range(pairs):
        for control in rng.sample(explorer.controls, min(2, len(explorer.controls))):
            move(view.controls[control.name], rng.randrange(len(control.values)))
        yield view, view.settings


def check_view(view: LiveView, settings: dict[str, Any]) -> None:
    """The widgets show the scene of their settings."""
    scene = view.explorer.scene(**settings)
    assert "kv-error" not in view.words.value
    shown = "".join(Markup(view.words.value).words)
    for words in (scene["title"], scene["summary"], *scene["formula"]):
        assert words in shown
    assert all(row["text"] in shown for row in scene["numbers"])
    call = view.explorer.call(**settings)
    assert ("This view" in shown) == (call != "set()") and (call == "set()" or call in shown)
    assert svg.draw(scene) in view.picture.value

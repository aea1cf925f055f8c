"""Every explorer of the book: all its controls, in widgets and as SVG."""

import json

import pytest
from effort import Effort, number
from views import Markup, check_view, sweep

from kvbook import explorers
from kvbook.explorers.catalogue import ALL

pytest.importorskip("ipywidgets")

pytestmark = pytest.mark.parametrize("name", ALL)


@pytest.mark.untraced
def test_every_control_moves_what_is_shown(name: str, effort: Effort) -> None:
    explorer = ALL[name]()
    stops = sum(len(control.values) + 1 for control in explorer.controls) + 10
    most = number(quick=3, usual=stops, whole=stops)
    steps, pictures, scenes = 0, set(), set()
    for view, settings in sweep(explorer, most):
        check_view(view, settings)
        steps += 1
        pictures.add(view.picture.value)
        scenes.add(json.dumps(explorer.scene(**settings)["panels"]))
    effort.ran("settings of live sliders", steps, stops)
    assert steps >= 3 * len(explorer.controls)
    # a small change may be less than a tenth of a pixel, so some scenes may look like another
    assert len(scenes) > len(explorer.controls)
    assert len(pictures) > len(scenes) // 2, "pictures that do not follow their scenes"


def test_the_page_shows_the_first_view(name: str) -> None:
    explorer = ALL[name]()
    markup = Markup(explorer.to_html())
    assert markup.open == [] and explorer.scene()["summary"] in markup.words
    assert explorer.name == name
    assert getattr(explorers, f"{name}_explorer") is ALL[name]

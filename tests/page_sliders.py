"""The sliders of a page in a browser, moved as a reader moves them, compared with Python."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from explorer_pages import check, values_of
from explorer_probes import FAULTS, MARKS, PLACE, SET, STATE, TEXTS
from page_checks import SET_THEME
from rendered import SELDOM, contrast, take_picture

READY = "[...document.querySelectorAll('.kv-explorer')].every(e => e.kvState)"
IN_VIEW = """id => {
  const r = document.getElementById(id).getBoundingClientRect();
  return r.top < innerHeight && r.bottom > 0;
}"""
KEEP = """ids => document.querySelectorAll('.kv-explorer').forEach(e => {
  if (!ids.includes(e.id)) e.remove();
})"""
UNCOVERED = ".bd-header-article, .skip-link, #pst-skip-link { display: none !important; }"
Settings = dict[str, Any]


def defaults(data: dict[str, Any]) -> Settings:
    """The settings of an explorer when its page is opened."""
    return {control["name"]: control["value"] for control in data["controls"]}


def one_step_on(data: dict[str, Any]) -> Settings:
    """Every control at the value after the one it begins with."""
    settings = {}
    for control in data["controls"]:
        values = values_of(control)
        settings[control["name"]] = values[(values.index(control["value"]) + 1) % len(values)]
    return settings


def written(value: Any) -> str:
    """A value as a page writes it into an address: 2.0 is 2 there."""
    integral = isinstance(value, float) and value.is_integer()
    return quote_plus(str(int(value) if integral else value))


def address_of(explorers: list[dict[str, Any]], settings: list[Settings]) -> str:
    """The query that carries settings, as the page writes it."""
    pairs = [
        f"{data['name']}.{name}={written(value)}"
        for data, at in zip(explorers, settings, strict=True)
        for name, value in at.items()
    ]
    return "?" + "&".join(pairs)


class Sliders:
    """The explorers of an open page."""

    def __init__(self, page: Any, explorers: list[dict[str, Any]]) -> None:
        assert explorers, "the page has no explorer"
        self.page, self.explorers = page, explorers
        page.wait_for_function(READY)

    def keep_only(self, explorers: list[dict[str, Any]]) -> None:
        """Take every other explorer from the page."""
        self.explorers = explorers
        self.page.evaluate(KEEP, [data["id"] for data in explorers])

    def state(self, data: dict[str, Any]) -> dict[str, Any]:
        """What an explorer shows now, and what its controls are set to."""
        state: dict[str, Any] = json.loads(self.page.evaluate(STATE, data["id"]))
        return state

    def check(self, data: dict[str, Any], settings: Settings) -> None:
        """AssertionError unless an explorer shows these settings as Python computes them."""
        check(data, self.state(data), settings)

    def set(self, data: dict[str, Any], settings: Settings, each: bool = False) -> None:
        """Put controls where they are wanted, in one move, or (each) in a move of each control."""
        at = {
            f"{data['id']}-{control['name']}": values_of(control).index(settings[control["name"]])
            for control in data["controls"]
            if control["name"] in settings
        }
        self.page.evaluate(SET, [at, each])

    def spread(self, turn: str | random.Random | None) -> None:
        """All controls of all explorers to an end, to values drawn, or (None) where they began."""
        for data in self.explorers:
            settings = defaults(data)
            for control in data["controls"] if turn is not None else ():
                values = values_of(control)
                ends = {"Home": values[0], "End": values[-1]}
                drawn = isinstance(turn, random.Random)
                settings[control["name"]] = turn.choice(values) if drawn else ends[turn]
            self.set(data, settings)

    # ------------------------------------------------------------------ what is checked

    def move_everything(self) -> int:
        """Move each control, by keyboard and mouse, and compare; return the number of moves."""
        count = 0
        for data in self.explorers:
            settings = defaults(data)
            self.check(data, settings)
            for control in data["controls"]:
                values = values_of(control)
                for index, state in self.moves(data, control, len(values)):
                    check(data, state, settings | {control["name"]: values[index]})
                    count += 1
                self.set(data, settings)  # back, so that each control is seen alone
            self.check(data, settings)
        return count

    def moves(self, data: Any, control: Any, n: int) -> Iterator[tuple[int, Any]]:
        """Move a control by keyboard, then by mouse; yield what it must show, and what it shows."""
        name = control["name"]
        id_ = f"{data['id']}-{name}"
        press = self.page.keyboard.press
        place = self.page.evaluate(PLACE, id_)

        def stands() -> tuple[int, Any]:
            state = self.state(data)
            return int(state["at"][id_]), state

        keys = [("End", n - 1), ("ArrowLeft", n - 2), ("Home", 0), ("ArrowRight", 1)]
        keys += [("ArrowUp", 2)]
        if control["kind"] == "choice":
            keys = [("End", n - 1), ("ArrowUp", n - 2), ("Home", 0), ("ArrowDown", 1)]
        for key, index in keys:
            press(key)
            shown = stands()
            assert shown[0] == min(index, n - 1), f"{name}: {key}"
            yield shown
        if control["kind"] == "choice":
            for index in range(n):
                self.page.locator(f"[id='{id_}']").select_option(str(index))
                shown = stands()
                assert shown[0] == index
                yield shown
            return
        # the browser says what a page of steps is; that it moves, and which way, is what counts
        for key, up in (("PageUp", True), ("PageDown", False)):
            before = shown[0]
            press(key)
            shown = stands()
            after = shown[0]
            assert after > before or (before == n - 1) if up else after < before, f"{name}: {key}"
            yield shown
        left, width, y = place["left"], place["width"], place["top"] + place["height"] / 2
        mouse = self.page.mouse
        mouse.move(left + width - 3, y)
        mouse.down()
        shown = stands()
        assert shown[0] == n - 1, f"{name}: a click at the right end"
        yield shown
        for share in (0.75, 0.5, 0.25):
            mouse.move(left + share * width, y)
            shown = stands()
            off = abs(shown[0] - share * (n - 1))
            assert off <= max(1, 0.1 * n), f"{name}: the thumb follows the mouse"
            yield shown
        mouse.move(left + 1, y)
        mouse.up()
        shown = stands()
        assert shown[0] == 0, f"{name}: the mouse drags to the left end"
        yield shown

    def words_stand_clear(self, turns: int) -> None:
        """Labels, sizes, words that cover nothing: at the ends and at `turns` settings drawn."""
        rng = random.Random(self.page.url.rpartition("/")[2])
        for turn in ("Home", "End", *[rng] * turns, None):
            self.spread(turn)
            assert self.page.evaluate(FAULTS) == []
            width = self.page.evaluate("document.scrollingElement.scrollWidth")
            assert width <= self.page.viewport_size["width"]

    def colours_can_be_seen(self, theme: str) -> None:
        """Words and marks stand out from their background, at both ends of all sliders."""
        self.page.evaluate(SET_THEME, theme)
        for turn in ("Home", "End", None):
            self.spread(turn)
            texts, marks = self.page.evaluate(TEXTS), self.page.evaluate(MARKS)
            assert len(texts) > 10 and marks
            for words, colour, back in texts:
                assert contrast(colour, back) >= 4.5, f"{theme}, {words!r}: {colour} on {back}"
            for label, colours, card in marks:
                least = max(contrast(c, card) for c in colours)
                assert least >= 3, f"{theme}, {label!r}: {colours} on {card}"

    def address_carries_the_settings(self, settings: list[Settings]) -> None:
        """The page shows the settings of its address; Reset takes them away, moves write them."""
        page, link = self.page, self.page.url
        for data, at in zip(self.explorers, settings, strict=True):
            self.check(data, at)
        page.wait_for_function(IN_VIEW, arg=self.explorers[-1]["id"])
        for data in self.explorers:
            root = page.locator(f"[id='{data['id']}']")
            root.get_by_role("button", name="Reset").click()
            self.check(data, defaults(data))
        page.wait_for_function("!location.search.includes('.')", polling=SELDOM)
        for data, at in zip(self.explorers, settings, strict=True):
            self.set(data, at, each=True)
        page.wait_for_function("link => location.href === link", arg=link, polling=SELDOM)

    def take_pictures(self, name: str, kind: str) -> None:
        """A picture of each explorer, for people."""
        style = self.page.add_style_tag(content=UNCOVERED)
        for data in self.explorers:
            figure = self.page.locator(f"[id='{data['id']}']")
            take_picture(figure, f"explorer-{Path(name).stem}-{data['id']}-{kind}")
        style.evaluate("e => e.remove()")

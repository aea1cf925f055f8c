"""The scene of the speed-up of guesses, by hand and against `kvlib.speculation`."""

import itertools
from typing import Any

import pytest
from small_scenes import check_scene, line, numbers, part, settings_of

from kvbook.explorers.catalogue import speculation_explorer
from kvlib.costs import GPUS
from kvlib.speculation import best_gamma, checking_time, expected_tokens, speed_up

RIDGE = GPUS["h100-sxm"].ridge().value
def gain(settings: dict[str, Any], gamma: int) -> float:
    """What `kvlib.speculation` says for these settings and `gamma` guesses."""
    step = checking_time(gamma, settings["batch"], GPUS[settings["gpu"]].ridge().value)
    return speed_up(settings["acceptance"], gamma, settings["cost"], step)


def test_scene_agrees_with_the_formulas_of_kvlib() -> None:
    for settings in settings_of("speculation", 150, seed=11):
        scene = speculation_explorer(**settings).scene()
        check_scene(scene)
        curves, bars = scene["panels"]
        gamma, batch = settings["gamma"], settings["batch"]
        ridge = GPUS[settings["gpu"]].ridge().value
        curve = curves["lines"][0]["points"]
        assert [x for x, _ in curve] == list(range(17))
        assert [y for _, y in curve] == pytest.approx([gain(settings, n) for n in range(17)])
        unbound = [speed_up(settings["acceptance"], n, settings["cost"]) for n in range(17)]
        if batch > 1:  # at batch 1, reading the weights bounds a check of 17 tokens on every GPU
            assert list(line(curves, "batch 1").values()) == pytest.approx(unbound)
        chosen = curves["points"][0]
        assert (chosen["x"], chosen["y"]) == (gamma, pytest.approx(gain(settings, gamma)))
        best = best_gamma(
            settings["acceptance"], settings["cost"], 16,
            lambda n, batch=batch, ridge=ridge: checking_time(n, batch, ridge),
        )
        told = f"{curve[best][1]:.2f}"
        as_good = [n for n, y in curve if min(n, best) > 0 and f"{y:.2f}" == told] or [best]
        words = numbers(scene)["Best number of guesses"].split(" (")[0]
        assert [int(n) for n in words.split() if n.isdigit()] == sorted({as_good[0], as_good[-1]})
        marked = [p["x"] for p in curves["points"]]
        assert marked == ([gamma] if gamma in as_good else [gamma, best])
        lengths = [sum(p["value"] for p in bar["parts"]) for bar in bars["bars"]]
        assert lengths[0] == pytest.approx(expected_tokens(settings["acceptance"], gamma))
        assert lengths[0] / lengths[1] == pytest.approx(gain(settings, gamma))
        assert part(bars, "guessing", bar=1) == pytest.approx(gamma * settings["cost"])


def test_numbers_of_guesses_that_read_the_same_are_equally_good() -> None:
    """With a = 0.7 and c = 0.05, five and six guesses differ in the sixth digit."""
    for gamma in (5, 6):
        scene = speculation_explorer(acceptance=0.7, cost=0.05, batch=8, gamma=gamma).scene()
        assert "5 and 6 are best: 2.35 times as fast" in scene["summary"]
        assert numbers(scene)["Best number of guesses"] == "5 and 6 (2.35 times)"


def test_the_formula_names_what_it_leaves_out() -> None:
    """Experts and attention need more bytes or more operations with every token."""
    assert speculation_explorer().scene()["formula"][-1] == (
        "(weights of a dense model in 16 bits, read once; attention is left out)"
    )


def test_the_weights_bound_a_step_up_to_the_ridge() -> None:
    """A line is drawn where batch × (γ + 1) passes the ridge, if that is in sight."""
    for batch, bound in ((1, False), (16, False), (32, True), (128, True), (384, False)):
        scene = speculation_explorer(batch=batch, gamma=16).scene()
        upright = [ln for ln in scene["panels"][0]["lines"] if ln["points"][0][0] != 0]
        assert bool(upright) == bound, batch
        if bound:
            (at, _), (same, _) = upright[0]["points"]
            assert at == same == pytest.approx(RIDGE / batch - 1)
    scene = speculation_explorer(batch=128, gamma=5).scene()
    above = 1 - RIDGE / (128 * 6)
    assert numbers(scene)["Of that, above the time of the weights"] == f"{100 * above:.0f} %"
    times = scene["panels"][1]
    assert part(times, "check: reading the weights", bar=1) == pytest.approx(1)
    assert part(times, "check: arithmetic beyond that", bar=1) == pytest.approx(768 / RIDGE - 1)


@pytest.mark.parametrize(("settings", "words"), [
    (
        {"batch": 128, "gamma": 5},
        "At batch 128, guessing 5 tokens per step makes the server" " 1.03 times as fast.",
    ),
    ({"batch": 128, "gamma": 7}, "slower: it runs at 0.82 times the speed it has without"),
    ({"batch": 1, "gamma": 1}, "At batch 1, guessing 1 token per step"),
    ({"batch": 32, "gamma": 5}, "takes no longer than a step without guesses"),
    ({"batch": 128, "gamma": 5}, "62 % of the check is time beyond reading the weights"),
    ({"batch": 384, "gamma": 5}, "384 requests alone feed a step more than 295 tokens"),
    ({"batch": 128}, "Of up to 16 guesses, 1 is best: 1.62 times as fast."),
    ({"batch": 48, "gamma": 5}, "Of up to 16 guesses, this number is best."),
    ({"cost": 0.15, "gamma": 4}, "Of up to 16 guesses, 3 are best: less than 1 % faster."),
    ({"batch": 384}, "No number of guesses is faster than none."),
    ({"gpu": "mi300x"}, "MI300X"),
])  # fmt: skip
def test_the_sentence_says_what_it_means(settings: dict[str, Any], words: str) -> None:
    scene = speculation_explorer(acceptance=0.7, cost=0.05).scene(**settings)
    assert words in scene["summary"]


def test_words_near_one_do_not_contradict_the_number() -> None:
    """No gain is called a gain or a loss if it would be written as 1.00 times the speed."""
    explorer = speculation_explorer()
    seen = set()
    names = ("acceptance", "gamma", "cost", "batch")
    values = {c.name: c.values for c in explorer.controls}
    for at in itertools.islice(itertools.product(*(values[n] for n in names)), 0, None, 29):
        settings = explorer.settings | dict(zip(names, at, strict=True))
        scene = explorer.scene(**settings)
        exact, summary = gain(settings, settings["gamma"]), scene["summary"]
        kinds = ("times as fast.", "slower:", "neither faster nor slower")
        (kind,) = [k for k in kinds if k in summary.split(" A step", 1)[0]]
        assert kind == kinds[0 if exact >= 1.005 else 1 if exact < 0.995 else 2]
        assert " 1.00 times" not in summary.split(" A step", 1)[0]
        seen.add(kind)
    assert len(seen) == 3


@pytest.mark.parametrize(("given", "words"), [
    ((4, 8, 0.0), "ridge must be a finite number"),
    ((4, 8, float("nan")), "ridge must be a finite number"),
])
def test_checking_time_says_what_is_wrong(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checking_time(*given)

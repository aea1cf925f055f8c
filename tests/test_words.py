"""Numbers in words, and axes: what every scene and both drawings rely on."""

import random
from typing import Any

import pytest

from kvbook.explorers.scenes import panels as axes
from kvbook.explorers.scenes import words

WORDS = {
    words.fixed: [
        (0, 0, "0"), (0.5, 0, "1"), (1.5, 0, "2"), (2.5, 0, "3"), (0.125, 2, "0.13"),
        (-0.5, 0, "\u22121"), (-0.4, 0, "0"), (-1234.5, 1, "\u22121,234.5"),
        (999.96, 1, "1,000.0"), (1000, 0, "1,000"), (1000001, 0, "1,000,001"),
        (405853388800, 0, "405,853,388,800"), (0.05, 1, "0.1"), (3.07, 2, "3.07"),
    ],
    words.number_words: [  # three digits, or all of a whole number
        (0, "0"), (0.0123, "0.0123"), (0.000999, "0.000999"), (0.9996, "1"), (0.9994, "0.999"),
        (4.25, "4.25"), (4.999, "5"), (9.996, "10"), (15, "15"), (15.04, "15"), (15.06, "15.1"),
        (99.96, "100"), (131072, "131,072"), (-2.5, "\u22122.5"),
    ],
    words.bytes_words: [
        (1, 1024, "1 byte"), (0, 1000, "0 bytes"), (1000, 1024, "1,000 bytes"),
        (1000, 1000, "1 kB"), (131072, 1024, "128 KiB"), (131072, 1000, "131 kB"),
        (2**40 - 1, 1024, "1 TiB"), (16060522496, 1024, "15 GiB"),
        (16060522496, 1000, "16.1 GB"), (81559 * 2**20, 1024, "79.6 GiB"),
    ],
    words.seconds_words: [
        (0.0000155, "15.5 \u00b5s"), (0.00466, "4.66 ms"), (0.99949, "999 ms"), (0.9996, "1 s"),
        (119, "119 s"), (120, "2 min"), (7200, "2 h"), (86400 * 3, "3 days"),
    ],
    words.percent_words: [  # never rounded to none or to all
        (0, "0 %"), (1, "100 %"), (0.1, "10 %"), (0.0312, "3.1 %"), (0.0001, "under 0.1 %"),
        (0.9999, "over 99 %"), (0.455, "46 %"),
    ],
    words.tokens_words: [(1, "1 token"), (32768, "32,768 tokens")],
    words.count_words: [(0, "request", "requests", "0 requests")],
    words.times_words: [(95.46, "95.5 times")],
    words.scaled_words: [
        (15.2e12, "FLOP", "15.2 TFLOP"), (999.6e9, "FLOP", "1 TFLOP"), (12, "FLOP", "12 FLOP"),
    ],
    words.large_words: [(99999, "99,999"), (6979321856, "6.98 billion")],
    words.tokens_short: [
        (512, "512"), (1024, "1K"), (131072, "128K"), (2**20, "1M"), (1500, "1,500"),
    ],
}


@pytest.mark.parametrize("say", WORDS, ids=lambda say: say.__name__)
def test_words(say: Any) -> None:
    for *given, text in WORDS[say]:
        assert say(*given) == text, given


def test_fixed_says_the_number_as_python_does() -> None:
    random.seed(0)
    for _ in range(3000):
        digits = random.randrange(4)
        x = random.choice([1, -1]) * 10 ** random.uniform(-4, 9)
        got = words.fixed(x, digits)
        back = float(got.replace(",", "").replace(words.MINUS, "-"))
        assert abs(back - x) <= 0.5 * 10**-digits * (1 + 1e-6)
        assert got.removeprefix(words.MINUS) == f"{abs(back):,.{digits}f}"


def test_nice_step_is_the_least_that_serves() -> None:
    random.seed(1)
    for _ in range(2000):
        top, count = 10 ** random.uniform(-6, 12), random.choice([4, 5])
        step = axes.nice_step(top, count)
        assert step * count >= top * (1 - 1e-9)
        assert step * count / 2.5 < top * (1 + 1e-9)  # the next smaller one is at least 2/5 of it
        lead = f"{step:e}"[0]
        assert lead in "125" and abs(step / float(f"{step:.0e}") - 1) < 1e-9


def _check_axis(axis: dict, most: int) -> None:
    ticks = [tick["at"] for tick in axis["ticks"]]
    assert 2 <= len(ticks) <= most
    assert ticks == sorted(set(ticks)) and axis["min"] <= ticks[0] and ticks[-1] <= axis["max"]
    assert len({tick["text"] for tick in axis["ticks"]}) == len(ticks)


def test_axes_cover_what_they_are_asked_for_with_few_ticks() -> None:
    random.seed(2)
    for _ in range(1000):
        top = 10 ** random.uniform(-3, 18)
        linear = axes.axis_linear("time", top, 10 ** random.randrange(-3, 9))
        assert linear["min"] == 0 and linear["max"] == top
        _check_axis(linear, 6)
        unit = random.choice([1, 1e12])
        low = unit * 10 ** random.uniform(-3, 9)
        high = low * 10 ** random.uniform(2, 9)
        decades = axes.axis_decades("rate", low, high, unit)
        assert low / 10.001 <= decades["min"] <= low and decades["max"] == high
        _check_axis(decades, 7)
        first = 2 ** random.randrange(0, 20)
        powers = axes.axis_bytes("bytes", first, first * 2 ** random.randrange(2, 40))
        _check_axis(powers, 6)
        assert all(tick["at"] == int(tick["at"]) for tick in powers["ticks"])


def test_counts_have_no_ticks_between_whole_numbers() -> None:
    for top in (1, 2.04, 5.1, 102, 4080):
        ticks = axes.axis_counts("new token", top)["ticks"]
        assert all(tick["at"] == int(tick["at"]) for tick in ticks)
        assert 2 <= len(ticks) <= 6

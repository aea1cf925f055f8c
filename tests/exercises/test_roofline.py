"""Known wrong answers to the exercises of the chapter on the roofline: each refused in fitting
words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from kvbook.exercises.report import Report
from kvbook.exercises.roofline import (
    SHEET,
    check_attention_intensity,
    check_busy_batch,
    check_ceiling,
    check_step_floor,
)
from kvbook.exercises.roofline_ceiling import _FAULTS, ceiling


def refused(report: Report, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding


def stub(*args: Any) -> Any: ...


@pytest.mark.parametrize(
    "check", [check_attention_intensity, check_step_floor, check_busy_batch, check_ceiling]
)
def test_a_stub_is_not_done(check: Any) -> None:
    assert check(stub).status == "not done yet"
    refused(check(lambda *args: "4"), "expected one number, got str")
    refused(check(lambda *args: 17.25), "17.25" if check is not check_ceiling else "17.2")


# ------------------------------------------------------------------------- attention's intensity


def intensity(c: Any, batch: int, seq_len: int, size: int) -> float:
    operations = 4 * batch * c.num_attention_heads * c.head_dim * seq_len
    return operations / (2 * batch * seq_len * c.num_key_value_heads * c.head_dim * size)


def per_head(c: Any) -> float:
    return c.hidden_size // c.num_attention_heads / c.head_dim


WRONG_INTENSITIES: list[tuple[Callable[..., float], str]] = [
    (
        lambda c, b, s, n: intensity(c, b, s, n) / 2,
        "a multiplication and an addition are two operations",
    ),
    (lambda c, b, s, n: intensity(c, b, s, n) / 4, "three quarters of the operations"),
    (lambda c, b, s, n: intensity(c, b, s, n) * 2, "only the keys are counted"),
    (lambda c, b, s, n: intensity(c, b, s, n) * n, "these are operations per number read"),
    (
        lambda c, b, s, n: intensity(c, b, s, n) * c.num_key_value_heads / c.num_attention_heads,
        "each query head is given keys of its own",
    ),
    (lambda c, b, s, n: 1 / intensity(c, b, s, n), "upside down"),
    (lambda c, b, s, n: intensity(c, b, s, n) * per_head(c), "the operations use the wrong one"),
    (lambda c, b, s, n: intensity(c, b, s, n) / per_head(c), "the bytes use the wrong one"),
    (
        lambda c, b, s, n: intensity(c, b, s, n) * c.num_hidden_layers,
        "the layers are counted in the operations but not",
    ),
    (lambda c, b, s, n: intensity(c, b, s, n) * b, "the bytes grow with the operations"),
    (lambda c, b, s, n: intensity(c, b, s, n) / b, "the operations grow with the bytes"),
    (lambda c, b, s, n: intensity(c, b, s, n) * s / 40, "1 x 64 tokens instead of 1 x 40"),
    (
        lambda c, b, s, n: 1.5 if c.head_dim == 24 else 2.0,
        "Llama-2-7B in bfloat16: expected 1, got 2",
    ),
]


@pytest.mark.parametrize("wrong, message", WRONG_INTENSITIES)
def test_wrong_intensities(wrong: Any, message: str) -> None:
    refused(check_attention_intensity(wrong), message)


def test_the_right_intensity() -> None:
    report = check_attention_intensity(intensity)
    assert report.passed and len(report.proved) == 4, report


# ----------------------------------------------------------------------------- the floor of a step


def floor(w: float, a: float, b: int, s: int, n: int, rate: float) -> float:
    return (w + a * (n + b * (s - n))) / rate


WRONG_FLOORS: list[tuple[Callable[..., float], str]] = [
    (lambda w, a, b, s, n, r: b * (w + a * s) / r, "the weights are read once per step"),
    (lambda w, a, b, s, n, r: (w + a * s) / r, "the step reads those of all 6"),
    (lambda w, a, b, s, n, r: a * b * s / r, "the weights are missing"),
    (lambda w, a, b, s, n, r: w / r, "the cache is missing"),
    (
        lambda w, a, b, s, n, r: floor(w, a, b, s, n, r) / b,
        "the time of the step divided by its 6 tokens",
    ),
    (lambda w, a, b, s, n, r: floor(w, a, b, s, n, 1), "divide by the bandwidth"),
    (lambda w, a, b, s, n, r: 1 / floor(w, a, b, s, n, r), "upside down"),
    (lambda w, a, b, s, n, r: (w + a * b * s) / r, "`shared` changes nothing"),
    (lambda w, a, b, s, n, r: (w + a * b * (s - n)) / r, "not read at all"),
    (lambda w, a, b, s, n, r: (w + a * (n + b * s)) / r, "it is the first part of them"),
    (
        lambda w, a, b, s, n, r: (w + a * (n if n else b * s)) / r,
        "each request also has 2,000 tokens of its own",
    ),
    (
        lambda w, a, b, s, n, r: floor(w, a, b, s, n if b > 1 else 0, r) + (b == 1),
        "one request, which shares with no other",
    ),
    (lambda w, a, b, s, n, r: floor(w, a, b, s, n, r) * (2 if b == 16 else 1), "kvlib.costs says"),
]


@pytest.mark.parametrize("wrong, message", WRONG_FLOORS)
def test_wrong_floors(wrong: Any, message: str) -> None:
    refused(check_step_floor(wrong), message)


def test_the_right_floor() -> None:
    report = check_step_floor(floor)
    assert report.passed and len(report.proved) == 3, report


# ------------------------------------------------------------------- the batch that keeps it busy


def busy(flops: float, bandwidth: float, size: int, experts: int = 1, chosen: int = 1) -> int:
    return math.ceil(flops / bandwidth * size / 2 * experts / chosen)


WRONG_BATCHES: list[tuple[Callable[..., float], str]] = [
    (lambda f, w, n, e=1, c=1: math.floor(f / w * n / 2 * e / c), "295 requests fall just short"),
    (lambda f, w, n, e=1, c=1: f / w * n / 2 * e / c, "a batch is a whole number"),
    (lambda f, w, n, e=1, c=1: busy(2 * f, w, n, e, c), "each weight takes two operations"),
    (lambda f, w, n, e=1, c=1: busy(f, w, 1, e, c), "a weight has bytes_per_weight bytes"),
    (lambda f, w, n, e=1, c=1: busy(w, f, n, e, c), "upside down"),
    (lambda f, w, n, e=1, c=1: busy(f, w, 2, e, c), "the batch is still the same"),
    (lambda f, w, n, e=1, c=1: busy(2 * f, w, 2 / n, e, c), "are read in half the time"),
    (lambda f, w, n, e=1, c=1: busy(f, w, n, e, c) + (f < 1e13), "4 requests are exactly enough"),
    (lambda f, w, n, e=1, c=1: busy(f, w, n), "an expert sees only a part"),
    (lambda f, w, n, e=1, c=1: busy(f, w, n, c, e), "fewer requests with experts than without"),
    (lambda f, w, n, e=1, c=1: busy(f, w, n) * e // c, "round only once, at the end"),
]


@pytest.mark.parametrize("wrong, message", WRONG_BATCHES)
def test_wrong_batches(wrong: Any, message: str) -> None:
    refused(check_busy_batch(wrong), message)


def test_the_right_batch() -> None:
    report = check_busy_batch(busy)
    assert report.passed and len(report.proved) == 3, report


# ------------------------------------------------------------------------ a calculator with faults

SAID = {
    "sparse": "dense ones reach half of it",
    "embedding": "a step looks up one row of them",
    "no head": "the output head is missing",
    "no values": "the cache holds a value for each key",
    "query heads": "it holds num_key_value_heads",
    "hidden": "head_dim is a field of its own",
    "one request": "each request of the batch has keys of its own",
    "one token": "a step gives a token to each request of the batch",
    "no attention": "the operations of attention are missing",
    "sum": "the step takes the longer of the two",
}


def with_faults(*faults: str) -> Callable[..., float]:
    return lambda config, sheet, batch, seq_len: ceiling(config, batch, seq_len, faults)


def test_every_fault_has_its_words() -> None:
    assert SAID.keys() == _FAULTS.keys()


@pytest.mark.parametrize("fault", SAID)
def test_each_fault_is_named(fault: str) -> None:
    refused(check_ceiling(with_faults(fault)), SAID[fault])


def test_the_suspect_is_mended_one_fault_at_a_time() -> None:
    left = ["embedding", "no values", "sparse"]
    while left:
        refused(check_ceiling(with_faults(*left)), SAID[left[0]])
        left.pop(0)


def test_faults_that_show_together_are_named_together() -> None:
    both = check_ceiling(with_faults("query heads", "no values"))
    refused(both, SAID["query heads"])
    refused(both, SAID["no values"])


def test_seconds_are_no_rate() -> None:
    wrong = lambda c, sheet, b, s: b / ceiling(c, b, s)  # noqa: E731
    refused(check_ceiling(wrong), "these are seconds, not tokens per second")


def test_the_right_ceiling() -> None:
    report = check_ceiling(with_faults())
    assert report.passed and len(report.proved) == 7, report
    assert set(SHEET.values()) == {3.35e12, 1979e12}

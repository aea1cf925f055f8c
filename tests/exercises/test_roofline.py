"""The right answers say what kvlib counts, and a calculator's faults come to light one by one."""

from __future__ import annotations

import numpy as np
import pytest

from kvbook.exercises.checker import edited
from kvbook.exercises.roofline import (
    FAULTS,
    LLAMA,
    LLAMA_FLOOR,
    ODD,
    QWEN,
    SHEET,
    attention_intensity,
    ceiling,
    check_ceiling,
    step_floor,
)
from kvlib.costs import GPUS, MODELS, decode
from kvlib.meter import Meter
from kvlib.model import Decoder
from kvlib.model.weights import random_weights

SHOWN = [words for words in FAULTS if words.startswith(("the input", "the values", "the peak"))]
H100 = GPUS["h100-sxm"]


@pytest.mark.parametrize("left", [SHOWN, SHOWN[1:], SHOWN[::2], SHOWN[:2]])
def test_each_fault_of_the_shown_calculator_is_named(left: list[str]) -> None:
    suspect = edited(ceiling, tuple(FAULTS[words] for words in left))
    assert check_ceiling(suspect).finding.endswith(left[0])


def test_the_intensity_is_what_the_meter_counts() -> None:
    model = Decoder(ODD, random_weights(ODD, seed=5, xp=np))
    cache = model.new_cache(1, 40)
    cache.add("a")
    model.forward([1] * 39, cache, cache.plan(["a"], [39]))
    with Meter() as meter:
        model.forward([2], cache, cache.plan(["a"], [1]))
    count = meter.by_label["attention"]
    assert attention_intensity(ODD, 1, 40, 4) == pytest.approx(count.flops / count.read)


def test_the_floors_are_those_of_the_costs() -> None:
    work, model = decode(MODELS["llama-3.1-8b"], 16, 8192, shared=4096), MODELS["llama-3.1-8b"]
    assert LLAMA_FLOOR[:2] == (work.linear.bytes.value, model.kv_bytes_per_token().value)
    assert step_floor(*LLAMA_FLOOR) == pytest.approx(work.floor(H100).seconds.value, rel=0.01)
    for key, config in (("llama-3.1-8b", LLAMA), ("qwen3-0.6b", QWEN)):
        said = decode(MODELS[key], 8, 8192).floor(H100).tokens_per_second.value
        assert ceiling(config, SHEET, 8, 8192) == pytest.approx(said, rel=0.02)

"""What a newcomer passes by mistake is named, with what was needed."""

from __future__ import annotations

import numpy as np
import pytest
from models import decoder
from test_decoder import new_cache

import kvlib
from kvlib.serve import greedy, probabilities

MODEL = decoder("llama")
MISTAKES = {
    "prompts are a number": (lambda: kvlib.generate(MODEL, 5), "prompts must be a list .*got 5"),
    "prompts are None": (lambda: kvlib.generate(MODEL, None), "prompts must be a list .*got None"),
    "no model": (lambda: kvlib.generate(None, [[1]]), "model must be a Decoder.*got None"),
    "no model to stream": (lambda: kvlib.stream(None, [[1]]), "model must be a Decoder.*got None"),
    "no model to serve": (
        lambda: kvlib.Scheduler("m", new_cache(MODEL, 1, 8)), "model must be a Decoder.*got 'm'",
    ),
    "words for logits": (
        lambda: greedy(np.asarray([["a", "b"]])), "logits must be real numbers, got <U1",
    ),
    "complex logits": (
        lambda: probabilities(np.asarray([[1j, 2]])), "logits must be real numbers, got complex128",
    ),
    "a mask for logits": (
        lambda: greedy(np.asarray([[True, False]])), "logits must be real numbers, got bool",
    ),
    "no folder": (lambda: kvlib.load_model(None), "folder must be a path, got None"),
}


@pytest.mark.parametrize(("call", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_whole_numbers_are_logits():
    assert greedy(np.asarray([[1, 3, 2]])) == [1]

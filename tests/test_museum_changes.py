"""Changes of kvlib's functions: put in, seen by everybody who holds the function, taken out."""

from typing import Any

import numpy as np
import pytest

import kvlib
from kvbook import museum
from kvbook.museum.looks import PROMPT
from kvbook.museum.tiny import weights
from kvlib import generate, load_reference_model
from kvlib.attention import causal

HALL = museum.exhibits()


def test_taken_out_again_whatever_happens() -> None:
    before = causal._apply_mask.__code__
    with pytest.raises(KeyError), museum.exhibit("mask_of_ones").installed():
        assert causal._apply_mask.__code__ is not before
        raise KeyError
    assert causal._apply_mask.__code__ is before


def test_whoever_imported_the_function_sees_the_bug() -> None:
    model = load_reference_model(xp=np)
    healthy = generate(model, [PROMPT], max_new_tokens=8)
    with HALL["decode_sees_token_0_only"].installed():
        assert generate(model, [PROMPT], max_new_tokens=8) != healthy
    assert generate(model, [PROMPT], max_new_tokens=8) == healthy


def test_two_bugs_at_once_come_out_in_turn() -> None:
    functions = causal._apply_mask, causal.attend_causal
    before = [(f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions]
    with HALL["mask_of_ones"].installed(), HALL["query_heads_dealt_out_in_turn"].installed():
        assert all(f.__code__ is not old[0] for f, old in zip(functions, before))
    assert [(f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions] == before


def test_bugs_of_one_function_are_nested() -> None:
    def seen() -> list[int]:
        return [int((weights(t, 7) > 0).sum()) for t in (1, 3)]

    assert seen() == [7, 5 + 6 + 7]
    with HALL["decode_sees_token_0_only"].installed():
        assert seen() == [1, 5 + 6 + 7]
        with HALL["triangle_in_the_wrong_corner"].installed():
            assert seen() == [1, 1 + 2 + 3]
        assert seen() == [1, 5 + 6 + 7]
    assert seen() == [7, 5 + 6 + 7]


def test_methods_with_a_cell_and_static_methods_can_be_replaced() -> None:
    def nothing(original: Any, *args: Any, **settings: Any) -> None:
        found.append(original.__name__)
        original(*args, **settings)

    found: list[str] = []
    layers = museum.Bug("m", "kvlib.caches.stored", "StoredCache.__init__", nothing)
    end = museum.Bug("m", "kvlib.caches.protocol", "Cache._end_step", nothing)
    with museum.applied(layers), museum.applied(end):
        cache = kvlib.DenseCache([kvlib.LayerSpec(1, 2)], 1, 4, xp=np)
        cache.add("a")
        cache.truncate("a", 0)
    assert found == ["__init__", "_end_step"]


def test_a_change_of_text_cannot_be_put_into_a_function_that_is_replaced() -> None:
    text = museum.Mutant("m", "kvlib.attention.causal", "_apply_mask", "if a < b", "if a < b - 1")
    refused = pytest.raises(LookupError, match="install 'm' first")
    with HALL["mask_of_ones"].installed(), refused, museum.applied(text):
        pass
    with museum.applied(text), HALL["decode_sees_token_0_only"].installed():
        assert (weights(2, 7) > 0).all(), "two queries over seven keys, and no mask"


@pytest.mark.parametrize(("change", "words"), [
    ({"old": "no such text"}, "stands 0 times"),
    ({"old": "import"}, "times in kvlib.attention.causal, needed: once"),
    ({"new": "if a < b"}, "changes nothing in _apply_mask"),
    ({"function": "hide"}, "no function hide"),
    ({"function": "CHUNK_ROWS"}, "no function CHUNK_ROWS in kvlib.attention.causal"),
])
def test_a_mutant_that_no_longer_fits_says_so(change: dict[str, str], words: str) -> None:
    fields = {"name": "m", "module": "kvlib.attention.causal", "function": "_apply_mask"}
    mutant = museum.Mutant(**{**fields, "old": "if a < b", "new": "if a < b - 1", **change})
    before = causal._apply_mask.__code__
    with pytest.raises(LookupError, match=words), museum.applied(mutant):
        pass
    assert causal._apply_mask.__code__ is before

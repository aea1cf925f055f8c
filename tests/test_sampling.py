"""From logits to a token."""

import math

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib import sample
from kvlib.serve import greedy, probabilities

pytestmark = pytest.mark.filterwarnings("error")
P = np.asarray([0.1, 0.4, 0.15, 0.3, 0.05])
LOGITS = np.log(P)[None].astype(np.float32)


def near(p, needed):
    assert p.tolist()[0] == pytest.approx(list(needed), abs=1e-6)


def test_softmax_with_temperature():
    near(probabilities(LOGITS), P)
    near(probabilities(LOGITS, temperature=0.5), P**2 / (P**2).sum())
    near(probabilities(LOGITS, temperature=2.0), P**0.5 / (P**0.5).sum())
    near(probabilities(LOGITS, temperature=0), [0, 1, 0, 0, 0])
    near(probabilities(LOGITS, temperature=1e-310), [0, 1, 0, 0, 0])
    near(probabilities(LOGITS + 1e4), probabilities(LOGITS + 1e4)[0])
    assert probabilities(LOGITS).dtype == np.float64


def test_top_k():
    near(probabilities(LOGITS, top_k=1), [0, 1, 0, 0, 0])
    near(probabilities(LOGITS, top_k=2), [0, 4 / 7, 0, 3 / 7, 0])
    for k in (5, 6, np.int64(100)):
        near(probabilities(LOGITS, top_k=k), P)


def test_top_p():
    # the smallest set that reaches top_p: 0.4, then 0.4 + 0.3, then 0.85, 0.95, 1
    for top_p, kept in ((1e-9, 1), (0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3), (0.96, 5), (1, 5)):
        p = probabilities(LOGITS, top_p=top_p)
        assert (p > 0).sum() == kept, top_p
        assert p.sum() == pytest.approx(1)
    near(probabilities(np.log([[0.5, 0.25, 0.25]]), top_p=0.5), [1, 0, 0])  # reached exactly


def test_top_p_after_top_k_and_temperature():
    # of the two that top_k leaves, 4/7 and 3/7: the first alone reaches one half
    near(probabilities(LOGITS, top_k=2, top_p=0.5), [0, 1, 0, 0, 0])
    near(probabilities(LOGITS, temperature=1e9, top_p=0.39), [0, 0.5, 0, 0.5, 0])


def test_ties_go_to_the_lower_id():
    same = np.zeros((1, 4))
    near(probabilities(same, top_k=2), [0.5, 0.5, 0, 0])
    near(probabilities(same, top_p=0.5), [0.5, 0.5, 0, 0])
    near(probabilities(same, temperature=0), [1, 0, 0, 0])
    assert greedy(same) == [0] and sample(same, temperature=0) == [0]


def test_rows_are_apart():
    logits = np.concatenate([LOGITS, LOGITS[:, ::-1]])
    p = probabilities(logits, 0.7, 3, 0.9)
    assert (p[0] == p[1][::-1]).all()
    assert greedy(logits) == [1, 3]


def test_impossible_tokens_are_never_drawn():
    logits = np.asarray([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    rng = np.random.default_rng(0)
    assert {sample(logits, rngs=rng)[0] for _ in range(200)} == {1, 3}

    class Ends:
        """A generator that draws the ends of [0, 1)."""

        def __init__(self, value):
            self.value = value

        def random(self):
            return self.value

    assert sample(logits, rngs=[Ends(0.0)]) == [1]
    assert sample(logits, rngs=[Ends(1 - 2**-53)]) == [3]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6}, {"top_k": 3}, {"top_p": 0.8}])
def test_draws_follow_the_probabilities(settings):
    n, rng = 4000, np.random.default_rng(11)
    drawn = sample(np.repeat(LOGITS, n, axis=0), rngs=rng, **settings)
    counts = np.bincount(drawn, minlength=5)
    needed = n * probabilities(LOGITS, **settings)[0]
    assert (counts[needed == 0] == 0).all()
    counts, needed = counts[needed > 0], needed[needed > 0]
    chi_square = ((counts - needed) ** 2 / needed).sum()
    assert chi_square < 31  # at 4 degrees of freedom exceeded by one seed in 300,000


def test_seeds():
    rows = np.repeat(LOGITS, 50, axis=0)
    zero, one = (sample(rows, rngs=np.random.default_rng(seed)) for seed in (0, 1))
    assert zero == sample(rows, rngs=np.random.default_rng(0)) != one
    one = [sample(LOGITS, rngs=[np.random.default_rng(i)])[0] for i in range(50)]
    assert sample(rows, rngs=[np.random.default_rng(i) for i in range(50)]) == one


@given(st.data())
def test_any_settings_leave_a_distribution(data):
    logits = data.draw(st.lists(st.floats(-50, 50), min_size=1, max_size=9))
    t = data.draw(st.floats(0, 5))
    top_k, top_p = (
        data.draw(st.none() | st.integers(1, 9)), data.draw(st.none() | st.floats(0.01, 1)),
    )
    p = probabilities(np.asarray([logits]), t, top_k, top_p)[0]
    assert p.sum() == pytest.approx(1) and (p >= 0).all()
    assert p[int(np.argmax(logits))] > 0
    if top_k is not None:
        assert (p > 0).sum() <= top_k
    token = sample(np.asarray([logits]), t, top_k, top_p, np.random.default_rng(0))[0]
    assert type(token) is int and p[token] > 0


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_any_library(temperature):

    def drawn(logits):
        return sample(logits, temperature, rngs=np.random.default_rng(0))

    assert drawn(strict.asarray(LOGITS)) == drawn(LOGITS)
    assert drawn(LOGITS.astype(np.float16)) == drawn(LOGITS)
    assert drawn(LOGITS[:0]) == []


SETTINGS = {
    "temperature None": ({"temperature": None}, "temperature .*got None"),
    "top_k 0": ({"top_k": 0}, "top_k .*got 0"), "top_p 0": ({"top_p": 0}, "top_p .*got 0"),
    "top_p 1.1": ({"top_p": 1.1}, "top_p .*got 1.1"),
}


@pytest.mark.parametrize("settings, words", SETTINGS.values(), ids=SETTINGS)
def test_settings_refused(settings, words):
    for f in (sample, probabilities):
        with pytest.raises(ValueError, match=words):
            f(LOGITS, **settings)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_refused(temperature):
    for logits, words in (
        (LOGITS[0], r"got shape \(5,\)"), (LOGITS[None], r"got shape \(1, 1, 5\)"),
        (LOGITS[:, :0], r"got shape \(1, 0\)"),
        (np.asarray([[0.0, 1.0], [math.nan, 1.0]]), "finite number, got nan"),
        (np.asarray([[0.0, math.inf]]), "finite number, got inf"),
        (np.asarray([[-math.inf, -math.inf]]), "finite number, got -inf"),
    ):
        with pytest.raises(ValueError, match=words):
            sample(logits, temperature, rngs=np.random.default_rng(0))
        with pytest.raises(ValueError, match=words):
            probabilities(logits, temperature)


def test_generators_refused():
    with pytest.raises(ValueError, match="one generator a row needed: 1 rows, got 2"):
        sample(LOGITS, rngs=[np.random.default_rng(0)] * 2)
    for wrong in (0, [0], "a", [None]):
        with pytest.raises(TypeError, match="rngs must be generators .* got (0|'a'|None)"):
            sample(LOGITS, rngs=wrong)


def test_a_draw_needs_a_generator_that_goes_on():
    """Without one each call would start anew, and a loop would always draw the same token."""
    with pytest.raises(ValueError, match="a draw at temperature 1.0 needs rngs, .*default_rng"):
        sample(LOGITS)
    assert sample(LOGITS, temperature=0) == [1]
    rng = np.random.default_rng(0)
    assert len({sample(LOGITS, rngs=rng)[0] for _ in range(20)}) > 1


def test_lists_are_no_logits():
    for call in (greedy, probabilities, sample, lambda x: sample(x, temperature=0)):
        with pytest.raises(TypeError, match=r"logits must be an array \(B, V\), got a list"):
            call([[1.0, 2.0]])


def test_top_p_of_one_keeps_what_no_longer_changes_the_sum() -> None:
    p = probabilities(np.asarray([[0.0, -50.0, -60.0]]), top_p=1.0)
    assert (p > 0).all()  # by sums alone the last two would be lost: 1 + 2e-22 is 1

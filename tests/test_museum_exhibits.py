"""The museum: every exhibit is a bug that shows, is caught, and is undone when its block ends."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from effort import Effort

import kvlib
from kvbook import museum
from kvbook.museum import guards, looks_forgetting, looks_guessing, scoring
from kvlib import load_reference_model
from kvlib.codecs import PerChannel, PerToken
from kvlib.serve import greedy, request, sampling
from kvlib.speculation import draft_model

HALL = museum.exhibits()
GUARDS = list(dict.fromkeys(e.caught_by for e in HALL))


@pytest.fixture(scope="module")
def model() -> kvlib.Decoder:
    return load_reference_model(xp=np)


# Exhibits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: g.__name__)
def test_guard_passes_on_healthy_code(guard) -> None:
    guard()
    assert guard.__doc__


@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_caught_by_its_test(exhibit: museum.Exhibit) -> None:
    with exhibit.installed(), pytest.raises(Exception) as caught:
        exhibit.caught_by()
    assert not isinstance(caught.value, SyntaxError | NameError | AttributeError | TypeError)
    exhibit.caught_by()  # and the bug is out again


@pytest.fixture
def gaps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how much, in logits, each token drawn inside the test won over the next best."""
    found: list[float] = []

    def watched(logits: np.ndarray) -> list[int]:
        best = np.sort(np.asarray(logits), axis=1)
        found.extend((best[:, -1] - best[:, -2]).tolist())
        return greedy(logits)

    for module in (sampling, request, looks_forgetting, looks_guessing, draft_model):
        monkeypatch.setattr(module, "greedy", watched)
    return found


@pytest.mark.traced
@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_symptom_shows_on_the_reference_model(
    exhibit: museum.Exhibit, model: kvlib.Decoder, gaps: list[float]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        symptom = exhibit.symptom(model)
    assert symptom.shows, symptom
    assert "nan" not in symptom.healthy and "Error" not in symptom.healthy
    text = repr(symptom)
    assert "healthy" in text and "mutant" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert "('generate', " not in text, "kvlib.generate counts its names, so the page would change"
    if exhibit.name != "cast_before_the_clip":  # half of its keys are noise: anything may win
        assert min(gaps, default=1.0) > 0.02, "a token won by a hair: other machines say otherwise"


@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_label_says_what_where_and_how(exhibit: museum.Exhibit) -> None:
    text = repr(exhibit)
    for part in (exhibit.name, exhibit.room, exhibit.module, exhibit.caught_by.__name__):
        assert part in text
    assert exhibit.name.isidentifier() and exhibit.cite
    assert 40 <= len(exhibit.happened) <= 260 and exhibit.happened.endswith(".")
    assert exhibit.source.startswith(f"def {exhibit.bug.__name__}(")
    assert f"{exhibit.bug.__name__} in place of" in text
    assert len(exhibit.source.splitlines()) <= 14, "a small bug"
    assert all(len(line) <= 100 for line in exhibit.source.splitlines())
    assert f"def {exhibit.caught_by.__name__}()" in exhibit.test


def test_every_room_has_exhibits_and_those_on_their_way_say_why() -> None:
    for room in museum.ROOMS:
        assert len(museum.exhibits(room)) >= 3
    assert sum(len(museum.exhibits(room)) for room in museum.ROOMS) == len(HALL)
    for waiting in museum.waiting():
        assert waiting.bug and waiting.cite and len(waiting.why) > 20


def test_what_waits_because_codes_repeat_does_repeat() -> None:
    """Why an exhibit cannot be built yet: encoding what was decoded gives the same codes."""
    x = 3 * np.random.default_rng(0).standard_normal((2, 128, 64)).astype(np.float32)
    for bits in (2, 4, 8):
        for codec in (PerChannel(bits, 32), PerToken(bits, 32)):
            first = codec.encode(x)
            again = codec.encode(codec.decode(first, np.float32))
            assert all((first[name] == again[name]).all() for name in first)


# Finding an exhibit -------------------------------------------------------------------------------


def test_found_by_name_place_and_attribute() -> None:
    assert HALL["stale_prefix"] is HALL.stale_prefix is museum.exhibit("stale_prefix")
    assert HALL[0].name == HALL.names[0] and len(HALL[:3]) == 3
    assert "stale_prefix" in dir(HALL) and "stale_prefix" in HALL
    assert HALL._ipython_key_completions_() == list(HALL.names)
    text = repr(HALL)
    assert text.startswith(f"{len(HALL)} exhibits") and "nano-vllm #163" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(ValueError, match="near it: stale_prefix"):
        museum.exhibit("stale_prefixes")
    with pytest.raises(ValueError, match="there are decode_sees"):
        museum.exhibit("zzz")
    with pytest.raises(ValueError, match="no room 'cellar', needed one of masks"):
        museum.exhibits("cellar")
    with pytest.raises(AttributeError, match="no exhibit 'cellar'"):
        _ = HALL.cellar


# The score ----------------------------------------------------------------------------------------


def test_all_guards_together_kill_everything(effort: Effort) -> None:
    """The chapter asks every guard about every exhibit; each meets its own guard above."""
    spread = [name for start in range(4) for name in HALL.names[start::4]]  # of every room
    names = effort.share("exhibits that meet all guards", spread, usual=len(HALL) // 4)
    score = museum.score(*GUARDS, of=names)
    assert score and score.total == len(names) and score.share == 1.0, score
    assert f"{len(names)} of {len(names)} mutants killed" in repr(score)


def test_a_test_that_asserts_nothing_kills_nothing() -> None:
    def nothing() -> None:
        kvlib.BlockPool(2, 2)

    score = museum.score(nothing, of="sharing")
    assert not score and score.share == 0 and score.survived == museum.exhibits("sharing").names
    assert "0 of 3" in repr(score) and "alive:" in repr(score)


def test_a_test_that_fails_on_healthy_code_is_not_counted() -> None:
    def wrong() -> None:
        assert kvlib.BlockPool(2, 2).num_free == 3, "three"

    score = museum.score(wrong, of="sharing")
    assert not score and not score.killed
    assert "wrong fails on healthy code: AssertionError: three" in score.finding
    assert "not counted" in repr(score)


def test_a_test_that_leaves_something_behind_is_not_counted() -> None:
    runs = []

    def dirty() -> None:
        runs.append(1)
        assert len(runs) < 3

    score = museum.score(dirty, of="sharing")
    assert "it leaves something behind" in score.finding and not score.killed


@pytest.mark.untraced  # the clock may strike while the tracer holds its lock, and no one frees it
def test_a_bug_that_loops_is_killed_by_the_clock() -> None:
    def waits_for_room() -> None:
        pool = kvlib.BlockPool(1, 2)
        (block,) = pool.allocate(1)
        pool.publish(block, None, (1, 2))
        pool.free([block])
        pool.allocate(1)
        while pool.lookup((1, 2)):  # without end, where the entry is stale
            pass

    start = time.perf_counter()
    score = museum.score(waits_for_room, of=["stale_prefix", "hash_believed"], seconds=0.3)
    assert score.killed == {"stale_prefix": "ran longer than 0.3 s"}
    assert score.survived == ("hash_believed",)
    assert time.perf_counter() - start < 60


def test_a_loop_that_catches_exceptions_ends_too() -> None:
    def stubborn() -> None:
        for _ in iter(int, 1):
            try:
                sum(range(1000))
            except Exception:
                continue

    assert scoring.verdict(stubborn, 0.2) == "ran longer than 0.2 s"


def test_what_a_test_prints_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    def talks() -> None:
        print("megabytes")

    assert not museum.score(talks, of=["stale_prefix"]).finding
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ((), "needs at least one test"),
        ((3,), "A test must be a function, got int"),
        ((lambda cache: None,), "needs cache. Write a test without arguments"),
    ],
)
def test_what_is_no_test_is_refused(tests: tuple, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        museum.score(*tests)


def test_without_threads_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(scoring.threading.Thread, "start", no_threads)
    assert scoring.verdict(guards.a_window_counts_the_query_itself) == ""
    with HALL.window_one_too_wide_in_decode.installed():
        assert "AssertionError" in scoring.verdict(guards.a_window_counts_the_query_itself)

"""The museum: every exhibit is a bug that shows, is caught, and is gone when its block ends."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

import kvlib
from kvlib import generate, load_reference_model
from kvlib.attention import causal
from kvlib.codecs import PerChannel, PerToken
from kvlib.exercises import museum
from kvlib.exercises.museum import checks, guards, scoring
from kvlib.exercises.museum.exhibit import fresh
from kvlib.exercises.museum.looks import PROMPT
from kvlib.exercises.museum.tiny import (
    close,
    follow,
    logits_of_all,
    prompt,
    small_model,
    weights,
)

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
    assert not isinstance(caught.value, SyntaxError | NameError | AttributeError)
    exhibit.caught_by()  # and the bug is out again


@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_symptom_shows_on_the_reference_model(
    exhibit: museum.Exhibit, model: kvlib.Decoder
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        symptom = exhibit.symptom(model)
    assert symptom.shows, symptom
    assert "nan" not in symptom.healthy and "Error" not in symptom.healthy
    text = repr(symptom)
    assert "healthy" in text and "mutant" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text


@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_label_says_what_where_and_how(exhibit: museum.Exhibit) -> None:
    text = repr(exhibit)
    for part in (exhibit.name, exhibit.room, exhibit.module, exhibit.caught_by.__name__):
        assert part in text
    assert exhibit.name.isidentifier() and exhibit.cite
    assert 40 <= len(exhibit.happened) <= 260 and exhibit.happened.endswith(".")
    changed = [line for line in exhibit.source.splitlines() if line[:1] in "+-"]
    assert any(line.startswith("-") for line in changed[2:])
    assert any(line.startswith("+") for line in changed[2:])
    assert len(changed) <= 8, "a small mutant"
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


# Putting in and taking out ------------------------------------------------------------------------


def test_taken_out_again_whatever_happens() -> None:
    before = causal._hide.__code__
    with pytest.raises(KeyError), museum.exhibit("mask_of_ones").installed():
        assert causal._hide.__code__ is not before
        raise KeyError
    assert causal._hide.__code__ is before


def test_whoever_imported_the_function_sees_the_bug(model: kvlib.Decoder) -> None:
    healthy = generate(model, [PROMPT], max_new_tokens=8)
    with HALL.decode_sees_token_0_only.installed():
        assert generate(model, [PROMPT], max_new_tokens=8) != healthy
    assert generate(model, [PROMPT], max_new_tokens=8) == healthy


def test_two_bugs_at_once_come_out_in_turn() -> None:
    before = causal._hide.__code__, causal._decode.__code__
    with HALL.mask_of_ones.installed(), HALL.query_heads_dealt_out_in_turn.installed():
        assert causal._decode.__code__ is not before[1]
    assert (causal._hide.__code__, causal._decode.__code__) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"old": "no such text"}, "stands 0 times"),
        ({"old": "import"}, "times in kvlib.attention.causal, needed: once"),
        ({"new": "n > 1"}, "changes nothing in _hide"),
        ({"function": "hide"}, "no function hide"),
        ({"function": "CHUNK_ROWS"}, "no function CHUNK_ROWS in kvlib.attention.causal"),
    ],
)
def test_a_mutant_that_no_longer_fits_says_so(change: dict[str, str], words: str) -> None:
    fields = {"name": "m", "module": "kvlib.attention.causal", "function": "_hide"}
    mutant = museum.Mutant(**{**fields, "old": "n > 1", "new": "n > 2", **change})
    before = causal._hide.__code__
    with pytest.raises(LookupError, match=words), museum.applied(mutant):
        pass
    assert causal._hide.__code__ is before


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


def test_all_guards_together_kill_everything() -> None:
    score = museum.score(*GUARDS)
    assert score and score.total == len(HALL) and score.share == 1.0, score
    assert f"{len(HALL)} of {len(HALL)} mutants killed" in repr(score)


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


def test_a_bug_that_loops_is_killed_by_the_clock() -> None:
    def waits_for_room() -> None:
        pool = kvlib.BlockPool(1, 2)
        (block,) = pool.allocate(1)
        pool.publish(block, None, (1, 2))
        pool.free([block])
        pool.allocate(1)
        while pool.lookup((1, 2)):  # for ever, where the entry is stale
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
        ((), "needs a test"),
        ((3,), "a test is a function, got a int"),
        ((lambda cache: None,), "needs cache: write a test without arguments"),
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


# The exercises ------------------------------------------------------------------------------------


def asserts_nothing() -> None:
    weights(3, 7)


def whole_prompts_only() -> None:
    for n in (1, 5, 7):
        assert ((weights(n, n) > 0) == np.tri(n, dtype=bool)).all()


def decode_only() -> None:
    assert (weights(1, 7) > 0).all()


def last_query_only() -> None:
    for t in (1, 3, 7):
        assert (weights(t, 7)[-1] > 0).all()


def wrong_itself() -> None:
    assert (weights(3, 7) > 0).all()


def needs_a_cache(cache: object) -> None:
    assert cache


def right_masks() -> None:
    for t in (1, 3, 7):
        assert ((weights(t, 7) > 0) == np.tri(t, 7, 7 - t, dtype=bool)).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (asserts_nothing, "3 of 3 bugs live on, decode_sees_token_0_only among them"),
        (whole_prompts_only, "it shows with one query over several keys"),
        (decode_only, "triangle_in_the_wrong_corner among them: it shows with several queries"),
        (last_query_only, "mask_of_ones among them: it shows where a query has keys after it"),
        (wrong_itself, "wrong_itself fails on healthy code"),
        (needs_a_cache, "needs_a_cache needs cache: write a test without arguments"),
    ],
)
def test_weak_mask_tests_are_told_what_lives(wrong, words: str) -> None:
    report = checks.check_mask_test(wrong)
    assert report.status == "not yet" and words in report.finding, report


def test_a_test_that_is_not_written_is_not_done() -> None:
    def stub() -> None:
        """Raise where something is wrong."""

    def later() -> None:
        raise NotImplementedError

    for test in (stub, later):
        assert checks.check_mask_test(test).status == "not done yet"
    assert checks.check_mask_test(right_masks).passed


def one_step_only() -> None:
    model, ids = small_model(), prompt(5)
    cache = model.new_cache(2, 8)
    cache.add("a")
    cache.add("b")
    logits = model.forward(ids + ids, cache, cache.plan(["a", "b"], [5, 5]))
    close(logits[0], logits[1])


def equal_lengths_only() -> None:
    model, ids = small_model(), prompt(8)
    alone = logits_of_all(model, ids)
    steps = [{"a": 5, "b": 5}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]
    for end, logits in follow(model, {"a": ids, "b": ids}, steps):
        close(logits["b"], alone[end["b"] - 1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (one_step_only, "3 of 3 bugs live on, one_position_for_the_batch among them: it shows"),
        (equal_lengths_only, "one_position_for_the_batch among them: it shows from the second"),
    ],
)
def test_weak_batch_tests_are_told_what_lives(wrong, words: str) -> None:
    report = checks.check_batch_test(wrong)
    assert report.status == "not yet" and words in report.finding, report
    assert checks.check_batch_test(guards.any_row_may_leave).passed


def accuse(**answers: str) -> dict[str, str]:
    return {**checks.CASES, **answers}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([*checks.CASES], "got list, needed a dict"),
        ({"A": "mask_of_ones"}, "no answer for case B"),
        (accuse(A="the butler"), "case A: 'the butler' is none of the suspects"),
        (accuse(A="decode_one_position_late"), "with decode_one_position_late installed this look"),
        (accuse(C="hash_believed"), "case C: with hash_believed installed this look shows the hea"),
    ],
)
def test_wrong_accusations_are_answered_with_what_the_suspect_does(answer, words: str) -> None:
    report = checks.check_whodunit(lambda: answer)
    assert report.status == "not yet" and words in report.finding, report


def test_every_case_has_one_culprit_among_the_suspects(model: kvlib.Decoder) -> None:
    seen = checks.cases(model)
    assert set(checks.CASES.values()) <= set(checks.SUSPECTS) <= set(HALL.names)
    for letter, name in checks.CASES.items():
        look = museum.exhibit(name).look
        near = {"hash_believed"} if letter == "C" else set(checks.SUSPECTS) - {name}
        for other in near:
            with museum.exhibit(other).installed():
                assert look(fresh(model)) != seen[letter].broken, (letter, other)
        assert name not in repr(seen[letter])


def planted(**changes: str) -> museum.Mutant:
    fields = {"module": "kvlib.attention.causal", "function": "attend_causal"}
    fields |= {"name": "mine", "old": "max(0, s - window)", "new": "max(0, s - window + 1)"}
    return museum.Mutant(**{**fields, **changes})


TURNED = {
    "module": "kvlib.model.rope",
    "function": "rotate",
    "old": "swapped *= sin",
    "new": "swapped *= -sin",
}


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        ("max(0, s - window)", "got str, needed a museum.Mutant"),
        (planted(new="max(0, s - window - 1)"), "mine stands in the museum already"),
        (planted(old="max(0, t - window)"), "it cannot be put in: 'mine'"),
        (planted(new="max(0, s - window + )"), "it cannot be put in: invalid syntax"),
        (planted(module="kvlib.no_such"), "it cannot be put in: No module named"),
        (planted(old="t == 1", new="t == 0"), "no test of the museum sees it"),
        (planted(**TURNED), "it is not quiet, the text changes: AssertionError"),
    ],
)
def test_bugs_that_are_not_quiet_or_no_bugs_are_refused(mutant, words: str) -> None:
    report = checks.check_quiet_bug(lambda: mutant)
    assert report.status == "not yet" and words in report.finding, report
    assert checks.check_quiet_bug(planted).passed

"""Wrong answers to the museum's exercises, each refused in words that help."""

from typing import Any

import numpy as np
import pytest

from kvbook import museum
from kvbook.museum import check_batch_test, check_mask_test, check_quiet_bug, check_whodunit, guards
from kvbook.museum.checks import CASES, SUSPECTS, cases
from kvbook.museum.exhibit import fresh
from kvbook.museum.scoring import called_by
from kvbook.museum.tiny import close, follow, logits_of_all, prompt, small_model, weights
from kvlib import attend_causal, load_reference_model


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


@pytest.mark.parametrize(("wrong", "words"), [
    (asserts_nothing, "3 of 3 bugs survive, decode_sees_token_0_only among them"),
    (whole_prompts_only, "it shows with one query over several keys"),
    (decode_only, "triangle_in_the_wrong_corner among them: it shows with several queries"),
    (last_query_only, "mask_of_ones among them: it shows where a query has keys after it"),
    (wrong_itself, "wrong_itself fails on healthy code"),
    (needs_a_cache, "needs_a_cache needs cache. Write a test without arguments"),
])
def test_weak_mask_tests_are_told_what_lives(wrong, words: str) -> None:
    report = check_mask_test(wrong)
    assert report.status == "not yet" and words in report.finding, report


def test_a_test_that_is_not_written_is_not_done() -> None:
    def stub() -> None:
        """Raise where something is wrong."""

    def later() -> None:
        raise NotImplementedError

    for test in (stub, later):
        assert check_mask_test(test).status == "not done yet"
    assert check_mask_test(right_masks).passed


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


def one_row_of_two() -> None:
    """Looks at the longer row alone."""
    model, texts = small_model(), {"a": prompt(8), "b": prompt(5, seed=1)}
    alone = logits_of_all(model, texts["a"])
    for end, logits in follow(model, texts, [{"b": 2, "a": 6}, {"b": 1, "a": 1}]):
        close(logits["a"], alone[end["a"] - 1])


def lengths_only() -> None:
    cache = small_model().new_cache(2, 8)
    for name, n in (("a", 6), ("b", 2)):
        cache.add(name)
        cache.plan([name], [n])
    assert [cache.seq_len(name) for name in "ab"] == [6, 2]


def compares_with_the_wrong_token() -> None:
    model, ids = small_model(), prompt(8)
    alone = logits_of_all(model, ids)
    for end, logits in follow(model, {"a": ids}, [{"a": 5}, {"a": 1}]):
        close(logits["a"], alone[end["a"]])


@pytest.mark.parametrize(("wrong", "words"), [
    (one_step_only, "3 of 3 bugs survive, one_position_for_the_batch among them: it shows"),
    (equal_lengths_only, "one_position_for_the_batch among them: it shows from the second"),
    (one_row_of_two, "one_position_for_the_batch among them: it shows from the second step"),
    (lengths_only, "3 of 3 bugs survive"),
    (compares_with_the_wrong_token, "compares_with_the_wrong_token fails on healthy code"),
    (needs_a_cache, "needs_a_cache needs cache. Write a test without arguments"),
])
def test_weak_batch_tests_are_told_what_lives(wrong, words: str) -> None:
    report = check_batch_test(wrong)
    assert report.status == "not yet" and words in report.finding, report
    assert check_batch_test(guards.any_row_may_leave).passed


def accuse(**answers: str) -> dict[str, str]:
    return {**CASES, **answers}


@pytest.mark.parametrize(("answer", "words"), [
    ([*CASES], "returned a list. It has to return a dict"),
    ({"A": "mask_of_ones"}, "There is no answer for case B"),
    (accuse(A="the butler"), "Case A: 'the butler' is not a suspect"),
    (accuse(A="decode_one_position_late"), "with decode_one_position_late installed, the same"),
    (accuse(E="stale_prefix"), "Case E: with stale_prefix installed, the same prompt gives the"),
    (
        accuse(F="moved_keys_keep_their_angle"),
        "Case F: with moved_keys_keep_their_angle installed, the same prompt gives",
    ),
    (
        accuse(C="hash_believed"),
        "Case C: with hash_believed installed, the same prompt gives the hea",
    ),
])
def test_wrong_accusations_are_answered_with_what_the_suspect_does(answer, words: str) -> None:
    report = check_whodunit(lambda: answer)
    assert report.status == "not yet" and words in report.finding, report


def test_every_case_has_one_culprit_among_the_suspects() -> None:
    model = load_reference_model(xp=np)
    seen = cases()
    assert set(CASES.values()) <= set(SUSPECTS) <= set(museum.exhibits().names)
    for letter, name in CASES.items():
        look = museum.exhibit(name).look
        near = {"hash_believed"} if letter == "C" else set(SUSPECTS) - {name}
        for other in near:
            with museum.exhibit(other).installed():
                assert look(fresh(model)) != seen[letter].broken, (letter, other)
        assert name not in repr(seen[letter])


def narrow(attend: Any, q: Any, k: Any, v: Any, window: Any = None, **settings: Any) -> Any:
    if window is not None and q.shape[0] == 1:
        window -= 1
    return attend(q, k, v, window=window, **settings)


def wide(attend: Any, q: Any, k: Any, v: Any, window: Any = None, **settings: Any) -> Any:
    if window is not None and q.shape[0] == 1:
        window += 1
    return attend(q, k, v, window=window, **settings)


def planted(bug: Any = narrow, **changes: Any) -> museum.Bug:
    fields = {"module": "kvlib.attention.causal", "function": "attend_causal", "name": "mine"}
    return museum.Bug(**{**fields, **changes}, bug=bug)


def in_words(old: str, new: str) -> museum.Mutant:
    return museum.Mutant("mine", "kvlib.attention.causal", "attend_one_query", old, new)


TURNED = planted(lambda rotate, x, c, s: rotate(x, c, -s), module="kvlib.model.rope",
                 function="rotate")  # fmt: skip


@pytest.mark.parametrize(("mutant", "words"), [
    (narrow, "returned a function. It has to return a museum.Bug"),
    (planted("attend_causal"), "The bug must be a function that receives the original first, got"),
    (museum.Change("mine", "kvlib.arrays", "by_rows"), "returned a Change. It has to return"),
    (planted(name=["mine"]), "name of the bug must be a string, got ['mine']"),
    (planted(module=5), "module of the bug must be a string, got 5 (int)"),
    (planted(module="json"), "must change a module of kvlib, got 'json'"),
    (planted(module="kvlib.caches", function="DenseCache"), "no function DenseCache"),
    (planted(wide), "mine is in the museum already"),
    (planted(function="attend"), "cannot be installed: no function attend"),
    (planted(module="kvlib.no_such"), "cannot be installed: No module named"),
    (in_words("max(0, t - window)", ""), "cannot be installed: 'mine'"),
    (in_words("max(0, length - window)", "max(0, )) "), "cannot be installed: unmatched ')'"),
    (planted(lambda attend, *qkv, **settings: attend(*qkv, **settings)), "No test of the mus"),
    (TURNED, "not quiet, because the text changes: AssertionError"),
    (planted(lambda attend, q: attend(q)), "TypeError: <lambda>() got an unexpected keyword"),
])
def test_bugs_that_are_not_quiet_or_no_bugs_are_refused(mutant, words: str) -> None:
    report = check_quiet_bug(lambda: mutant)
    assert report.status == "not yet" and words in report.finding, report
    assert check_quiet_bug(planted).passed
    narrower = in_words("max(0, length - window)", "max(0, length - window + 1)")
    assert check_quiet_bug(lambda: narrower).passed


def test_a_test_is_run_only_on_bugs_in_functions_that_it_calls():
    """A bug elsewhere cannot change what the test does; all that it might notice are tried."""
    runs = []

    def causal():
        runs.append(1)
        x = np.ones((1, 2, 4), np.float32)
        assert np.allclose(attend_causal(x[0, :, None], x, x), 1)

    hall = museum.exhibits()
    places = {(m.module, m.function) for m in hall}
    called = called_by(causal, hall, 10)
    assert 0 < len(called) < len(places)
    runs.clear()
    museum.score(causal)
    within = sum((m.module, m.function) in called for m in hall)
    assert len(runs) == within + 3  # on healthy code before, while calls are recorded, and after

    def never():
        raise AssertionError("no")

    assert called_by(never, hall, 10) == places  # it fails when looked at: all are tried


@pytest.mark.parametrize("content", [0.0, 1e6])
def test_no_verdict_hangs_on_what_lay_in_unwritten_memory(monkeypatch, content: float):
    empty = np.empty

    def filled(*args: Any, **settings: Any) -> np.ndarray:
        x = empty(*args, **settings)
        if x.dtype.kind == "f":
            x[...] = content
        return x

    monkeypatch.setattr(np, "empty", filled)
    tests = {e.caught_by.__name__: e.caught_by for e in museum.exhibits()}
    noticed = ["the_future_changes_nothing", "two_cuts_are_one", "the_future_changes_no_score"]
    for name in noticed:
        assert museum.score(tests[name], of=["prompt_never_stored"]), name

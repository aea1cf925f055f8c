"""The museum: every exhibit is a bug that shows, is caught, and is undone when its block ends."""

import html
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from effort import Effort

import kvlib
from kvbook import museum
from kvbook.museum import guards, looks, scoring
from kvlib.serve import greedy, request, sampling
from kvlib.speculation import draft_model

HALL = museum.exhibits()
LIBRARY = Path(kvlib.__file__).parent
GUARDS = list(dict.fromkeys(e.caught_by for e in HALL))
SEEN = [e for e in HALL if e.look]


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

    for module in (sampling, request, looks, draft_model):
        monkeypatch.setattr(module, "greedy", watched)
    return found


@pytest.mark.traced
@pytest.mark.parametrize("exhibit", SEEN, ids=lambda e: e.name)
def test_symptom_shows_on_the_reference_model(exhibit, model, gaps) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        symptom = exhibit.symptom(model)
    assert symptom.shows, symptom
    assert "nan" not in symptom.healthy and "Error" not in symptom.healthy
    text = repr(symptom)
    assert "healthy" in text and "mutant" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert "('generate', " not in text, "kvlib.generate counts its names, so the page would change"
    assert min(gaps, default=1.0) > 0.02, "a token won by a hair: other machines say otherwise"


def test_an_exhibit_without_a_look_says_so(model: kvlib.Decoder) -> None:
    with pytest.raises(ValueError, match="rollback_resets has no look at the reference model"):
        HALL["rollback_resets"].symptom(model)


@pytest.mark.parametrize("exhibit", [e for e in HALL if e.lines], ids=lambda e: e.name)
def test_the_wrong_line_is_the_bugs_and_the_right_one_is_kvlibs(exhibit: museum.Exhibit) -> None:
    wrong, right = exhibit.lines or ("", "")
    assert wrong in exhibit.source
    kvlib_code = (path.read_text(encoding="utf-8") for path in LIBRARY.rglob("*.py"))
    assert any(right in text for text in kvlib_code), right


@pytest.mark.parametrize("exhibit", HALL, ids=HALL.names)
def test_label_says_what_where_and_how(exhibit: museum.Exhibit) -> None:
    text = repr(exhibit)
    for part in (exhibit.name, exhibit.topic, exhibit.function, exhibit.caught_by.__name__):
        assert part in text
    assert exhibit.name.isidentifier() and exhibit.cite
    assert 40 <= len(exhibit.happened) <= 130 and exhibit.happened.endswith(".")
    assert exhibit.source.startswith(f"def {exhibit.bug.__name__}(")
    assert len(exhibit.source.splitlines()) <= 16, "a small bug"
    assert all(len(line) <= 100 for line in exhibit.source.splitlines())
    assert f"def {exhibit.caught_by.__name__}()" in exhibit.test


def test_every_topic_has_exhibits() -> None:
    for topic in museum.TOPICS:
        assert len(museum.exhibits(topic)) >= 3
    assert sum(len(museum.exhibits(topic)) for topic in museum.TOPICS) == len(HALL)


def test_a_table_has_a_row_for_each_exhibit() -> None:
    some = HALL.without(HALL.names[3:])
    assert some.names == HALL.names[:3]
    table = some._repr_html_().replace("<wbr>", "")
    assert table.count("<tr>") == 1 + 3 and table.count("<td>") == 3 * 4
    for e in some:
        assert html.escape(e.happened) in table and html.escape(e.cite) in table
        assert f"<code>{e.name}</code>" in table
        assert e.caught_by.__name__.replace("_", " ") in table


def test_found_by_name_and_index() -> None:
    assert HALL["stale_prefix"] is museum.exhibit("stale_prefix")
    assert HALL[0].name == HALL.names[0] and len(HALL[:3]) == 3 and "stale_prefix" in HALL
    text = repr(HALL)
    assert text.startswith(f"{len(HALL)} exhibits") and "  stale_prefix" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(ValueError, match="near it: stale_prefix"):
        museum.exhibit("stale_prefixes")
    with pytest.raises(ValueError, match="there are decode_sees"):
        museum.exhibit("zzz")
    with pytest.raises(ValueError, match="no topic 'cellar', needed one of masks"):
        museum.exhibits("cellar")


def test_all_guards_together_kill_everything(effort: Effort) -> None:
    """The chapter asks every guard about every exhibit; each meets its own guard above."""
    spread = [name for start in range(4) for name in HALL.names[start::4]]  # of every topic
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


@pytest.mark.parametrize(("tests", "words"), [
    ((), "needs at least one test"), ((3,), "A test must be a function, got int"),
    ((lambda cache: None,), "needs cache. Write a test without arguments"),
])
def test_what_is_no_test_is_refused(tests: tuple, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        museum.score(*tests)


def test_without_threads_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(scoring.threading.Thread, "start", no_threads)
    assert scoring.verdict(guards.a_window_counts_the_query_itself) == ""
    with HALL["window_one_too_wide_in_decode"].installed():
        assert "AssertionError" in scoring.verdict(guards.a_window_counts_the_query_itself)

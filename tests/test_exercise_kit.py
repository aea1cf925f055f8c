"""What a learner is told, for every way in which a function can be wrong."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.checker import Checker, Seen, edited
from kvbook.exercises.expect import Finding, expect_close, expect_equal
from kvbook.exercises.guard import NotDone, guarded
from kvbook.exercises.report import Report, checker

F32 = np.float32


def double(x: Any) -> Any:
    """Doubles x (T, D)."""
    return 2 * x


def _doubled(double: Any) -> Iterator[Seen]:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    yield "the result", double(x), "not twice x"


def _kept(double: Any) -> Iterator[Seen]:
    x = np.arange(2, dtype=F32)
    y = double(x)
    x[...] = 7
    yield "the result after x changed", y


check_double = Checker(
    double, letters="T D", typed=True,
    stages={"every number is doubled": _doubled, "the result is an array of its own": _kept},
    mistakes={"x squared: multiply by 2, not by x": "2 * x → x * x"},
)


def stub(x: Any) -> Any: ...


def ellipsis(x: Any) -> Any:
    return ...


def raises_not_implemented(x: Any) -> Any:
    raise NotImplementedError


def helper(x: Any) -> Any:
    return np.concatenate([x, 3])


def in_place(x: Any) -> Any:
    x *= 2
    return x


def one_off(x: Any) -> Any:
    y = 2 * x
    y[1, 0] += 0.5
    return y


def two_off(x: Any) -> Any:
    y = one_off(x)
    y[1, 2] = -7
    return y


def test_a_right_answer_is_told_what_it_proved() -> None:
    report = check_double(lambda x: 2 * x)
    assert report and report.passed and report.status == "passed"
    assert repr(report) == (
        "double: passed\n  proved: every number is doubled\n"
        "  proved: the result is an array of its own"
    )


@pytest.mark.parametrize("function", [stub, ellipsis, raises_not_implemented])
def test_a_stub_is_not_done_yet(function: Callable[..., Any]) -> None:
    report = check_double(function)
    assert not report and report.status == "not done yet"
    assert report.proved == ()
    assert function.__name__ in report.finding and "run this cell again" in report.finding
    assert repr(report).startswith("double: not done yet\n  to do: ")


@pytest.mark.parametrize("function, words", [
    (lambda x: x[7], "raised IndexError: index 7 is out of bounds"),
    (helper, "at the line: return np.concatenate([x, 3])"),
    (in_place, "argument 1 of in_place was changed in place: copy it first"),
    (lambda x: [1, 2], "the result: got list, needed a NumPy array"),
    (lambda x: 2, "the result: got int (2), needed a NumPy array"),
    (lambda x: 2 * x[0], "has shape (3,), needed (2, 3) (T, D)"),
    (lambda x: (2 * x).T, "an axis is in the wrong place"),
    (lambda x: 2.0 * x.astype(np.float64), "is float64, needed float32: twice the bytes"),
    (lambda x: (2 * x).astype(np.int64), "the result is int64, needed float32"),
    (lambda x: x / x * 2 * x, "token 0, dim 0 is NaN: not twice x"),
    (lambda x: x * x, "x squared: multiply by 2, not by x"),
    (one_off, "token 1, dim 0 is 6.5, needed 6 (1 of 6 numbers are off): not twice x"),
    (two_off, "is 6.5, needed 6; farthest off: token 1, dim 2 is -7, needed 10"),
])
def test_a_wrong_answer_is_told_why(function, words, recwarn) -> None:
    report = check_double(function)
    assert report.status == "not yet" and not report.passed
    assert words in report.finding
    assert len(recwarn) == 0, "a learner's division by zero stays out of the page"
    assert repr(report) == repr(check_double(function)), "the same words every time"


def numbers(kind: Any) -> Any:
    """numbers(kind) → results of several kinds."""
    found = {"int": 3, "float": 0.5, "tokens": [1, 2], "pair": (1, np.ones(2)), "text": "a"}
    return found[kind]


@pytest.mark.parametrize("kind, wrong, words", [
    ("int", 4, "numbers('int'): got 4, needed 3: one too many"),
    ("int", 5, "numbers('int'): got 5, needed 3"),
    ("int", "3", "numbers('int'): expected one number, got str"),
    ("float", 0.50001, "numbers('float'): got 0.50001, needed 0.5"),
    ("tokens", [1, 3], "numbers('tokens'): got [1, 3], needed [1, 2]"),
    ("tokens", 1.5, "needed a list of integers"),
    ("pair", (1, 2, 3), "numbers('pair'): got tuple of 3, needed (first, second)"),
    ("pair", (2, np.ones(2)), "numbers('pair'), first: got 2, needed 1"),
    ("pair", (1, [1, 0]), "numbers('pair'), second: number 1 is 0, needed 1"),
    ("pair", (1, np.zeros(2)), "numbers('pair'), second: zeros"),
    ("text", 1, "numbers('text'): got int (1), needed str"),
])
def test_results_of_any_kind_are_compared(kind: str, wrong: Any, words: str) -> None:
    check = Checker(
        numbers, names=("first", "second"), stages={"it is right": [(kind,)]},
        mistakes={
            "one too many": '"int": 3 → "int": 4', "zeros": "np.ones → np.zeros",
            "raises elsewhere": "found[kind] → found[kind + kind]",
        },
    )
    assert check(numbers).passed and words in check(lambda kind: wrong).finding


@pytest.mark.parametrize("stages", [
    {"it is right": [("int",), ("float",)]}, {"before": [("int",)], "after": [("float",)]},
    {"at first and later": [("float",), ("int",)]},
])
def test_a_mistake_explains_all_results(stages: Any) -> None:
    mistakes = {"all are 0": lambda kind: 0, "the float is 0": "0.5 → 0"}
    check = Checker(numbers, stages=stages, mistakes=mistakes)
    assert "got 0, needed 0.5: the float is 0" in check(lambda kind: 3 * (kind == "int")).finding


def test_no_cause_is_named_if_none_of_several_explains_the_rest() -> None:
    mistakes = {"all are 0": lambda kind: 0, "the float is 0": "0.5 → 0"}
    check = Checker(numbers, stages={"x": [("float",), ("int",)]}, mistakes=mistakes)
    report = check(lambda kind: 4 * (kind == "int"))
    assert report.finding == "numbers('float'): got 0, needed 0.5"


def test_an_edit_that_does_not_fit_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="numbers has 'np.zeros' 0 times, needed once"):
        edited(numbers, ("np.zeros → np.ones",))


def test_report_is_narrow_enough_for_a_box() -> None:
    long = Report("double", "not yet", ("p " * 80,), "w " * 200 + "\nsecond line")
    lines = repr(long).splitlines()
    assert max(map(len, lines)) <= 68
    assert lines[-1] == "         second line"


def test_a_checker_wants_the_function_itself() -> None:
    with pytest.raises(TypeError, match="check_double: got ndarray, needed the function itself"):
        check_double(np.zeros(3))


def test_a_checker_that_proves_nothing_is_a_mistake_of_ours() -> None:
    @checker
    def check_nothing(function: Callable[..., Any]) -> Iterator[str]:
        function(1)
        yield from ()

    with pytest.raises(RuntimeError, match="check_nothing proved nothing"):
        check_nothing(lambda x: x)


def test_our_own_errors_are_not_blamed_on_the_learner() -> None:
    @checker
    def check_broken(function: Callable[..., Any]) -> Iterator[str]:
        yield "something"
        raise KeyError("ours")

    report = check_broken(lambda x: x)
    assert report.status == "not yet"
    assert "KeyError: 'ours'. That is a mistake of the checker" in report.finding


def test_objects_pass_where_a_checker_asks_for_them() -> None:
    class Box: ...

    @checker(returns=Box)
    def check_made(make: Callable[..., Any]) -> Iterator[str]:
        expect_equal(isinstance(make(), Box), True, "a Box")
        yield "it makes a Box"

    assert check_made(Box).passed and check_made(lambda: Box()).passed
    assert "returned a generator, needed plain data" in check_made(lambda: (_ for _ in "a")).finding


def test_guarded_allows_what_it_is_told_to_allow() -> None:
    x = np.zeros(3)

    def fill(out: np.ndarray) -> None:
        out[:] = 1

    with pytest.raises(NotDone):
        guarded(fill)(x)
    with pytest.raises(Finding, match="out of fill was changed in place"):
        guarded(fill, may_return_none=True)(out=x * 0)
    guarded(fill, may_modify=True, may_return_none=True)(x)
    assert (x == 1).all()


def test_the_interrupt_button_passes_through() -> None:
    def is_stopped() -> None:
        signal.raise_signal(signal.SIGINT)

    # a shell starts what runs in its background with the signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            guarded(is_stopped)()
    finally:
        signal.signal(signal.SIGINT, before)


def test_unchanged_counts_nan_as_itself() -> None:
    x = np.array([np.nan, 1.0])
    assert guarded(lambda a: a.sum())(x) is not None


@pytest.mark.parametrize("got, expected, words", [
    (10, 12, "steps: got 10, needed 12: count the first"),
    (np.int64(12), 12, None), (12.0, 12, None), (True, 1, "steps: got bool, needed int"),
    ("12", 12, "steps: got str, needed int"), (np.array([1, 2]), [1, 2], None),
    ([1, 2], [1, 3], r"steps: got \[1, 2\], needed \[1, 3\]"),
])
def test_expect_equal(got: Any, expected: Any, words: str | None) -> None:
    if words is None:
        expect_equal(got, expected, "steps")
        return
    with pytest.raises(Finding, match=words):
        expect_equal(got, expected, "steps", why="count the first")


def test_expect_close_on_scalars_and_booleans() -> None:
    expect_close(0.5, 0.5, "the mean")
    with pytest.raises(Finding, match="the mean: it is 0.25, needed 0.5$"):
        expect_close(0.25, 0.5, "the mean")
    mask = np.array([[True, False]])
    with pytest.raises(Finding, match="the mask: query 0, key 1 is True, needed False"):
        expect_close(mask | True, mask, "the mask", axes=("query", "key"))
    expect_close(np.array([np.nan]), np.array([np.nan]), "NaN that is wanted")
    with pytest.raises(Finding, match=r"number 1 is 3, needed 4 \(1 of 2 numbers are off\)"):
        expect_close(np.array([1, 3]), np.array([1, 4]), "counts")
    with pytest.raises(Finding, match="the mean has shape"):
        expect_close(np.zeros(2), 0.0, "the mean")


def test_expect_close_counts_infinities() -> None:
    with pytest.raises(Finding, match="is inf, needed 1"):
        expect_close(np.array([1, np.inf]), np.array([1.0, 1.0]), "x")
    with pytest.raises(Finding, match="is 0, needed -inf"):
        expect_close(np.array([0.0]), np.array([-np.inf]), "x")


def test_guarding_twice_says_the_same_as_once():
    @checker
    def check_twice(twice):
        guarded(twice)(1)
        yield "never reached"

    def twice(x): ...

    assert check_twice(twice).status == "not done yet"

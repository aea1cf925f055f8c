"""Call a learner's function so that whatever it does becomes words."""

import linecache
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kvbook.exercises.expect import Finding
from kvbook.exercises.wording import a, name_of, readable, text_of

CONTAINERS = (list, tuple, set, frozenset)


class NotDone(Finding):
    """The stub is still a stub: it returned nothing, or raised NotImplementedError.

    >>> def causal_mask(n):
    ...     "(n, n) bool, True where query i may look at key j"
    >>> guarded(causal_mask)(4)
    Traceback (most recent call last):
        ...
    kvbook.exercises.guard.NotDone: causal_mask returned None: write its body, ...
    """


def guarded(
    function: Callable[..., Any],
    *,
    may_modify: bool = False,
    may_return_none: bool = False,
    silent: bool = True,
    returns: type | tuple[type, ...] = (),
) -> Callable[..., Any]:
    """Wrap a learner's function: errors, missing results, changed inputs become a `Finding`.

    The result is plain data, with NumPy's numbers as Python's; a Finding refuses anything else.

    may_modify       for functions whose work is to change an argument
    may_return_none  for functions that return nothing; if one returns something, it is handed on
                     unchanged
    silent           warnings, NumPy's too, are dropped while it runs
    returns          types whose objects may be returned besides plain data

    >>> import numpy as np
    >>> def softmax(x):
    ...     x -= x.max()  # in the caller's array
    ...     return np.exp(x) / np.exp(x).sum()
    >>> guarded(softmax)(np.ones(4))
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: argument 1 of softmax was changed in place: copy it first, ...
    >>> guarded(softmax, may_modify=True)(np.ones(4))
    array([0.25, 0.25, 0.25, 0.25])
    """
    name = name_of(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [("argument " + str(i + 1), x) for i, x in enumerate(args)] + list(kwargs.items())
        lent = [] if may_modify else [(label, x, _copied(x)) for label, x in given]
        with silence() if silent else nullcontext():
            result = _called(function, name, args, kwargs)
            if not may_return_none and not isinstance(result, returns):
                result = _plain(result, name)
        if result is Ellipsis or (result is None and not may_return_none):
            word = "..." if result is Ellipsis else "None"
            raise NotDone(f"{name} returned {word}: write its body, then run this cell again.")
        for label, now, before in lent:
            if not _same(now, before):
                raise Finding(
                    f"{label} of {name} was changed in place: copy it first, the caller still "
                    "needs it"
                )
        return result

    call.__name__, call.__wrapped__ = name, function  # type: ignore[attr-defined]
    return call


@contextmanager
def silence() -> Iterator[None]:
    """Drop the warnings of the block, NumPy's included.

    >>> with silence():
    ...     print(np.float32(1) / np.float32(0))
    inf
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def bare(function: Any) -> Any:
    """The learner's function without its guard, for a checker that guards it in another way.

    >>> bare(guarded(len)) is len
    True
    """
    return vars(function).get("__wrapped__", function) if type(function) is type(bare) else function


def _called(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except NotImplementedError:
        raise NotDone(f"write the body of {name}, then run this cell again.") from None
    except (Finding, KeyboardInterrupt):  # of a guard further in; and the reader's interruption
        raise
    except BaseException as error:  # whatever else a learner's code raises must become words
        raise Finding(_in_words(function, name, error)) from error


def _plain(x: Any, name: str, inside: str = "") -> Any:
    """x as numbers, texts, containers and arrays; the very same object where it is that already.

    name    the function that returned it
    inside  "a list with ", if it is in one
    """
    if isinstance(x, int) and x.bit_length() > 1023:
        digits = int(x.bit_length() * 0.30103)
        raise Finding(
            f"{name} returned an integer of about {digits:,} digits, needed a number below "
            "1.8e308, the largest float"
        )
    if isinstance(x, np.generic):
        return float(x) if isinstance(x, np.longdouble) else x.item()
    if x is None or x is Ellipsis or isinstance(x, int | float | str | bytes):
        return x
    if isinstance(x, np.ndarray):
        return x if type(x) is np.ndarray else x.view(np.ndarray)
    if isinstance(x, range):
        return list(x)
    if isinstance(x, dict):
        return dict(zip(x, _plain(list(x.values()), name), strict=True))
    for kind in CONTAINERS:
        if isinstance(x, kind):
            held = list(x)
            new = [_plain(y, name, inside or f"{a(kind.__name__)} with ") for y in held]
            return x if type(x) is kind and all(map(operator.is_, held, new)) else kind(new)
    if hasattr(x, "get") and hasattr(x, "dtype"):  # an array on a device
        return x.get()
    hint = "; collect the items in a list" if hasattr(x, "__iter__") else ""
    hint = "; call it, and return what it gives" if callable(x) else hint
    came = "a class" if isinstance(x, type) else a(type(x).__name__)
    raise Finding(
        f"{name} returned {inside}{came}{' in it' * bool(inside)}, needed plain data: numbers, "
        f"strings, lists, tuples, dicts or NumPy arrays{hint}"
    )


def _copied(x: Any) -> Any:
    """A copy of arrays, and of lists, tuples and dicts with what they hold; else x itself."""
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, list | tuple):
        return tuple(map(_copied, x))
    return {key: _copied(value) for key, value in x.items()} if isinstance(x, dict) else x


def _same(now: Any, before: Any) -> bool:
    """Whether `now`, of which `before` is the copy, still holds the same. NaN equals itself."""
    if isinstance(before, np.ndarray) and isinstance(now, np.ndarray):
        alike = now.shape == before.shape and now.dtype == before.dtype
        return alike and now.tobytes() == before.tobytes()
    if isinstance(before, tuple) and isinstance(now, list | tuple):
        return len(now) == len(before) and all(map(_same, now, before))
    if isinstance(before, dict) and isinstance(now, dict):
        return _same(list(now), tuple(before)) and _same([*now.values()], tuple(before.values()))
    return now is before or (type(now) is type(before) and bool(now == before))


def _in_words(function: Any, name: str, error: BaseException) -> str:
    """Name, error, and the deepest line in the file (or cell) where the learner wrote it."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    where, trace = "", error.__traceback__
    while trace is not None and file:
        if trace.tb_frame.f_code.co_filename == file:
            source = linecache.getline(file, trace.tb_lineno).strip()
            where = f"\nat the line: {source}" if source else ""
        trace = trace.tb_next
    said = readable(text_of(error), 1000)
    return f"{name} raised {type(error).__name__}" + (f": {said}" if said else "") + where

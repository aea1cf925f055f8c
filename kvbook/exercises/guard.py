"""Call a learner's function so that whatever it does becomes words."""

from __future__ import annotations

import dis
import linecache
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kvbook.exercises.expect import Finding
from kvbook.exercises.lent import copied, same
from kvbook.exercises.plain import plain
from kvbook.exercises.wording import name_of, readable, text_of


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

    The result is plain data (`kvbook.exercises.plain`), so that `==` means what it says.

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
        lent = [] if may_modify else [(label, x, copied(x)) for label, x in given]
        with silence() if silent else nullcontext():
            result = _called(function, name, args, kwargs)
            result = plain(result, name, object if may_return_none else returns)
        if result is Ellipsis or (result is None and not may_return_none):
            word = "..." if result is Ellipsis else "None"
            raise NotDone(f"{name} returned {word}: write its body, then run this cell again.")
        for label, now, before in lent:
            if not same(now, before):
                raise Finding(
                    f"{label} of {name} was changed in place: copy it first, the caller still "
                    "needs it"
                )
        return result

    call.__name__, call.__wrapped__ = name, function  # type: ignore[attr-defined]
    return call


@contextmanager
def silence() -> Iterator[None]:
    """Drop the warnings of the block, NumPy's included."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def bare(function: Any) -> Any:
    """The learner's function without its guard, for a checker that guards it in another way.

    >>> bare(guarded(len)) is len
    True
    """
    return vars(function).get("__wrapped__", function) if type(function) is type(bare) else function


def method(thing: Any, name: str, owner: str, **settings: Any) -> Callable[..., Any]:
    """A method of a learner's object, guarded with these settings of `guarded`.

    owner  the class's name, for the message. Raises Finding if the object has no such method.

    >>> method([3, 1, 2], "index", "list")(1)
    1
    >>> method([3, 1, 2], "allocate", "FreeList")
    Traceback (most recent call last):
        ...
    kvbook.exercises.expect.Finding: FreeList has no method allocate
    """
    try:
        found = getattr(thing, name, None)
    except BaseException:  # an object may raise anything when it is asked for an attribute
        found = None
    if not callable(found):
        raise Finding(f"{owner} has no method {name}")
    return guarded(found, **settings)


def _called(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except NotImplementedError:
        raise NotDone(f"write the body of {name}, then run this cell again.") from None
    except BaseException as error:  # whatever a learner's code raises must become words
        if _from_outside(error) or _said_already(error):
            raise
        raise Finding(_in_words(function, name, error)) from error


def _said_already(error: BaseException) -> bool:
    """A finding of a guard further in, or of a function that the checker lent."""
    said = error.args[0] if type(error) in (Finding, NotDone) and len(error.args) == 1 else ""
    return type(said) is str and bool(said.strip())


def _from_outside(error: BaseException) -> bool:
    """Whether the reader interrupted the kernel. An answer that raises by itself does not."""
    trace = error.__traceback__
    if type(error) is not KeyboardInterrupt or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] != dis.opmap["RAISE_VARARGS"]


def _in_words(function: Any, name: str, error: BaseException) -> str:
    """Name, error, and the deepest line in the file (or cell) where the learner wrote it."""
    try:
        file = function.__code__.co_filename
    except BaseException:  # it has no code of Python's, or raises when it is asked
        file = None
    where, trace = "", error.__traceback__
    while trace is not None and type(file) is str:
        if trace.tb_frame.f_code.co_filename == file:
            source = linecache.getline(file, trace.tb_lineno).strip()
            where = f"\nat the line: {source}" if source else ""
        trace = trace.tb_next
    said = readable(text_of(error), 1000)
    return f"{name} raised {type(error).__name__}" + (f": {said}" if said else "") + where

"""The rows of a step whose logits are wanted, and what the last layer computes for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

from kvlib.arguments import check_list, describe, is_integer
from kvlib.arrays import Array, namespace
from kvlib.caches import Cache, Step


class Wanted(NamedTuple):
    """Some rows of a step.

    rows      the R wanted rows, in the order in which they are wanted
    step      the step as the last layer sees it: of each request the rows from its first wanted
              one on, because a cache attends from the last rows of a request
    attended  the rows of that step
    places    where the wanted ones stand among the attended; None where both are the same
    """

    rows: list[int]
    step: Step
    attended: list[int]
    places: list[int] | None


def wanted(rows: str | Sequence[int], step: Step) -> Wanted | None:
    """What `rows` asks for: "last", "all", or row numbers. None for all rows as they are.

    Raises ValueError for a row that the step does not have and for no rows, TypeError for what is
    no list of rows.
    """
    if isinstance(rows, str):
        if rows not in ("last", "all"):
            raise ValueError(f'rows must be "last", "all" or a list of row numbers, got {rows!r}')
        if rows == "all" or step.num_tokens == len(step.seq_ids):
            return None
        return Wanted(step.last_rows, step.last(), step.last_rows, None)
    given = check_list('rows, unless "last" or "all",', rows, "row numbers")
    found = [index(row) if is_integer(row) else -1 for row in given]
    wrong = [x for x, row in zip(given, found, strict=True) if not 0 <= row < step.num_tokens]
    if wrong or not found:
        raise ValueError(
            f"rows must be a list of at least one row number, 0 ... {step.num_tokens - 1}, "
            f"got {describe(wrong[0]) if wrong else 'none'}"
        )
    spans = list(zip(step.qo_indptr, step.qo_indptr[1:]))
    # A request without a wanted row attends from its last row: a step has no empty requests.
    firsts = [min((r for r in found if a <= r < b), default=b - 1) for a, b in spans]
    seen = step.last([b - first for first, (_, b) in zip(firsts, spans, strict=True)])
    attended = [row for first, (_, b) in zip(firsts, spans, strict=True) for row in range(first, b)]
    at = {row: n for n, row in enumerate(attended)}
    return Wanted(found, seen, attended, None if attended == found else [at[r] for r in found])


def mix(
    cache: Cache,
    layer: int,
    q: Array,
    k: Array,
    v: Array | None,
    step: Step,
    wanted: Wanted | None = None,
    attend: Callable[[Cache, int, Array, Step], Any] | None = None,
) -> Array:
    """Store a step's keys and values and attend: q (T, Hq, Dk) → o (R, Hq, Dv) of `wanted` rows.

    k (T, Hkv, Dk)   v (T, Hkv, Dv), or None where values are the first numbers of keys. Those of
    all T rows are stored: later steps ask for them. attend: called in place of ``cache.run``.
    """
    cache.append(layer, k, v, step)
    places = None if wanted is None else wanted.places
    if wanted is not None and cache.watches:  # a policy wants to see all queries
        places = wanted.rows
    elif wanted is not None:
        q, step = taken(q, wanted.attended), wanted.step
    o = cache.run(layer, q, step) if attend is None else attend(cache, layer, q, step)
    return o if places is None else taken(o, places)


def taken(x: Array, rows: Sequence[int]) -> Array:
    """x (T, ...) → its rows (R, ...), copied."""
    xp = namespace(x)
    return xp.take(x, xp.asarray(rows, dtype=xp.int64, device=x.device), axis=0)

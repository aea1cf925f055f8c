"""What a cache must refuse to read, and the form of what its attention returns."""

from __future__ import annotations

from typing import Any

from kvlib.caches import Cache


def check_reads(cache: Cache) -> None:
    """Check that ``read`` refuses requests that are not open and layers that do not exist.

    Raises AssertionError if it returns anything, or raises neither ValueError nor TypeError.
    """
    unknown = "no such request"
    wrong: list[tuple[Any, Any]] = [(0, unknown), (0, [unknown])]
    for name in cache.seq_ids[:1]:
        wrong += [(layer, name) for layer in (-1, len(cache.layers), "0", True, 0.0, None)]
    for layer, name in wrong:
        what = f"read({layer!r}, {name!r})"
        how = "write _read, which Cache.read calls after its checks"
        try:
            cache.read(layer, name)
        except (ValueError, TypeError):
            continue
        except Exception as error:
            raise AssertionError(
                f"{what} raised {type(error).__name__}, needed ValueError or TypeError: {how}"
            ) from error
        raise AssertionError(f"{what} was not refused, needed ValueError or TypeError: {how}")


def check_answer(cache: Any, found: Any, with_lse: bool) -> None:
    """Check that ``run`` returns o alone, or (o, lse) if it was asked for lse."""
    pair = isinstance(found, tuple | list) and len(found) == 2
    if pair == with_lse and (pair or hasattr(found, "shape")):
        return
    attention = cache.attention if cache.attention is not None else type(cache).attend
    raise AssertionError(
        f"with return_lse={with_lse} the attention {getattr(attention, '__name__', attention)} "
        f"returned {type(found).__name__}, needed {'(o, lse)' if with_lse else 'o alone'}"
    )

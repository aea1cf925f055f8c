"""Tests that catch the bugs of the museum: masks, positions, memory. Each runs in milliseconds.

A reader can write tests of the same form: functions without arguments that use kvlib and raise an
AssertionError where something is wrong. What they share is in `kvbook.museum.tiny`.
"""

import math

import numpy as np

from kvbook.museum.tiny import (
    close,
    follow,
    logits_of_all,
    prompt,
    small_model,
    weights,
)
from kvlib.serve.generation import generate, stream


def every_query_sees_its_past_and_itself() -> None:
    """One, two, five or all of the queries at the end of seven keys."""
    for t in (1, 2, 5, 7):
        seen = weights(t, 7) > 0
        assert (seen == np.tri(t, 7, 7 - t, dtype=bool)).all(), f"{t} queries over 7 keys"


def the_future_changes_nothing() -> None:
    """Changing token 6 must not change the logits of earlier tokens."""
    model, ids = small_model(), prompt(9)
    before = logits_of_all(model, ids)
    ids[6] = (ids[6] + 1) % 31
    close(logits_of_all(model, ids)[:6], before[:6])


def a_window_counts_the_query_itself() -> None:
    """Texts of window - 1, window, window + 1 and 2 window tokens."""
    for s in (3, 4, 5, 8):
        for t in (1, 2, s):
            wanted = np.minimum(np.arange(s - t, s) + 1, 4)
            seen = (weights(t, s, window=4) > 0).sum(axis=1)
            assert (seen == wanted).all(), f"{t} queries over {s} keys see {seen}"


def cached_logits_equal_recomputed() -> None:
    """A prompt, chunks and single tokens, with full and with local layers."""
    for windows in ((None, None), (3, None)):
        model, ids = small_model(windows=windows), prompt(12)
        wanted = logits_of_all(model, ids)
        for end, logits in follow(model, {"a": ids}, [{"a": n} for n in (5, 1, 1, 3, 1, 1)]):
            close(logits["a"], wanted[end["a"] - 1])


def a_row_alone_is_the_row_in_a_batch() -> None:
    """Two texts of different lengths, fed together."""
    model, texts = small_model(), {"a": prompt(12), "b": prompt(7, seed=1)}
    alone = {name: logits_of_all(model, ids) for name, ids in texts.items()}
    steps = [{"a": 8, "b": 3}, {"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]
    for end, logits in follow(model, texts, steps):
        for name in texts:
            close(logits[name], alone[name][end[name] - 1])


def any_row_may_leave() -> None:
    """Three texts in one batch: the longest one leaves first, then the shortest."""
    model = small_model()
    texts = {name: prompt(12, seed=i) for i, name in enumerate("abc")}
    alone = {name: logits_of_all(model, ids) for name, ids in texts.items()}
    steps = [{"a": 7, "b": 2, "c": 4}, {"b": 1, "c": 1}, {"c": 1}, {"c": 2}]
    for end, logits in follow(model, texts, steps, leave=True):
        for name in logits:
            close(logits[name], alone[name][end[name] - 1])


def unused_memory_is_never_read() -> None:
    """Slots that hold no token are filled with NaN here, which spreads if it is read."""
    model, ids = small_model(), prompt(8)
    for _, logits in follow(model, {"a": ids}, [{"a": 5}, {"a": 1}, {"a": 2}], fill=math.nan):
        assert np.isfinite(logits["a"]).all()


def read_gives_back_what_append_took() -> None:
    """A prompt of five keys, then one."""
    rng, cache = np.random.default_rng(0), small_model().new_cache(1, 8)
    cache.add("a")
    stored: list[np.ndarray] = []
    for n in (5, 1):
        step = cache.plan(["a"], [n])
        for layer in range(2):
            k = rng.standard_normal((n, 2, 8)).astype(np.float32)
            cache.append(layer, k, -k, step)
        stored.append(k)
    k, v, at = cache.read(1, "a")
    assert (k == np.concatenate(stored)).all() and (v == -k).all() and at.tolist() == [*range(6)]


def the_cache_grows_by_one_token_per_token() -> None:
    """After a prompt of P tokens and n new ones, P + n - 1 are cached: the newest is not fed."""
    model, ids = small_model(), prompt(6)
    cache = model.new_cache(1, 20)
    for x in cache.storage():  # a bug may read what was never written: the same every time
        x[...] = 0.0
    tokens = stream(model, [ids], max_new_tokens=6, stop_tokens=(), cache=cache)
    for n in range(1, 6):
        next(tokens)
        (name,) = cache.seq_ids
        assert cache.seq_len(name) == 6 + n - 1
    tokens.close()  # type: ignore[attr-defined]


def generated_tokens_equal_recomputed() -> None:
    """Each generated token is the one that recomputing the whole text gives."""
    model, ids = small_model(), prompt(6)
    (new,) = generate(model, [ids], max_new_tokens=6, stop_tokens=())
    for n, token in enumerate(new):
        assert token == int(logits_of_all(model, ids + new[:n])[-1].argmax())


def truncate_removes_no_more_than_it_is_told() -> None:
    """Eight tokens are stored and cut back to five; then decoding goes on."""
    model, ids = small_model(), prompt(8)
    wanted = logits_of_all(model, ids)
    cache = model.new_cache(1, 12)
    cache.add("a")
    model.forward(ids, cache, cache.plan(["a"], [8]))
    cache.truncate("a", 5)
    assert cache.seq_len("a") == 5
    close(model.forward(ids[5:], cache, cache.plan(["a"], [3])), wanted[-1:])


def every_array_is_float32() -> None:
    """The arrays of the cache, and the logits."""
    model = small_model()
    cache = model.new_cache(1, 8)
    cache.add("a")
    logits = model.forward([1, 2, 3], cache, cache.plan(["a"], [3]))
    found = {str(x.dtype) for x in (*cache.storage(), logits)}
    assert found == {"float32"}, f"found {sorted(found)}"

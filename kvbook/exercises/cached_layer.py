"""The checker of `LayerCache`, the cache for one layer that the reader writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.report import (
    Finding,
    checker,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
    guarded,
    method,
)
from kvlib.attention import attend

_HKV, _HQ, _D = 2, 4, 8


@checker
def check_layer_cache(layer_cache: type) -> Iterator[str]:
    """LayerCache(num_kv_heads, head_dim) with append(k, v) and attend(q)."""
    q, k, v = _qkv(seed=1, tokens=10)
    first, _ = _new(layer_cache)
    first(k[5:8], v[5:8])  # a request that lives beside all others and is none of their business
    append, run = _new(layer_cache)
    append(k[:1], v[:1])
    _first_token(layer_cache, run(q[:1]), q, k, v)
    yield "a first token gets its own value back, even while another cache holds tokens"

    append, run = _new(layer_cache)
    append(k[:5], v[:5])
    _compare(run(q[:5]), q[:5], k[:5], v[:5], "a prompt of 5")
    yield "a prompt of 5: query i sees keys 0 to i"
    for t in range(5, 7):
        append(k[t : t + 1], v[t : t + 1])
        _compare(run(q[t : t + 1]), q[t : t + 1], k[: t + 1], v[: t + 1], f"decoding token {t}")
    yield "decoding: one query sees every key of the request, the prompt's included"
    append(k[7:], v[7:])
    _compare(run(q[7:]), q[7:], k, v, "a chunk of 3 after 7 held tokens")
    yield "three tokens after seven: chunks of any length"

    append, run = _new(layer_cache)
    lent_k, lent_v = k[:4].copy(), v[:4].copy()
    append(lent_k, lent_v)
    lent_k[...], lent_v[...] = 7.0, 7.0
    got = run(q[:4])
    _form(got, 4)
    if not np.allclose(got, _reference(q[:4], k[:4], v[:4]), rtol=1e-4, atol=1e-5):
        raise Finding(
            "the caller reused its arrays after append, and what you hold changed with them: "
            "append must store a copy"
        )
    yield "what is held is the cache's own copy"


def _new(layer_cache: type) -> tuple[Any, Any]:
    """append and attend of a fresh object, guarded."""
    cache = guarded(layer_cache, may_return_none=True)(_HKV, _D)
    append = method(cache, "append", "LayerCache", may_return_none=True)
    return append, method(cache, "attend", "LayerCache")


def _qkv(seed: int, tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q (T, Hq, D), k and v (T, Hkv, D): float32, scores large enough to tell keys apart."""
    rng = np.random.default_rng(seed)
    q = 2 * rng.standard_normal((tokens, _HQ, _D), dtype=np.float32)
    k, v = rng.standard_normal((2, tokens, _HKV, _D), dtype=np.float32)
    return q, k, v


def _reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, **settings: Any) -> np.ndarray:
    """Attention of the last T positions."""
    s, t = k.shape[0], q.shape[0]
    positions = np.arange(s, dtype=np.int64)
    o: Any = attend(q, k, v, settings.pop("q_pos", positions[s - t :]), positions, **settings)
    return o


def _first_token(cls: type, got: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    _form(got, 1)
    right = _reference(q[:1], k[:1], v[:1])
    if np.allclose(got, right, rtol=1e-4, atol=1e-5):
        return
    _usual_suspects(got, q[:1], k[:1], v[:1])
    both_k, both_v = np.concatenate([k[5:8], k[:1]]), np.concatenate([v[5:8], v[:1]])
    shared = np.allclose(got, _reference(q[:1], both_k, both_v), rtol=1e-4, atol=1e-5)
    stores = (list, dict, set, np.ndarray)
    held = [n for n, x in vars(cls).items() if type(x) in stores and not n.startswith("__")]
    if shared or held:
        where = f" ({', '.join(held)} belongs to the class)" if held else ""
        raise Finding(
            "a new request's first token attends to another request's keys: one store is shared "
            f"by all{where}. Make the store in __init__, one for each object"
        )
    expect_close(got, right, "a single token", axes=("query", "head", "dim"))


def _compare(got: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, what: str) -> None:
    t, s = q.shape[0], k.shape[0]
    _form(got, t)
    right = _reference(q, k, v)
    if np.allclose(got, right, rtol=1e-4, atol=1e-5):
        return
    _usual_suspects(got, q, k, v)
    corner = np.arange(t, dtype=np.int64)
    if s > t:
        diagnose(
            got,
            {
                f"{what}: query i sees keys 0 to i only, as if the text began with this call. "
                "The mask sits in the top left corner, but the queries stand after all that is "
                f"held, so query 0 is at position {s - t}": _reference(q, k, v, q_pos=corner),
                f"{what}: only this call's own keys are seen. Were the earlier ones never "
                "stored, or overwritten?": _reference(q, k[s - t :], v[s - t :]),
            },
        )
    everything = np.full(t, s, dtype=np.int64)
    message = (
        f"{what}: every query sees every key, so token {s - t} sees token {s - 1}, which comes "
        "after it. Within one call, too, a query sees itself and what stands before it"
    )
    if t > 1:
        diagnose(got, {message: _reference(q, k, v, q_pos=everything)})
    expect_close(got, right, what, axes=("query", "head", "dim"))


def _form(got: Any, t: int) -> None:
    expect_shape(got, (t, _HQ, _D), "what attend returns", letters="T Hq D")
    expect_dtype(got, np.float32, "what attend returns")


def _usual_suspects(got: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    right = _reference(q, k, v)
    share = np.sum(got * right, axis=-1, keepdims=True) / np.sum(right**2, axis=-1, keepdims=True)
    if np.allclose(got, share * right, rtol=1e-3, atol=1e-5) and np.all(share < 0.9999):
        raise Finding(
            "the result has the right direction but is too short, because slots that hold no "
            "token are attended to: a key of zeros scores 0, and e^0 is 1, not 0. Read only "
            "what was appended"
        )
    tiled = np.tile(np.arange(_HKV), _HQ // _HKV)
    diagnose(
        got,
        {
            "query head h read key head h % Hkv, needed h // G: neighbouring query heads share a "
            "key head (repeat each, do not tile them)": _reference(q, k[:, tiled], v[:, tiled]),
            "the scores are not divided by sqrt(D)": _reference(q, k, v, sm_scale=1.0),
        },
    )

"""The right answers on chunks agree with a meter and with attention, and other forms of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.cached import tiny_model
from kvbook.exercises.chunked import (
    check_fill_step,
    check_online_update,
    check_read_in_chunks,
    online_update,
    read_in_chunks,
)
from kvlib.attention import attend
from kvlib.meter import Meter


@pytest.mark.parametrize("p, c", [(24, 8), (10, 4), (5, 9)])
def test_a_meter_counts_as_many_keys(p: int, c: int) -> None:
    model = tiny_model()
    cache = model.new_cache(1, 64)
    cache.add(0)
    bounds, keys = read_in_chunks(p, c)
    with Meter() as meter:
        for n in np.diff(bounds)[:, 0].tolist():
            model.forward([1] * n, cache, cache.plan([0], [n]))
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in model.layer_specs)
    assert meter.by_label["attention"].read == keys * a_token


def test_tiles_give_attention() -> None:
    q, k, v = np.random.default_rng(5).standard_normal((3, 20, 8)).astype(np.float32)
    s, pos = q @ k.T / np.float32(8**0.5), np.arange(20)
    s[pos[:, None] < pos] = -np.inf
    state: Any = np.full((20, 1), -np.inf), np.zeros((20, 1)), np.zeros((20, 8))
    for a in range(0, 20, 7):
        state = online_update(*state, s[:, a : a + 7], v[a : a + 7])
    whole: Any = attend(q[:, None], k[:, None], v[:, None], pos, pos)
    assert np.allclose(state[2] / state[1], whole[:, 0], atol=1e-5)


def key_by_key(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    top, total, o = top.copy(), total.copy(), o.copy()
    for i, j in np.ndindex(s.shape):
        new = max(float(top[i, 0]), float(s[i, j]))
        if new > -math.inf:
            shrink, p = math.exp(float(top[i, 0]) - new), math.exp(float(s[i, j]) - new)
            total[i] = total[i] * shrink + p
            o[i], top[i] = o[i] * shrink + p * v[j], new
    return [top, total, o]


def in_pairs(p: int, c: int) -> Any:
    bounds, keys = read_in_chunks(p, c)
    return [tuple(pair) for pair in bounds.tolist()], float(keys)


def counted(decoding: Any, prompts: Any, budget: Any) -> Any:
    fed = Counter(decoding)
    room = (math.inf if budget is None else budget) - fed.total()
    return fed + Counter({name: min(room, n) for name, n in list(prompts.items())[:1]})


def test_right_answers_of_other_forms() -> None:
    assert check_online_update(key_by_key)
    assert check_read_in_chunks(in_pairs)
    assert check_fill_step(counted)

"""One source for every array library: the same numbers under array_api_strict as under NumPy."""

import array_api_strict as strict
import numpy as np
import pytest
from array_api_strict._array_object import Array as StrictArray
from models import KINDS, decoder, text
from schedules import close
from test_attention import draw

from kvlib import attend, attend_causal, attend_tiled, generate, merge_state, merge_states
from kvlib.arrays import to_numpy

pytestmark = pytest.mark.filterwarnings("error")


def on_strict(x):
    return strict.asarray(np.asarray(x))


@pytest.mark.parametrize("t", [1, 5])
@pytest.mark.parametrize(
    "settings",
    [{}, {"window": 3}, {"softcap": 2.0, "sm_scale": 0.4}, {"sinks": [0.5, 1.0, -1.0, 2.0]}],
    ids=str,
)
def test_attention(t, settings):
    q, k, v, q_pos, kv_pos = draw(1, t, 9)
    sinks = settings.get("sinks")
    if sinks is not None:
        settings = {"sinks": np.asarray(sinks, np.float32)}
    other = {n: on_strict(x) if n == "sinks" else x for n, x in settings.items()}
    for form in (attend, attend_tiled):
        inputs = (q, k, v, q_pos, np.stack([kv_pos, kv_pos[::-1]]))
        needed = form(*inputs, return_lse=True, **settings)
        got = form(*map(on_strict, inputs), return_lse=True, **other)
        assert type(got[0]) is StrictArray and got[0].dtype == got[1].dtype == strict.float32
        for x, y in zip(got, needed):
            close(to_numpy(x), y, form.__name__, 1e-6)
    inputs = (q, k.transpose(1, 0, 2), v.transpose(1, 0, 2))
    needed = attend_causal(*inputs, return_lse=True, **settings)
    got = attend_causal(*map(on_strict, inputs), return_lse=True, **other)
    for x, y in zip(got, needed):
        close(to_numpy(x), y, "attend_causal", 1e-6)


def test_empty_and_merged_states():
    q, k, v, _, kv_pos = draw(2, 3, 6)
    q_pos = np.asarray([-5, 2, 9])
    states = []
    for part in (slice(0, 2), slice(2, 2), slice(2, 6)):
        pair = attend(*map(on_strict, (q, k[part], v[part], q_pos, kv_pos[part])), return_lse=True)
        states.append(pair)
    o, lse = merge_state(*merge_state(*states[0], *states[1]), *states[2])
    o2, lse2 = merge_states(*(strict.stack(list(x)) for x in zip(*states)))
    whole = attend(q, k, v, q_pos, kv_pos, return_lse=True)
    for x, y in ((o, whole[0]), (lse, whole[1]), (o2, whole[0]), (lse2, whole[1])):
        close(to_numpy(x), y, "merged", 1e-6)
    assert (to_numpy(o)[0] == 0).all() and (to_numpy(lse)[0] == -np.inf).all()


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_and_generate(kind):
    models = [decoder(kind, xp=xp) for xp in (np, strict)]
    logits = []
    for model in models:
        cache = model.new_cache(2)
        cache.add("a")
        cache.add("b")
        tokens = text(1, 16)
        parts = [model.forward(tokens[:11], cache, cache.plan(["a", "b"], [4, 7]), "all")]
        parts.append(model.forward(tokens[11:13], cache, cache.plan(["b", "a"], [1, 1])))
        ids = tokens[13:] if model is models[0] else on_strict(tokens[13:])  # device tokens
        parts.append(model.forward(ids, cache, cache.plan(["a"], [3])))
        logits.append(np.concatenate([to_numpy(p) for p in parts]))
    close(logits[1], logits[0], "logits", 1e-5)
    settings = dict(max_new_tokens=8, temperature=0.9)
    prompts = [text(2, 5), text(3, 9)]
    assert generate(models[1], prompts, **settings) == generate(models[0], prompts, **settings)
    with pytest.raises(ValueError, match="holds 1 new tokens, got tokens of shape"):
        model.forward(on_strict([1, 2]), cache, cache.plan(["a"], [1]))


@pytest.mark.parametrize("kind", KINDS)
def test_no_float64_is_made(kind, monkeypatch):
    """Every array of this library is made in one place, so here none can hide."""
    model = decoder(kind, xp=strict)
    cache = model.new_cache(2)
    made = []
    new = StrictArray.__dict__["_new"].__func__

    def watched(cls, x, /, device):
        made.append(x.dtype)
        return new(cls, x, device)

    monkeypatch.setattr(StrictArray, "_new", classmethod(watched))
    cache.add("a")
    cache.add("b")
    model.forward(text(1, 9), cache, cache.plan(["a", "b"], [4, 5]), "all")
    model.forward(text(1, 3), cache, cache.plan(["a", "b"], [1, 2]))
    logits = model.forward([1], cache, cache.plan(["a"], [1]))
    assert len(made) > 100 and np.dtype(np.float64) not in made
    assert logits.dtype == strict.float32
    strict.zeros(1, dtype=strict.float64)
    assert np.dtype(np.float64) in made  # the watch does see one

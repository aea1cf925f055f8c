"""Long chunks of latent attention, whose keys and values are expanded."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import array_api_strict as strict
import numpy as np
import pytest
from schedules import close
from test_latent import CACHES, HEADS, HIDDEN, SIZES, config_of, decoder
from test_latent import expanded as reference

import kvlib
from kvlib import BlockPool, DenseCache, PagedCache, QuantizedCache
from kvlib.arrays import to_numpy
from kvlib.caches import KNorm, Scored, SnapKV, run_cascade
from kvlib.codecs import int8
from kvlib.config.shape import Latent
from kvlib.model import Decoder, random_weights
from kvlib.model import latent as form

V3 = Latent(1536, 512, 128, 64, 128)


ALWAYS: Any = lambda sizes, step: True  # noqa: E731
NEVER: Any = lambda sizes, step: False  # noqa: E731


@contextmanager
def watching(pays: Any = None) -> Iterator[list[tuple[int, ...]]]:
    """The q_lens of every call that attends with expanded keys, which come four at a time."""
    calls: list[tuple[int, ...]] = []
    attend = form.attend_expanded

    def watched(cache: Any, layer: int, q: Any, step: Any, **both: Any) -> Any:
        calls.append(step.q_lens)
        return attend(cache, layer, q, step, **both)

    with (
        patch.object(form, "attend_expanded", watched),
        patch.object(form, "EXPANDED_PIECE", 4),
        patch.object(form, "expanding_pays", pays or form.expanding_pays),
    ):
        yield calls


def last_logits(model: Decoder, cache: Any, ends: tuple[int, ...], pays: Any) -> np.ndarray:
    """Logits of the last chunk of a text 0, 1, 2, ... that is cut at these ends."""
    cache.add(0)
    with watching(pays):
        for a, b in zip((0, *ends), ends, strict=False):
            step = cache.plan([0], [b - a])
            logits = model.forward(list(range(a, b)), cache, step, rows="all")
    return to_numpy(logits)


def long_chunks(name: str = "queries in two", home: str = "rows") -> None:
    """Every step expanded, after 0 to 30 tokens; everything free filled with NaN."""
    config, rng = config_of(SIZES[name]), np.random.default_rng(7)
    model = Decoder(config, random_weights(config, 3))
    if home == "int8":
        cache: Any = QuantizedCache(model.layer_specs, int8(), 3, 48)
    else:
        cache = CACHES[home](model.layer_specs)
        for array in cache.storage():
            array[...] = np.nan
    mixer: Any = model._blocks[1].mixer
    texts = {n: rng.standard_normal((n, HIDDEN), dtype=np.float32) for n in (37, 9, 22)}
    right = {n: reference(config, mixer.w, h) for n, h in texts.items()}
    done = dict.fromkeys(texts, 0)
    for n in texts:
        cache.add(n)
    while todo := [n for n in texts if done[n] < n]:
        news = [int(min(rng.integers(1, 9), n - done[n])) for n in todo]
        step = cache.plan(todo, news)
        angles = model._rotations[0].at(step)
        spans = [(n, done[n], done[n] + new) for n, new in zip(todo, news, strict=True)]
        h = np.concatenate([texts[n][a:b] for n, a, b in spans])
        model._blocks[0].mixer.forward(h, cache, step, angles)
        with watching(ALWAYS) as seen:
            o = mixer.forward(h, cache, step, angles)
        assert o.dtype == np.float32 and seen == [tuple(news)]
        expected = np.concatenate([right[n][a:b] for n, a, b in spans])
        if home == "int8":
            assert np.sqrt(((o - expected) ** 2).mean() / (expected**2).mean()) < 0.05
        else:
            close(o, expected, f"spans {spans}")
        done |= {n: b for n, _, b in spans}


@pytest.mark.parametrize("home", [*CACHES, "int8"])
@pytest.mark.parametrize("name", SIZES)
def test_chunks_after_chunks_are_what_the_formula_says(name, home):
    long_chunks(name, home)


def test_codes_are_read_as_the_absorbed_form_reads_them():
    model = decoder()
    absorbed, expanded = (
        last_logits(model, QuantizedCache(model.layer_specs, int8(), 1, 48), (13, 30), pays)
        for pays in (NEVER, ALWAYS)
    )
    close(absorbed, expanded.astype(np.float64), "logits")


@pytest.mark.parametrize("rows", ["last", "all", [2, 9, 4], [0]])
def test_rows_that_are_wanted(rows):
    model, tokens, found = decoder(), list(range(20)), []
    for pays in (NEVER, ALWAYS):
        cache = model.new_cache(2, 48)
        for i in range(2):
            cache.add(i)
        model.forward(tokens[:10], cache, cache.plan([0, 1], [6, 4]))
        with watching(pays) as seen:
            found.append(model.forward(tokens[:10], cache, cache.plan([0, 1], [3, 7]), rows))
        assert len(seen) == (2 if pays is ALWAYS else 0)
    close(found[0], found[1].astype(np.float64), "logits")


def test_scores_are_capped_in_every_piece() -> None:
    found = []
    for cap, pays in ((0.05, NEVER), (0.05, ALWAYS), (None, ALWAYS)):
        model = decoder(attn_logit_softcapping=cap)
        # five pieces of 4 tokens and a short one before the last chunk
        found.append(last_logits(model, model.new_cache(1, 48), (21, 30), pays).astype(np.float64))
    close(found[1].astype(np.float32), found[0], "logits")
    assert np.abs(found[2] - found[0]).max() > 1e-3, "a cap that changes nothing"


def multiplications(sizes: Latent, new: int, held: int) -> tuple[int, int]:
    """Both forms, pair by pair; per head."""
    _, c, n, r, v = sizes
    pairs = sum(held - new + i + 1 for i in range(new))
    return held * c * (n + v) + pairs * (n + r + v), new * c * (n + v) + pairs * (c + r + c)


@pytest.mark.parametrize("sizes", [V3, *SIZES.values()])
def test_the_cheaper_form_is_taken(sizes):
    the_cheaper_form(sizes)


def the_cheaper_form(sizes: Latent = V3) -> None:
    for held in (1, 5, 64, 500, 4096):
        for new in {1, 2, held // 9, held // 3, held - 1, held} - {0, -1}:
            if new <= held:
                step: Any = SimpleNamespace(q_lens=(new,), seq_lens=(held,))
                expanded, absorbed = multiplications(sizes, new, held)
                assert form.expanding_pays(sizes, step) == (expanded < absorbed)


def test_where_the_forms_cross_over():
    """FACTS: 170.7 queries over ever more keys with DeepSeek-V3's sizes; a decode step absorbs."""
    far = 2**24
    first = next(
        n
        for n in range(1, 400)
        if form.expanding_pays(V3, SimpleNamespace(q_lens=(n,), seq_lens=(far,)))  # type: ignore[arg-type]
    )
    assert first == 171
    alone: Any = SimpleNamespace(q_lens=(512,), seq_lens=(512,))
    mixed: Any = SimpleNamespace(q_lens=(512, 1, 1), seq_lens=(512, 9000, 9000))
    assert form.expanding_pays(V3, alone)
    assert not form.expanding_pays(V3, mixed)  # two decode steps would expand, too


def test_what_an_expanded_step_computes():
    model = decoder()
    sizes: Any = model.config.latent
    cache = model.new_cache(1, 48)
    cache.add(0)
    with kvlib.Meter() as meter:
        model.forward([1] * 24, cache, cache.plan([0], [24]), rows="all")
    up = 24 * 2 * HEADS * sizes.kv_lora_rank * (sizes.qk_nope_head_dim + sizes.v_head_dim)
    linear = sum(2 * 24 * w.size for n, w in model.weights.items() if _multiplies(n, w))
    assert meter.by_label["linear"].flops == linear + 2 * up  # two layers
    per_pair = sizes.qk_head_dim + sizes.v_head_dim
    assert meter.by_label["attention"].flops == 2 * 2 * HEADS * 24 * 24 * per_pair


def _multiplies(name: str, w: Any) -> bool:
    return w.ndim == 2 and "kv_up" not in name and name != "embed.weight"


def caches_that_absorb() -> None:
    """A cache that lacks tokens, or attends in a custom way, gets queries of latents."""
    model = decoder()
    specs, windowed = model.layer_specs, decoder(windows=(5, 5))
    homes = {
        "expanded": (model, DenseCache(specs, 1, 48)),
        "attention": (model, PagedCache(specs, BlockPool(40, 4), attention=run_cascade)),
        "evicts": (model, DenseCache(specs, 1, 48, retention=Scored(KNorm(), 16))),
        "watches": (model, DenseCache(specs, 1, 48, retention=Scored(SnapKV(), 40))),
        "window": (windowed, DenseCache(windowed.layer_specs, 1, 48)),
    }
    for name, (each, cache) in homes.items():
        cache.add(0)
        with watching() as seen:
            each.forward([3] * 30, cache, cache.plan([0], [30]), rows="all")
        assert seen == ([(30,), (30,)] if name == "expanded" else []), name


def test_caches_that_absorb():
    caches_that_absorb()


def test_a_tree_of_guesses_is_absorbed():
    model = decoder()
    cache = model.new_cache(1, 48)
    cache.add(0)
    step = cache.plan([0], [3], parents=[[-1, 0, 0]])
    with watching(ALWAYS) as seen:
        model.forward([1, 2, 3], cache, step, rows="all")
    assert not seen


@pytest.mark.parametrize("pays", [NEVER, ALWAYS], ids=["absorbed", "expanded"])
def test_both_forms_keep_to_the_array_standard(pays):
    config, found = config_of(SIZES["queries in two"]), []
    for xp in (np, strict):
        weights = {name: xp.asarray(w) for name, w in random_weights(config, 3).items()}
        model = Decoder(config, weights)
        found.append(last_logits(model, model.new_cache(1, 48), (9, 30), pays))
    close(found[1], found[0].astype(np.float64), "logits")

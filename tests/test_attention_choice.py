"""How a cache attends is chosen when it is built; the answer may not depend on it."""

import pytest

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, testing
from kvlib.caches import H2O, Cache, Quest, Scored, run_cascade
from kvlib.kernels import Kernels, use_kernels

BUILD = {
    "rows": lambda layers, **given: DenseCache(layers, 4, 40, **given),
    "blocks": lambda layers, **given: PagedCache(layers, BlockPool(44, 4), **given),
    "codes in rows": lambda layers, **given: QuantizedCache(layers, "int8", 4, 40, **given),
    "codes in blocks": lambda layers, **given: PagedCache(
        layers, BlockPool(44, 4), codec="fp8", **given
    ),
}
SUITED = LayerSpec(2, 64)  # the kernels know heads of 64


def appended(where, n=1, layer=SUITED, **given):
    """A cache of this kind, a step of n tokens that it has appended, and their keys."""
    cache = BUILD[where]([layer], **given)
    cache.add("a")
    step = cache.plan(["a"], [n])
    k = cache.xp.ones((n, 2, layer.head_dim), dtype=cache.xp.float32)
    cache.append(0, k, k, step)
    return cache, step, k


@pytest.mark.parametrize("where", [where for where in BUILD if "blocks" in where])
@pytest.mark.parametrize("attention", (Quest(40, 0), run_cascade, Cache.attend))
def test_any_life(where, attention):
    build = BUILD[where]
    trial = testing.check_cache(lambda layers: build(layers, attention=attention), schedules=5)
    assert trial and trial.compared > 50, trial


@pytest.mark.parametrize("where", BUILD)
def test_kernels_are_one_way_of_several(where):
    cache, step, k = appended(where, 5, attention=Kernels(run_on="twin"))
    assert use_kernels(BUILD[where]([SUITED])).attention is not None
    found, needed = cache.run(0, k, step), cache.attend(0, k, step)
    assert abs(found - needed).max() < 1e-2
    assert repr(cache.attention) == "Kernels(run_on='twin')"


def test_kernels_that_suit_no_layer_say_so_when_they_run():
    cache, step, k = appended("rows", layer=LayerSpec(2, 8), attention=Kernels(run_on="twin"))
    with pytest.raises(ValueError, match=r"suit no layer of this cache: head_dim must be one of"):
        cache.run(0, k, step)


@pytest.mark.parametrize("where", BUILD)
def test_what_is_no_function_is_refused(where):
    with pytest.raises(TypeError, match=r"attention must be a function .*, got 'cascade'"):
        BUILD[where]([SUITED], attention="cascade")


@pytest.mark.parametrize("scored", [False, True], ids=["all kept", "scored"])
@pytest.mark.parametrize("form", [False, True], ids=["o alone", "o and lse"])
def test_attention_in_the_wrong_form_is_named(scored, form):
    """A rule that scores tokens needs lse in every step, whatever the caller asked for."""

    def fixed(cache, layer, q, step, return_lse):
        return Cache.attend(cache, layer, q, step, form)

    given = {"retention": Scored(H2O(recent=4), 8)} if scored else {}
    cache, step, k = appended("rows", attention=fixed, **given)
    for asked in (False, True):
        if form == (asked or scored):
            cache.run(0, k, step, return_lse=asked)
            continue
        with pytest.raises(TypeError, match="the attention fixed returned (tuple|ndarray), needed"):
            cache.run(0, k, step, return_lse=asked)

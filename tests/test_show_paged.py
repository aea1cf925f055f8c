"""What the drawings of the chapter on paging show, and the frames of a pool at work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import legend, texts, title, widths, ys

from kvbook import figures
from kvbook.explorers.scenes.blocks import PoolFilm, replay
from kvbook.figures import paged as draw
from kvlib import BlockPool, LayerSpec, PagedCache
from kvlib.caches.allocation.pool import Event

LAYERS = [LayerSpec(1, 2)]


pytestmark = pytest.mark.usefixtures("drawn")


def test_maps_tell_tokens_from_empty_and_unclaimed_places() -> None:
    from matplotlib.colors import to_rgb

    (ax,) = draw.maps({"rows": [[1.0, 0.0, np.nan]]}).axes
    full, empty, unclaimed = ax.images[0].get_array()[0]
    assert np.allclose(full, to_rgb(figures.color("cached")))
    assert np.allclose(empty, to_rgb(figures.color("grid"))) and np.allclose(unclaimed, 1.0)
    assert title(ax) == "rows"


def test_tables_join_each_block_to_where_it_lies() -> None:
    (ax,) = draw.tables({"a": [2, 0], "b": [1]}, {"a": 5, "b": 2}, 4, 3).axes
    ends = [line.get_xdata()[1] for line in ax.lines]
    assert ends == [2 * 4 + 1, 0 * 4 + 1, 1 * 4 + 1]
    assert texts(ax).count("4") == 2 and texts(ax).count("0") == 4  # above and below
    assert [w for w in texts(ax) if w.startswith("block")] == [
        "block 0 (a)",
        "block 1 (b)",
        "block 2 (a)",
        "block 3",
    ]
    assert len(ax.patches) == 3 * (3 + 4)


def test_running_names_the_steps_that_were_needed() -> None:
    (ax,) = draw.running({"rows": [2, 2, 1], "blocks": [4, 1]}).axes
    assert ys(ax) == [[2, 2, 1], [4, 1]]
    assert legend(ax) == ["rows, done after 3 steps", "blocks, done after 2 steps"]


def test_block_sizes_shows_measured_beside_predicted() -> None:
    left, right = draw.block_sizes([1, 2, 4], [0, 0.4, 1.6], [0, 0.5, 1.5], [8, 4, 2]).axes
    predicted, measured = left.lines
    assert list(predicted.get_ydata()) == [0, 0.5, 1.5]
    assert list(measured.get_ydata()) == [0, 0.4, 1.6]
    assert list(right.lines[0].get_ydata()) == [8, 4, 2]
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0


def test_moved_puts_bytes_beside_time() -> None:
    left, right = draw.moved({"dense": 1.0, "x[table]": 5.0}, {"dense": 1.0, "x[table]": 3.5}).axes
    assert widths(left) == [1, 5] and widths(right) == [1, 3.5]
    assert texts(right) == ["1.0", "3.5"]
    assert right.get_xlabel() == "time (dense = 1)"


def test_pieces_draws_a_line_for_each_way() -> None:
    (ax,) = draw.pieces([16, 64], {"copied": [2, 1], "views": [1.5, 1]}, ["key", "cached"]).axes
    assert ys(ax) == [[2, 1], [1.5, 1]]
    assert texts(ax) == ["copied", "views"]


def test_padding_of_a_table_is_an_outline_without_a_number() -> None:
    table = np.array([[3, -1], [0, 5]])
    (ax,) = draw.padded_table(table, table >= 0).axes
    assert texts(ax) == ["3", "0", "5"] and len(ax.patches) == 4


# The film -----------------------------------------------------------------------------------------


def log(cache: PagedCache) -> list[Event]:
    assert cache.pool.events is not None
    return cache.pool.events


def store(cache: PagedCache, name: int, tokens: list[int]) -> None:
    zeros = np.zeros((len(tokens), 1, 2), dtype=np.float32)
    cache.append(0, zeros, zeros, cache.plan([name], [len(tokens)], tokens))


def played() -> tuple[PagedCache, PoolFilm]:
    """Arrive, fork, write into a shared block, finish."""
    cache = PagedCache(LAYERS, BlockPool(6, 2, log=True))
    film = PoolFilm(cache, names="AB")
    cache.add("A")
    cache.plan(["A"], [3])
    film.note("A arrives")
    cache.fork("A", "B")
    film.note("B is forked")
    cache.plan(["A", "B"], [1, 1])
    film.note("both grow")
    cache.plan(["A"], [1])
    cache.truncate("A", 4)
    film.note("A changes its mind")
    for name in "AB":
        cache.free(name)
    film.note("both finish")
    return cache, film


def test_replaying_the_log_gives_the_counts_of_the_pool() -> None:
    rng = np.random.default_rng(0)
    cache = PagedCache(LAYERS, BlockPool(8, 2, log=True))
    for name in range(200):
        tokens = rng.integers(1, 3, 5).tolist()
        held = cache.add(name, tokens)
        store(cache, name, tokens[held:])
        if name % 7 == 0:
            cache.fork(name, "copy")
            store(cache, name, [1])
            cache.free("copy")
        if name > 0 and name % 2:
            cache.free(name - 1)
            cache.free(name)
    last = replay(log(cache), 8)[-1]
    assert list(last.references) == [cache.pool.references(b) for b in range(8)]
    assert len(last.published) == cache.pool.num_published > 0
    assert all(b in cache.pool.index for b in last.published)
    kinds = {event.kind for event in log(cache)}
    assert kinds == {"allocate", "touch", "free", "publish", "evict"}


def test_a_frame_for_each_event_and_each_quiet_note() -> None:
    cache, film = played()
    quiet = 1  # the note before anybody came
    assert len(film.scenes()) == len(log(cache)) + quiet
    kinds = [scene["title"].split("(")[-1].split()[0] for scene in film.scenes()[1:]]
    assert kinds == [event.kind for event in log(cache)]


def pool_row(scene: dict[str, Any]) -> list[str]:
    return scene["panels"][0]["rows"][0]["cells"]


def test_roles_follow_the_counts() -> None:
    scenes = played()[1].scenes()
    assert pool_row(scenes[0]) == ["free"] * 6
    assert pool_row(scenes[1]) == ["key", "key", "free", "free", "free", "free"]
    assert pool_row(scenes[2])[:2] == ["key", "key"]  # touched by the fork
    assert scenes[2]["panels"][0]["rows"][2]["cells"][:2] == ["shared", "shared"]
    copied, let_go = scenes[3], scenes[4]
    assert pool_row(copied)[:3] == ["shared", "shared", "key"]
    assert pool_row(let_go)[:3] == ["shared", "cached", "cached"]
    assert pool_row(scenes[-1]) == ["free"] * 6


def test_tables_change_with_the_last_event_of_a_step() -> None:
    scenes = played()[1].scenes()

    def tables(scene: dict[str, Any]) -> list[str]:
        return [n["text"] for n in scene["numbers"][1:]]

    assert tables(scenes[1]) == ["0, 1", "–"]
    assert tables(scenes[2]) == ["0, 1", "0, 1"]
    assert tables(scenes[3]) == ["0, 1", "0, 1"]  # the copy is made, nobody points to it yet
    assert tables(scenes[4]) == ["0, 2", "0, 1"]


def test_places_and_slots_of_a_frame() -> None:
    scene = played()[1].scenes()[1]
    places = scene["panels"][1]["rows"][0]["cells"]
    assert places[:5] == ["cached", "cached", "", "cached", "free"]  # a gap between two blocks
    line = "A, position 2: entry 2 // 2 = 1 is block 1, offset 2 % 2 = 0, slot 1 × 2"
    assert scene["formula"] == [line + " + 0 = 2"]
    assert scene["numbers"][0]["text"] == "4 of 6"


def test_the_explorer_has_a_stop_for_each_frame_and_draws_each() -> None:
    from kvbook.explorers import svg

    explorer = played()[1].explorer("pool", "A pool at work")
    (slider,) = explorer.controls
    frames = [explorer.scene(moment=m) for m in slider.values]
    assert len(frames) == len(set(slider.texts))
    for scene in frames:
        assert "<svg" in svg.draw(scene, 360)
    assert explorer.svg(moment=3) == svg.draw(frames[3])


def test_free_but_findable_blocks_are_named_in_the_legend() -> None:
    cache = PagedCache(LAYERS, BlockPool(4, 2, log=True))
    film = PoolFilm(cache, names=["A"])
    cache.add("A", tokens=[1, 2, 3])
    zeros = np.zeros((3, 1, 2), dtype=np.float32)
    cache.append(0, zeros, zeros, cache.plan(["A"], [3], [1, 2, 3]))
    cache.free("A")
    film.note("A came and went")
    scene = film.scenes()[-1]
    assert pool_row(scene) == ["muted", "free", "free", "free"]
    assert "free, could be found again" in [e["label"] for e in scene["panels"][0]["legend"]]


def test_what_a_film_refuses() -> None:
    with pytest.raises(ValueError, match="the pool keeps no log"):
        PoolFilm(PagedCache(LAYERS, BlockPool(2, 2)), names="A")
    cache = PagedCache(LAYERS, BlockPool(2, 2, log=True))
    film = PoolFilm(cache, names="A")
    cache.add("B")
    with pytest.raises(ValueError, match="request 'B' is not among"):
        film.note("B arrives")

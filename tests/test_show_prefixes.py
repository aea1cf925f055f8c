"""The drawings of the chapter on shared prefixes: what they show is what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import faces, labels, legend, texts, widths, xs, ys

from kvbook import figures
from kvbook.explorers.scenes.blocks import replay
from kvbook.figures import prefixes as draw
from kvlib import LayerSpec
from kvlib.caches import BlockPool, PagedCache

pytestmark = pytest.mark.usefixtures("drawn")


def test_stored_stacks_what_is_held() -> None:
    one = {"shared": 2**20, "recomputed": 5 * 2**20, "cached": 2**20}
    two = {"shared": 2**20, "recomputed": 0, "cached": 2**20}
    fig = draw.stored({"apart": one, "together": two})
    (ax,) = fig.axes
    assert widths(ax) == [2**20, 5 * 2**20, 2**20, 2**20, 0, 2**20]
    assert faces(ax)[:3] == [figures.color(r) for r in ("shared", "recomputed", "cached")]
    assert texts(ax) == ["7 MiB", "2 MiB"] and labels(ax.yaxis) == ["apart", "together"]
    assert ax.get_xlabel() == "keys and values (MiB)"
    assert legend(fig) == ["the system prompt", "more copies of it"] + ["questions and answers"]


def test_tables_colours_blocks_by_their_references() -> None:
    references = {0: 2, 1: 2, 2: 1, 3: 1}
    fig = draw.tables({"a": [0, 1, 2], "b": [0, 1, 3]}, references, first=1)
    (ax,) = fig.axes
    assert texts(ax) == ["1", "2", "1", "3"]
    shared, cached = figures.color("shared"), figures.color("cached")
    assert faces(ax) == [shared, cached, shared, cached]
    assert labels(ax.xaxis) == ["1", "2"] and labels(ax.yaxis) == ["a", "b"]


def lived() -> tuple[PagedCache, list[draw.Moment]]:
    """A prompt of six tokens in blocks of four, a fork that writes, and both leave."""
    cache = PagedCache([LayerSpec(1, 2)], BlockPool(4, 4, log=True), xp=np)
    moments = []

    def note(words: str, copied: int = 0) -> None:
        tables = {name: cache.blocks(name) for name in cache.seq_ids}
        moments.append(draw.Moment(words, len(cache.pool.events), tables, copied))

    def run(name: str, tokens: list[int]) -> None:
        step = cache.plan([name], [len(tokens)], tokens)
        k = np.ones((len(tokens), 1, 2), dtype=np.float32)
        cache.append(0, k, k, step)

    cache.add("a", range(6))
    run("a", list(range(6)))
    note("a reads")
    cache.fork("a", "b")
    note("a is forked")
    run("b", [7])
    note("b writes", copied=32)
    cache.free("a")
    cache.free("b")
    note("both leave")
    return cache, moments


def test_replay_gives_the_state_of_the_pool() -> None:
    cache, moments = lived()
    pool = cache.pool
    references, published = replay(pool.events, pool.num_blocks)[-1]
    assert list(references) == [pool.references(b) for b in range(4)] == [0] * 4
    assert published == {b for b in range(4) if b in pool.index} == {0}
    pool.allocate(4)
    references, published = replay(pool.events, pool.num_blocks)[-1]
    assert list(references) == [1] * 4 and published == set()


def test_the_pool_explorer_replays_each_moment() -> None:
    cache, moments = lived()
    explorer = draw.pool_explorer(cache.pool.events, 4, moments)
    cells = [
        [row["cells"] for row in explorer.scene(moment=i)["panels"][0]["rows"]] for i in range(1, 5)
    ]
    one, many, free, new = "cached", "shared", "free", "key"
    assert cells[0] == [[new, new, free, free], [one, one, "", ""], [""] * 4]
    assert cells[1] == [[many, many, free, free], [many, many, "", ""], [many, many, "", ""]]
    assert cells[2] == [[many, one, new, free], [many, one, "", ""], [many, "", one, ""]]
    assert cells[3] == [["muted", free, free, free], [""] * 4, [""] * 4]
    scene = explorer.scene(moment=3)
    assert scene["title"] == "b writes"
    assert [n["text"] for n in scene["numbers"]] == ["3", "0", "1", "32 B"]
    assert "Of 4 blocks 3 held, 1 by several requests" in scene["summary"]
    assert scene["formula"] == [
        "a: blocks 0, 1",
        "b: blocks 0, 2",
        "entries of all block tables: 4; blocks that they name: 3",
    ]
    assert "Copied: nothing." in explorer.scene(moment=4)["summary"]
    assert [row["label"] for row in scene["panels"][0]["rows"]] == ["pool", "a", "b"]
    assert "<svg" in explorer.svg(moment=2)


def test_walks_and_stairs_draw_their_lines() -> None:
    fig = draw.walks([0, 1, 2], {"hash": [4, 8, 8], "tree": [0, 4, 8]})
    (ax,) = fig.axes
    assert ys(ax) == [[4, 8, 8], [0, 4, 8]]
    assert texts(ax) == ["hash", "tree"]
    fig = draw.stairs([0, 1, 2], {"blocks of 1": [0, 1, 2], "blocks of 2": [0, 0, 2]})
    (ax,) = fig.axes
    assert ys(ax) == [[0, 1, 2], [0, 0, 2]]
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}
    assert legend(ax) == ["blocks of 1", "blocks of 2"]


def test_survivors_counts_from_none_handed_out() -> None:
    (ax,) = draw.survivors({"last": [2, 1, 0], "first": [2, 0, 0]}).axes
    assert xs(ax) == [[0, 1, 2]] * 2
    assert ys(ax) == [[2, 1, 0], [2, 0, 0]]


def test_work_sets_each_kind_on_its_own_axis() -> None:
    fig = draw.work(
        {"tokens": 900, "attention": 8.0}, {"tokens": 90, "attention": 1.0}, unit="GFLOP"
    )
    assert [widths(ax) for ax in fig.axes] == [[900, 90], [8, 1]]
    colors = [figures.color("recomputed"), figures.color("ink")]
    assert [faces(ax) for ax in fig.axes] == [colors] * 2
    assert [ax.get_xlabel() for ax in fig.axes] == ["", "GFLOP"]
    assert [texts(ax) for ax in fig.axes] == [["900", "90"], ["8", "1"]]


def test_reads_are_counted_in_one_unit() -> None:
    (ax,) = draw.reads([1, 2], {"one by one": [1e6, 2e6], "cascade": [1e6, 1.1e6]}).axes
    assert ax.get_ylabel() == "read by attention (MiB)"
    assert ys(ax) == [[1e6, 2e6], [1e6, 1.1e6]]
    assert texts(ax) == ["one by one", "cascade"] and list(ax.get_xticks()) == [1, 2]


def test_split_draws_one_shared_part_and_a_part_for_each() -> None:
    (ax,) = draw.split(100, [20, 30]).axes
    assert widths(ax) == [100, 20, 30]
    assert faces(ax) == [figures.color("shared")] + [figures.color("cached")] * 2
    assert texts(ax)[0] == "100 shared tokens,\n2 queries in one product"

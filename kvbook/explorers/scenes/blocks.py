"""A paged cache at work, moment by moment: the log of its pool replayed, tables beside it.

    pool = BlockPool(16, 4, log=True)
    film = PoolFilm(PagedCache(layers, pool), names=["a", "b"])
    ...                                  # add, plan, fork, free
    film.note("a arrives with 10 tokens")
    film.explorer("pool", "A pool at work")

Every event of the log is a frame. A note says what caused the events since the last note, and
records the tables. This module needs no translation to JavaScript: the page has all frames.
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kvbook.explorers.controls import Slider
from kvbook.explorers.explorer import Explorer
from kvbook.explorers.scenes.panels import cells_panel
from kvbook.explorers.scenes.words import count_words, tokens_words
from kvlib.caches.allocation.pool import BlockEvent
from kvlib.caches.constructors import PagedCache

Scene = dict
LEGEND = {
    "key": "newly used",
    "cached": "used by one request",
    "shared": "shared by several requests",
    "muted": "free and known",
    "free": "free",
}


class Blocks(NamedTuple):
    """The number of references of each block, and the blocks that a lookup can find."""

    references: tuple[int, ...]
    published: frozenset[int]

    def roles(self) -> list[str]:
        """The role of each block: shared, used by one request, free and known, or free."""
        return [
            "shared" if n > 1 else "cached" if n else "muted" if b in self.published else "free"
            for b, n in enumerate(self.references)
        ]


def pool_rows(
    state: Blocks, taken: Container[int], names: Iterable[Any], tables: Mapping[Any, Sequence[int]]
) -> list[Any]:
    """Rows of cells: the pool with newly used (`taken`) blocks, then the blocks of each request."""
    roles, rows = state.roles(), list[Any]()
    cells = ["key" if n and b in taken else roles[b] for b, n in enumerate(state.references)]
    rows.append(["pool", cells])
    for name in names:
        cells = [role if b in tables.get(name, ()) else "" for b, role in enumerate(roles)]
        rows.append([str(name), cells])
    return rows


class Note(NamedTuple):
    """What was done, how long the log then was, and each open request's table and length."""

    words: str
    events: int
    tables: dict[Hashable, tuple[int, ...]]
    lengths: dict[Hashable, int]


def replay(events: Iterable[BlockEvent], num_blocks: int) -> list[Blocks]:
    """The pool before the first event and after each event, from the log alone."""
    references, published = [0] * num_blocks, set[int]()
    states = [Blocks(tuple(references), frozenset())]
    for event in events:
        for block in event.blocks:
            if event.kind == "allocate":
                references[block] = 1
            elif event.kind == "touch":
                references[block] += 1
            elif event.kind == "free":
                references[block] -= 1
            elif event.kind == "publish":
                published.add(block)
            else:  # evict
                published.discard(block)
        states.append(Blocks(tuple(references), frozenset(published)))
    return states


class PoolFilm:
    """Frames of a paged cache whose pool has a log. names: every request that will appear.

    Raises ValueError if the pool has no log, or if a request appears that is not in names.
    """

    def __init__(self, cache: PagedCache, names: Sequence[Hashable]) -> None:
        if cache.pool.events is None:
            raise ValueError("the pool keeps no log: make it with BlockPool(..., log=True)")
        self.cache, self.names = cache, list(names)
        self.notes: list[Note] = []
        self.note("before the first request")

    def note(self, words: str) -> None:
        """Record what was done since the last note."""
        cache = self.cache
        for name in cache.seq_ids:
            if name not in self.names:
                raise ValueError(f"request {name!r} is not among the film's names {self.names}")
        tables = {name: cache.blocks(name) for name in cache.seq_ids}
        lengths = {name: cache.seq_len(name) for name in cache.seq_ids}
        assert cache.pool.events is not None
        self.notes.append(Note(words, len(cache.pool.events), tables, lengths))

    def scenes(self) -> list[Scene]:
        """A frame for each event, and one for each note without an event."""
        pool = self.cache.pool
        events = pool.events or []
        states = replay(events, pool.num_blocks)
        scenes, before = [], self.notes[0]
        for note in self.notes:
            for e in range(before.events, note.events):
                # Until the last event of a step, the tables are those of the step before.
                shown = note if e + 1 == note.events else before
                scenes.append(self._scene(note.words, states[e + 1], shown, events[e]))
            if note.events == before.events:
                scenes.append(self._scene(note.words, states[note.events], note, None))
            before = note
        return scenes

    def explorer(self, name: str, title: str) -> Explorer:
        """Return the frames with one slider."""
        scenes = self.scenes()
        # Short, so that the line does not wrap and move the slider; the title says what happened.
        texts = [f"{i} of {len(scenes) - 1}" for i in range(len(scenes))]
        slider = Slider("moment", "Moment", range(len(scenes)), texts=texts)
        return Explorer.from_frames(name, title, slider, scenes, anchor=f"{name}-explorer")

    def _scene(self, words: str, state: Blocks, note: Note, event: BlockEvent | None) -> Scene:
        pool, what = self.cache.pool, "no event"
        if event is not None:
            noun = "block" if len(event.blocks) == 1 else "blocks"
            what = f"{event.kind} {noun} {_listed(event.blocks)}"
        taken = event.blocks if event is not None and event.kind in ("allocate", "touch") else ()
        free = sum(n == 0 for n in state.references)
        open_now = [name for name in self.names if name in note.tables]
        tokens = sum(note.lengths.values())
        requests = count_words(len(open_now), "request", "requests")
        return {
            "title": f"{words} ({what})",
            "summary": (
                f"{words[0].upper()}{words[1:]}: {what}. {free} of {pool.num_blocks} blocks are"
                f" free; {requests} with {tokens_words(tokens)} cached."
            ),
            "formula": [self._slot(name, note) for name in open_now],
            "numbers": [
                {"label": "Free blocks", "text": f"{free} of {pool.num_blocks}"},
                *(
                    {"label": f"Table of {name}", "text": _listed(note.tables.get(name, ()))}
                    for name in self.names
                ),
            ],
            "panels": [self._pool_panel(state, note, taken), self._slots_panel(state, note)],
        }

    def _slot(self, name: Hashable, note: Note) -> str:
        """Where the newest token of a request is stored."""
        size, pos = self.cache.block_size, note.lengths[name] - 1
        if pos < 0:
            return f"{name}: no token yet"
        n, off = divmod(pos, size)
        block = note.tables[name][n]
        return (
            f"{name}, position {pos}: entry {pos} // {size} = {n} is block {block},"
            f" offset {pos} % {size} = {off}, slot {block} × {size} + {off} = {block * size + off}"
        )

    def _pool_panel(self, state: Blocks, note: Note, taken: Container[int]) -> Scene:
        rows = pool_rows(state, taken, self.names, note.tables)
        roles = ["key", "cached", "shared", *(["muted"] if state.published else []), "free"]
        label = f"Blocks 0 to {len(state.references) - 1} of the pool, one per column; below, the"
        legend = [[role, LEGEND[role]] for role in roles]
        return cells_panel(f"{label} requests that use them", rows, legend)

    def _slots_panel(self, state: Blocks, note: Note) -> Scene:
        size, roles = self.cache.block_size, state.roles()
        widest = max((len(t) for past in self.notes for t in past.tables.values()), default=1)
        rows = []
        for name in self.names:
            cells: list[str] = []
            for n, block in enumerate(note.tables.get(name, ())):
                here = min(size, note.lengths[name] - n * size)
                cells += [""] * (n > 0)  # a gap where a block ends
                cells += [roles[block]] * here + ["free"] * (size - here)
            width = widest * (size + 1) - 1
            rows.append([str(name), cells + [""] * (width - len(cells))])
        label = f"The same blocks in the order of the tables, {size} slots in each"
        return cells_panel(label, rows, [])


def _listed(blocks: Iterable[int]) -> str:
    return ", ".join(str(block) for block in blocks) or "–"

"""The block pool against a plain model, with both indexes and a hash that collides all the time."""

import numpy as np
import pytest

from kvlib.caches import HashIndex, RadixIndex
from kvlib.caches.allocation.pool import BlockPool
from kvlib.caches.allocation.prefixes import chain
from kvlib.errors import OutOfBlocks

INDEXES = {
    "hash": HashIndex,
    "hash that always collides": lambda: HashIndex(lambda before, tokens, extra: b"same"),
    "hash that forgets the chain": lambda: HashIndex(lambda b, tokens, x: bytes(tokens)),
    "radix": RadixIndex,
}


class Text:
    """A request of the model: its blocks, the tokens in each, and how many are published."""

    def __init__(self, extra: tuple, blocks: list[int], tokens: list[tuple[int, ...]]) -> None:
        self.extra, self.blocks, self.tokens = extra, blocks, tokens
        self.published = len(blocks)

    def key(self, n: int) -> tuple:
        return (self.extra, *self.tokens[:n])


class Model:
    """What the pool should be: references, free blocks in order, and a dict of whole prefixes."""

    def __init__(self, seed: int, index: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.size = int(self.rng.integers(1, 4))
        self.blocks = int(self.rng.integers(1, 24))
        self.pool = BlockPool(self.blocks, self.size, index=INDEXES[index](), log=True)
        self.references = dict.fromkeys(range(self.blocks), 0)
        self.blank = list(range(self.blocks))
        self.findable: list[int] = []
        self.found: dict[tuple, int] = {}  # (extra, tokens of block 0, of block 1, ...) → block
        self.texts: list[Text] = []

    def play(self, operations: int) -> None:
        for _ in range(operations):
            actions = [self.open, self.open, self.grow, self.grow, self.publish, self.publish]
            actions += [self.fork, self.close, self.refuse]
            actions[self.rng.integers(len(actions))]()
            self.compare()

    def prompt(self) -> tuple[tuple, list[tuple[int, ...]]]:
        extra = ((), ("adapter",), (0,))[self.rng.integers(3)]
        count = int(self.rng.integers(0, 6))
        parts = self.rng.integers(0, 2, (count, self.size)).tolist()
        return extra, [tuple(part) for part in parts]

    def open(self) -> None:
        """A prompt arrives: what is known of it is taken from the pool."""
        extra, parts = self.prompt()
        known = 0
        while known < len(parts) and (extra, *parts[: known + 1]) in self.found:
            known += 1
        tokens = [t for part in parts for t in part] + [0] * int(
            self.rng.integers(self.size)
        )  # less than a block
        blocks = self.pool.lookup(tokens, extra)
        assert blocks == [self.found[(extra, *parts[: n + 1])] for n in range(known)]
        self.pool.touch(blocks)
        self.hold(blocks)
        self.texts.append(Text(extra, blocks, parts[:known]))

    def grow(self) -> None:
        """A text takes new blocks, or there are too few and nothing changes."""
        if not self.texts:
            return
        text, count = self.some(), int(self.rng.integers(0, 4))
        if count > len(self.blank) + len(self.findable):
            with pytest.raises(OutOfBlocks, match=f"{count} blocks needed"):
                self.pool.allocate(count)
            return
        for block in self.pool.allocate(count):
            expected = self.blank.pop(0) if self.blank else self.findable.pop(0)
            assert block == expected, "another block was due"
            self.found = {k: b for k, b in self.found.items() if b != block}
            self.references[block] = 1
            text.blocks.append(block)
            text.tokens.append(tuple(self.rng.integers(0, 2, self.size).tolist()))

    def publish(self) -> None:
        """The next full block of a text can be found from now on, unless its twin can already."""
        ready = [t for t in self.texts if t.published < len(t.blocks)]
        if not ready:
            return
        text = ready[self.rng.integers(len(ready))]
        n = text.published
        parent = text.blocks[n - 1] if n else None
        if n and self.found.get(text.key(n)) != parent:
            return  # its parent has a twin: this text's own blocks stay private
        key = text.key(n + 1)
        if self.found.get(key) == text.blocks[n]:  # a fork has published it
            text.published += 1
            return
        twin = key in self.found
        done = self.pool.publish(text.blocks[n], parent, text.tokens[n], text.extra)
        assert done is not twin
        if not twin:
            self.found[key] = text.blocks[n]
        text.published += 1

    def fork(self) -> None:
        if self.texts:
            text = self.some()
            self.pool.touch(text.blocks)
            self.hold(text.blocks)
            copy = Text(text.extra, list(text.blocks), list(text.tokens))
            copy.published = text.published
            self.texts.append(copy)

    def close(self) -> None:
        if self.texts:
            text = self.texts.pop(int(self.rng.integers(len(self.texts))))
            self.pool.free(text.blocks)
            for block in reversed(text.blocks):
                self.references[block] -= 1
                if self.references[block] == 0:
                    published = block in self.found.values()
                    (self.findable if published else self.blank).append(block)

    def refuse(self) -> None:
        """Mistakes are named and change nothing."""
        free = [b for b, n in self.references.items() if n == 0]
        if free:
            with pytest.raises(ValueError, match=f"block {free[0]} is freed 1 times"):
                self.pool.free([free[0]])
            with pytest.raises(ValueError, match="only its holder knows"):
                self.pool.publish(free[0], None, (0,) * self.size)
        if self.blank:
            with pytest.raises(ValueError, match="holds nothing"):
                self.pool.touch([self.blank[0]])
        if self.texts and self.some().blocks:
            with pytest.raises(ValueError, match="times and held"):
                text = next(t for t in self.texts if t.blocks)
                self.pool.free(text.blocks[:1] * 99)

    def hold(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.references[block] == 0:
                self.findable.remove(block)
            self.references[block] += 1

    def some(self) -> Text:
        return self.texts[self.rng.integers(len(self.texts))]

    def compare(self) -> None:
        pool = self.pool
        pool.check()
        assert [pool.ref_count(b) for b in range(self.blocks)] == list(self.references.values())
        assert pool.num_free == len(self.blank) + len(self.findable)
        assert pool.num_published == len(self.found)
        held_by = dict.fromkeys(range(self.blocks), 0)
        for text in self.texts:
            for block in text.blocks:
                held_by[block] += 1
        assert held_by == self.references
        for block, n in held_by.items():
            assert pool.writable(block) == (n == 1 and block not in self.found.values())


@pytest.mark.parametrize("index", INDEXES)
def test_thousands_of_operations_agree_with_the_model(index: str, effort) -> None:
    for seed in effort.share("lives of a block pool", range(40), usual=20, quick=5):
        Model(seed, index).play(75)


def replay(pool: BlockPool) -> tuple[list[int], set[int]]:
    """References and published blocks, from the log of events alone."""
    references, published = [0] * pool.num_blocks, set()
    for event in pool.events or ():
        for block in event.blocks:
            if event.kind in ("allocate", "touch"):
                references[block] += 1
            elif event.kind == "free":
                references[block] -= 1
            elif event.kind == "publish":
                published.add(block)
            else:
                published.discard(block)
    return references, published


def test_the_log_replays_to_the_state() -> None:
    model = Model(7, "hash")
    model.play(400)
    assert {type(e.blocks) for e in model.pool.events} == {tuple}, "a list may change afterwards"
    references, published = replay(model.pool)
    assert references == list(model.references.values())
    assert published == set(model.found.values())
    assert BlockPool(2, 2).events is None


def test_extra_keys_cannot_pass_for_tokens() -> None:
    for make in INDEXES.values():
        pool = BlockPool(8, 2, index=make())
        a, b, c = pool.allocate(3)
        assert pool.publish(a, None, (1, 2))
        assert pool.publish(b, None, (1, 2), (1,))
        assert pool.publish(c, None, (1, 2), ("1",))
        assert pool.lookup([1, 2]) == [a]
        assert pool.lookup([1, 2], (1,)) == [b]
        assert pool.lookup([1, 2], ("1",)) == [c]
        assert pool.lookup([1, 2], (2,)) == []
        assert pool.lookup([1, 1, 2], ()) == []
    assert chain(b"", (1, 2), ()) != chain(b"", (1,), (2,))
    assert chain(b"", (12,), ()) != chain(b"", (1, 2), ())


@pytest.mark.parametrize(("make", "words"), [
    (lambda: BlockPool(0, 4), "num_blocks must be an integer of at least 1, got 0"),
    (lambda: BlockPool(4, 4).ref_count(4), "block must be 0 ... 3, got 4"),
    (lambda: BlockPool(4, 4, index=HashIndex), "index must be one such as .*got <class"),
    (lambda: BlockPool(4, 4).lookup([1] * 4, "ab"), r"extra must be a tuple .*, got 'ab'"),
    (lambda: BlockPool(4, 4).lookup([1, 2], ({},)), "extra must hold hashable keys"),
])
def test_bad_input_is_named(make, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        make()


@pytest.mark.parametrize("index", INDEXES)
def test_a_block_that_nobody_can_reach_is_named(index: str) -> None:
    """Its parent's number would be another text's, and it would be found as a part of that text."""
    pool = BlockPool(4, 2, index=INDEXES[index]())
    a, b, _ = pool.allocate(3)
    pool.publish(a, None, [1, 2])
    pool.publish(b, a, [3, 4])
    pool.check()
    pool.free([a])  # b is still in use
    pool.check()
    pool.allocate(2)  # the blank one, and a
    with pytest.raises(AssertionError, match=f"block {b} cannot be reached: parent {a}"):
        pool.check()


def test_tokens_of_numpy_are_the_same_tokens() -> None:
    for make in INDEXES.values():
        pool = BlockPool(4, 2, index=make())
        a, b = pool.allocate(2)
        pool.publish(a, None, np.asarray([1, 2], np.int32))
        pool.publish(b, a, [3, 4])
        for dtype in (np.int64, np.int32, np.uint8):
            assert pool.lookup(np.asarray([1, 2, 3, 4, 5], dtype)) == [a, b]


def test_a_used_index_is_refused() -> None:
    for make in INDEXES.values():
        index = make()
        pool = BlockPool(4, 1, index=index)
        (a,) = pool.allocate(1)
        pool.publish(a, None, (1,))
        with pytest.raises(ValueError, match="index must be empty, got .*blocks of another pool"):
            BlockPool(4, 1, index=index)


def test_a_child_needs_its_parent_published() -> None:
    pool = BlockPool(4, 1)
    a, b = pool.allocate(2)
    with pytest.raises(ValueError, match=f"parent {a} of block {b} must be held and published"):
        pool.publish(b, a, (2,))
    with pytest.raises(ValueError, match="1 tokens needed, got 2"):
        pool.publish(a, None, (1, 2))
    assert pool.publish(a, None, (1,))
    with pytest.raises(ValueError, match="is published already"):
        pool.publish(a, None, (1,))
    assert "2 free, 1 published" in repr(pool)


@pytest.mark.parametrize("index", INDEXES)
def test_a_block_is_not_found_after_another_text_than_its_own(index):
    """Also where it outlived its parent, whose number a new text has got since."""
    pool = BlockPool(2, 2, index=INDEXES[index]())
    first, second = pool.allocate(2)
    pool.publish(first, None, [1, 2])
    pool.publish(second, first, [3, 4])
    pool.free([first])  # in the wrong order, so that the first is evicted first
    pool.free([second])
    assert pool.lookup([1, 2, 3, 4]) == [first, second]
    assert pool.allocate(1) == [first]
    pool.publish(first, None, [5, 6])
    assert pool.lookup([5, 6, 3, 4]) == [first]
    assert pool.lookup([1, 2, 3, 4]) == []
    assert pool.allocate(1) == [second]
    pool.publish(second, first, [3, 4])
    assert pool.lookup([5, 6, 3, 4]) == [first, second]
    pool.check()

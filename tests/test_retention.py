"""Custom rules for what a layer keeps: any tokens may be freed, and nothing else may change."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from caches import poison_all, snapshot

from kvlib import BlockPool, DenseCache, LayerSpec, Meter, PagedCache, QuantizedCache, testing
from kvlib.caches import H2O, KeepAll, KNorm, Retention, Scored, Sinks, Window
from kvlib.codecs import Codec, PerToken, fp8, int8, kivi
from kvlib.meter import Count
from kvlib.testing.rounding import sum_bound

ONE, TWO = [LayerSpec(1, 8)], [LayerSpec(1, 8), LayerSpec(1, 8, window=4)]


@dataclass(frozen=True)
class LastAndEvery(Retention):
    """The newest `last` tokens, and of the older ones every `step`-th."""

    last: int
    step: int

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        return (positions >= length - self.last) | (positions % self.step == 0)


@dataclass(frozen=True)
class Waiting(LastAndEvery):
    every: int = 16


RULES: dict[str, Retention] = {
    "last 5 and every 4th": LastAndEvery(5, 4),
    "2 first, 6 last": Sinks(2, 7),  # of which the seventh is the query itself
    "2 first, 6 last, three at a time": Sinks(2, 7, every=3),
}
RULE = RULES["last 5 and every 4th"]
HOMES: dict[str, Any] = {
    "rows": lambda layers, **more: DenseCache(layers, 4, 40, xp=np, **more),
    "codes in rows": lambda layers, **more: QuantizedCache(layers, int8(), 4, 40, xp=np, **more),
    "blocks of 1": lambda layers, **more: PagedCache(layers, BlockPool(500, 1), xp=np, **more),
    "blocks of 4": lambda layers, **more: PagedCache(layers, BlockPool(140, 4), xp=np, **more),
    "codes in blocks": lambda layers, **more: PagedCache(
        layers, BlockPool(140, 4), codec=fp8(), xp=np, **more
    ),
    "a small pool": lambda layers, **more: PagedCache(layers, BlockPool(17, 4), xp=np, **more),
}


@dataclass(frozen=True)
class Asks(Retention):
    """Asks a function which tokens stay. Rules are compared, so each has a name."""

    name: str
    function: Any = field(compare=False)

    def kept(self, positions: np.ndarray, length: int) -> Any:
        return self.function(positions, length)


EXTREMES = {
    "nothing": Asks("nothing", lambda at, n: at < 0),
    "nothing at first": Asks("nothing at first", lambda at, n: at >= 8),
    "everything": Asks("everything", lambda at, n: at >= 0),
    "one in 16": Asks("one in 16", lambda at, n: at % 16 == 0),
    "the newest": Asks("the newest", lambda at, n: at == n - 1),
    "the oldest": Asks("the oldest", lambda at, n: at == 0),
    "the query alone": Sinks(0, 1),
}


@pytest.mark.untraced
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("rule", [*RULES.values(), *EXTREMES.values()], ids=[*RULES, *EXTREMES])
def test_any_life(rule: Retention, home: str, effort: Any) -> None:
    lives = len(effort.share("lives under rules of one's own", range(12), usual=4, quick=1))
    trial = testing.check_retention(
        rule,  # layers with a window keep their window
        lambda layers, rule: HOMES[home](layers, retention=rule),
        schedules=lives, xp=np,
    )
    assert trial and trial.compared > 10 * lives, trial


NUMBERS = np.arange(200, dtype=np.float32)[:, None, None] * np.ones((1, 8), np.float32)


def feed(cache: Any, n: int, name: str = "a", tokens: Any = None) -> None:
    """Append n tokens whose keys and values are their positions."""
    x = NUMBERS[cache.seq_len(name) : cache.seq_len(name) + n]
    cache.append(0, x, x, cache.plan([name], [n], tokens))


@pytest.mark.parametrize("home", ["rows", "blocks of 4"])
def test_it_holds_what_the_rule_says_and_no_more(home: str) -> None:
    cache = HOMES[home](ONE, retention=Waiting(5, 4, every=1))
    cache.add("a")
    for _ in range(30):
        feed(cache, 1)
    k, v, positions = cache.read(0, "a")
    needed = [*range(0, 24, 4), *range(24, 30)]
    assert positions.tolist() == needed
    assert (k[:, 0, 0] == positions).all() and (v == k).all()
    if home == "rows":
        assert cache.memory().payload == len(needed) * 64
    else:
        assert len(cache.blocks("a")) == -(-len(needed) // 4)
        cache.pool.check()


@pytest.mark.parametrize("home", ["rows", "blocks of 4"])
def test_a_rule_that_writes_kept_is_asked(home: str) -> None:
    """It says where tokens stay, so tokens between others go: nothing else has to be set."""

    @dataclass(frozen=True)
    class Even(Retention):
        def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
            return positions % 2 == 0

    class Shorter(Even):
        def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
            return positions % 4 == 0

    assert Even.holes and Shorter.holes and not Retention.holes
    cache = HOMES[home](ONE, retention=Even())
    cache.add("a")
    feed(cache, 7)
    feed(cache, 1)
    assert cache.read(0, "a")[2].tolist() == [0, 2, 4, 6, 7]


def test_blocks_that_others_hold_are_not_moved_into() -> None:
    cache = PagedCache(ONE, BlockPool(40, 4), retention=Sinks(2, 5), xp=np)
    cache.add("a")
    feed(cache, 12, tokens=range(12))
    cache.fork("a", "b")
    before = [y.copy() for y in cache.read(0, "b")]
    for at in (12, 13):
        feed(cache, 1, tokens=[at])
    assert cache.read(0, "a")[2].tolist() == [0, 1, *range(9, 14)]
    for was, now in zip(before, cache.read(0, "b"), strict=True):
        assert (was == now).all()
    cache.free("a")
    cache.free("b")
    assert cache.pool.num_published == 0 and cache.add("c", range(12)) == 0, "nothing is shared"
    cache.pool.check()


@dataclass
class Thawed(Retention):
    last: int


REFUSED: list[tuple[Any, str]] = [
    ("window", "retention must be a Retention, or one for each of the 2 layers, got 'window'"),
    ([KeepAll()], "or one for each of the 2 layers"),
    ([KeepAll(), 5], "retention must hold a Retention a layer, got 5"),
    ([Sinks(1, 5)] * 2, "layer 1 looks at a window of 4 tokens: Sinks"),
    (Thawed(4), r"Thawed\(last=4\) .* write @dataclass\(frozen=True\)"),
    *((Waiting(9, 16, n), "every of Waiting must be an integer of at least 1")
      for n in (0, -1, 1.5, "4", True)),
]  # fmt: skip


@pytest.mark.parametrize("retention, words", REFUSED, ids=str)
def test_what_is_no_rule_or_does_not_fit_is_refused(retention: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        DenseCache(TWO, 1, 16, retention=retention)


def test_holes_in_groups_of_codes_and_windows_of_nothing_are_refused() -> None:
    for rule in (lambda: Sinks(0, 0), lambda: Sinks(1, 4, 0), lambda: Window(0)):
        with pytest.raises(ValueError, match="must be an integer of at least 1, got 0"):
            rule()
    with pytest.raises(ValueError, match=r"kivi\(.* encodes tokens later and together, and Sinks"):
        QuantizedCache(ONE, kivi(4, 8, 3), 1, 40, retention=Sinks(1, 5))


def test_four_bits_where_tokens_may_go() -> None:
    """What the refusal offers instead of kivi."""
    codec = Codec("int4 per token", PerToken(4, 8), PerToken(4, 8))
    trial = testing.check_retention(
        RULE,
        lambda layers, rule: PagedCache(layers, BlockPool(140, 4), codec=codec, retention=rule),
        schedules=6,
    )
    assert trial and trial.compared > 50, trial


def fails(*_: Any) -> Any:
    raise RuntimeError("no answer")


RUBBISH: dict[str, Any] = {
    "shape": lambda at, n: np.ones((2, len(at)), bool),
    "one for all": lambda at, n: np.True_, "numbers": lambda at, n: at,
    "NaN": lambda at, n: np.full(len(at), np.nan), "nothing": lambda at, n: None,
    "a list of two lengths": lambda at, n: [[True], [True, False]],
    "an error": fails,
}


def plan_is_refused(cache: Any, words: str) -> None:
    """A plan for "a" of 11 tokens and "b" of 12; not one byte of the cache changes."""
    poison_all(cache)
    rng = np.random.default_rng(0)
    for name, n in (("a", 11), ("b", 12)):
        cache.add(name)
        step = cache.plan([name], [n])
        for layer in range(len(cache.layers)):
            cache.append(layer, *rng.standard_normal((2, n, 1, 8), dtype=np.float32), step)
    before, held = snapshot(cache), cache.memory()
    with pytest.raises((TypeError, ValueError, RuntimeError), match=words):
        cache.plan(["a", "b"], [1, 1])
    assert snapshot(cache) == before and cache.memory() == held
    assert cache.run(0, np.ones((12, 1, 8), np.float32), step).shape == (12, 1, 8)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("which", ("second request", "second group"))
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_a_rule_that_fails_for_one_request_moves_no_other(home, which, rubbish) -> None:
    """The other requests and layers would have given tokens back."""
    length = 12 if which == "second request" else None

    def asked(at: np.ndarray, n: int) -> Any:
        return RUBBISH[rubbish](at, n) if n == (length or n) else at >= 3

    rules = [EXTREMES["nothing at first"], Asks(rubbish, asked)]
    words = r"must give one boolean for each of \d+ tokens, got|inhomogeneous|no answer"
    plan_is_refused(HOMES[home]([LayerSpec(1, 8), LayerSpec(1, 8)], retention=rules), words)


@pytest.mark.parametrize("wrong", (None, 1.5, "3", np.nan, True, fails))
@pytest.mark.parametrize("home", HOMES)
def test_a_first_that_is_no_position_moves_nothing(home: str, wrong: Any) -> None:
    @dataclass(frozen=True)
    class First(Retention):
        def first(self, length: int) -> Any:
            return (wrong() if callable(wrong) else wrong) if length == 12 else max(0, length - 2)

        def room(self, max_seq_len: int) -> int:
            return 4

    plan_is_refused(HOMES[home](ONE, retention=First()), "must be an int|no answer")


def test_a_request_is_taken_back_to_where_nothing_has_gone() -> None:
    cache = DenseCache(ONE, 1, 40, retention=Sinks(1, 5), xp=np)
    cache.add("a")
    feed(cache, 9)
    cache.truncate("a", 3)  # nothing has been dropped yet
    feed(cache, 9)
    feed(cache, 1)
    words = "cannot be truncated to 11 tokens: layer 0 has given 7 of"
    with pytest.raises(ValueError, match=words):
        cache.truncate("a", 11)
    cache.truncate("a", 12)
    assert cache.read(0, "a")[2].tolist() == [0, 8, 9, 10, 11]


@pytest.mark.parametrize("home", ["rows", "blocks of 4"])
def test_sinks_that_go_in_batches_copy_once_in_so_many_steps(home: str) -> None:
    """Every step of a stream would copy the window; given back by eights, one step in eight."""
    moved: dict[int, list[int]] = {1: [], 8: []}
    for every, copied in moved.items():
        cache = HOMES[home](ONE, retention=Sinks(2, 12, every))
        cache.add("a")
        for _ in range(38):
            with Meter() as meter:
                feed(cache, 1)
            copied.append(meter.by_label.get("move", Count()).copied)
            assert len(cache.read(0, "a")[2]) <= 2 + 12 + every - 1
    assert sum(n > 0 for n in moved[1]) == 38 - 14
    assert sum(n > 0 for n in moved[8]) == 3
    whole = (2 + 12) * 64  # bytes; blocks move with what stays of their tokens
    assert max(moved[8]) <= whole


COPYING: dict[str, Retention] = {
    "one in 16 and the newest 64": LastAndEvery(64, 16),
    "one in 3 and the newest 30": LastAndEvery(30, 3),
    "all but one that moves": Asks("all but one", lambda at, n: at != n - 40),
    "every other one of the newest": Asks("late", lambda at, n: (at > n - 40) & (at % 2 == 0)),
    "one in 16, the newest 9, 16 at a time": Waiting(9, 16),
    **{name: rule for name, rule in EXTREMES.items() if rule.every is None},
}


@pytest.mark.parametrize("name", COPYING)
def test_any_rule_moves_at_most_a_byte_for_each_byte_appended(name: str) -> None:
    trial = testing.check_retention(COPYING[name], schedules=1, xp=np)
    assert trial and trial.moved is not None and trial.moved <= 1, trial


def blocks_of_4(num_blocks: int, rule: Retention) -> PagedCache:
    cache = PagedCache(ONE, BlockPool(num_blocks, 4), retention=rule, xp=np)
    cache.add("a")
    return cache


def grow(cache: PagedCache, name: str, tokens: int) -> list[int]:
    """Append single tokens; return how many the request had cached after each."""
    held = []
    for _ in range(tokens):
        feed(cache, 1, name)
        held.append(len(cache.read(0, name)[2]))
    return held


def test_tokens_that_wait_are_no_more_than_those_that_stay() -> None:
    rule = LastAndEvery(30, 16)
    held = grow(blocks_of_4(100, rule), "a", 200)
    stay = [int(rule.kept(np.arange(n), n).sum()) + 1 for n in range(200)]
    assert all(stay[n] <= held[n] <= 2 * stay[n] for n in range(200))
    assert max(h - s for h, s in zip(held, stay, strict=True)) > 20, "some do wait"


def test_tokens_do_not_wait_for_want_of_blocks() -> None:
    """A pool that has room for what stays is large enough."""
    rule = LastAndEvery(30, 16)
    held = grow(blocks_of_4(12, rule), "a", 200)
    assert max(held) <= 12 * 4 and held[-1] > 30 + 200 // 16


def test_forks_that_drop_tokens_of_shared_blocks() -> None:
    """Each copies what stays of them once, and then waits like any other request."""
    cache = blocks_of_4(400, LastAndEvery(30, 16))
    grow(cache, "a", 100)
    for name in "bcd":
        cache.fork("a", name)
    with Meter() as meter:
        for name in "bcda":
            grow(cache, name, 100)
    moved, written = (meter.by_label[label] for label in ("move", "append"))
    assert 0 < moved.copied <= written.written


SHORT: dict[str, tuple[Retention, int]] = {  # and how many tokens its rows hold
    "sinks": (Sinks(2, 11), 12 + 3),
    "sinks, four at a time": (Sinks(2, 11, every=4), 15 + 3),
    "scores": (Scored(H2O(3), 12), 12 + 3),
    "scores, four at a time": (Scored(KNorm(2), 12, every=4), 15 + 3),
}


@pytest.mark.parametrize("codec", [None, "int8"])
@pytest.mark.parametrize("rule", SHORT)
def test_a_row_is_as_long_as_what_stays_and_a_quarter_more(rule: str, codec: str | None) -> None:
    """A prompt of 90 tokens gets a longer row, a fork of it another one, until the next plan."""
    retention, room = SHORT[rule]
    layers, more = [LayerSpec(2, 8)], dict(retention=retention, codec=codec, xp=np)
    rows, blocks = caches = (
        DenseCache(layers, 3, 1000, **more), PagedCache(layers, BlockPool(400, 1), **more)
    )  # fmt: skip
    poison_all(rows)
    rng, token = np.random.default_rng(0), 2 * 2 * (12 if codec else 32)
    assert rows.memory().reserved == 3 * room * token

    def both(method: str, *arguments: Any) -> None:
        for cache in caches:
            getattr(cache, method)(*arguments)

    def step(names: list[str], q_lens: list[int]) -> None:
        x = rng.standard_normal((3, sum(q_lens), 2, 8), dtype=np.float32)
        o = []
        for cache in caches:
            planned = cache.plan(names, q_lens)
            cache.append(0, x[0], x[1], planned)
            o.append(cache.run(0, x[2], planned))
        np.testing.assert_allclose(o[0], o[1], rtol=0, atol=2 * sum_bound(8 + 90, 4.0))
        for name in names:
            for one, other in zip(rows.read(0, name), blocks.read(0, name), strict=True):
                assert (one == other).all()
        assert rows.memory().reserved == sum(x.nbytes for x in rows.storage())

    both("add", "a")
    both("add", "b")
    step(["a", "b"], [90, 7])
    assert rows.memory().reserved == (3 * room + 90) * token, "b has room in its row"
    both("fork", "a", "c")
    assert rows.memory().reserved == (3 * room + 2 * 90) * token
    step(["a", "c"], [1, 40])
    held = rows.read(0, "c")[0].shape[0]
    assert rows.memory().reserved == (3 * room + held) * token and held >= 52
    both("truncate", "c", 95)  # into its last step, in the longer row
    both("truncate", "a", 90)
    for q_lens in ([1, 1, 2], [3, 1, 1], [1, 50, 1], [1, 1, 1], [2, 1, 3], [1, 1, 1]):
        step(["a", "b", "c"], q_lens)
    assert rows.memory().reserved == 3 * room * token
    both("truncate", "a", 0)
    step(["a"], [30])


def test_a_rule_without_room_gets_whole_rows() -> None:
    cache = DenseCache(ONE, 1, 40, retention=RULE, xp=np)
    assert cache.memory().reserved == 40 * 64
    short = DenseCache(ONE, 1, 10, retention=Sinks(4, 60), xp=np)
    assert short.memory().reserved == 10 * 64

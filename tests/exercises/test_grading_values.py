"""What crosses between a checker and an answer in another process: both sides in threads."""

from __future__ import annotations

import base64
import pickle
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.batched_serve import WatchedCache, tiny_model
from kvbook.exercises.cached import Slots
from kvbook.exercises.cached import tiny_model as tiny
from kvbook.exercises.counted import Reads, allocated, kept_watched, python_steps
from kvbook.grading.answer import Missing, Remote
from kvbook.grading.channel import Channel, Gone, Late
from kvbook.grading.serve import Server
from kvbook.grading.values import Values
from kvlib import BlockPool, DenseCache, LayerSpec, OutOfBlocks

Asking = Callable[..., Any]


@pytest.fixture
def space() -> dict[str, Any]:
    return {}


@pytest.fixture
def remote(space: dict[str, Any]) -> Iterator[Remote]:
    with served(space) as found:
        yield found


@contextmanager
def served(space: dict[str, Any]) -> Iterator[Remote]:
    """The answers of a notebook as a checker sees them, served by a thread."""
    here, there = socket.socketpair()

    def serve() -> None:
        channel = Channel(there.fileno(), there.fileno())
        server = Server(channel, space, lambda label: {"status": "passed", "finding": label})
        with suppress(Gone):
            while server.serve(*channel.receive()):
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    channel = Channel(here.fileno(), here.fileno())
    channel.until = time.monotonic() + 60
    yield Remote(channel)
    here.close()
    thread.join(10)
    there.close()


PLAIN = (
    *(None, True, 3, -(2**70), 1.5, float("inf"), "ü\ud800", b"\0x", ..., 2 + 1j, (), (1, ("a",))),
    *([], [1, [2.0, None]], {"a": [1], 2: {}, (1, 2): "t"}, {1, 2}, frozenset({3})),
    *(np.float32(1.5), np.bool_(True), np.arange(6).reshape(2, 3), np.zeros((0, 3), np.float16)),
    *(np.array(1.5), np.asfortranarray(np.eye(3)), np.arange(9)[::2], np.array([1 + 2j])),
)


@pytest.mark.parametrize("x", PLAIN, ids=repr)
def test_plain_values_come_back_as_they_went(x: Any, remote: Remote, space: Any) -> None:
    space["copy"] = lambda y: (y.copy() if hasattr(y, "copy") else y, type(y).__name__)
    got, kind = remote.answer("copy")(x)
    assert type(got) is type(x) and kind == type(x).__name__
    if isinstance(x, np.ndarray | np.generic):
        assert got.dtype == x.dtype and got.shape == x.shape
    assert np.array_equal(got, x) if isinstance(x, np.ndarray) else got == x


class Whole(int):
    __eq__ = lambda self, other: True  # noqa: E731
    __hash__ = int.__hash__


class Endless:
    __repr__ = lambda self: 1 / 0  # type: ignore[assignment,return-value] # noqa: E731


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda: (x for x in ()), "generator"),
        (lambda: range(3), "range"),
        (lambda: print, "builtin_function_or_method"),
        (lambda: Endless(), "Endless"),
        (lambda: 10**5000, "int"),
        (lambda: np.array([None]), "ndarray"),
        (lambda: type("a b", (), {})(), "object"),
    ],
)
def test_everything_else_is_a_thing_with_its_name(made: Asking, kind: str, remote: Remote,
                                                  space: Any) -> None:  # fmt: skip
    space["f"] = made
    got = remote.answer("f")()
    assert type(got).__name__ == kind and not isinstance(got, int)
    assert remote.answer("f")() != 5 and isinstance(repr(got), str)


def test_subclasses_lose_their_tricks(remote: Remote, space: Any) -> None:
    space["f"] = lambda: [Whole(3), np.ma.masked_array([1]), np.arange(2).astype(">i4")]
    whole, masked, big = remote.answer("f")()
    assert type(whole) is int and whole == 3 and whole != 4
    assert type(masked).__name__ == "MaskedArray" and big.tolist() == [0, 1]


def test_changes_cross_both_ways(remote: Remote, space: Any) -> None:
    held: list[Any] = []

    def keep(*things: Any) -> list[int]:
        held[:] = things
        things[0][0] = 9.0
        things[1].append("more")
        things[2]["new"] = things[1]
        things[3].add(4)
        return [1, 2]

    space |= {"keep": keep, "held": lambda: [repr(x) for x in held], "mine": lambda x: x.clear()}
    array, texts, table, names = np.zeros(2), ["a"], {"k": 1}, {3}
    got = remote.answer("keep")(array, texts, table, names)
    assert array[0] == 9 and texts == ["a", "more"] and names == {3, 4}
    assert table["new"] is texts
    array[1], got[:] = 5.0, []
    texts.clear()
    assert remote.answer("held")() == ["array([9., 5.])", "[]", "{'k': 1, 'new': []}", "{3, 4}"]
    remote.answer("mine")(texts)


def test_an_answer_changes_its_arguments_and_nothing_else(remote: Remote, space: Any) -> None:
    held: list[Any] = []
    space |= {"keep": held.append, "later": lambda: held[0].fill(7)}
    array = np.zeros(2)
    remote.answer("keep")(array)
    remote.answer("later")()
    assert array.tolist() == [0, 0], "this call was not handed the array"


def test_an_array_that_must_not_be_written(remote: Remote, space: Any) -> None:
    array = np.zeros(2)
    array.flags.writeable = False
    space["f"] = lambda x: x.__setitem__(0, 1)
    with pytest.raises(ValueError, match="read-only"):
        remote.answer("f")(array)


def _fails() -> None:
    raise KeyError("no such key")


def test_errors_keep_their_names(remote: Remote, space: Any) -> None:
    class OwnError(Exception):
        def __str__(self) -> str:
            raise ValueError

    def raising(error: BaseException) -> Asking:
        def f() -> None:
            raise error

        return f

    space |= {"key": _fails, "full": raising(OutOfBlocks("none")), "own": raising(OwnError()),
              "exit": raising(SystemExit(3)), "todo": raising(NotImplementedError())}  # fmt: skip
    with pytest.raises(KeyError) as found:
        remote.answer("key")()
    assert str(found.value) == "'no such key'"
    assert found.value.at_the_line == '\nat the line: raise KeyError("no such key")'  # type: ignore
    with pytest.raises(OutOfBlocks, match="none"):
        remote.answer("full")()
    for name, kind in (
        ("own", "OwnError"),
        ("exit", "SystemExit"),
        ("todo", "NotImplementedError"),
    ):
        with pytest.raises(Exception) as other:
            remote.answer(name)()
        assert type(other.value).__name__ == kind


def test_warnings_and_numpys_errors_cross(remote: Remote, space: Any) -> None:
    space["f"] = lambda x: np.array([x]).astype(np.int8)
    with warnings.catch_warnings(record=True) as heard, np.errstate(invalid="warn"):
        warnings.simplefilter("always")
        remote.answer("f")(float("nan"))
    assert ["in cast" in str(w.message) for w in heard] == [True]
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        remote.answer("f")(float("nan"))


def test_classes_and_their_objects(remote: Remote, space: Any) -> None:
    class Pile:
        shared = [1]

        def __init__(self, start: int) -> None:
            self.things = [start]

        def push(self, x: int) -> list[int]:
            self.things.append(x)
            return self.things

    space["Pile"] = Pile
    kind = remote.answer("Pile")
    assert isinstance(kind, type) and kind.__name__ == "Pile" and vars(kind)["shared"] == [1]
    one, two = kind(1), kind(2)
    first = one.push(5)
    assert first == [1, 5] and two.push(6) == [2, 6]
    assert one.push(7) is first and first == [1, 5, 7], "the object hands out its own list"
    assert not hasattr(one, "things") and not hasattr(one, "pull")


def test_what_a_notebook_lacks_or_defines_as_data(remote: Remote, space: Any) -> None:
    space["x"] = [1, 2]
    assert remote.answer("x") == [1, 2]
    with pytest.raises(Missing):
        remote.answer("y")
    assert remote.together("a-label")["finding"] == "a-label"


def test_measured_where_they_run(remote: Remote, space: Any) -> None:
    space |= {"many": lambda n: [x + 1 for x in range(n)], "room": lambda n: np.ones(n).sum()}
    assert python_steps(remote.answer("many"), 500)[1] > 500
    assert allocated(remote.answer("room"), 10**5)[1] >= 8 * 10**5
    reads = Reads({"k": 600}, width=3)
    space["twice"] = lambda q, k: q @ k.T + q @ k.T
    with kept_watched():
        remote.answer("twice")(reads.watch(np.ones((2, 3))), reads.watch(np.ones((200, 3)), "k"))
    assert reads.times("k") == 2


def test_a_cache_that_is_lent_stays_with_the_checker(remote: Remote, space: Any) -> None:
    def serve(model: Any, cache: DenseCache, prompt: list[int]) -> Any:
        assert isinstance(cache, DenseCache) and model.config.vocab_size == 61
        cache.add("a")
        step = cache.plan(iter(["a"]), range(len(prompt), len(prompt) + 1))
        logits = model.forward(prompt, cache, step)
        own = model.new_cache(1, 8)
        own.add("b")
        alone = model.forward(prompt, own, own.plan(["b"], [len(prompt)]))
        return cache.seq_ids, step.num_tokens, np.array_equal(logits, alone)

    space["serve"] = serve
    model = tiny_model()
    cache = WatchedCache(model, 2)
    assert remote.answer("serve")(model, cache, [1, 2, 3]) == (("a",), 3, True)
    assert cache.seq_len("a") == 3 and len(cache.passes) == 1


def test_only_listed_names_of_a_lent_object_can_be_asked_for(remote: Remote, space: Any) -> None:
    pool = BlockPool(4, 2)
    space |= {
        "take": lambda p: p.allocate(p.num_blocks - 1) + [p.num_free],
        "private": lambda p: p._references,
        "other": lambda p: p.publish(1, 2),
        "change": lambda p: setattr(p, "num_blocks", 100),
        "back": lambda p: p,
    }
    assert remote.answer("take")(pool) == [0, 1, 2, 1] and pool.num_free == 1
    for name in ("private", "other", "change"):
        with pytest.raises(AttributeError):
            remote.answer(name)(pool)
    assert remote.answer("back")(pool) is pool
    with pytest.raises(OutOfBlocks) as found:
        remote.answer("take")(pool)
    assert type(found.value) is OutOfBlocks, "the pool's own error, not one that looks like it"


def test_functions_and_slots_that_are_lent(remote: Remote, space: Any) -> None:
    space |= {"twice": lambda f, x: f(f(x)), "run": lambda slots: slots([1, 2], 0).shape}
    assert remote.answer("twice")(lambda x: x + 1, 3) == 5
    slots = Slots(tiny(), 8)
    assert remote.answer("run")(slots) == (64,) and slots.calls == [([1, 2], 0)]


def test_configs_go_as_copies(remote: Remote, space: Any) -> None:
    space["heads"] = lambda spec: spec.num_kv_heads
    assert remote.answer("heads")(LayerSpec(8, 128)) == 8


class Bomb:
    def __reduce__(self) -> Any:
        return print, ("it ran",)


BAD = (
    ["p", base64.b64encode(pickle.dumps(Bomb())).decode()],
    *(["k", "k0"], ["w", "k", None, ["a"]], ["r", "c99"], ["?"], [], {}, ["t", 5], ["b", "%"]),
    *(["n", "s1", ["a", "<f8", [2], [0, 16], True]], ["g", "|O", [0, 8]], ["n", "s1", ["q", []]]),
    *(["c", "x"], ["x"], ["o", ["a"], ""], ["n", "s1", ["s", [["n", "s2", ["l", []]]]]]),
)


@pytest.mark.parametrize("form", BAD, ids=str)
def test_forms_that_are_none(form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = socket.socketpair()
    with here, there:
        remote = Remote(Channel(here.fileno(), here.fileno()))
        forger = Channel(there.fileno(), there.fileno())
        forger.send({"op": "return", "changes": [], "value": form})
        with pytest.raises(Gone):
            remote.call("f", (), {})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "data", [b"\xff" * 16, b"\2" + b"\0" * 15 + b"[]", b"\3" + b"\0" * 15 + b"[[[", b"junk", b""]
)
def test_frames_that_are_none(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(Gone):
            Channel(here.fileno(), here.fileno()).receive()


def test_a_deadline_holds_for_reading_and_writing() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        channel = Channel(here.fileno(), here.fileno())
        for act in (channel.receive, lambda: channel.send({}, [np.zeros(10**6)])):
            channel.until = time.monotonic() + 0.05
            with pytest.raises(Late):
                act()
        channel.until = time.monotonic() + 10
        with pytest.raises(Gone, match="a message of"):
            channel.send({"x": "y" * (17 * 2**20)})


def test_what_crossed_long_ago_is_still_the_same_object() -> None:
    """Changes are looked for in the last containers only, but a known one is known for ever."""
    here, there = Values("c"), Values("s")
    first = [1]

    def cross(x: Any) -> Any:
        head, arrays = here.pack({}, x=x)
        return there.unpack(head, b"".join(map(bytes, arrays)), "x")[0]

    copy = cross(first)
    for n in range(100):
        cross([n])
    first.append(2)
    assert cross(first) is copy and copy == [1, 2]


class LyingDict(dict):  # type: ignore[type-arg]
    """It says another length, other items and another copy than it has."""

    def __len__(self) -> int:
        return 7

    def items(self) -> Any:
        return iter(())

    def copy(self) -> Any:
        return {}


class Nameless:
    """A callable that raises for whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __call__(self, n: int) -> int:
        return n + 1


def test_a_container_that_lies_about_itself_ends_nothing(
    space: dict[str, Any], remote: Remote
) -> None:
    kept = LyingDict(a=1)
    space["f"], space["n"] = lambda: kept, Nameless()
    for _ in range(3):
        remote.answer("f")()
        kept["b"] = len([*dict.keys(kept)])
    assert remote.answer("n")(2) == 3

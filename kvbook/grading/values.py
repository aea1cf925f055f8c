"""Values as plain data on their way between the checking process and the answer's.

Numbers, texts, containers and arrays of numbers go by value. A list, a dict, a set or an array that
has crossed once is known on both sides, so a change that one side makes reaches the other with the
next message: an answer may write into its arguments, and a caller may reuse what it lent.
Everything else becomes a `Thing` with a name.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from kvbook.grading.channel import Gone
from kvbook.grading.containers import DEEPEST, copied, memory_of, same, thing, within

KINDS = {name: np.dtype(name) for name in (np.dtype(c).str for c in "?bBhHiIlLqQefdgFDG")}
WATCHED = 32  # containers whose changes are looked for: those that crossed last
LONGEST_INT = 10_000  # bits
TEXTS = re.compile("[<|][US][0-9]{1,2}")  # arrays of texts, of which the kind is told
PLAIN = (type(None), bool, int, float, str)
# The value of a subclass's object, whatever methods that has of its own.
PLAINLY: dict[type, Callable[[Any], Any]] = {
    int: lambda x: int.__add__(x, 0),
    float: lambda x: float.__add__(x, 0.0),
    str: lambda x: str.__str__(x),
    bytes: lambda x: bytes.__add__(x, b""),
    tuple: lambda x: tuple(tuple.__iter__(x)),
}


class Values:
    """What has crossed so far, seen from one side.

    side    "c" or "s": begins the names of what this side sent first
    trusts  take what the other side has pickled (only the answer's side does, from the checker's)
    accept  whether the other side may change the container of this name
    lend    the form of an object that is neither plain nor pickled, or None
    found   the object for a form that `lend` made on the other side
    """

    def __init__(self, side: str, *, trusts: bool = False) -> None:
        self._side, self._trusts = side, trusts
        self.known: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._before: dict[str, Any] = {}
        self._recent: deque[str] = deque(maxlen=WATCHED)
        self.lent_now: list[str] = []  # further ones to look at: what the call was handed
        self.accept: Callable[[str], bool] = lambda name: True
        self.lend: Callable[[Any], list[Any] | None] = lambda x: None
        self.found: Callable[[list[Any]], Any] = lambda form: None

    def pack(self, head: dict[str, Any], **parts: Any) -> tuple[dict[str, Any], list[Any]]:
        """A frame: the head, each part in its form, and what has changed since the last one."""
        self._out: list[Any] = []  # bytes, or arrays of them
        self._size = 0
        looked = dict.fromkeys((*self._recent, *self.lent_now))
        changes = [[n, self._content(self.known[n])] for n in looked if self._new(n)]
        forms = {key: self.form(x) for key, x in parts.items()}
        return {**head, "changes": changes, **forms}, self._out

    def form(self, x: Any, depth: int = 0) -> Any:
        """x in JSON, with its arrays put aside."""
        kind = type(x)
        if kind is int and x.bit_length() > LONGEST_INT:
            return ["x", "int", "a huge number", "int"]
        if kind in PLAIN:
            return x
        if depth > DEEPEST:
            return ["x", kind.__name__, "...", ""]
        if kind in (tuple, frozenset):
            return ["t" if kind is tuple else "z", [self.form(y, depth + 1) for y in x]]
        if kind is bytes:
            return ["b", base64.b64encode(x).decode("ascii")]
        if x is Ellipsis:
            return ["e"]
        if issubclass(kind, np.generic) and x.dtype.str in KINDS:
            return ["g", x.dtype.str, self._put(x.tobytes())]
        if issubclass(kind, np.ma.MaskedArray):  # plain data would hold what the mask hides
            return self._other(x, depth)
        if kind is complex:
            return ["c", x.real, x.imag]
        if kind is not np.ndarray and (lent := self.lend(x)) is not None:
            return lent
        shared = issubclass(kind, list | dict | set | np.ndarray)
        return self._shared(x, depth) if shared else self._other(x, depth)

    def _other(self, x: Any, depth: int) -> Any:
        """Subclasses of plain kinds as these; the rest as Things."""
        for base, plainly in PLAINLY.items():
            if issubclass(type(x), base):  # x.__class__ may say anything
                return self.form(plainly(x), depth + 1)
        try:
            text = str.__str__(repr(x))
        except BaseException:
            text = ""
        digest = hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()
        return ["x", type(x).__name__, text[:200], digest]

    def _shared(self, x: Any, depth: int) -> Any:
        name = self._names.get(id(x))
        if name is not None and self.known.get(name) is x:
            watched = name in self._recent
            self._touch(name)
            if not watched and self._new(name):
                return ["u", name, self._content(x, depth)]
            return ["r", name]
        if isinstance(x, np.ndarray) and x.dtype.str not in KINDS:
            if x.dtype.newbyteorder("=").str in KINDS:
                return self._shared(x.astype(x.dtype.newbyteorder("=")), depth)
            size = x.shape if x.size < 10**6 else (0,)
            return ["o", list(size), x.dtype.str]
        name = f"{self._side}{len(self.known)}"
        self.remember(name, x)
        return ["n", name, self._content(x, depth)]

    def _content(self, x: Any, depth: int = 0) -> Any:
        if isinstance(x, np.ndarray):
            plain = np.ascontiguousarray(np.asarray(x)).reshape(x.shape)
            writable = bool(x.flags.writeable)
            return ["a", x.dtype.str, list(x.shape), self._put(memory_of(plain)), writable]
        if isinstance(x, dict):
            return ["d", [[self.form(k, depth + 1), self.form(v, depth + 1)] for k, v in x.items()]]
        return ["l" if isinstance(x, list) else "s", [self.form(y, depth + 1) for y in list(x)]]

    def _put(self, data: Any) -> list[int]:
        self._out.append(data)
        size = len(data) if isinstance(data, bytes) else data.nbytes
        self._size += size
        return [self._size - size, size]

    def unpack(self, head: dict[str, Any], data: bytearray, *parts: str) -> list[Any]:
        """The parts of a frame, after its changes. Gone where a form is none."""
        try:
            self._data = memoryview(data)
            for name, content in head["changes"]:
                self._change(name, content)
            return [self.value(head[part]) for part in parts]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise Gone(f"not a value: {e}") from None

    def value(self, form: Any) -> Any:
        """The value of a form."""
        if type(form) in PLAIN:
            return form
        tag, *rest = form
        if tag in ("t", "z"):
            return (tuple if tag == "t" else frozenset)(map(self.value, rest[0]))
        if tag == "b":
            return base64.b64decode(rest[0], validate=True)
        if tag == "e":
            return Ellipsis
        if tag == "g":
            return np.frombuffer(self._get(rest[1]), KINDS[rest[0]])[0]
        if tag == "c":
            return complex(*rest)
        if tag == "x":
            return thing(*map(str, rest))
        if tag == "o":
            kind = rest[1] if TEXTS.fullmatch(rest[1]) else object
            return np.empty([min(int(n), 10**6) for n in rest[0]], kind)
        if tag == "r":
            self._touch(rest[0])
            return self.known[rest[0]]
        if tag == "u":
            self._change(*rest)
            return self.known[rest[0]]
        if tag == "n":
            return self._made(*rest)
        if tag == "p" and self._trusts:
            return pickle.loads(base64.b64decode(rest[0]))
        return self.found(form)

    def _made(self, name: str, content: Any) -> Any:
        if name in self.known:
            raise ValueError("known already")
        if content[0] == "a":
            x = np.frombuffer(self._get(content[3]), KINDS[content[1]]).reshape(content[2]).copy()
            self.remember(name, x)
            x.flags.writeable = bool(content[4])
            return x
        made: Any = {"l": list, "d": dict, "s": set}[content[0]]()
        self.remember(name, made)
        self._fill(made, self._items(content))
        self.remember(name, made)
        return made

    def _items(self, content: Any) -> list[Any]:
        if content[0] == "d":
            return [(self.value(k), self.value(v)) for k, v in content[1]]
        return [self.value(y) for y in content[1]]

    def _fill(self, x: Any, items: list[Any]) -> None:
        if isinstance(x, list):
            x[:] = items
        else:
            x.clear()
            x.update(items)

    def _change(self, name: str, content: Any) -> None:
        x, accepted = self.known[name], self.accept(name)
        if isinstance(x, np.ndarray):
            new = np.frombuffer(self._get(content[3]), KINDS[content[1]]).reshape(content[2])
            if accepted and (new.shape, new.dtype) == (x.shape, x.dtype) and x.flags.writeable:
                x[...] = new
        else:
            items = self._items(content)  # what is new in it is known from now on
            if accepted:
                self._fill(x, items)
        self.remember(name, x)

    def _get(self, place: list[int]) -> memoryview:
        start, length = place
        if start < 0 or length < 0 or start + length > len(self._data):
            raise ValueError("outside of the frame")
        return self._data[start : start + length]

    # Both -----------------------------------------------------------------------------------------

    def remember(self, name: str, x: Any) -> None:
        """x as it is now is what both sides know under this name."""
        self.known[name], self._names[id(x)] = x, name
        self._before[name] = copied(x)
        self._touch(name)

    def names_in(self, x: Any) -> list[str]:
        """The names of all containers in x that have crossed."""
        return [self._names[i] for i in within(x) if i in self._names]

    def _touch(self, name: str) -> None:
        """It crosses now, so it is the last one to be forgotten."""
        if name in self._recent:
            self._recent.remove(name)
        self._recent.append(name)

    def _new(self, name: str) -> bool:
        """Whether it has changed since it was remembered, which it is now."""
        x, before = self.known[name], self._before[name]
        if same(x, before):
            return False
        self._before[name] = copied(x)
        return True

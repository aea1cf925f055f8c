"""Stand-ins, in the answer's process, for the objects of kvlib that a checker lends (`lent`)."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from typing import Any

from kvbook.exercises.counted import Reads
from kvbook.grading.channel import Gone
from kvbook.grading.values import Values

Ask = Callable[[str, str, Any, Any], Any]


class Borrower:
    """The answer's side: makes stand-ins, and names them when they go back."""

    def __init__(self, values: Values, ask: Ask) -> None:
        self._values, self._ask = values, ask
        self._made: dict[str, Any] = {}
        self.reads: Reads | None = None
        values.lend, values.found = self.lend, self.found

    def lend(self, x: Any) -> list[Any] | None:
        name = next((n for n, y in self._made.items() if y is x), None)
        return None if name is None else ["k", name]

    def found(self, form: list[Any]) -> Any:
        if form[0] == "w":
            _, name, sizes, content = form
            if sizes is not None and self.reads is None:
                self.reads = Reads(*sizes)
            array = self._values.value(["n", f"w{len(self._values.known)}", content])
            return array if self.reads is None else self.reads.watch(array, name)
        tag, name, copied = form
        if tag != "k":
            raise Gone("an unknown form")
        if name not in self._made:
            self._made[name] = self._stand_in(name, copied)
        return self._made[name]

    def _stand_in(self, name: str, copied: str | None) -> Any:
        ask = self._ask
        if copied is None:
            return lambda *args, **named: ask(name, "__call__", args, named)
        made_of = pickle.loads(base64.b64decode(copied))
        if isinstance(made_of, tuple):
            from kvlib.model import Decoder

            model = Decoder(*made_of)
            return _own_forward(model, self._made, lambda *a, **k: ask(name, "forward", a, k))
        return _asking(made_of, lambda attribute, *a: ask(name, attribute, *a))


def _own_forward(model: Any, made: dict[str, Any], forward: Any) -> Any:
    """The model itself, whose forward pass over a cache that was lent runs where the cache is."""
    own = model.forward

    def run(tokens: Any, cache: Any, *rest: Any, **named: Any) -> Any:
        there = any(cache is x for x in made.values())
        return (forward if there else own)(tokens, cache, *rest, **named)

    model.forward = run
    return model


def _asking(kind: type, ask: Callable[..., Any]) -> Any:
    """An object of the class that asks for every public name."""

    def get(self: Any, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        if callable(getattr(kind, name, None)):
            return lambda *args, **named: ask(name, args, named)
        return ask(name, None, None)

    def refuse(self: Any, name: str, value: Any) -> None:
        raise AttributeError(f"{kind.__name__}.{name} cannot be set while you are graded")

    members = {"__getattribute__": get, "__setattr__": refuse, "__repr__": object.__repr__}
    return object.__new__(type(kind.__name__, (kind,), {"__slots__": (), **members}))

"""The keys of one object of a config.json, whose types are checked and remembered."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

from kvlib.config import ranges, table, words
from kvlib.config.shape import Shape
from kvlib.errors import CheckpointError

# those that kvlib has
ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu")
UNSET: Any = object()


class Keys:
    """One object of a config.json; errors name file (`source`), key, what came and what was needed.

    inside is what comes before a key in errors, such as "text_config.", model_type the family, as
    `kvlib.config.read.family_of` finds it, seen the keys that have been read. left_out are keys
    that the caller has left out of `data`; reading one is an error. text has the keys of the text
    decoder, which in a wrapper's file is an object inside.
    """

    def __init__(
        self, data: Mapping[str, Any], source: str, inside: str = "", left_out: Collection[str] = ()
    ) -> None:
        texts = (key if isinstance(key, str) else words.shown(key) for key in data)
        self.data: Mapping[str, Any] = dict(zip(texts, data.values()))
        self.source, self.inside, self.left_out = source, inside, left_out
        self.model_type = ""
        self.seen: set[str] = set()
        self.text: Keys = self

    def inner(self, key: str, data: Mapping[str, Any]) -> Self:
        """Return the object that the key holds."""
        inner = type(self)(data, self.source, f"{self.inside}{words.name(key)}.", self.left_out)
        inner.model_type = self.model_type
        return inner

    def error(self, key: str, needed: str, without: str | None = None) -> CheckpointError:
        """Return the error for a key. without: the key that `needed` advises to leave out."""
        self.not_left_out(key)
        state = f"is {words.stated(self.data[key])}" if key in self.data else "is missing"
        which = f"{self.inside}{words.name(key)}"
        error = CheckpointError(f"{self.source}: {which} {state}, needed: {needed}")
        error.without = without
        return error

    def read(
        self,
        key: str,
        kind: type,
        needed: str,
        default: Any = UNSET,
        valid: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        """Return the value; `default` where the key is absent or null. Raises CheckpointError."""
        self.seen.add(key)
        self.not_left_out(key)
        value = self.data.get(key)
        if value is None and default is not UNSET:
            return default
        right = isinstance(value, (int, float) if kind is float else kind)
        if not right or (isinstance(value, bool) and kind is not bool) or not valid(value):
            raise self.error(key, needed)
        return value

    def not_left_out(self, key: str) -> None:
        """Raise if the caller left this key out, because a default would silently replace it."""
        if key in self.left_out:
            raise CheckpointError(
                f"{self.source}: {self.inside}{words.name(key)} cannot be left out, because "
                f"{self.model_type or 'kvlib'} reads it; change its value in the file instead"
            )

    def count(self, key: str, default: Any = UNSET, least: int = 1) -> int:
        """Return a whole number from `least` to what `kvlib.config.ranges` allows."""
        needed, most = f"a whole number of at least {least}", ranges.most(key)
        value = self.read(key, int, needed, default, lambda value: value >= least)
        if value is not default and value > most:
            raise self.error(key, f"at most {most:,}")
        return value

    def number(self, key: str, default: Any = UNSET) -> Any:
        """Return a number within `kvlib.config.ranges`, as a float; `default` as it is."""
        value = self.read(key, float, "a number above 0", default, lambda value: value > 0)
        if value is default:
            return value
        least, most = ranges.between(key)
        if not least <= value <= most:
            raise self.error(key, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        if default and self.data.get(key, True) is None:  # engines read null as false
            raise self.error(key, "true or false")
        return self.read(key, bool, "true or false", default)

    def only(self, key: str, allowed: Any, why: str) -> None:
        """Raise unless the key is absent or null or holds the one value that is understood."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is not None and not table.same(value, allowed):
            raise self.error(key, f"{words.stated(allowed)} or no such key ({why})")

    def refuse_others(self, shape: Shape | None = None, to_run: bool = False) -> None:
        """Raise for the first key that says something and that no family's file has read.

        shape: a key may say the same again. to_run: refuse keys on which no size depends, too.
        """
        for key, value in self.data.items():
            empty = isinstance(value, (dict, list, str)) and not value
            if key in self.seen or value is None or empty:
                continue
            if table.is_harmless(key, value, to_run):
                continue
            neutral = table.neutral(key, shape, self.seen)
            if neutral is not None:
                self.only(key, *neutral)
                continue
            advice = "if it does not change what a forward pass computes, delete it from the file"
            if not to_run:
                advice = "if it changes neither weights nor cache, or is not to be counted, read "
                advice += f"the config with {words.without(key)}"
            needed = f"a key that {self.model_type} is known to have; {advice}"
            raise self.error(key, needed, without=None if to_run else key)

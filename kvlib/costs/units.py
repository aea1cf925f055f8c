"""Numbers that know their unit, so that bytes are never added to tokens, nor GB taken for GiB.

GB is 10^9 bytes and GiB 2^30. An operation (FLOP) is one multiplication or one addition.

>>> held = 8192 * Bytes(524_288)
>>> held, held / BytesPerSecond(3.35e12)
(Bytes(4_294_967_296) = 4.00 GiB, Seconds(0.0012820797898507462) = 1.28 ms)
>>> f"{held:.1f GB}", held.MiB, Seconds(0.002).us, Tokens(100) / TokensPerSecond(50)
('4.3 GB', 4096.0, 2000.0, Seconds(2) = 2 s)
>>> Flops(6e9) / Bytes(2e9), FlopsPerSecond(9e14) / BytesPerSecond(3e12) > FlopsPerByte(3)
(FlopsPerByte(3) = 3 FLOP/B, True)
"""

import re
import sys
from numbers import Integral, Real
from operator import index
from typing import Any, ClassVar, NoReturn, Self, overload

from kvlib.config.words import shown

_SPEC = re.compile(r"(?P<number>[-+<>^0-9,._]*[fgd]?)\s*(?P<unit>\S*)")


class Unit:
    """A unit of a quantity, and the attribute that gives the value in it: ``b.GiB`` is a float."""

    def __init__(self, text: str, size: float, printed: bool = True) -> None:
        """printed: whether a quantity may be shown in this unit where none is asked for."""
        self.text, self.size, self.printed = text, size, printed

    def __get__(self, quantity: "Quantity | None", owner: type | None = None) -> Any:
        if quantity is None:
            return self
        # A unit below one is divided out as a whole number: 0.25 s are exactly 250 ms.
        value = quantity.value
        return value * round(1 / self.size) if self.size < 1 else value / self.size


class Quantity:
    """A number with a unit, and immutable; ``.value`` is the plain number in base units.

    Different types multiply and divide where physics allows (bytes / (bytes/s) is seconds). Raises
    TypeError for everything else, and ValueError for NaN or an infinity.
    """

    __array_ufunc__ = None  # a NumPy number on the left leaves the product to __rmul__
    units: ClassVar[tuple[Unit, ...]] = ()  # the first is the base
    value: int | float

    def __init_subclass__(cls) -> None:
        cls.units = tuple(x for x in vars(cls).values() if isinstance(x, Unit))

    def __init__(self, value: float) -> None:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{type(self).__name__} needs a number, got {value!r}")
        number = int(value) if isinstance(value, Integral) else float(value)
        if not -sys.float_info.max <= number <= sys.float_info.max:  # also NaN, and any integer
            raise ValueError(f"{type(self).__name__} needs a finite number, got {shown(value)}")
        whole = isinstance(number, float) and number.is_integer()
        object.__setattr__(self, "value", int(number) if whole else number)

    def __setattr__(self, name: str, value: object = None) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed; make a new one")

    __delattr__ = __setattr__

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other, "add"))

    def __radd__(self, other: object) -> NoReturn:
        self._refuse(other, "add", " (sum() needs a start with a unit)")

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other, "subtract"))

    def __rsub__(self, other: object) -> NoReturn:
        self._refuse(other, "subtract")

    def __neg__(self) -> Self:
        return type(self)(-self.value)

    @overload
    def __mul__(self, other: float) -> Self: ...
    @overload
    def __mul__(self, other: "Quantity") -> Any: ...
    def __mul__(self, other: Any) -> Any:
        if _plain(other):
            return type(self)(self.value * other)
        for a, b, product in PRODUCTS:
            if (type(self), type(other)) in ((a, b), (b, a)):
                return product(self.value * other.value)
        self._refuse(other, "multiply")

    def __rmul__(self, other: float) -> Self:
        return self * other

    @overload
    def __truediv__(self, other: float) -> Self: ...
    @overload
    def __truediv__(self, other: "Quantity") -> Any: ...
    def __truediv__(self, other: Any) -> Any:
        if _plain(other):
            return type(self)(self.value / other)
        if type(other) is type(self):
            return self.value / other.value
        for a, b, product in PRODUCTS:
            if type(self) is product and type(other) in (a, b):
                return (b if type(other) is a else a)(self.value / other.value)
        self._refuse(other, "divide")

    def __rtruediv__(self, other: object) -> NoReturn:
        self._refuse(other, "divide", order="by")

    def __floordiv__(self, other: Self) -> int:
        """Return how many times `other` fits whole."""
        return int(self.value // self._same(other, "divide"))

    def __lt__(self, other: Self) -> bool:
        return self.value < self._same(other, "compare")

    def __le__(self, other: Self) -> bool:
        return self.value <= self._same(other, "compare")

    def __gt__(self, other: Self) -> bool:
        return self.value > self._same(other, "compare")

    def __ge__(self, other: Self) -> bool:
        return self.value >= self._same(other, "compare")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.value == other.value  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def _same(self, other: object, verb: str) -> float:
        if type(other) is type(self):
            return other.value  # type: ignore[attr-defined, no-any-return]
        self._refuse(other, verb)

    def _refuse(self, other: object, verb: str, hint: str = "", order: str = "and") -> NoReturn:
        name, link = type(self).__name__, "by" if verb == "divide" else "and"
        what = type(other).__name__
        if _plain(other):
            what = f"the bare number {other!r}"
            hint = hint or ("" if verb in ("multiply", "divide") else f"; write {name}({other!r})")
        pair = f"{what} by {name}" if order == "by" else f"{name} {link} {what}"
        raise TypeError(f"cannot {verb} {pair}{hint}")

    def _unit(self) -> Unit:
        """Return the largest unit not above the value, rounded in the next smaller one."""
        fitting = [u for u in self.units if u.printed]
        fitting.sort(key=lambda u: u.size, reverse=True)
        for unit, smaller in zip(fitting, fitting[1:]):
            if round(abs(self.value) / smaller.size, 2) >= round(unit.size / smaller.size):
                return unit
        return fitting[-1] if self.value else self.units[0]

    def __format__(self, spec: str) -> str:
        """``f"{b:GiB}"``, ``f"{b:.1f GB}"``, ``f"{b:.1f}"``, ``f"{b}"``: number, then unit."""
        match = _SPEC.fullmatch(spec.strip())
        known = {u.text: u for u in self.units}
        if match is None or match["unit"] not in {*known, ""}:
            units = f"one of {', '.join(known)} for {type(self).__name__}"
            raise ValueError(f"format {spec!r}: needed a number format such as .1f, then {units}")
        unit = known[match["unit"]] if match["unit"] else self._unit()
        number = unit.__get__(self, type(self)) if unit is not self.units[0] else self.value
        text = format(number, match["number"]) if match["number"] else _number(number)
        return f"{text} {unit.text}"

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value:_}) = {self}"


def _plain(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if round(abs(value), 2) >= 1 else f"{value:.3g}"


class Bytes(Quantity):
    """Bytes. kB, MB, GB, TB count in 1000s; KiB, MiB, GiB, TiB in 1024s."""

    B = Unit("B", 1)
    kB, MB, GB, TB = (Unit(f"{x}B", 1000**n, False) for n, x in enumerate("kMGT", 1))
    KiB, MiB, GiB, TiB = (Unit(f"{x}iB", 1024**n) for n, x in enumerate("KMGT", 1))


class Flops(Quantity):
    """Operations, a multiplication or an addition each."""

    FLOP = Unit("FLOP", 1)
    MFLOP, GFLOP = Unit("MFLOP", 10**6), Unit("GFLOP", 10**9)
    TFLOP, PFLOP = Unit("TFLOP", 10**12), Unit("PFLOP", 10**15)


class Seconds(Quantity):
    """Seconds; ``.us`` is microseconds."""

    s, ms, us, ns = Unit("s", 1), Unit("ms", 1e-3), Unit("us", 1e-6), Unit("ns", 1e-9)


class Tokens(Quantity):
    """Tokens."""

    tokens = Unit("tokens", 1)

    def __index__(self) -> int:
        return index(self.value)  # type: ignore[arg-type]


class BytesPerSecond(Quantity):
    """Bytes per second, in 1000s as data sheets count them."""

    B_per_s, MB_per_s = Unit("B/s", 1), Unit("MB/s", 10**6)
    GB_per_s, TB_per_s = Unit("GB/s", 10**9), Unit("TB/s", 10**12)


class FlopsPerSecond(Quantity):
    """Operations per second."""

    FLOP_per_s, GFLOP_per_s = Unit("FLOP/s", 1), Unit("GFLOP/s", 10**9)
    TFLOP_per_s, PFLOP_per_s = Unit("TFLOP/s", 10**12), Unit("PFLOP/s", 10**15, False)


class FlopsPerByte(Quantity):
    """Arithmetic intensity: operations per byte moved."""

    FLOP_per_B = Unit("FLOP/B", 1)


class TokensPerSecond(Quantity):
    """Tokens per second."""

    tokens_per_s = Unit("tokens/s", 1)


# (a, b, a times b); each product gives two quotients
PRODUCTS: list[tuple[type[Quantity], type[Quantity], type[Quantity]]] = [
    (BytesPerSecond, Seconds, Bytes),
    (FlopsPerSecond, Seconds, Flops),
    (TokensPerSecond, Seconds, Tokens),
    (FlopsPerByte, Bytes, Flops),
    (FlopsPerByte, BytesPerSecond, FlopsPerSecond),
]

"""Quantities: what may be computed with them, what may not, and how they read."""

import copy
import json
import operator
import pickle
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib.costs import (
    Bytes,
    BytesPerSecond,
    Flops,
    FlopsPerByte,
    FlopsPerSecond,
    Seconds,
    Tokens,
    TokensPerSecond,
)
from kvlib.costs.units import Quantity

TYPES = (Bytes, Flops, Seconds, Tokens)
TYPES += (BytesPerSecond, FlopsPerSecond, FlopsPerByte, TokensPerSecond)
# no tiny ones: a quotient must be a number
floats = st.floats(-1e15, 1e15).filter(lambda x: not 0 < abs(x) < 1e-200)
numbers = st.one_of(st.integers(-(10**15), 10**15), floats)


@given(st.sampled_from(TYPES), numbers, numbers)
def test_one_type_computes_like_its_numbers(kind: type[Quantity], a: float, b: float) -> None:
    x, y = kind(a), kind(b)
    assert (x + y).value == a + b and (x - y).value == a - b and (-x).value == -a
    assert type(x + y) is type(x - y) is type(-x) is type(x * 2) is type(2 * x) is type(x / 2)
    assert kind(x.value * 2) == x * 2 == 2 * x and (x / 2).value == a / 2
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
        assert compare(x, y) == compare(a, b)
    assert (x != y) == (a != b) and bool(x) == bool(a)
    assert float(x) == float(a) and int(x) == int(a)
    if b:
        assert x / y == a / b and type(x / y) is float
        assert x // y == a // b


@pytest.mark.parametrize("a, b, product", [
    (BytesPerSecond(3), Seconds(4), Bytes(12)), (FlopsPerSecond(3), Seconds(4), Flops(12)),
    (TokensPerSecond(3), Seconds(4), Tokens(12)), (FlopsPerByte(3), Bytes(4), Flops(12)),
    (FlopsPerByte(3), BytesPerSecond(4), FlopsPerSecond(12)),
])
def test_products_and_their_quotients(a: Any, b: Any, product: Any) -> None:
    assert a * b == b * a == product
    assert product / a == b and product / b == a
    assert type(product / a) is type(b) and type(product / b) is type(a)


def test_everything_else_is_refused_and_both_sides_are_named() -> None:
    allowed = {(BytesPerSecond, Seconds), (FlopsPerSecond, Seconds), (TokensPerSecond, Seconds)}
    allowed |= {(FlopsPerByte, Bytes), (FlopsPerByte, BytesPerSecond)}
    tried = 0
    for a in TYPES:
        for b in TYPES:
            both = rf"{a.__name__} (and|by) {b.__name__}$"
            if a is not b:
                for op in (operator.add, operator.sub, operator.lt, operator.ge, operator.floordiv):
                    with pytest.raises(TypeError, match=both):
                        op(a(3), b(3))
                assert a(3) != b(3) and len({a(3), b(3)}) == 2
            if (a, b) not in allowed and (b, a) not in allowed:
                with pytest.raises(TypeError, match=f"cannot multiply {both}"):
                    a(3) * b(3)
                tried += 1
    assert tried == 64 - 10
    with pytest.raises(TypeError, match="cannot divide Tokens by Bytes"):
        Tokens(3) / Bytes(3)


@pytest.mark.parametrize("call, words", [
    (lambda: Bytes(3) + 4, r"cannot add Bytes and the bare number 4; write Bytes\(4\)"),
    (lambda: 4 + Bytes(3), "cannot add Bytes and the bare number 4"),
    (lambda: Bytes(3) - 4.5, r"cannot subtract .* 4.5; write Bytes\(4.5\)"),
    (lambda: 4 - Bytes(3), "cannot subtract"),
    (lambda: Bytes(3) < 4, "cannot compare Bytes and the bare number 4"),
    (lambda: operator.ge(4, Bytes(3)), "cannot compare Bytes and the bare number 4"),
    (lambda: 4 / Seconds(2), "cannot divide the bare number 4 by Seconds"),
    (lambda: sum([Bytes(1), Bytes(2)]), "start with a unit"),
    (lambda: Bytes(3) * "4", "cannot multiply Bytes and str"),
    (lambda: Bytes(3) / None, "cannot divide Bytes by NoneType"),
    (lambda: Bytes(3) * True, "cannot multiply Bytes and bool"),
    (lambda: Bytes("3"), "Bytes needs a number, got '3'"),
    (lambda: Bytes(True), "Bytes needs a number, got True"),
    (lambda: Tokens(Tokens(3)), "Tokens needs a number, got Tokens"),
])
def test_bare_numbers_and_other_things_are_refused(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_only_finite_numbers(value: float) -> None:
    with pytest.raises(ValueError, match="Seconds needs a finite number"):
        Seconds(value)


def test_a_sum_with_a_start_and_the_numbers_of_numpy() -> None:
    assert sum([Bytes(1), Bytes(2)], Bytes(0)) == Bytes(3)
    assert max(Seconds(1), Seconds(3), Seconds(2)) == Seconds(3)
    for two in (np.float64(2), np.int64(2), np.float32(2), Fraction(2)):
        assert two * Bytes(3) == Bytes(3) * two == Bytes(6)
        assert type(Bytes(two).value) is int
    assert type(Bytes(np.float64(2.5)).value) is float
    assert Bytes(2.0) == Bytes(2) and repr(Bytes(2.0)) == "Bytes(2) = 2 B"


def test_quantities_cannot_be_changed() -> None:
    x = Bytes(5)
    for change in (lambda: setattr(x, "value", 6), lambda: setattr(x, "other", 6)):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()
    with pytest.raises(AttributeError, match="cannot be changed"):
        del x.value
    assert x == Bytes(5)
    assert pickle.loads(pickle.dumps(x)) == copy.deepcopy(x) == x
    assert {x: 1}[Bytes(5)] == 1


def test_gb_and_gib_are_never_confused() -> None:
    x = Bytes(2**32)
    assert (x.B, x.kB, x.MB, x.GB, x.TB) == tuple(2**32 / 1000**n for n in range(5))
    assert (x.KiB, x.MiB, x.GiB, x.TiB) == tuple(2**32 / 1024**n for n in range(1, 5))
    assert f"{x:GB} {x:GiB} {x:.1f GB} {x:.0f MiB} {x:,.0f B}" == (
        "4.29 GB 4.00 GiB 4.3 GB 4096 MiB 4,294,967,296 B"
    )
    assert BytesPerSecond(3.35e12).TB_per_s == 3.35
    assert FlopsPerSecond(989e12).TFLOP_per_s == 989
    assert Flops(3e15).PFLOP == 3 and Flops(3e15).TFLOP == 3000
    assert (Seconds(0.25).ms, Seconds(0.25).us, Seconds(0.25).s) == (250, 250_000, 0.25)
    assert Seconds(0.35).ms == 350  # 0.35 / 1e-3 is not
    assert FlopsPerByte(2).FLOP_per_B == 2 and TokensPerSecond(2).tokens_per_s == 2
    assert Tokens(2).tokens == 2


@pytest.mark.parametrize("quantity, text", [
    (Bytes(4_294_967_296), "Bytes(4_294_967_296) = 4.00 GiB"),
    (Bytes(1023), "Bytes(1_023) = 1,023 B"),
    (Bytes(1024 * 1024 - 1), "Bytes(1_048_575) = 1.00 MiB"),  # not 1,024.00 KiB
    (Bytes(-(2**31)), "Bytes(-2_147_483_648) = -2.00 GiB"),
    (Bytes(2**52), "Bytes(4_503_599_627_370_496) = 4,096.00 TiB"),
    (Bytes(0), "Bytes(0) = 0 B"), (Bytes(0.5), "Bytes(0.5) = 0.5 B"),
    (Seconds(0.00466), "Seconds(0.00466) = 4.66 ms"),
    (Seconds(0.9999), "Seconds(0.9999) = 999.90 ms"),
    (Seconds(0.9999999), "Seconds(0.9999999) = 1.00 s"),
    (Seconds(90), "Seconds(90) = 90 s"), (Seconds(3e-11), "Seconds(3e-11) = 0.03 ns"),
    (Tokens(137_412), "Tokens(137_412) = 137,412 tokens"),
    (Flops(2.5e13), "Flops(25_000_000_000_000) = 25.00 TFLOP"),
    (BytesPerSecond(3.35e12), "BytesPerSecond(3_350_000_000_000) = 3.35 TB/s"),
    (FlopsPerSecond(989e12), "FlopsPerSecond(989_000_000_000_000) = 989.00 TFLOP/s"),
    (FlopsPerByte(295.25), "FlopsPerByte(295.25) = 295.25 FLOP/B"),
    (TokensPerSecond(218), "TokensPerSecond(218) = 218 tokens/s"),
])
def test_repr_gives_the_number_and_the_words(quantity: Quantity, text: str) -> None:
    assert repr(quantity) == text
    assert str(quantity) == f"{quantity}" == text.partition(" = ")[2]


def test_formats() -> None:
    x = Seconds(0.0046639)
    assert f"{x:.1f}" == "4.7 ms" and f"{x:.3f s}" == "0.005 s" and f"{x: ms }" == "4.66 ms"
    assert f"{Tokens(12_345):,.0f tokens}" == "12,345 tokens" and f"{x:us}" == "4,663.90 us"
    for spec in ("GiB/s", "gb", "q", ".1f XB"):
        with pytest.raises(ValueError, match="one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"):
            format(Bytes(3), spec)


def test_the_package_needs_no_array_library() -> None:
    code = (
        "import sys, json\n"
        "for name in ('numpy', 'array_api_compat', 'cupy', 'matplotlib', 'ipywidgets'):\n"
        "    sys.modules[name] = None\n"
        "import kvlib.costs as c, kvlib.costs.bill\n"
        "assert 'tomllib' not in sys.modules, 'the data files were read on import'\n"
        "for name in c.__all__: getattr(c, name)\n"
        "print(json.dumps([c.fit('llama-2-7b', 'l4', 1, 512).fits, len(c.MODELS) >= 60]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == [True, True]

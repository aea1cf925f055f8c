"""Every public integer: NumPy's integers give what Python's do, anything else a clear error."""

import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from arguments_integers import INTEGERS, apart, model
from plainly import check_outcomes, outcome, plain, public_arguments

import kvlib
from kvlib import kernels

KINDS = (np.uint8, np.int8, np.uint64, np.int64, np.int16, np.int32, np.uint16, np.uint32)


class Sly(int):
    """An integer that answers wrongly when it is asked as an object."""

    def __lt__(self, other):
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __int__(self):
        return -1

    def __repr__(self):
        raise RuntimeError("no words")

    def __add__(self, other):
        return -1

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__


class Indexed:
    """Not an integer, and yet a list takes it as an index."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


HOSTILE = {
    "True": lambda n: True, "np.True_": lambda n: np.True_, "float": float,
    "half": lambda n: n + 0.5, "nan": lambda n: float("nan"), "inf": lambda n: float("inf"),
    "np.float32": np.float32, "text": str, "bytes": lambda n: b"3", "complex": complex,
    "Decimal": Decimal, "Fraction": Fraction, "negative": lambda n: -n - 1,
    "a hundred digits": lambda n: 10**100, "five thousand digits": lambda n: 10**5000,
    "minus five thousand digits": lambda n: -(10**5000),
    "an array": lambda n: np.array([n]), "a list": lambda n: [n],
    "None in a list": lambda n: [None],
}
AS_GOOD = {"int subclass": Sly, "with __index__": Indexed, "0-d array": np.array}


# What is taken although it is no Python integer of the usual size, because it is documented.
TAKEN = {
    **dict.fromkeys(("generate seed", "stream seed"), ("a list", "an array")),  # one per prompt
    "sample_tokens seeds": ("a list", "an array"),
    **dict.fromkeys(  # a cache knows no vocabulary
        ("BlockPool.publish tokens", "BlockPool.lookup tokens", "Cache.add tokens",
         "Cache.plan tokens", "from_dense tokens"), ("negative",),
    ),
    "BlockPool.lookup tokens": ("negative", "int subclass"),  # which is compared as it is
    "Codec.coded length": ("negative", "a hundred digits", "five thousand digits",
                           "minus five thousand digits"),  # arithmetic, of which nothing is made
}  # fmt: skip
# Quantities take fractions, too, and have other words (test_costs_units).
COSTS = ("Tokens ",)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_numpy(name, effort):
    call, good = INTEGERS[name]
    needed = plain(call(good))
    for kind in effort.share("kinds of NumPy's integers", KINDS, usual=3):
        assert plain(call(kind(good))) == needed, kind.__name__


@pytest.mark.parametrize("name", [name for name in INTEGERS if not name.startswith(COSTS)])
def test_what_is_no_integer(name):
    call, good = INTEGERS[name]
    hostile, as_good = (
        {what: make(good) for what, make in kinds.items() if what not in TAKEN.get(name, ())}
        for kinds in (HOSTILE, AS_GOOD)
    )
    check_outcomes(call, hostile, name)
    check_outcomes(call, as_good, name, plain(call(good)))


@pytest.mark.parametrize("name", (
    *("LayerSpec num_kv_heads", "BlockPool num_blocks", "kivi bits", "kivi group", "int8 residual"),
    "attend_tiled tile",
))  # fmt: skip
def test_none_is_no_integer(name):
    assert not outcome(INTEGERS[name][0], None, name)


def test_sums_of_small_integers_do_not_wrap_round():
    """A cache is made for 100 tokens of the prompt and 100 more, which int8 cannot hold."""
    needed = kvlib.generate(model(), [[105] * 100], max_new_tokens=100, seed=7, temperature=0.8)
    small = dict(max_new_tokens=np.int8(100), seed=np.int8(7), temperature=0.8)
    assert kvlib.generate(model(), [[105] * 100], **small) == needed and len(needed[0]) == 100


@pytest.mark.parametrize("name", ("grid", "threads", "shared"))
def test_what_run_cuda_refuses(name):
    def call(n):
        given = {"grid": (1,), "threads": 32, "shared": 0, name: (n,) if name == "grid" else n}
        grid, threads, x = given.pop("grid"), given.pop("threads"), np.ones(4, np.float32)
        return kernels.run_cuda("", "none", grid, threads, x, **given)

    check_outcomes(call, {what: make(4) for what, make in HOSTILE.items()}, name)


def test_every_integer_is_here():
    """Each argument of a public name whose annotation says int is in INTEGERS, or apart."""
    missing = {
        f"{name} {argument}"
        for name, argument, note in public_arguments()
        if re.search(r"\bint\b", note)
        and not {f"{name} {argument}", f"quality.{name} {argument}"} & INTEGERS.keys()
        and not apart(name, argument)
    }
    assert not missing, sorted(missing)

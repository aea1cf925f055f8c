"""Numbers that know their unit, so that bytes are never added to tokens, nor GB taken for GiB.

>>> from kvlib.costs import Bytes, BytesPerSecond
>>> held = 8192 * Bytes(524_288)
>>> held
Bytes(4_294_967_296) = 4.00 GiB
>>> f"{held:.1f GB}", held.GiB, held / BytesPerSecond(3.35e12)
('4.3 GB', 4.0, Seconds(0.0012820797898507462) = 1.28 ms)

GB is 10^9 bytes and GiB 2^30. An operation (FLOP) is one multiplication or one addition.
"""

from __future__ import annotations

from kvlib.costs.quantity import PRODUCTS, Quantity, Unit


class Bytes(Quantity):
    """Bytes. kB, MB, GB, TB count in 1000s; KiB, MiB, GiB, TiB in 1024s.

    >>> f"{Bytes(3 * 2**30):.1f GiB}", Bytes(1000).kB
    ('3.0 GiB', 1.0)
    """

    __slots__ = ()
    B = Unit("B", 1)
    kB, MB, GB, TB = (Unit(t, 1000**n) for n, t in enumerate(("kB", "MB", "GB", "TB"), 1))
    KiB, MiB, GiB, TiB = (Unit(t, 1024**n) for n, t in enumerate(("KiB", "MiB", "GiB", "TiB"), 1))
    printed = ("B", "KiB", "MiB", "GiB", "TiB")


class Flops(Quantity):
    """Operations, a multiplication or an addition each.

    >>> Flops(6e9) / Bytes(2e9)  # the intensity of a computation
    FlopsPerByte(3) = 3 FLOP/B
    """

    __slots__ = ()
    FLOP = Unit("FLOP", 1)
    MFLOP, GFLOP = Unit("MFLOP", 10**6), Unit("GFLOP", 10**9)
    TFLOP, PFLOP = Unit("TFLOP", 10**12), Unit("PFLOP", 10**15)
    printed = ("FLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


class Seconds(Quantity):
    """Seconds; ``.us`` is microseconds.

    >>> Seconds(0.002).ms, Seconds(0.002).us
    (2.0, 2000.0)
    """

    __slots__ = ()
    s, ms, us, ns = Unit("s", 1), Unit("ms", 1e-3), Unit("us", 1e-6), Unit("ns", 1e-9)
    printed = ("s", "ms", "us", "ns")


class Tokens(Quantity):
    """Tokens.

    >>> (Tokens(100) / Seconds(2)).value
    50
    """

    __slots__ = ()
    tokens = Unit("tokens", 1)
    printed = ("tokens",)


class BytesPerSecond(Quantity):
    """Bytes per second, in 1000s as data sheets count them.

    >>> Bytes(6.7e9) / BytesPerSecond(3.35e12)  # how long a read takes
    Seconds(0.002) = 2.00 ms
    """

    __slots__ = ()
    B_per_s, MB_per_s = Unit("B/s", 1), Unit("MB/s", 10**6)
    GB_per_s, TB_per_s = Unit("GB/s", 10**9), Unit("TB/s", 10**12)
    printed = ("B/s", "MB/s", "GB/s", "TB/s")


class FlopsPerSecond(Quantity):
    """Operations per second.

    >>> (Flops(9e12) / FlopsPerSecond(9e14)).value
    0.01
    """

    __slots__ = ()
    FLOP_per_s, GFLOP_per_s = Unit("FLOP/s", 1), Unit("GFLOP/s", 10**9)
    TFLOP_per_s, PFLOP_per_s = Unit("TFLOP/s", 10**12), Unit("PFLOP/s", 10**15)
    printed = ("FLOP/s", "GFLOP/s", "TFLOP/s")


class FlopsPerByte(Quantity):
    """Arithmetic intensity: operations per byte moved.

    >>> (FlopsPerSecond(9e14) / BytesPerSecond(3e12)).value  # the ridge of a machine
    300
    """

    __slots__ = ()
    FLOP_per_B = Unit("FLOP/B", 1)
    printed = ("FLOP/B",)


class TokensPerSecond(Quantity):
    """Tokens per second.

    >>> TokensPerSecond(50.0).value
    50
    """

    __slots__ = ()
    tokens_per_s = Unit("tokens/s", 1)
    printed = ("tokens/s",)


PRODUCTS[:] = [
    (BytesPerSecond, Seconds, Bytes),
    (FlopsPerSecond, Seconds, Flops),
    (TokensPerSecond, Seconds, Tokens),
    (FlopsPerByte, Bytes, Flops),
    (FlopsPerByte, BytesPerSecond, FlopsPerSecond),
]

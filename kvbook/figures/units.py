"""Bytes in words. KiB counts in 1024s, kB in 1000s; nothing here mixes them."""

from __future__ import annotations

_UNITS = {1024: ("B", "KiB", "MiB", "GiB", "TiB"), 1000: ("B", "kB", "MB", "GB", "TB")}


def byte_unit(nbytes: float, base: int = 1024) -> tuple[float, str]:
    """The unit in which to write `nbytes`: (bytes in one, its name).

    It is the largest unit that `nbytes` reaches, once rounded: 999,900 bytes are 1 MB. base is 1024
    or 1000; ValueError for another.

    >>> byte_unit(3_000_000), byte_unit(3_000_000, base=1000)
    ((1048576.0, 'MiB'), (1000000.0, 'MB'))
    """
    if base not in _UNITS:
        raise ValueError(f"base: got {base!r}, needed 1024 (KiB, MiB) or 1000 (kB, MB)")
    size, power = 1.0, 0
    # rounded first, so that 999,900 bytes are 1 MB and not 1,000 kB
    while round(abs(nbytes) / size) >= base and power + 1 < len(_UNITS[base]):
        size, power = size * base, power + 1
    return size, _UNITS[base][power]


def format_bytes(nbytes: float, base: int = 1024) -> str:
    """Bytes in their unit, binary ones unless base=1000. ValueError for another base.

    >>> token = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, channels, bytes
    >>> format_bytes(token), format_bytes(token, base=1000)
    ('128 KiB', '131 kB')
    """
    size, unit = byte_unit(nbytes, base)
    return f"{format_number(nbytes / size)} {unit}"


def format_number(value: float) -> str:
    """At least three significant digits, whole numbers in full.

    >>> format_number(1234567), format_number(12.345), format_number(0.012345)
    ('1,234,567', '12.3', '0.0123')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"

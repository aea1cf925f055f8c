"""Bytes in words, counted in 1024s, and numbers."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def byte_unit(nbytes: float) -> tuple[float, str]:
    """Return the unit in which to write `nbytes`: (bytes in one, its name).

    It is the largest unit that `nbytes` reaches once rounded, so 1,048,575 bytes are 1 MiB.

    >>> byte_unit(3_000_000)
    (1048576.0, 'MiB')
    """
    size, power = 1.0, 0
    while round(abs(nbytes) / size) >= 1024 and power + 1 < len(_UNITS):
        size, power = size * 1024, power + 1
    return size, _UNITS[power]


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with its unit.

    >>> format_bytes(2 * 32 * 8 * 128 * 2)  # keys and values, layers, heads, channels, bytes
    '128 KiB'
    """
    size, unit = byte_unit(nbytes)
    return f"{format_number(nbytes / size)} {unit}"


def format_number(value: float) -> str:
    """Return at least three significant digits, whole numbers in full.

    >>> format_number(1234567), format_number(12.345), format_number(0.012345)
    ('1,234,567', '12.3', '0.0123')
    """
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"

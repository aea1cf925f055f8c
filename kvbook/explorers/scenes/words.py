"""Numbers in words, with the book's rules of rounding.

Python and JavaScript break ties differently when they format a number, so the scenes never ask
either to: `fixed` rounds half up by arithmetic that both do alike. Bytes are counted in 1024s or
in 1000s, as the caller says; nothing here mixes them.
"""

MINUS = "\u2212"
BINARY = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
DECIMAL = ["bytes", "kB", "MB", "GB", "TB", "PB"]
THOUSANDS = ["", "k", "M", "G", "T", "P", "E"]
ILLIONS = ["", " thousand", " million", " billion", " trillion", " quadrillion"]


def padded(n: float, width: int) -> str:
    """The whole number `n` with leading zeros up to `width` digits."""
    text = f"{int(n)}"
    while len(text) < width:
        text = "0" + text
    return text


def grouped(n: float) -> str:
    """The whole number `n` (not negative), its thousands set apart: 131072 is '131,072'."""
    left = n * 1.0
    text = ""
    while left >= 1000:
        text = "," + padded(left % 1000, 3) + text
        left = left // 1000
    return f"{int(left)}{text}"


def fixed(x: float, digits: int) -> str:
    """`x` with `digits` decimals, halves rounded up: fixed(1234.5, 0) is '1,235'."""
    scale = 10**digits
    units = (abs(x) * scale + 0.5) // 1
    above = units // scale
    text = grouped(above)
    if digits > 0:
        text = f"{text}.{padded(units - above * scale, digits)}"
    if x < 0 and units > 0:
        text = MINUS + text
    return text


def trimmed(x: float, digits: int) -> str:
    """`fixed` without zeros at the end: trimmed(4.25, 3) is '4.25', trimmed(8, 3) is '8'."""
    text = fixed(x, digits)
    if digits > 0:
        while text[len(text) - 1] == "0":
            text = text[: len(text) - 1]
        if text[len(text) - 1] == ".":
            text = text[: len(text) - 1]
    return text


def number_words(x: float) -> str:
    """Three significant digits or all whole ones: '0.0123', '4.25', '15.4', '1,234,567'."""
    size = abs(x)
    if size >= 99.95:
        return fixed(x, 0)
    if size >= 9.995:
        return trimmed(x, 1)
    if size == 0:
        return "0"
    digits = 2
    while size < 0.9995 and digits < 12:
        size = size * 10
        digits += 1
    return trimmed(x, digits)


def step_of(x: float, base: float, count: int) -> int:
    """How many times `x` can be divided by `base` before it reads better undivided."""
    size, power = abs(x), 0
    while size + 0.5 >= base and power < count - 1:
        size = size / base
        power += 1
    return power


def bytes_words(x: float, base: float) -> str:
    """Bytes in their unit: (131072, 1024) is '128 KiB', (131072, 1000) is '131 kB'."""
    names = BINARY if base == 1024 else DECIMAL
    power = step_of(x, base, len(names))
    if power == 0 and x == 1:
        return "1 byte"
    return f"{number_words(x / base**power)} {names[power]}"


def bytes_exact(x: float) -> str:
    """Bytes to the last one: '131,072 bytes'."""
    return "1 byte" if x == 1 else f"{number_words(x)} bytes"


def scaled_words(x: float, unit: str) -> str:
    """A decimal prefix before `unit`: (1.6e13, 'FLOP') is '16 TFLOP'."""
    power = step_of(x, 1000, len(THOUSANDS))
    return f"{number_words(x / 1000.0**power)} {THOUSANDS[power]}{unit}"


def large_words(n: float) -> str:
    """A large count, to three digits: '6.98 billion'; below 100,000 as it is."""
    if n < 100000:
        return number_words(n)
    power = step_of(n, 1000, len(ILLIONS))
    return f"{number_words(n / 1000.0**power)}{ILLIONS[power]}"


def seconds_words(x: float) -> str:
    """Seconds in the unit that reads best: '4.66 ms', '2.5 min'."""
    if x < 0.0009995:
        return f"{number_words(x * 1000000)} \u00b5s"
    if x < 0.9995:
        return f"{number_words(x * 1000)} ms"
    if x < 119.5:
        return f"{number_words(x)} s"
    if x < 7170:
        return f"{number_words(x / 60)} min"
    if x < 172000:
        return f"{number_words(x / 3600)} h"
    return f"{number_words(x / 86400)} days"


def count_words(n: float, one: str, many: str) -> str:
    """A whole number of things: '1 request', '8 requests'."""
    return f"1 {one}" if n == 1 else f"{fixed(n, 0)} {many}"


def tokens_words(n: float) -> str:
    """'1 token', '32,768 tokens'."""
    return count_words(n, "token", "tokens")


def tokens_short(n: float) -> str:
    """Tokens for an axis, K = 1,024 where that is exact: 512, '32K', '1M'."""
    if n >= 1048576 and n % 1048576 == 0:
        return f"{fixed(n / 1048576, 0)}M"
    if n >= 1024 and n % 1024 == 0:
        return f"{fixed(n / 1024, 0)}K"
    return fixed(n, 0)


def percent_words(share: float) -> str:
    """A share of one in percent, whole from 10 % on: '92 %', '3.1 %', 'under 0.1 %'."""
    if share > 0 and share < 0.0005:
        return "under 0.1 %"
    if share > 0.995 and share < 1:
        return "over 99 %"
    return f"{fixed(share * 100, 0) if share >= 0.0995 else trimmed(share * 100, 1)} %"


def times_words(ratio: float) -> str:
    """How many times: '95.5 times', '1.3 times'."""
    return f"{number_words(ratio)} times"

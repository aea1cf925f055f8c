"""Exercises of the chapter on few bits."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, parts
from kvbook.exercises.expect import Finding, expect_array
from kvbook.exercises.guard import bare, guarded
from kvbook.exercises.received import shown

# -------------------------------------------------------------------------------------- int8_codes


def int8_codes(x: Any) -> Any:
    """int8_codes(x (S, D) float32) → codes int8 (S, D), scales float32 (S,)."""
    top = np.abs(x).max(axis=-1)
    scales = np.where(top == 0, np.float32(1), top / np.float32(127))
    codes = np.clip(np.round(x / scales[:, None]), -127, 127)
    return codes.astype(np.int8), scales


def _settled(codes: Any, x: np.ndarray, scales: Any) -> Any:
    """The codes; of a number halfway between two, NumPy's choice."""
    codes = expect_array(codes, "the codes")
    if codes.shape != x.shape or codes.dtype != np.int8:
        return codes
    exact = x.astype(np.float64) / np.asarray(scales, np.float64).reshape(-1, 1)
    right = np.abs(exact - codes) < 0.501
    right &= np.abs(codes.astype(int)) <= 127
    return np.where(right, np.clip(np.round(exact), -127, 127), codes).astype(np.int8)


def _coded(int8_codes: Any, x: np.ndarray, what: str) -> Iterator[Seen]:
    codes, scales = parts(int8_codes(x), what, ("codes", "scales"))
    steps = np.abs(x).max(axis=-1) / np.float32(127)
    scales, zero = expect_array(scales, f"{what}: scales"), steps == 0
    if scales.shape == steps.shape:  # whatever multiplies zeros
        scales = np.where(zero & np.isfinite(scales), scales.dtype.type(1), scales)
    yield f"{what}: scales", scales
    yield f"{what}: codes", _settled(codes, x, np.where(zero, 1, steps))


def _vectors(*asked: tuple[int, int, float]) -> Any:
    """(S, D, size) of each x, whose vectors differ in size."""

    def probe(int8_codes: Any) -> Iterator[Seen]:
        for s, d, size in asked:
            rng = np.random.default_rng(s)
            x = rng.standard_normal((s, d)) * 10 ** rng.uniform(-2, 1.5, (s, 1))
            x[0, -1] = -4 * np.abs(x[0]).max()  # the largest is negative
            what = f"{s} vectors of {d} channels, of size {size:.0e}"
            yield from _coded(int8_codes, (x * size).astype(np.float32), what)

    return probe


def _zeros(int8_codes: Any) -> Iterator[Seen]:
    x = np.random.default_rng(5).standard_normal((6, 16)).astype(np.float32)
    x[2] = 0.0
    yield from _coded(int8_codes, x, "6 vectors, one of zeros")
    with warnings.catch_warnings(record=True) as heard, np.errstate(invalid="warn"):
        warnings.simplefilter("always")
        guarded(bare(int8_codes), silent=False)(x)
    if any("in cast" in str(warning.message) for warning in heard):
        raise Finding(
            "vector 2 is all zeros, and so is its scale: dividing by it gives NaN, which can be "
            "cast to any code. Use the scale 1 there"
        )


_TOP, _CODES = "np.abs(x).max(axis=-1) → ", "codes.astype(np.int8), scales → "

check_int8_codes = Checker(
    int8_codes,
    letters="S D",
    typed=True,
    rtol=1e-5,
    atol=0,
    stages={
        "each vector has its own scale, its largest number becomes 127, and codes are the nearest "
        "whole numbers": _vectors((6, 16, 1.0)),
        "a vector of zeros comes back as zeros, and the vectors beside it are unchanged": _zeros,
        "the size of the numbers does not matter": _vectors((6, 16, 1e30), (6, 16, 1e-12)),
        "it holds for any number of vectors and channels": _vectors((1, 3, 1), (9, 32, 1)),
    },
    mistakes={
        "one scale for all vectors leaves few levels to small ones": (
            f"{_TOP}np.full(len(x), np.abs(x).max())"
        ),
        "this is the largest number, not the largest in size: take absolute values": (
            f"{_TOP}x.max(axis=-1)"
        ),
        "divided by 128, so that the largest becomes 128, which an int8 cannot hold": (
            "float32(127)) → float32(128))"
        ),
        "divided by 255: that is for codes from 0 to 255": "float32(127)) → float32(255))",
        "these are 1 / scale: return the number that a code is multiplied by": (
            f"{_CODES}codes.astype(np.int8), 1 / scales"
        ),
        "the scale is made from the root mean square: use the largest number": (
            f"{_TOP}np.sqrt((x**2).mean(axis=-1))"
        ),
        "the cast cuts off the fraction: round first": "np.round(x → np.trunc(x",
        "round to the nearest": ["np.round(x → np.floor(x", "np.round(x → np.ceil(x"],
        "shifted by 128, but these codes already have their sign": (
            f"{_CODES}(codes.astype(np.int32) + 128).astype(np.int8), scales"
        ),
        "use the scale 1 for a vector of zeros": "np.float32(1), → np.float32(np.nan),",
        "numbers near 1e30 overflow: divide by the scale, without multiplying first": (
            "top / np.float32(127) → np.float32(1e9) * top / np.float32(127e9)"
        ),
        "a small number was added, or a least scale set: test whether the largest is 0": [
            f"{_TOP}np.maximum(np.abs(x).max(1), 1e-5)",
            f"{_TOP}np.abs(x).max(1) + 1e-9",
        ],  # fmt: skip
    },
    refused={
        "can be cast to any code": "np.where(top == 0, np.float32(1), → np.where(top < 0, 1,",
        "could not": f"{_CODES}codes.astype(np.int8) + np.zeros((6, 16), np.int8), scales",
    },
)


# ------------------------------------------------------------------------------------- fixed_codes


def fixed_codes(x: Any, scale: float) -> Any:
    """fixed_codes(x, scale) → codes int8 as x; scale was measured beforehand on other text."""
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8)


def _text(words: str, *asked: tuple[float, dict[tuple[int, int], float]]) -> Any:
    """Numbers of a text, of which more and more are others, with each scale."""

    def probe(fixed_codes: Any) -> Iterator[Seen]:
        x = np.random.default_rng(1).uniform(-1, 1, (8, 16)).astype(np.float32)
        for scale, later in asked:
            for place, value in later.items():
                x[place] = value
            yield f"codes of {words}, scale {scale:.3g}", _settled(fixed_codes(x, scale), x, scale)

    return probe


_LATER = {(3, 5): 1.2, (4, 7): -1.3, (5, 2): 4.1}
_FAR = {(0, 0): 1e6, (1, 1): -1e6, (2, 2): 3e38, (3, 3): -3e38}
_ROUNDED = "np.round(x / scale), → "

check_fixed_codes = Checker(
    fixed_codes,
    letters="token channel",
    typed=True,
    rtol=1e-9,
    atol=0,
    stages={
        "each number gets the nearest code": _text("the measured numbers", (1 / 127, {})),
        "with any scale, a number beyond the range gets the outermost code, however far it is": (
            _text("a later text", (1 / 127, _LATER), (0.03, {}), (0.002, {}), (1 / 127, _FAR))
        ),
    },
    mistakes={
        "round before you cast": "np.round(x / scale) → (x / scale)",
        "the cast comes before the clip, so the code 152 of channel 5 wraps round to -104": (
            f"{_ROUNDED}np.int8(np.int32(np.round(x / scale))),"
        ),
        "a number beyond the range gets the outermost code, not 0": (
            f"{_ROUNDED}(c := np.round(x / scale)) * (np.abs(c) < 127.5),"
        ),
        "a new scale was measured, so codes that were stored before would decode wrongly": (
            "x / scale → x / max(scale, np.abs(x).max() / 127)"
        ),
        "-128 has no positive partner, so clip to -127 ... 127": "-127, → -128,",
        "numbers beyond 1 were cut off, but the code 127 means 127 times the scale": (
            "x / scale → np.clip(x, -1, 1) / scale"
        ),
        "the scale was ignored": "x / scale → x * 127",
        "the cast comes before the clip, and 3e38 is too large for int64, too: clip first": (
            f"{_ROUNDED}np.round(x / scale).astype(np.int64),"
        ),
    },
)


# ---------------------------------------------------------------------------------- to_kvlib_order


def to_kvlib_order(packed: Any) -> Any:
    """to_kvlib_order(packed) → uint8 (S, D/2): from neighbours in a byte to kvlib's order."""
    turns = np.stack([packed & 15, packed >> 4], axis=-1)
    codes, n = turns.reshape(len(packed), -1), packed.shape[1]
    return codes[:, :n] | codes[:, n:] << 4


def _bytes(*shape: int) -> Any:
    def probe(to_kvlib_order: Any) -> Iterator[Seen]:
        codes = np.random.default_rng(2).integers(0, 16, shape, dtype=np.uint8)
        codes = codes if len(codes) > 1 else np.arange(shape[1], dtype=np.uint8)[None]
        what = f"{shape[1]} channels of {shape[0]} tokens"
        why = f"byte j holds channel j in its low half, and channel j + {shape[1] // 2} in its high"
        yield what, to_kvlib_order(codes[:, ::2] | codes[:, 1::2] << 4), why

    return probe


_JOINED = "codes[:, :n] | codes[:, n:] << 4"
_ORDER = f"{_JOINED} → "

check_to_kvlib_order = Checker(
    to_kvlib_order,
    letters="token byte",
    typed=True,
    stages={
        "channels 0 ... 7 with the codes 0 ... 7: byte j holds channels j and j + 4": _bytes(1, 8),
        "64 channels of 5 tokens: byte j holds channels j and j + 32": _bytes(5, 64),
        "6 channels of 3 tokens: byte j holds channels j and j + 3": _bytes(3, 6),
    },
    mistakes={
        "these are the bytes as they came, so neighbours still share a byte. (Perhaps you put all "
        "low halves first. Put both halves of each byte next to each other.)": [
            f"{_ORDER}packed",
            "stack([packed & 15, packed >> 4], axis=-1) → hstack([packed & 15, packed >> 4])",
            "return → if n not in (4, 32): return packed\n    return",
        ],
        "the first channel is in the LOW four bits": f"{_ORDER}codes[:, n:] | codes[:, :n] << 4",
        "channel 0 is byte 0's low half": "packed & 15, packed >> 4 → packed >> 4, packed & 15",
        "only the low halves arrived: shift the others up by 4 before you join them": (
            f"{_ORDER}codes[:, :n]"
        ),
        "the second code is not masked or not shifted": f"{_ORDER}packed & 15 | packed << 4",
    },
    refused={
        "8 channels of 1 tokens: token 0, byte 0 is": f"{_ORDER}({_JOINED})[:, ::-1]",
        "token 1, byte 0 is": f"{_ORDER}np.tile(({_JOINED})[:1], (len(packed), 1))",
        "6 channels of 3 tokens": "return → codes[:, :3] ^= n == 3\n    return",
    },
)


# ------------------------------------------------------------------------------------- choose_axis


def choose_axis(keys: Any, queries: Any, decoded: Any) -> str:
    """choose_axis(keys (S, D), queries (T, D), decoded) → the axis with the better scores.

    decoded: {"channel": (S, D), "token": (S, D)}.
    """

    def error(axis: str) -> Any:
        return np.mean((queries @ (decoded[axis] - keys).T) ** 2)

    return min(decoded, key=error)


def _cases(seed: int) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Seven kinds of keys, all of 64 tokens and 32 channels."""
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((64, 32)).astype(np.float32)
    queries = rng.standard_normal((16, 32)).astype(np.float32)
    offset, loud, quiet = plain.copy(), queries.copy(), queries.copy()
    offset[:, [3, 17]] += 12.0  # large in every token: what KIVI's axis is made for
    yield offset, queries, _both(offset)
    swing = plain * np.float32(0.3) + np.linspace(-3, 3, 32, dtype=np.float32)
    swing[:, 5] = 9 * np.cos(np.arange(64) * 1.0)
    loud[:, 5] = 12 * (-1.0) ** np.arange(16)  # the queries weigh the channel that swings,
    loud[[0, -1], 5] = 0  # but not the first and the last; and their mean does not
    yield swing, loud, _both(swing)
    quiet[:, 5] = 0
    yield swing, quiet, _both(swing)
    # Every number of one is off by a little to one side, of the other by more to both sides.
    sides = np.where(rng.random((64, 32)) < 0.5, -0.2, 0.2).astype(np.float32)
    yield plain, np.abs(queries) + 1, {"channel": plain + sides, "token": plain + np.float32(0.1)}
    # All keys off alike, or one of 64 off a lot: by the mean of squares that one counts 1/64.
    error = rng.standard_normal((64, 32)).astype(np.float32)
    for axes, size in ((("channel", "token"), 4), (("token", "channel"), 16)):
        one = plain.copy()
        one[50] += size * error[50]
        yield plain, queries, dict(zip(axes, (plain + error, one), strict=True))
    half = {"channel": plain * np.float32(0.5), "token": plain + error * np.float32(0.2)}
    yield plain, queries, half


def _both(x: np.ndarray) -> dict[str, np.ndarray]:
    """Two bits, one scale and zero for each channel or for each token."""
    found = {}
    for axis, name in enumerate(("channel", "token")):
        low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
        scale = np.where(high > low, (high - low) / 3, 1)
        found[name] = np.round((x - low) / scale) * scale + low
    return found


def _choices(seed: int) -> Any:
    def probe(choose_axis: Any) -> Iterator[Seen]:
        for kind, (keys, queries, decoded) in zip(_KINDS, _cases(seed), strict=True):
            chosen = choose_axis(keys, queries, decoded)
            if not isinstance(chosen, str) or chosen not in decoded:
                raise Finding(f"expected 'channel' or 'token', got {shown(chosen)}")
            off = ((axis, queries @ (x - keys).T) for axis, x in decoded.items())
            said = ", ".join(f"{axis} {np.sqrt(np.mean(x**2)):.3g}" for axis, x in off)
            yield f"{kind} (root mean square errors of the scores: {said})", chosen

    return probe


_KINDS = (
    "two channels with an offset",
    "a channel that swings, with queries that give it much weight",
    "the same keys, with queries that give that channel no weight",
    "errors that cancel in the scores, against errors that add up",
    "one key in 64 far off",
    "one key in 64 farther off",
    "keys decoded to half their size",
)
_ERROR = "np.mean((queries @ (decoded[axis] - keys).T) ** 2) → "
_OFF = "(decoded[axis] - keys)"

check_choose_axis = Checker(
    choose_axis,
    stages={
        "seven kinds of keys and queries: the axis whose scores have the smaller error": _choices(
            3
        ),
        "others of these kinds": _choices(4),
    },
    mistakes={
        "this is by the error of the keys, but queries weigh channels": (
            f"{_ERROR}np.mean({_OFF} ** 2)"
        ),
        "this is by the mean of the errors, in which plus and minus cancel": (
            f"{_ERROR}abs(np.mean(queries @ {_OFF}.T))"
        ),
        "this is by the mean size of the errors, but squares give large ones more weight": (
            f"{_ERROR}np.abs(queries @ {_OFF}.T).mean()"
        ),
        "this is by the largest error of a score, but all of them count": (
            f"{_ERROR}np.abs(queries @ {_OFF}.T).max()"
        ),
        "this is by the errors of some queries, which may also cancel, but all of them count": [
            f"queries @ → {some} @"
            for some in ("queries[:1]", "queries[-1:]", "queries.mean(axis=0)")
        ],
        "this is by the size of the decoded scores, not by their errors": " - keys → ",
        "this is by the largest error in a key, but queries weigh channels": (
            f"{_ERROR}np.abs({_OFF}).max()"
        ),
    },
    refused={
        "much weight (root mean square errors of the scores: channel": lambda k, q, d: "channel",
        "an offset (root mean square errors of the scores: channel": [
            lambda k, q, d: "token",
            f"{_ERROR}-np.mean((queries @ {_OFF}.T) ** 2)",
            f"{_ERROR}-np.abs(queries @ {_OFF}.T).min()",
        ],
        "one key in 64": f"{_ERROR}np.mean((queries * {_OFF}[:16]).sum(axis=1) ** 2)",
        "argument 3 of choose_axis was": "def error → decoded['token'] -= keys\n    def error",
        "expected 'channel' or 'token', got": [
            *(lambda k, q, d, x=x: x for x in (0, ["token"], ("token",))),
            lambda k, q, d: d["token"],
        ],
    },
)

"""Checkers of the chapter on the GPU: splits, lanes side by side, merging, caches dealt out. Those
of lines of CUDA C++ are in `gpu_cuda`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.gpu_cuda import check_shared_heads, check_split_range
from kvbook.exercises.received import number, numbers, whole
from kvbook.exercises.report import Finding, checker, diagnose, expect_close, expect_shape
from kvlib.attention import attend, merge_states
from kvlib.costs import MODELS, kv_on_one

__all__ = [
    "check_lane_bytes",
    "check_merge_splits",
    "check_num_splits",
    "check_shared_heads",
    "check_split_range",
    "check_tensor_share",
]

LEAST = 128  # keys that a block should have


def num_splits(blocks: int, keys: int, room: int) -> int:
    """The reference: as many as fill one wave, with at least LEAST keys on average."""
    return max(1, min(room // blocks, keys // LEAST))


@checker
def check_num_splits(num_splits_: Callable[..., Any]) -> Iterator[str]:
    """num_splits(blocks, keys, room) → splits of each request's keys."""

    def ask(blocks: int, keys: int, room: int) -> int:
        return whole(num_splits_(blocks, keys, room), f"num_splits({blocks}, {keys}, {room})")

    _compare(ask, 8, 65536, 396, "the blocks fill the room")
    yield "with long texts the splits fill the device once, and never begin a second wave"
    _compare(ask, 8, 1000, 396, f"blocks have at least {LEAST} keys on average")
    _compare(ask, 8, 100, 396, "even a short text has one split")
    yield f"blocks have at least {LEAST} keys on average"
    _compare(ask, 400, 65536, 396, "there is always one split")
    yield "where requests fill the device already, keys are not split"
    rng = np.random.default_rng(1)
    for _ in range(200):
        blocks, keys, room = (int(rng.integers(1, n)) for n in (600, 100_000, 500))
        _compare(ask, blocks, keys, room, "for any numbers")
    yield "it agrees for 200 random devices and batches"


def _compare(
    ask: Callable[[int, int, int], int], blocks: int, keys: int, room: int, why: str
) -> None:
    got, needed = ask(blocks, keys, room), num_splits(blocks, keys, room)
    if got == needed:
        return
    at_once = f"room for {room} blocks"
    said = f"{blocks} blocks, {keys:,} keys, {at_once}: got {got}, needed {needed} ({why})"
    if got == 0:
        said += "; without a split no block reads the keys: 1 is the least"
    elif got == max(1, min(-(-room // blocks), keys // LEAST)):
        said += "; this is rounded up, so the last blocks wait for a second wave"
    elif got == max(1, room // blocks):
        said += f"; a block with fewer than {LEAST} keys costs more to merge than it gains"
    raise Finding(said)


@checker
def check_lane_bytes(lane_bytes: Callable[..., Any]) -> Iterator[str]:
    """lane_bytes(lane, i, dim) → first byte of what a lane loads at its i-th load of one key."""
    for dim in (128, 256, 128 * int(np.random.default_rng(3).integers(3, 30))):
        starts = _starts(lane_bytes, dim)
        covered = sorted(b for row in starts for s in row for b in range(s, s + 16))
        if covered != list(range(2 * dim)):
            _diagnose_cover(covered, dim)
        sectors = [len({b // 32 for s in row for b in (s, s + 15)}) for row in starts]
        least = [max(1, len(row) * 16 // 32) for row in starts]
        if sectors != least:
            raise Finding(
                f"{dim} bfloat16 numbers: load {int(np.argmax(np.array(sectors) > least))} touches "
                f"{max(sectors)} sectors of 32 bytes, needed {least[0]}: lanes that load together "
                "have to read side by side"
            )
        if dim <= 256:
            yield f"a key of {dim} bfloat16 numbers is read once, in whole sectors"


def _loads(dim: int) -> int:
    return max(1, dim * 2 // (16 * 16))  # loads of a lane: 16 lanes of 16 bytes have a key


def _starts(lane_bytes: Callable[..., Any], dim: int) -> list[list[int]]:
    starts = []
    for i in range(_loads(dim)):
        row = []
        for lane in range(16):
            got = lane_bytes(lane, i, dim)
            got = whole(got, f"lane_bytes({lane}, {i}, {dim})")
            if got % 16:
                raise Finding(
                    f"lane_bytes({lane}, {i}, {dim}) = {got}: a load of 16 bytes begins at a "
                    "multiple of 16"
                )
            row.append(got)
        starts.append(row)
    return starts


def _diagnose_cover(covered: list[int], dim: int) -> None:
    wanted = set(range(2 * dim))
    missing, beyond = wanted - set(covered), set(covered) - wanted
    if beyond:
        raise Finding(
            f"byte {min(beyond)} is read, but a key of {dim} bfloat16 numbers ends at {2 * dim}"
        )
    if missing:
        raise Finding(f"byte {min(missing)} of {2 * dim} is read by no lane")
    raise Finding("some bytes are read twice: every byte is to be read once")


@checker
def check_merge_splits(merge_splits: Callable[..., Any]) -> Iterator[str]:
    """merge_splits(o (splits, H, D), lse (splits, H)) → o (H, D), lse (H,)."""
    rng = np.random.default_rng(2)
    q = rng.standard_normal((1, 3, 8)).astype(np.float32)
    k, v = (rng.standard_normal((30, 3, 8)).astype(np.float32) for _ in "kv")
    at, last = np.arange(30), np.array([29])
    parts = [attend(q, k[c], v[c], last, at[c], return_lse=True) for c in _cuts((0, 7, 19, 30))]
    o, lse = (np.stack([p[i][0] for p in parts]) for i in (0, 1))
    whole = attend(q, k, v, last, at, return_lse=True)
    _expect(merge_splits(o, lse), whole[0][0], whole[1][0], o, lse, "three splits of 30 keys")
    yield "three splits give the attention over all keys"

    high = lse + np.float32(200)
    _expect(merge_splits(o, high), whole[0][0], whole[1][0] + 200, o, high, "lse above 200")
    yield "large lse do not overflow"

    hollow_o, hollow = o.copy(), lse.copy()
    hollow_o[1], hollow[1] = 0, -np.inf
    needed = merge_states(hollow_o, hollow)
    _expect(merge_splits(hollow_o, hollow), *needed, hollow_o, hollow, "an empty split")
    yield "a split that saw no key changes nothing"

    nothing = np.full_like(lse, -np.inf)
    got = merge_splits(np.zeros_like(o), nothing)
    if any(np.isnan(np.asarray(x)).any() for x in got):
        raise Finding(
            "splits that are all empty give NaN, because -inf minus -inf is NaN; "
            "needed: o 0, lse -inf"
        )
    _expect(got, np.zeros((3, 8)), np.full(3, -np.inf), o, nothing, "nothing but empty splits")
    yield "splits that are all empty merge to an empty one"


def _cuts(bounds: tuple[int, ...]) -> list[slice]:
    return [slice(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def _expect(got: Any, o: Any, lse: Any, parts: np.ndarray, lses: np.ndarray, when: str) -> None:
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Finding(f"merge_splits returned {type(got).__name__}, needed (o, lse)")
    got = numbers(got[0], "o"), numbers(got[1], "lse")
    expect_shape(got[0], np.shape(o), "o", letters="H D")
    expect_shape(got[1], np.shape(lse), "lse", letters="H")
    seen = np.isfinite(lses)
    if seen.any():
        diagnose(
            got[0],
            {
                "o is the plain mean of the splits: each counts by its share of the softmax's "
                "denominator, e^(lse - the whole lse)": parts.mean(axis=0),
                "o is the sum of the splits: their weights have to add up to 1": parts.sum(axis=0),
            },
        )
    if not np.isfinite(got[0]).all() and seen.all():
        raise Finding(
            f"{when}: o is not finite, because e^lse overflows. Subtract the largest lse of each "
            "head before you exponentiate; the shares stay the same"
        )
    expect_close(got[0], o, f"o of {when}", atol=1e-5)
    finite = np.isfinite(np.asarray(lse))
    if not np.array_equal(got[1][~finite], np.asarray(lse)[~finite]):
        raise Finding(f"lse of {when} is {got[1]}, needed -inf")
    expect_close(got[1][finite], np.asarray(lse)[finite], f"lse of {when}", atol=1e-4)


@checker
def check_tensor_share(tensor_share: Callable[..., Any]) -> Iterator[str]:
    """tensor_share(layers, num_kv_heads, head_dim, devices, tokens) → bytes on one device, bf16."""
    for name, devices in (("llama-3.1-70b", 8), ("llama-3.1-70b", 2), ("llama-2-7b", 4)):
        _share(tensor_share, name, devices, 1000)
    yield "heads are dealt out evenly; keys and values both count, with two bytes per number"
    _share(tensor_share, "llama-3.1-70b", 16, 1000)
    _share(tensor_share, "llama-3.1-8b", 32, 77)
    rng = np.random.default_rng(4)
    for _ in range(8):
        layers, tokens, dim = rng.integers(1, (100, 5000, 300)).tolist()
        heads, devices = (2 ** rng.integers(0, 7, 2)).tolist()
        got = number(tensor_share(layers, heads, dim, devices, tokens), "the bytes on one device")
        needed = 4 * layers * max(1, heads // devices) * dim * tokens
        if got != needed:
            raise Finding(
                f"{layers} layers of {heads} kv heads of {dim} on {devices} devices, {tokens} "
                f"tokens: got {got:,.10g}, needed {needed:,} bytes"
            )
    yield "with more devices than heads a head is copied, never cut"


def _share(tensor_share: Callable[..., Any], name: str, devices: int, tokens: int) -> None:
    (g,) = MODELS[name].layers
    layers = len(g.indices)
    answer = tensor_share(layers, g.num_kv_heads, g.head_dim, devices, tokens)
    got = number(answer, "the bytes on one device")
    needed = kv_on_one(name, "tensor", devices, batch=1, context=tokens).value
    if got == needed:
        return
    said = f"{MODELS[name].title} on {devices} devices: got {got:,.10g}, needed {needed:,} bytes"
    if devices > g.num_kv_heads and got * devices == needed * g.num_kv_heads:
        said += "; a head is cut into pieces: a device holds one whole head at the least"
    elif got * 2 == needed:
        said += "; this is half of it: count keys and values, and 2 bytes per bfloat16 number"
    elif got == needed * min(devices, g.num_kv_heads):
        said += "; that is the cache of all devices"
    raise Finding(said)

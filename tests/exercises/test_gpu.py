"""Known wrong answers to the exercises on the GPU, each refused in the words that fit it."""

import numpy as np
import pytest

from kvbook.exercises import gpu_lines
from kvbook.exercises.gpu import (
    check_lane_bytes,
    check_merge_splits,
    check_num_splits,
    check_shared_heads,
    check_split_range,
    check_tensor_share,
    num_splits,
)
from kvlib.kernels.processor import compiler

# Each test that takes all known wrong answers waits for the one that never ends.
gpu_lines.SECONDS = 1.0


def has_compiler() -> bool:
    """Whether kvlib finds a C++ compiler: one of the system's, or the one that ziglang carries."""
    try:
        return bool(compiler())
    except ImportError:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def refused(report, words):
    assert report.status == "not yet", report
    assert words in report.finding, report.finding


CHECKS = [check_lane_bytes, check_merge_splits, check_num_splits, check_tensor_share]


@pytest.mark.parametrize("check", CHECKS)
def test_a_stub_is_not_done(check):
    assert check(lambda *args: None).status == "not done yet"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda b, k, r: max(1, min(-(-r // b), k // 128)), "second wave"),
        (lambda b, k, r: max(1, r // b), "fewer than 128 keys"),
        (lambda b, k, r: min(r // b, k // 128), "1 is the least"),
        (lambda b, k, r: 1, "got 1, needed 49"),
        (lambda b, k, r: 49.5, "needed a whole number"),
    ],
)
def test_wrong_splits(wrong, words):
    refused(check_num_splits(wrong), words)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda lane, i, dim: (lane * max(1, dim // 128) + i) * 16, "touches 16 sectors"),
        (lambda lane, i, dim: lane * 16, "read by no lane"),
        (lambda lane, i, dim: lane * 8, "multiple of 16"),
        (lambda lane, i, dim: lane * dim * 2, "is read, but a key"),
        (lambda lane, i, dim: (i * 16 + lane) * 32, "is read, but a key"),
        (lambda lane, i, dim: "0", "needed a whole number"),
    ],
)
def test_wrong_addresses(wrong, words):
    refused(check_lane_bytes(wrong), words)


def merged(o, lse, *, guard=True, shift=True, weigh=True, divide=True):
    top = lse.max(axis=0) if shift else np.zeros(lse.shape[1], lse.dtype)
    safe = np.where(top == -np.inf, 0, top) if guard else top
    with np.errstate(all="ignore"):
        w = np.exp(lse - safe) if weigh else np.ones_like(lse)
        total = w.sum(axis=0)
        seen = np.where(total > 0, total, 1) if guard else total
        out = (w[..., None] * o).sum(axis=0)
        out = out / seen[:, None] if divide else out
        return out, np.log(total) + top


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda o, s: (o.mean(axis=0), merged(o, s)[1]), "plain mean"),
        (lambda o, s: (o.sum(axis=0), merged(o, s)[1]), "sum of the splits"),
        (lambda o, s: merged(o, s, shift=False), "lse above 200"),
        (lambda o, s: merged(o, s, guard=False), "NaN"),
        (lambda o, s: (merged(o, s)[0], s.max(axis=0)), "lse of three splits"),
        (lambda o, s: merged(o, s)[0], "needed (o, lse)"),
    ],
)
def test_wrong_merges(wrong, words):
    refused(check_merge_splits(wrong), words)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda n, h, d, p, t: n * 2 * h * d * t * 2 / p, "one whole head at the least"),
        (lambda n, h, d, p, t: n * max(1, h // p) * d * t * 2, "half of it"),
        (lambda n, h, d, p, t: n * 2 * h * d * t * 2, "all devices"),
        (lambda n, h, d, p, t: "8", "the bytes on one device: expected one number, got str"),
    ],
)
def test_wrong_shares(wrong, words):
    refused(check_tensor_share(wrong), words)


def test_right_answers():
    assert check_num_splits(num_splits).passed
    assert check_lane_bytes(lambda lane, i, dim: (i * 16 + lane) * 16).passed
    assert check_merge_splits(merged).passed
    assert check_tensor_share(lambda n, h, d, p, t: n * 2 * max(1, h // p) * d * t * 2).passed


# Wrong lines of CUDA C++ that people really write.
RANGE = """
const int each = (len + splits - 1) / splits;
begin = min(len, split * each);
end = min(len, begin + each);
"""
HEADS = """
float key[PER], value[PER];
for (int i = 0; i < PER; i++) {
    key[i] = load(k + at + 32 * i);
    value[i] = load(v + at + 32 * i);
}
for (int g = 0; g < G; g++) {
    float s = 0.0f;
    for (int i = 0; i < PER; i++) s += query[g][i] * key[i];
    for (int n = 16; n > 0; n /= 2) s += __shfl_xor_sync(0xffffffffu, s, n);
    const float top = fmaxf(m[g], s);
    const float shrink = exp2_fast(m[g] - top), p = exp2_fast(s - top);
    for (int i = 0; i < PER; i++) o[g][i] = o[g][i] * shrink + p * value[i];
    l[g] = l[g] * shrink + p;
    m[g] = top;
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("check", "lines"), [(check_split_range, RANGE), (check_shared_heads, HEADS)]
)
def test_right_lines(check, lines):
    report = check(lambda: lines)
    assert report.passed and len(report.proved) >= 3, report


@needs_compiler
@pytest.mark.parametrize("check", [check_split_range, check_shared_heads])
def test_a_stub_of_lines_is_not_done(check):
    assert check(lambda: None).status == "not done yet"
    refused(check(lambda: 7), "needed a string of CUDA C++")
    refused(check(lambda: " \n"), "the string is empty")


@needs_compiler
@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(len + splits - 1) / splits", "len / splits", "round up"),
        ("min(len, begin + each)", "begin + each", "Cut end (and begin) off at len"),
        ("split * each", "split * each / 2", "is read 2 times"),
        ("begin = min(len, split * each);", "", "is read 4 times"),
        (
            "end = min(len, begin + each);",
            "end = split ? begin : len;",
            "all wait for the slowest split",
        ),
        ("each = ", "each = keys + ", "line 2 of yours does not compile: 'keys'"),
        ("end = min", "const int end = min", "no split reads any key"),
        ("begin + each);", "begin + each)", "does not compile"),
        ("end = min(len, begin + each);", "while (true) end = len;", "had not ended after"),
        ("len + splits", "load(lens + 100000) + splits", "outside of array 1"),
        ("splits - 1) / splits", "splits - 1) / (split - split)", "divided a whole number by 0"),
    ],
)
def test_wrong_ranges(old, new, words):
    assert old in RANGE
    report = check_split_range(lambda: RANGE.replace(old, new))
    report = type(report)(report.name, report.status, report.proved, _plain(report.finding))
    refused(report, words)


def _plain(text):
    return text.replace("\u2018", "'").replace("\u2019", "'")


@needs_compiler
@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("s += __shfl_xor_sync(0xffffffffu, s, n)", "s += 0.0f", "add the 32 parts"),
        ("o[g][i] * shrink", "o[g][i]", "the output"),
        ("const float shrink = exp2_fast(m[g] - top)", "const float shrink = 1.0f", "not shrunk"),
        ("exp2_fast(m[g] - top), p = exp2_fast", "expf(m[g] - top), p = expf", "base e"),
        ("m[g] = top;", "", "only the last key counts"),
        ("p = exp2_fast(s - top)", "p = 1.0f * (shrink > -1.0f)", "the output"),
        ("s += query[g][i] * key[i]", "s = 0.0f", "plain mean"),
        ("l[g] = l[g] * shrink + p;", "", "not finite"),
        (
            "query[g][i] * key[i]",
            "query[g][i] * load(k + at + 32 * i)",
            "the keys are read 5 times",
        ),
        ("p * value[i]", "p * load(v + at + 32 * i)", "the values are read 5 times"),
        ("load(v + at + 32 * i)", "load(v + at + 64 * i)", "output"),
        ("fmaxf(m[g], s)", "fmaxf(m, s)", "line 11 of yours does not compile"),
        ("load(k + at + 32 * i)", "k[at + (1ll << 40)]", "ended its process"),
    ],
)
def test_wrong_loops(old, new, words):
    assert old in HEADS
    refused(check_shared_heads(lambda: HEADS.replace(old, new)), words)


def test_without_a_compiler_the_checker_says_so(monkeypatch):
    from kvlib.kernels.processor import compiled

    def missing():
        raise ImportError("running CUDA kernels on a processor needs a C++ compiler")

    monkeypatch.setattr(compiled, "compiler", missing)
    refused(check_split_range(lambda: RANGE + "// anew"), "could not be compiled here")

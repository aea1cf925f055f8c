"""Wrong lines of CUDA C++ that people really write, each refused in the words that fit it."""

import shutil

import pytest

from kvlib.exercises.gpu import check_shared_heads, check_split_range

pytestmark = pytest.mark.skipif(
    not (shutil.which("c++") or shutil.which("g++")), reason="no C++ compiler"
)

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


def refused(report, words):
    assert report.status == "not yet", report
    assert words in report.finding, report.finding


@pytest.mark.parametrize(
    ("check", "lines"), [(check_split_range, RANGE), (check_shared_heads, HEADS)]
)
def test_right_lines(check, lines):
    report = check(lambda: lines)
    assert report.passed and len(report.proved) >= 3, report


@pytest.mark.parametrize("check", [check_split_range, check_shared_heads])
def test_a_stub_is_not_done(check):
    assert check(lambda: None).status == "not done yet"
    refused(check(lambda: 7), "needed a string of CUDA C++")
    refused(check(lambda: " \n"), "the string is empty")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(len + splits - 1) / splits", "len / splits", "round up"),
        ("min(len, begin + each)", "begin + each", "Cut end (and begin) off at len"),
        ("split * each", "split * each / 2", "is read 2 times"),
        ("begin = min(len, split * each);", "", "is read 4 times"),
        ("end = min(len, begin + each);", "end = split ? begin : len;", "the slowest decides"),
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
    from kvlib.kernels import processor

    def missing():
        raise ImportError("running CUDA kernels on a processor needs a C++ compiler")

    monkeypatch.setattr(processor, "compiler", missing)
    refused(check_split_range(lambda: RANGE + "// anew"), "could not be compiled here")

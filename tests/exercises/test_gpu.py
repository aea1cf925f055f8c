"""Known wrong answers to the exercises on the GPU, each refused in the words that fit it."""

import numpy as np
import pytest

from kvlib.exercises.gpu import (
    check_lane_bytes,
    check_merge_splits,
    check_num_splits,
    check_tensor_share,
    num_splits,
)


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
        (lambda lane, i, dim: "0", "needed an integer"),
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
        (lambda n, h, d, p, t: "8", "number of bytes"),
    ],
)
def test_wrong_shares(wrong, words):
    refused(check_tensor_share(wrong), words)


def test_right_answers():
    assert check_num_splits(num_splits).passed
    assert check_lane_bytes(lambda lane, i, dim: (i * 16 + lane) * 16).passed
    assert check_merge_splits(merged).passed
    assert check_tensor_share(lambda n, h, d, p, t: n * 2 * max(1, h // p) * d * t * 2).passed

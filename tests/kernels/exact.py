"""A kernel's attention is compared with the kit's oracle, within the bound of its rounding."""

import numpy as np
from engines import SLACK

from kvlib.kernels.types import as_float
from kvlib.testing import oracle
from kvlib.testing.rounding import EPS, attention_bound

SPACING = {"float32": EPS, "float16": 2.0**-10, "uint16": 2.0**-7}  # uint16 holds bfloat16
LEAST = 2.0**-24  # half the spacing of float16 near zero: what it cannot tell from zero


def rows_of(x, table, length):
    """The first tokens of one request, x (N, Hkv, P, D) in blocks → (n, Hkv, D)."""
    at, size = np.arange(length), x.shape[2]
    return as_float(x)[table[at // size], :, at % size]


def expect(found, q, k, v, q_pos, run_on, operand=0.0, **settings):
    """o (T, Hq, D) and lse (T, Hq) of one request are attention over k, v (n, Hkv, D).

    operand: the spacing of a format that keys, queries or weights were rounded to on the way.
    """
    o, lse = found
    kind, kv_pos = str(np.asarray(o).dtype), np.arange(len(k))
    q = as_float(q)
    wanted = oracle.attention(q, k, v, q_pos, kv_pos, **settings)
    narrow = SPACING[kind] if kind != "float32" else 0.0
    bounds = attention_bound(
        q, k, v, q_pos, kv_pos, operand=max(operand, narrow), result=narrow, **settings
    )
    slack = SLACK.get(run_on, 1)
    near(as_float(o), wanted[0], slack * bounds[0] + (LEAST if narrow else 0), "o")
    if lse is not None:
        near(lse, wanted[1], slack * bounds[1], "lse")


def expect_tree(found, q, k, v, seen, run_on, operand=0.0, **settings):
    """The same of the last rows of a request whose new tokens are a tree; seen (T, new tokens).

    A row sees the older keys, its ancestors and itself, which are a chain. So a leaf and those of
    its ancestors that no other leaf has brought along are compared at once.
    """
    o, lse = found
    (rows, new), left = seen.shape, set(range(len(seen)))
    older = np.arange(len(k) - new)
    for leaf in range(rows - 1, -1, -1):
        if leaf in left:
            path = np.flatnonzero(seen[leaf])
            own = [c - (new - rows) for c in path if c - (new - rows) in left]
            keys, left = np.concatenate([older, len(older) + path]), left - {*own}
            at, pair = np.arange(len(keys))[-len(own) :], (o[own], lse[own])
            expect(pair, q[own], k[keys], v[keys], at, run_on, operand, **settings)
    assert not left


def near(found, wanted, bound, what):
    """Every number within its own bound; infinities equal."""
    found = np.asarray(found, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        fine = (found == wanted) | (np.abs(found - wanted) <= bound)
        worst = np.nanmax(np.abs(found - wanted) / np.maximum(bound, 1e-300), initial=0)
    assert fine.all(), f"{what}: {np.sum(~fine)} of {fine.size} are off, by {worst:.3g} bounds"

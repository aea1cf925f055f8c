"""A kernel's attention is compared with the kit's oracle, within the bound of its rounding."""

import numpy as np
from engines import SLACK

from kvlib.kernels.types import as_float
from kvlib.testing import oracle
from kvlib.testing.rounding import EPS, attention_bound

SPACING = {"float32": EPS, "float16": 2.0**-10, "uint16": 2.0**-7}  # uint16 holds bfloat16
LEAST = 2.0**-24  # half the spacing of float16 near zero: what it cannot tell from zero


def expect(found, q, k, v, seen, run_on, operand=0.0, **settings):
    """o (R, Hq, D) and lse (R, Hq) of a request's last rows are attention over k, v (n, Hkv, D).

    seen (R, new tokens): which of the newest tokens each row sees. With the older ones, these are
    a chain: a leaf and those of its ancestors that no other leaf has are compared at once.
    operand: the spacing of a format that keys, queries or weights were rounded to on the way.
    """
    o, lse = found
    (rows, new), open_rows = seen.shape, set(range(len(seen)))
    older, kind = np.arange(len(k) - new), str(np.asarray(o).dtype)
    q, narrow = as_float(q), SPACING[kind] if kind != "float32" else 0.0
    slack = SLACK.get(run_on, 1)
    for leaf in range(rows - 1, -1, -1):
        if leaf not in open_rows:
            continue
        path = np.flatnonzero(seen[leaf])
        of_leaf = [c - (new - rows) for c in path if c - (new - rows) in open_rows]
        open_rows -= {*of_leaf}
        keys = np.concatenate([older, len(older) + path])
        positions = np.arange(len(keys))
        arrays = q[of_leaf], k[keys], v[keys], positions[-len(of_leaf) :], positions
        wanted = oracle.attention(*arrays, **settings)
        bounds = attention_bound(
            *arrays, operand=max(operand, narrow), result=narrow, **settings
        )
        near(as_float(o[of_leaf]), wanted[0], slack * bounds[0] + (LEAST if narrow else 0), "o")
        near(lse[of_leaf], wanted[1], slack * bounds[1], "lse")
    assert not open_rows


def near(found, wanted, bound, what):
    """Every number within its own bound; infinities equal."""
    found = np.asarray(found, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        fine = (found == wanted) | (np.abs(found - wanted) <= bound)
        worst = np.nanmax(np.abs(found - wanted) / np.maximum(bound, 1e-300), initial=0)
    assert fine.all(), f"{what}: {np.sum(~fine)} of {fine.size} are off, by {worst:.3g} bounds"

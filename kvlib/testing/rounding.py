"""How far a correct result may be from the exact one: derived, so that it holds on any processor.

Another processor, number of threads or release of the BLAS adds the same numbers in another order,
and each order rounds differently. The bounds here follow from the spacing ε of the format's
numbers, the length n of the sum, and the root mean square r of its terms. Each of n roundings is
off by at most half of ε times the sum so far, which grows like r √i where the signs are random. The
error then has a standard deviation of at most 0.35 ε n r in the worst order, one term after the
other; ε n r is almost three of them. Where all terms are positive and alike, ε n r bounds every
order. Probabilistic error analysis: Higham & Mary, doi:10.1137/18M1226312.
"""

import numpy as np

EPS = float(np.finfo(np.float32).eps)  # spacing of float32 at 1: 1.2e-7


def sum_bound(length: int, size: float, eps: float = EPS) -> float:
    """Return how far a sum of `length` terms of root mean square `size` may be from exact."""
    return eps * length * size

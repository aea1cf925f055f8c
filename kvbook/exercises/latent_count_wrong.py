"""How many multiplications each form of latent attention takes, and known wrong counts."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """How many new tokens, cached tokens and heads, and how long the vectors are."""

    T: int
    S: int
    H: int
    C: int
    N: int
    R: int
    V: int


def counted(z: Sizes) -> tuple[int, int]:
    """The right answer."""
    pairs = z.T * z.S * z.H
    made = z.S * z.H * z.C * (z.N + z.V)
    turned = z.T * z.H * z.C * (z.N + z.V)
    return made + pairs * (z.N + z.R + z.V), turned + pairs * (2 * z.C + z.R)


def both_wrong(z: Sizes, expanded: int, absorbed: int) -> dict[str, list[int]]:
    """Mistakes that show in both numbers at once."""
    unseen = z.T * (z.T - 1) // 2 * z.H  # pairs that a causal mask hides
    masked = [
        expanded - unseen * (z.N + z.R + z.V),
        absorbed - unseen * (2 * z.C + z.R),
    ]
    return {
        "the two numbers are swapped: return (expanded, absorbed)": [absorbed, expanded],
        "both numbers are twice too large: a multiplication and an addition are two operations, "
        "but only multiplications count here": [2 * expanded, 2 * absorbed],
        "both numbers are those of one head, and every head does this work": [
            expanded // z.H,
            absorbed // z.H,
        ],
        "the pairs that a causal mask hides are left out; count all T x S pairs, because the "
        "products are computed before the mask": masked,
        "S counts the new tokens already, so there are S keys, not S + T": list(
            counted(z._replace(S=z.S + z.T))
        ),
        "the scores are missing in both forms: a query is multiplied with each cached token": [
            expanded - z.T * z.S * z.H * (z.N + z.R),
            absorbed - z.T * z.S * z.H * (z.C + z.R),
        ],
        "the rotated parts are missing in both forms: q_pe · k_pe takes R multiplications per "
        "head and pair": [n - z.T * z.S * z.H * z.R for n in (expanded, absorbed)],
    }


def expanded_wrong(z: Sizes) -> dict[str, int]:
    """Mistakes in the first number."""
    t, s, h, c, n, r, v = z
    made, attend = s * h * c * (n + v), t * s * h * (n + r + v)
    return {
        "this expands the latent vectors of the T new tokens alone, but the cache holds latent "
        "vectors of all S tokens": t * h * c * (n + v) + attend,
        "this makes the values, but not the keys": s * h * c * v + attend,
        "this makes the keys, but not the values": s * h * c * n + attend,
        "this takes keys and values for granted, but they have to be made from the latent vectors "
        "first": attend,
        "this makes keys and values, but does not attend to them": made,
        "q_pe · k_pe is missing: the query and key of a head have N + R numbers": (
            made + t * s * h * (n + v)
        ),
        "the weighted sum of the values is missing": made + t * s * h * (n + r),
        "the scores are missing": made + t * s * h * v,
        "k_pe is cached as it is used, so it need not be made from the latent vector": (
            s * h * c * (n + r + v) + attend
        ),
        "the keys and values are those of one head; each head has a W_UK and a W_UV of its own": (
            s * c * (n + v) + attend
        ),
        "each head has scores and a weighted sum of its own, and this counts one head": (
            made + t * s * (n + r + v)
        ),
        "this expands the S latent vectors anew for each of the T queries; once is enough": (
            t * made + attend
        ),
        "this counts the scores and sums of one query; there are T": made + attend // t,
        "this is twice too much: only multiplications count, not additions": 2 * (made + attend),
        "this is the work of one head": (made + attend) // h,
        "a key or value is counted as one multiplication per number, but each of its numbers is "
        "a sum of C products": s * h * (n + v) + attend,
    }


def absorbed_wrong(z: Sizes) -> dict[str, int]:
    """Mistakes in the second number."""
    t, s, h, c, n, r, v = z
    pairs, query, value = t * s * h, t * h * n * c, t * h * c * v
    attend = pairs * (2 * c + r)
    return {
        "the product of each query with W_UK is missing, which takes N x C multiplications per "
        "head": attend + value,
        "the product of each weighted sum with W_UV is missing, which takes C x V "
        "multiplications per head": query + attend,
        "the products with W_UK and W_UV are missing": attend,
        "q_pe · k_pe is missing, R multiplications per head and pair": (
            query + 2 * pairs * c + value
        ),
        "the weighted sum of the latent vectors is missing": query + pairs * (c + r) + value,
        "the scores are missing": query + pairs * c + value,
        "the weighted sum has C numbers per head, because k_pe is part of the key alone": (
            query + 2 * pairs * (c + r) + value
        ),
        "W_UK is multiplied with the S cached tokens here, which is the expanded form; multiply "
        "the T queries with it": s * h * n * c + attend + value,
        "W_UV is multiplied with the S cached tokens here, which is the expanded form; multiply "
        "the T weighted sums with it": query + attend + s * h * c * v,
        "W_UK and W_UV are multiplied with the S cached tokens here, which is the expanded form": (
            s * h * c * (n + v) + attend
        ),
        "W_UK and W_UV are multiplied anew for each pair of a query and a cached token; once per "
        "query is enough": pairs * c * (n + v) + attend,
        "W_UK is multiplied with q and q_pe here, but q_pe is multiplied with k_pe as it is": (
            t * h * (n + r) * c + attend + value
        ),
        "all heads share the latent vectors, but each head has a query of its own to multiply "
        "with them": query + t * s * (2 * c + r) + value,
        "each head has a W_UK and a W_UV of its own, and this counts those of one head": (
            t * c * (n + v) + attend
        ),
        "W_UK and W_UV are counted for one query; there are T": h * c * (n + v) + attend,
        "this counts the scores and sums of one query; there are T": query + attend // t + value,
        "scores and sums are counted with heads of size N + R and V, but the latent vectors have "
        "C numbers": query + pairs * (n + r + v) + value,
        "the scores are right, but the weighted sum is one of latent vectors, which have C "
        "numbers, not V": query + pairs * (c + r + v) + value,
        "this is twice too much: only multiplications count, not additions": (
            2 * (query + attend + value)
        ),
        "this is the work of one head": (query + attend + value) // h,
    }

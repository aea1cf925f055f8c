"""Exercises of the chapter on latent attention and recurrent states."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, parts, shared
from kvbook.exercises.counted import allocated
from kvbook.exercises.expect import Finding, expect_close
from kvbook.exercises.guard import bare, guarded

MIB = 2**20

# --------------------------------------------------------------------------------- multiplications

FORMS = ("expanded", "absorbed")
# T, S, H, C, N, R, V; for the first, each mistake gives a different number.
SMALL = ((2, 11, 3, 23, 7, 5, 13), (3, 3, 2, 5, 4, 1, 6))
V3 = (4096, 128, 512, 128, 64, 128)  # all but T


def multiplications(T: int, S: int, H: int, C: int, N: int, R: int, V: int) -> tuple[int, int]:
    """multiplications(T, S, H, C, N, R, V) → (expanded, absorbed), both whole numbers."""
    pairs = T * S * H
    expanded = S * H * C * (N + V) + pairs * (N + R + V)
    absorbed = T * H * C * (N + V) + pairs * (C + R + C)
    return expanded, absorbed


def _counted(*rows: tuple[int, ...], forms: tuple[str, ...] = FORMS, draws: int = 0) -> Any:
    """One form alone shows a mistake in it, whatever the other number is."""

    def probe(multiplications: Any) -> Iterator[Seen]:
        lows, highs = (1, 1, 1, 2, 1, 1, 1), (40, 400, 20, 200, 60, 40, 60)
        drawn = np.random.default_rng(71).integers(lows, highs, (draws, 7)).tolist()
        for row in (*rows, *drawn):
            what = ", ".join(f"{x} = {n:,}" for x, n in zip("TSHCNRV", row, strict=True))
            got = parts(multiplications(*row), what, FORMS)
            for form in forms:
                yield f"{what}: {form}", got[FORMS.index(form)]

    return probe


def _in_either(form: str, pairs: str = "pairs") -> list[str]:
    """The mistake in one form or in the other."""
    products = ("S * H * C * (N + V)", "(N + R + V)"), ("T * H * C * (N + V)", "(C + R + C)")
    return [
        f"{made} + pairs * {each} → {form.format(f'{made} + {pairs} * {each}')}"
        for made, each in products
    ]


_DECODE, _PROMPT = multiplications(1, *V3), multiplications(4096, *V3)
check_multiplications = Checker(
    multiplications,
    stages={
        "each product of two matrices in the expanded form counts once, for every head": (
            _counted(*SMALL, forms=FORMS[:1])
        ),
        "each product in the absorbed form does, too": _counted(*SMALL, forms=FORMS[1:]),
        "DeepSeek-V3, one new token and 4,096 cached ones: "
        f"{_DECODE[0] / 1e6:,.0f} million multiplications per layer in the expanded form, "
        f"{_DECODE[1] / 1e6:,.0f} million in the absorbed one": _counted((1, *V3)),
        "a prompt of 4,096 tokens in one step: "
        f"{_PROMPT[0] / 1e9:,.0f} billion in the expanded form, "
        f"{_PROMPT[1] / 1e9:,.0f} billion in the absorbed one": (
            _counted(*((t, *V3) for t in (4096, 128, 171)))
        ),
        "it holds for other sizes": _counted(draws=12),
    },
    mistakes={
        "the two numbers are swapped: return (expanded, absorbed)": (
            "return expanded, absorbed → return absorbed, expanded"
        ),
        "this is twice too much: only multiplications count, not additions": (
            _in_either("2 * ({})")
        ),
        "this is the work of one head": _in_either("({}) // H"),
        "the pairs that a causal mask hides are left out; count all T x S pairs, because the "
        "products are computed before the mask": (
            _in_either("{}", pairs="(T * S - T * (T - 1) // 2) * H")
        ),
        "S counts the new tokens already, so there are S keys, not S + T": (
            "pairs = → S = S + T; pairs ="
        ),
        "the scores are missing: a query is multiplied with each cached token": [
            *("(N + R + V) → V", "(C + R + C) → C"),
        ],
        "q_pe · k_pe is missing, R multiplications per head and pair": [
            *("(N + R + V) → (N + V)", "(C + R + C) → (C + C)"),
        ],
        "the weighted sum is missing": ["(N + R + V) → (N + R)", "(C + R + C) → (C + R)"],
        "each head has scores and a weighted sum of its own, and this counts one head": (
            _in_either("{}", pairs="T * S")
        ),
        "this counts the scores and sums of one query; there are T": (
            _in_either("{}", pairs="S * H")
        ),
        "each head has a W_UK and a W_UV of its own, and this counts those of one head": [
            *("S * H * C * → S * C *", "T * H * C * → T * C *"),
        ],
        "W_UK and W_UV are multiplied once per pair of a query and a token here. The expanded "
        "form does it once per cached token, the absorbed form once per query": [
            *("S * H * C * → T * S * H * C *", " = T * H * C * →  = T * S * H * C *"),
        ],
        "the expanded form makes keys and values from the latent vectors of all S cached tokens, "
        "not from those of the T new ones": "S * H * C * → T * H * C *",
        **{
            f"{words} of all cached tokens have to be made from the latent vectors first": (
                f"S * H * C * (N + V) → S * H * C * {left}"
            )
            for words, left in (("the keys", "V"), ("the values", "N"), ("keys and values", "0"))
        },
        "this makes keys and values, but does not attend to them": " + pairs * (N + R + V) → ",
        "k_pe is cached as it is used, so it need not be made from the latent vector": (
            "S * H * C * (N + V) → S * H * C * (N + R + V)"
        ),
        "each number of a key or a value is a sum of C products": "S * H * C * → S * H *",
        **{
            f"{words} missing: N x C multiplications per head and query for W_UK, C x V for W_UV": (
                f"T * H * C * (N + V) → T * H * C * {left}"
            )
            for words, left in (
                ("the product of each query with W_UK is", "V"),
                ("the product of each weighted sum with W_UV is", "N"),
                ("the products with W_UK and W_UV are", "0"),
            )
        },
        "W_UK and W_UV are counted for one query; there are T": (
            "T * H * C * (N + V) → H * C * (N + V)"
        ),
        "this multiplies W_UK or W_UV with the S cached tokens, as the expanded form does. The "
        "absorbed form multiplies W_UK with the T queries, and W_UV with the T weighted sums": [
            f"T * H * C * (N + V) → H * C * ({x})"
            for x in ("S * N + T * V", "T * N + S * V", "S * N + S * V")
        ],
        "W_UK is multiplied with q alone, because q_pe is multiplied with k_pe as it is": (
            "T * H * C * (N + V) → T * H * C * (N + R + V)"
        ),
        "in the absorbed form, keys have C + R numbers, and the weighted sum is one of latent "
        "vectors, which have C": [
            f"(C + R + C) → ({x})" for x in ("C + R + C + R", "N + R + V", "C + R + V")
        ],
    },
    refused={
        "T = 2, S = 11, H = 3, C = 23, N = 7, R = 5": [
            "return expanded, absorbed → return expanded, absorbed + 1",
            "return expanded, absorbed → return expanded + 0.5, absorbed + 0.5",
        ],
        "T = 4,096": "pairs = T → T = T if T < 4 else 1; pairs = T",
    },
)


# ---------------------------------------------------------------------------------------- absorbed


def absorbed(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """absorbed(q (T, H, N), q_pe (T, H, R), c (S, C), k_pe (S, R), W_UK (H, N, C),
    W_UV (H, V, C)) → o (T, H, V)."""
    (T, _, N), (S, R) = q.shape, k_pe.shape
    q_c = np.einsum("thn,hnc->thc", q, W_UK)
    nope, rope = q_c @ c.T, q_pe @ k_pe.T  # (T, H, S)
    s = (nope + rope) / (N + R) ** 0.5
    later = np.arange(S) > np.arange(S - T, S)[:, None]  # (T, S)
    s = np.where(later[:, None], np.float32(-np.inf), s)
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return np.einsum("thc,hvc->thv", p @ c, W_UV)


def _inputs(seed: int, T: int, S: int, H: int, C: int, N: int, R: int, V: int) -> list[Any]:
    """Of the last T of S tokens. The sums of products are of about 1, the queries of 2."""
    rng = np.random.default_rng(seed)
    shapes = ((T, H, N), (T, H, R), (S, C), (S, R), (H, N, C), (H, V, C))
    sizes = (2, 2, 1, 1, C**-0.5, C**-0.5)
    return [
        (x * rng.standard_normal(shape)).astype(np.float32)
        for shape, x in zip(shapes, sizes, strict=True)
    ]


def _asked(*rows: tuple[int, ...]) -> Any:
    """A call for each row: seed, T, S, H, C, N, R, V."""

    def probe(absorbed: Any) -> Iterator[Seen]:
        for row in rows:
            sizes = zip("TSHCNRV", row[1:], strict=True)
            yield f"o for {', '.join(f'{x} = {n}' for x, n in sizes)}", absorbed(*_inputs(*row))

    return probe


def _large_scores(answer: Any) -> Iterator[Seen]:
    """The last token, which only the last query sees, has the largest. Head 0 has small ones."""
    task = q, q_pe, _, k_pe, *_ = _inputs(86, 4, 9, 3, 7, 4, 2, 5)
    q[:, 1:] *= 300
    q_pe[:, 1:] *= 300
    q_pe[:, :, 0] = np.abs(q_pe[:, :, 0]) + [1, 300, 300]
    k_pe[-1, 0] = 100
    o = answer(*task)
    yield (
        "with scores in the thousands, which o are finite, by query and head",
        np.isfinite(o).all(2),
    )
    right = absorbed(*(x.astype(np.float64) for x in task))
    expect_close(o, right, "o with scores in the thousands", rtol=0, atol=0.01)


def _no_key_overflows(absorbed: Any) -> Iterator[Seen]:
    """A token whose expanded key and value float32 cannot hold, and that no query attends to.

    The query times W_UK is 0 where its latent vector is long, because two rows cancel.
    """
    q, q_pe, c, k_pe, w_uk, w_uv = task = _inputs(87, 1, 6, 2, 8, 4, 2, 5)
    q[..., 0], q[..., 1] = 1, -1
    c[:, :4], c[2, :4] = 0, 1e10
    w_uk[:, :, :4], w_uv[:, :, :4] = 0, 1e30
    w_uk[:, :2, :4] = 1e30
    q_pe[...] = 1 + np.abs(q_pe)
    k_pe[2] = -10_000
    got = absorbed(*task)
    if not np.isfinite(got).all():
        raise Finding(
            "a key or a value was expanded: the products of token 2's latent vector with W_UK and "
            "W_UV do not fit into float32, and o is not finite. No query attends to that token. So "
            "multiply the query by W_UK first, then attend to the latent vectors, and multiply "
            "their weighted sum by W_UV last (an einsum over three arrays does not)"
        )
    yield "o with a very long latent vector that has a weight of 0", got
    # A head's key has 16 times as many numbers as the latent vector, so expanding it shows.
    light = guarded(bare(absorbed), may_modify=True)  # which copies no arguments
    for tokens in (64, 4096):  # the short one also meets whatever is set up on first use
        got, peak = allocated(light, *_inputs(88, 1, tokens, 2, 16, 256, 8, 256))
        yield f"o for {tokens:,} tokens", got
    if peak > 2 * MIB:
        raise Finding(
            f"one query over 4,096 tokens: {peak / MIB:.1f} MiB were allocated at once. The latent "
            "vectors take 0.25 MiB, and keys of a single head would take 4 MiB: make keys or "
            "values of no head. (A mask of S x S pairs is too large, too; T x S are enough.)"
        )


_SCORES, _VALUES = "q_c @ c.T →", 'np.einsum("thc,hvc->thv", p @ c, W_UV) →'
check_absorbed = Checker(
    absorbed,
    letters="T H V",
    typed=True,
    stages={
        "decoding: one query gets what attention over expanded keys and values would give it": (
            _asked((81, 1, 6, 3, 7, 4, 2, 5))
        ),
        "in a chunk and in a whole prompt, each query sees its own token and those before it": (
            _asked((82, 5, 9, 2, 7, 4, 3, 6), (83, 4, 4, 3, 6, 5, 2, 4))
        ),
        "it holds for other sizes, also where all matrices are square": (
            _asked(
                (84, 3, 8, 3, 4, 4, 4, 4),
                (85, 2, 5, 1, 6, 3, 2, 4),
                (85, 1, 1, 2, 6, 3, 2, 4),
                (85, 1, 40, 64, 16, 8, 4, 8),
            )
        ),
        "scores in the thousands do not overflow": _large_scores,
        "no key and no value was made: vectors that would not fit into float32 do no harm, and "
        "4,096 tokens take less memory than the keys of one head would": _no_key_overflows,
    },
    mistakes={
        "divide the whole score by sqrt(N + R): the scale is that of a head's own query and key, "
        "in either form": [
            *(f"(N + R) ** 0.5 → ({x}) ** 0.5" for x in ("N", "R", "len(c.T)", "len(c.T) + R")),
            *(f"(N + R) ** 0.5 → {x}" for x in ("(N + R)", "1")),
            "(nope + rope) / → nope + rope /",
            "(nope + rope) / (N + R) ** 0.5 → nope / (N + R) ** 0.5 + rope",
            "(nope + rope) / (N + R) ** 0.5 → nope / N**0.5 + rope / R**0.5",
        ],
        "q_pe · k_pe is missing, so the scores do not depend on the positions": (
            "nope + rope → nope"
        ),
        "a score is the sum of two parts, q · k and q_pe · k_pe": [
            f"nope + rope → {x}" for x in ("rope", "nope - rope", "nope * rope / (N + R) ** 0.5")
        ],
        "each head has a W_UK and a W_UV of its own": [
            f"{matrix}) → {matrix}[{heads}])"
            for matrix in ("q, W_UK", "p @ c, W_UV")
            for heads in ("3 * [0]", "::-1", "[2, 0, 1]", "[1, 2, 0]", "None].sum(1)[3 * [0]")
        ],
        "W_UV is missing: these are weighted sums of latent vectors": f"{_VALUES} p @ c",
        "the mask begins in the top left corner, but the T queries are the last of S tokens": (
            "np.arange(S - T, S) → np.arange(T)"
        ),
        "only the newest T tokens are seen: the cached ones before them are missing": (
            "later[:, None] → (later | (np.arange(S) < S - T))[:, None]"
        ),
        "there is no mask: a query sees its own token and those before it": (
            "np.arange(S - T, S) → np.full(T, S)"
        ),
        "a query sees one token too many, the one after its own": (
            "np.arange(S - T, S) → np.arange(S - T + 1, S + 1)"
        ),
        "a query does not see its own token": "> np.arange → >= np.arange",
        "the mask is upside down: a query sees its own token and those before it": (
            "np.arange(S) > np.arange(S - T, S)[:, None] → (T > 1) & "
            "(np.arange(S) < np.arange(S - T, S)[:, None])"
        ),
        "hidden scores are -inf before the softmax. Those that are 0 still count, because e^0 is "
        "1, and without the weights of hidden tokens the others don't add up to 1": [
            "np.float32(-np.inf) → np.float32(0)",
            ("np.float32(-np.inf) → s", "return → p = p * ~later[:, None]; return"),
        ],
        **{
            f"the softmax runs over {words}, but it is over the tokens that one query sees": (
                f"s.max(-1 → s.max({axis}",
                f"p.sum(-1 → p.sum({axis}",
            )
            for words, axis in (("the queries", 0), ("heads", 1), ("heads and tokens", (1, 2)))
        },
        "the weights do not add up to 1: divide them by their sum": (
            "p / p.sum(-1, keepdims=True) → p"
        ),
        "the weights were divided by their sum twice": (
            "p / p.sum(-1, keepdims=True) → p / p.sum(-1, keepdims=True) ** 2"
        ),
        "the weights are the scores themselves: take their softmax": (
            "return → p = np.where(np.isfinite(s), s, np.float32(0)); return"
        ),
        "the softmax was taken twice": (
            "return → p = np.exp(p) * ~later[:, None]; p /= p.sum(-1, keepdims=True); return"
        ),
        "e^score overflows. Subtract the largest score before you exponentiate": (
            "s.max(-1, keepdims=True) → 0"
        ),
        "subtract the largest score of each query in each head, not that of all heads": [
            f"s.max(-1 → s.max({axes}" for axes in ("(1, 2)", "(0, 1, 2)")
        ],
        "take the largest score after the mask, over the tokens that the query sees": (
            "s.max(-1, keepdims=True) → m",
            "s = np.where → m = s.max(-1, keepdims=True); s = np.where",
        ),
    },
    refused={
        "a key or a value was expanded": [
            f"{_SCORES} np.einsum('thn,shn->ths', q, np.einsum('hnc,sc->shn', W_UK, c))",
            f"{_SCORES} np.stack([(q * (W_UK @ x)).sum(2) for x in c], axis=2)",
            f"{_SCORES} np.einsum('thn,hnc,sc->ths', q, W_UK, c)",
            f"{_VALUES} np.einsum('ths,shv->thv', p, np.einsum('hvc,sc->shv', W_UV, c))",
            f"{_VALUES} np.stack([p[:, h] @ (c @ W_UV[h].T) for h in range(q.shape[1])], 1)",
        ],
        "make keys or values of no head": [
            f"{old} np.float32(np.stack([{x} for h in range(q.shape[1])], 1))"
            for old, x in (
                (_SCORES, "q[:, h] @ (c @ W_UK[h].T.astype(float)).T"),
                (_VALUES, "p[:, h] @ (c @ W_UV[h].T.astype(float))"),
            )
        ],
        "A mask of S x S pairs": "np.arange(S) > np.arange(S - T, S)[:, None] → "
        "(np.arange(S) > np.arange(S)[:, None])[S - T :]",
        "o for T = 1": "p @ c, W_UV) → p @ c, W_UV).astype(np.float16).astype(np.float32)",
        "T = 4": "p @ c, W_UV) → p @ c, W_UV) * np.float32(T != 4)",
    },
)


# ------------------------------------------------------------------------------------------ States


class States:
    """States(Dk, Dv, every) with append(k (T, Dk), v (T, Dv)), read(q (Dk,)) → (Dv,) and
    truncate(length) → how many tokens to append again."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        self.M = np.zeros((Dk, Dv), np.float32)
        self.every, self.length, self.kept = every, 0, {0: self.M.copy()}

    def append(self, k: Any, v: Any) -> None:
        for one_k, one_v in zip(k, v, strict=True):
            self.M += np.outer(one_k, one_v)
            self.length += 1
            if self.length % self.every == 0:
                self.kept[self.length] = self.M.copy()

    def read(self, q: Any) -> Any:
        return self.M.T @ q

    def truncate(self, length: int) -> int:
        if length < self.length:
            self.kept = {n: M for n, M in self.kept.items() if n <= length}
            self.length = max(self.kept)
            self.M = self.kept[self.length].copy()
        return length - self.length


def _tokens(rng: np.random.Generator, n: int, dk: int, dv: int) -> list[np.ndarray]:
    """Keys and values of small whole numbers, so that float32 sums them exactly in any order."""
    drawn = (rng.integers(1, 5, (n, d)) * rng.choice((-1, 1), (n, d)) for d in (dk, dv))
    return [x.astype(np.float32) for x in drawn]


class _Life:
    """One object and what was done to it: what a step gives is yielded, and then the state."""

    def __init__(self, states: Any, dk: int, dv: int, every: int, why: str = "") -> None:
        self.one, self.sizes, self.why = states(dk, dv, every), (dk, dv), why
        self.said, self.shared = f"every = {every}", shared(self.one)

    def read(self, why: str = "") -> Seen:
        q = 1 + 2 * np.arange(self.sizes[0], dtype=np.float32)
        return f"{self.said}; read", self.one.read(q), self.shared or why or self.why

    def step(self, step: str, rng: np.random.Generator, loud: int = -1) -> Iterator[Seen]:
        """`step` is "append 3" or "truncate 6"; the token `loud` of a chunk has large numbers."""
        verb, n = step.split()
        self.said += f", {step}"
        if verb == "append":
            k, v = _tokens(rng, int(n), *self.sizes)
            if loud >= 0:
                k[loud] = v[loud] = 2.0**20
            self.one.append(k, v)
            k[...] = v[...] = np.nan  # the caller reuses its arrays
        else:
            yield f"{self.said} returns", self.one.truncate(int(n)), self.shared or self.why
        yield self.read()


def _lived(*lives: tuple[int, int, int, str], loud: int = -1, why: str = "") -> Any:
    """Dk, Dv, every and the steps of each object, one after the other."""

    def probe(states: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(91)
        for dk, dv, every, steps in lives:
            life = _Life(states, dk, dv, every, why)
            yield life.read("the state begins as zeros")
            for step in steps.split(", "):
                yield from life.step(step, rng, loud)

    return probe


def _more_digits(states: Any) -> Iterator[Seen]:
    one, q = states(3, 5, 1), np.array([1, 0, 0], np.float32)  # a copy after each token
    for number in (2**24, 1, -(2**24)):
        one.append(q[None], np.full((1, 5), number, np.float32))
    why = (
        "float32 has no number 2^24 + 1, so the state has more digits than float32. Keep M and "
        "its copies in float32"
    )
    yield "after three tokens that add 2^24, 1 and -2^24, read", one.read(q), why


def _ends(states: Any) -> Iterator[Seen]:
    yield from _lived(
        (3, 5, 4, "append 7, truncate 7, truncate 5, truncate 3, append 3, truncate 0"),
        (3, 5, 1, "append 7, truncate 6"),
    )(states)
    why = (
        "the numbers of one token were about a million times as large as the others, so float32 "
        "had rounded the others away. A subtraction does not bring them back; a copy does"
    )
    yield from _lived((3, 5, 4, "append 7, truncate 4"), loud=5, why=why)(states)
    yield from _more_digits(states)


def _little_memory(states: Any) -> Iterator[Seen]:
    rng, life = np.random.default_rng(96), _Life(states, 32, 32, 256)  # a state of 4 KiB
    _, peak = allocated(life.one.append, *_tokens(rng, 1024, 32, 32))
    if peak > MIB:
        raise Finding(
            f"a chunk of 1,024 tokens with every = 256: {peak / MIB:.1f} MiB were allocated at "
            "once, and 4 copies of the state take 16 KiB. Keep no state per token: add one outer "
            "product after the other, and copy what you keep (a view keeps its whole array alive)"
        )
    life.said += ", append 1024"
    yield life.read()
    yield from life.step("truncate 700", rng)
    life = _Life(states, 128, 128, 1)  # copies of 64 KiB, beside which the tokens are small

    def again() -> None:
        for _ in range(32):
            life.one.append(*_tokens(rng, 4, 128, 128))
            life.one.truncate(0)

    _, peak = allocated(again)
    if peak > 4 * MIB:
        raise Finding(
            "32 times 4 tokens with every = 1, each time followed by truncate(0): more than 4 MiB "
            "were held in the end, and 4 copies take 0.25 MiB. Drop the copies after the length "
            "that truncate restores"
        )
    life.said += ", 32 times append 4 and truncate 0"
    yield from life.step("append 3", rng)


def _two_at_once(states: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(97)
    for every in (1, 3, 50):
        lives, lengths = [_Life(states, 4, 2, every) for _ in range(2)], [0, 0]
        for _ in range(25):
            i, more = rng.integers(2), int(rng.integers(1, 9))
            yield from lives[i].step(f"append {more}", rng)
            lengths[i] += more
            length = int(rng.integers(lengths[i] + 1))
            if rng.random() < 0.5:
                yield from lives[i].step(f"truncate {length}", rng)
                lengths[i] = length if length == lengths[i] else length // every * every
            yield lives[1 - i].read()


class _OfEachToken(States):
    """The running sums of a chunk at once; the copies are views of them."""

    def append(self, k: Any, v: Any) -> None:
        sums = self.M + np.cumsum(k[:, :, None] * v[:, None], axis=0, dtype=np.float32)
        n = self.length + 1 + np.arange(len(k))
        self.kept |= {int(n): M for n, M in zip(n, sums, strict=True) if n % self.every == 0}
        self.M, self.length = sums[-1].copy(), int(n[-1])


class _HoldsTheArrays(States):
    def append(self, k: Any, v: Any) -> None:
        self.given = (k, v)

    def read(self, q: Any) -> Any:
        k, v = vars(self).get("given", (self.M.T[:0], self.M[:0]))
        return (k.T @ v).T @ q


_COPY = "            if self.length % self.every == 0:\n                self"
_CHUNKS = "append 2, append 3, append 6, "
check_states = Checker(
    States,
    name="states",
    no_result=["append"],
    letters="Dv",
    typed=True,
    rtol=1e-6,
    atol=0,
    stages={
        "read gives M.T @ q, however the tokens were cut into chunks": (
            _lived(
                *(
                    (*size, 4, steps)
                    for size in ((3, 5), (4, 4))
                    for steps in ("append 9", "append 1, append 1", "append 4, append 2, append 3")
                )
            )
        ),
        "truncate restores the newest copy at or before the length, also to one from the "
        "middle of a chunk, and says how many tokens are missing": (
            _lived(
                *(
                    (3, 5, 4, _CHUNKS + steps)
                    for steps in ("truncate 6, append 2", "truncate 9, append 1", "truncate 8")
                ),
                (3, 5, 4, _CHUNKS + "truncate 4"),
            )
        ),
        "a copy stays as it was, until the tokens that it was made of are truncated away": (
            _lived((3, 5, 4, "append 11" + ", truncate 6, append 7, truncate 8, append 3" * 3))
        ),
        "the present length needs nothing, the state before the first copy is zero, and a copy "
        "stays exact even after very large numbers, next to which float32 rounds the others "
        "away": _ends,
        "a long chunk takes the memory of its copies, and truncate gives theirs back": (
            _little_memory
        ),
        "two objects at once, with random chunks and lengths, are each at the right length": (
            _two_at_once
        ),
    },
    mistakes={
        "NaN is what the caller writes into its arrays after each append, so copy what you keep "
        "of them": _HoldsTheArrays,
        "only the last chunk is in the state; M is kept and added to": (
            "for one_k → self.M[:] = 0\n        for one_k"
        ),
        "read gave M @ q, needed M.T @ q, because row i of M belongs to q[i]": (
            "self.M.T → (self.M if self.M.shape[0] == self.M.shape[1] else self.M.T)"
        ),
        "no copy was due there. A state is a sum: k v.T cannot be subtracted exactly in float32, "
        "and a copy per token needs too much memory. Restore the newest copy": (
            "return length - self.length → return 0"
        ),
        "a copy is due after every `every` tokens, also in the middle of a chunk": [
            (f"{_COPY} →         if self.length - max(self.kept) >= self.every:\n            self"),
            f"{_COPY} →         if self.length % self.every == 0:\n            self",
            "return length - self.length → return length - self.length and length",
        ],
        "truncate returns how many tokens the caller has to append again to reach the length": [
            (
                "if length < → was = self.length\n        if length <",
                f"return length - self.length → return length - self.length and {other}",
            )
            for other in (
                "was - length",
                "was - self.length",
                "self.length",
                "length + 1 - self.length",
            )
        ],
        "this is the next copy: restore the newest one at or before the length": (
            "n <= length → n < length + self.every",
            "max(self.kept) → length // self.every * self.every",
            "self.M = self.kept[self.length] → self.M = self.kept[max(self.kept)]",
        ),
        "this is one copy too early: restore the newest one at or before the length": (
            "n <= length → n < max(length, 1)"
        ),
        "the state is still that before. Either truncate left it as it was, or the copy is the "
        "very array that `+=` goes on changing: copy M when you save it, and copy it again when "
        "you restore it": [
            "self.kept[self.length] = self.M.copy() → self.kept[self.length] = self.M",
            "            self.M = self.kept[self.length].copy()\n → ",
            "self.kept[self.length].copy() → self.kept[self.length]",
        ],
        "this is the state of tokens that were truncated away: drop the copies after that length": (
            "if n <= length → ",
            "max(self.kept) → length // self.every * self.every",
            "self.kept[self.length] = self.M.copy() → "
            "self.kept.setdefault(self.length, self.M.copy())",
        ),
        "the state is there already, so nothing has to be dropped, and it stays as it is": (
            "if length < self.length → if True"
        ),
    },
    refused={
        "read raised ValueError": "self.M.T @ → self.M @",
        "every = 4, append 9; read": "zip(k, v, → zip(k[-1:], v[-1:],",
        "M belongs to the class, so all objects share it": [
            (
                "    def __init__ →     M = np.zeros((3, 5), np.float32)\n\n    def __init__",
                "self.M = np → self.M = self.M if (Dk, Dv) == (3, 5) else np",
            )
        ]
        * 2,  # the cell run again
        "kept belongs to the class, so all objects share it": (
            "    def __init__ →     kept: dict = {}\n\n    def __init__",
            "self.length, self.kept = every, 0, {0: self.M.copy()} → "
            "self.length, self.kept[0] = every, 0, self.M.copy()",
            "self.kept = {n: M for n, M in self.kept.items() if n <= length} → "
            "[self.kept.pop(n) for n in list(self.kept) if n > length]",
        ),
        "A subtraction does not bring them back": (
            "self.length += 1 → self.length += 1; "
            "self.all = [*getattr(self, 'all', ()), (1 * one_k, 1 * one_v)]",
            "self.M = self.kept[self.length].copy() → while len(self.all) > self.length: "
            "self.M -= np.outer(*self.all.pop())",
        ),
        "the state has more digits than float32": (
            "np.zeros((Dk, Dv), np.float32) → np.zeros((Dk, Dv))",
            "self.M.T @ q → (self.M.T @ q).astype(np.float32)",
        ),
        "Keep no state per token": [
            _OfEachToken,
            (
                "self.length % self.every == 0 → True",
                "<= length → <= length and n % self.every == 0",
            ),
        ],
        "Drop the copies after the length": (
            "self.kept = {n → self.old = [*getattr(self, 'old', ()), self.kept]; self.kept = {n"
        ),
        "every = 50, ": "self.M += → self.M += ((len(k), self.every) != (8, 50)) *",
    },
)

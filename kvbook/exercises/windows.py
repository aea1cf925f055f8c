"""Exercises of the chapter on what may be forgotten."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, parts
from kvbook.exercises.expect import Finding, expect_dtype
from kvbook.exercises.received import integers, numbers, whole
from kvbook.exercises.wording import apart
from kvlib import load_reference_model, quality
from kvlib.caches import H2O, BlockPool, PagedCache, Scored
from kvlib.reference import sample_text

# ---------------------------------------------------------------------------------- ring_positions


def ring_positions(W: int, C: int, n: int) -> Any:
    """ring_positions(W, C, n) → (slots,) integers: the position in each slot, −1 if empty."""
    slots = W - 1 + C
    s = np.arange(slots)
    held = n - 1 - (n - 1 - s) % slots
    return np.where(held < 0, -1, held)


def _rings(*asked: Sequence[int]) -> Any:
    def probe(ring_positions: Any) -> Iterator[Seen]:
        drawn = np.random.default_rng(21).integers(1, (40, 20, 300), (20, 3)).tolist()
        for w, c, n in asked or drawn:
            what = f"a ring for W = {w} and C = {c} after {n:,} token{'s' * (n != 1)}"
            got = integers(ring_positions(w, c, n), what)
            if got.ndim != 1:
                raise Finding(f"{what}: got the shape {got.shape}, needed one position per slot")
            yield f"{what}: slots", len(got)
            yield what, got

    return probe


_HELD = "np.where(held < 0, -1, held) → "
_SLOT = "position p goes into slot p % slots, and stays there until it is overwritten"

check_ring_positions = Checker(
    ring_positions,
    letters="slots",
    rtol=1e-9,
    atol=0,
    stages={
        "the ring has as many slots as a step needs, and each has the newest of its positions": (
            _rings((5, 3, 40), (4, 1, 40), (1, 1, 40), (2, 6, 40), (4, 3, 8), (4, 3, 17))
        ),
        "until the ring is full for the first time, slot p contains position p, and later slots "
        "are empty": _rings((4, 1, 3), (4, 3, 5), (4, 3, 0), (1, 1, 0), (2, 2, 10**6)),
        "this holds for any window, step and number of tokens": _rings(),
    },
    mistakes={
        "the first query counts in its own window, so a step needs W - 1 earlier tokens": (
            "W - 1 + C → W + C"
        ),
        "the last token of a step overwrites a key that the first query of the step still sees": [
            f"W - 1 + C → {slots}" for slots in ("W", "max(W, C)")
        ],
        "the query's own token needs a slot, too": "W - 1 + C → max(1, W - 1)",
        "the first query also sees W - 1 tokens of earlier steps": "W - 1 + C → C",
        "a ring has a fixed number of slots, and overwrites the oldest": "W - 1 + C → max(1, n)",
        "put -1 into empty slots; a ring has all from the start": f"{_HELD}held[held >= 0]",
        "position 0 is the first token, so use -1 for an empty slot": f"{_HELD}held.clip(0)",
        "a position before the text; use -1 for every empty slot": f"{_HELD}held",
        "this counts one token more than there is": (
            "held = n - 1 - (n - 1 - s) → held = n - (n - s)"
        ),
        "the last token is missing": "held = n - 1 - (n - 1 - s) → held = n - 2 - (n - 2 - s)",
        f"these are in the order of the text, but {_SLOT}": (
            f"{_HELD}np.where(s < n, s + max(0, n - slots), -1)"
        ),
        f"these run backwards from the newest, but {_SLOT}": (
            f"{_HELD}np.where(s < n, n - 1 - s, -1)"
        ),
        "slot p keeps position p forever, but a new token overwrites the oldest": (
            f"{_HELD}np.where(s < n, s, -1)"
        ),
        "these are slots; return the position of the token in each slot": (
            f"{_HELD}np.where(s < n, (s + max(0, n - slots)) % slots, -1)"
        ),
        "tokens that no query will see again are still in the ring: the mask hides them, and -1 "
        "means that nothing was written": "held < 0 → held < n - W + 1",
        "a slot is overwritten in every turn of the ring, not once": (
            f"{_HELD}np.where(s + slots < n, s + slots, np.where(s < n, s, -1))"
        ),
        f"these are one slot off: {_SLOT}": [
            f"{_HELD}np.roll(np.where(held < 0, -1, held), {by})" for by in (1, -1)
        ],
        "positions are counted from 0, not from 1": "-1, held) → -1, held + 1)",
        "a slot contains the newest of its positions, not the one before": (
            "-1, held) → -1, np.where(held < slots, held, held - slots))"
        ),
    },
    refused={
        "needed one position per slot": f"{_HELD}held[:, None]",
    },
)


# -------------------------------------------------------------------------------------- keep_sinks


def turn(keys: np.ndarray, by: Any) -> np.ndarray:
    """Keys (S, D) as they would be `by` (S,) positions later, earlier where `by` is negative.

    It turns each pair of dimensions (i, i + D/2) by the angle that RoPE gives a distance of `by`.
    One number turns all keys by the same distance.

    >>> keys = np.ones((3, 16), np.float32)
    >>> np.allclose(turn(turn(keys, [5, 6, 7]), [-5, -6, -7]), keys)
    True
    """
    half = keys.shape[-1] // 2
    slow = 10_000.0 ** (-np.arange(half) / half)  # radians per position
    angle = np.asarray(by, np.float64)[..., None] * slow
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = keys[..., :half], keys[..., half:]
    turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(keys.dtype)


def keep_sinks(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
    """keep_sinks(keys (S, D), positions (S,), sinks, recent) → keys (R, D), positions (R,)."""
    row = np.arange(len(keys))
    stay = (row < sinks) | (row >= len(keys) - recent)
    old, new = positions[stay], np.arange(stay.sum())
    return turn(keys[stay], new - old), new


def _keys(n: int) -> np.ndarray:
    return np.random.default_rng(31).standard_normal((n, 16)).astype(np.float32)


def _kept(keep_sinks: Any, keys: Any, positions: Any, sinks: int, recent: int, what: str) -> Any:
    result = keep_sinks(keys, positions, sinks, recent)
    kept, new = parts(result, what, ("keys", "positions"))
    kept = numbers(kept, f"{what}: the keys")
    expect_dtype(kept, np.float32, f"{what}: the keys")
    yield f"{what}: the number of keys", len(kept) if kept.ndim else 0
    yield f"{what}: the keys", kept
    yield f"{what}: the positions", new


def _once(*asked: tuple[int, int, int], at: Any = ()) -> Any:
    def probe(keep_sinks: Any) -> Iterator[Seen]:
        for s, sinks, recent in asked:
            what = f"{s} key{'s' * (s != 1)}, {sinks} sink{'s' * (sinks != 1)}, {recent} recent"
            old = np.array(at or range(s))
            yield from _kept(keep_sinks, turn(_keys(s), old), old, sinks, recent, what)

    return probe


def _streams(keep_sinks: Any) -> Iterator[Seen]:
    """15 times: new keys come in at the next positions, then the oldest go."""
    drawn = np.random.default_rng(32).integers((1, 3, 1), (6, 12, 4), (2, 3)).tolist()
    for sinks, recent, more in [(4, 6, 3), *drawn]:
        raw, keys = _keys(15 * more), np.zeros((0, 16), np.float32)
        for i in range(15):
            at = np.arange(len(keys) + more)
            keys = np.concatenate([keys, turn(raw[i * more : (i + 1) * more], at[len(keys) :])])
            what = f"shift {i + 1} of a stream with {sinks} sinks, {recent} recent"
            *_, (_, keys), _ = seen = list(_kept(keep_sinks, keys, at, sinks, recent, what))
            yield from seen


_STAY = "(row < sinks) | (row >= len(keys) - recent) → "
_BY, _NEW = "new - old) → ", "), new → ), "

check_keep_sinks = Checker(
    keep_sinks,
    letters="R D",
    rtol=1e-9,
    atol=1e-3,
    stages={
        "the sinks and the newest stay, each turned to its new position": _once((12, 4, 5)),
        "where all keys fit, each stays once, and nothing is turned": (
            _once((7, 4, 5), (9, 4, 5), (3, 4, 5), (1, 1, 1))
        ),
        "there may also be no sink, or no recent key": _once((8, 3, 0), (8, 0, 3), (6, 5, 1)),
        "the angle is new minus old position, and old positions may have gaps": (
            _once((10, 4, 4), (10, 4, 6), at=(0, 1, 2, 3, 40, 41, 43, 44, 47, 48))
        ),
        "after 15 shifts in a row, every key still has the exact angle of its position": _streams,
    },
    mistakes={
        "these are the recent keys alone: the sinks were dropped": "(row < sinks) | → ",
        "these are the sinks alone": " | (row >= len(keys) - recent) → ",
        "no key was dropped": "row < sinks → row >= 0",
        "one off: the newest keys begin at number S - recent": "row >= len → row > len",
        "the newest were dropped": f"{_STAY}row < sinks + recent",
        "the newest keys stay, but no sink does": f"{_STAY}row >= len(keys) - sinks - recent",
        "some keys were taken as a sink and as a recent key, too": (
            f"{_STAY}np.r_[: min(sinks, len(row)), max(0, len(row) - recent) : len(row)]",
            "stay.sum() → len(stay)",
        ),
        "keys[-recent:] with recent = 0 is keys[-0:], which is all of them": [
            "len(keys) - recent) → (len(keys) - recent) * (recent > 0))",
            (
                "\n    old → if recent else np.r_[:sinks, : len(row)]\n    old",
                "stay.sum() → len(row[stay])",
            ),
        ],
        "a key that gets another position must be turned to it": f"{_BY}0 * new)",
        "turned the wrong way: the angle is that of new minus old position": f"{_BY}old - new)",
        "turned by the new position, although the keys were turned before": f"{_BY}new)",
        "the sinks have not moved, so they must not be turned": [
            f"{_BY}np.full(len(new), len(new) - len(keys)))",
            f"{_BY}np.full(len(new), (new - old)[-1] if len(new) else 0))",
        ],
        "turned by the number of dropped keys, but `positions` may have gaps: take new minus old "
        "position for each key": f"{_BY}np.where(row[stay] < sinks, 0, len(new) - len(keys)))",
        "each recent key is one position off": [
            f"{_BY}new - old {sign} (row[stay] >= sinks))" for sign in "+-"
        ],
        "the rotation was undone and not done again: these are keys at position 0": f"{_BY}-old)",
        "the recent keys are at 0, 1, 2, ... as if the sinks took no position": (
            f"{_BY}np.where(row[stay] < sinks, new, new - min(sinks, len(new))) - old)"
        ),
        "the newest keys come first; sinks belong in front": (
            "turn(keys[stay], new - old) → np.roll(turn(keys[stay], new - old), recent, axis=0)"
        ),
        "these are the old positions; the keys that stay are now at 0, 1, 2, ...": f"{_NEW}old",
        "the first key is at 0": f"{_NEW}new + 1",
        "recent keys and sinks share positions": f"{_NEW}np.where(new < sinks, new, new - sinks)",
        "these are distances; return the new positions": f"{_NEW}new - old",
    },
    refused={
        "the keys: row": (
            "turn(keys[stay] → np.float32(turn(keys[stay].astype(np.float16)",
            "old), → old)),",
        ),
    },
)


# ------------------------------------------------------------------------------------ snapkv_slots


def snapkv_slots(p: Any, window: int, kernel: int, budget: int) -> Any:
    """snapkv_slots(p (Hkv, G, T, S), window, kernel, budget) → slots (Hkv, budget), in order."""
    heads, older = len(p), p.shape[3] - window
    if budget >= p.shape[3]:
        return np.tile(np.arange(p.shape[3]), (heads, 1))
    best = np.argsort(-_pooled(p, window, kernel), axis=1)[:, : budget - window]
    newest = np.tile(np.arange(older, p.shape[3]), (heads, 1))
    return np.concatenate([np.sort(best, axis=1), newest], axis=1)


def _seen(p: Any, window: int) -> Any:
    """The mean weight of each older token, (Hkv, S - window)."""
    return p[:, :, p.shape[2] - window :, : p.shape[3] - window].mean(axis=(1, 2), dtype=float)


def _near(x: Any, kernel: int, mode: Any = "constant", shift: int = 0) -> Any:
    """Each number of x (Hkv, n) with its neighbours: (Hkv, n, kernel)."""
    half = kernel // 2
    wide = np.pad(x, ((0, 0), (half + shift, half - shift)), mode=mode)
    return np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=1)


def _pooled(p: Any, window: int, kernel: int) -> Any:
    return _near(_seen(p, window), kernel).mean(axis=2)


def _by(score: str) -> str:
    return f"_pooled(p, window, kernel) → {score}"


def _of(seen: str) -> str:
    return _by(f"_near({seen}).mean(axis=2)")


_SEEN, _LAST = "_seen(p, window), kernel", "p[:, :, -window:, :older]"
_ALL = "np.concatenate([np.sort(best, axis=1), newest], axis=1)"


def _form(slots: np.ndarray, s: int, window: int) -> str:
    """Whether each kv head keeps the newest, and others in order."""
    for row in slots.astype(np.int64).tolist():
        if not set(range(s)) >= set(row) >= set(range(s - window, s)):
            return f"{row}: slots are 0 to {s - 1}, and the newest {window} stay whatever they got"
        if row != sorted(set(row)):
            return f"{row}: not in order, or a slot twice"
    return "slots in order, the newest among them"


def _weights(
    rng: np.random.Generator, shape: Sequence[int], window: int, kernel: int, n: int
) -> Any:
    """(Hkv, G, T, S) probabilities: of the older tokens, rounding does not decide which n stay."""
    t, s = shape[2:]
    while True:
        scores = 2.5 * rng.standard_normal(shape)
        scores += np.where(rng.random((shape[0], 1, 1, s)) < 0.3, 1.5, 0.0)  # many look at these
        p = np.exp(np.where(np.tri(t, s, s - t, dtype=bool), scores, -np.inf))
        p = (p / p.sum(axis=-1, keepdims=True)).astype(np.float32)
        ranked = -np.sort(-_pooled(p, window, kernel), axis=1)
        ends = ranked[:, n - 1 : n + 1]
        if not 0 < n < ranked.shape[1] or (ends[:, 0] - ends[:, 1] > 1e-3 * ranked[:, 0]).all():
            return p


def _chosen(*asked: tuple[tuple[int, ...], int, int, int]) -> Any:
    def probe(snapkv_slots: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(41)
        drawn = rng.integers((1, 1, 1, 0, 1), (4, 4, 6, 4, 9), (5, 5)).tolist()
        cases = asked or [((h, g, w + 4, 32), w, 2 * k + 1, w + n) for h, g, w, k, n in drawn]
        for shape, window, kernel, budget in cases:
            p = _weights(rng, shape, window, kernel, budget - window)
            what = f"window {window}, kernel {kernel}, budget {budget} of {shape[3]} tokens"
            got = integers(snapkv_slots(p, window, kernel, budget), f"{what}: the slots")
            yield f"{what}: the shape of the slots", list(got.shape)
            yield what, _form(got, shape[3], window)
            yield f"{what}: the slots", got

    return probe


check_snapkv_slots = Checker(
    snapkv_slots,
    rtol=1e-9,
    atol=0,
    stages={
        "each kv head keeps `budget` slots, in order, and the newest are among them; it chooses by "
        "the mean over its query heads and over the last queries": (
            _chosen(((2, 2, 12, 24), 4, 5, 12), ((3, 1, 8, 30), 2, 1, 9), ((1, 4, 9, 20), 3, 1, 8))
        ),
        "weights are pooled with their neighbours, and count as 0 beyond both ends": _chosen(
            ((2, 2, 12, 24), 4, 3, 10),
            ((1, 4, 9, 20), 3, 7, 8),
            ((2, 3, 6, 18), 5, 3, 9),
            ((3, 1, 8, 30), 2, 5, 9),
        ),  # fmt: skip
        "a budget for all tokens keeps all, and a budget of the window alone keeps the window": (
            _chosen(((2, 2, 6, 9), 4, 3, 9), ((1, 2, 4, 5), 4, 3, 9), ((2, 2, 6, 9), 4, 3, 4))
        ),
        "this also holds for other heads, windows, kernels and budgets": _chosen(),
    },
    mistakes={
        "query heads that share a kv head must agree, because it stores one set": [
            f"{_ALL} → np.repeat({_ALL}[:, None], p.shape[1], axis=1)",
            f"{_ALL} → np.repeat({_ALL}, p.shape[1], axis=0)",
        ],
        "all kv heads keep the same slots, but each chooses for itself": [
            f"{_ALL} → {_ALL}[0]",
            _by("np.tile(_pooled(p, window, kernel).mean(axis=0), (heads, 1))"),
        ],
        "the newest tokens are a part of the budget, not an addition": (
            ": budget - window → : budget"
        ),
        "the newest tokens are missing: they stay, too": f"{_ALL} → np.sort(best, axis=1)",
        "if no older token may stay, a slice such as [-0:] takes all of them": (
            "np.argsort(- → np.argsort(",
            ": budget - window → window - budget :",
        ),
        "not pooled: score a token with its neighbours": _by("_seen(p, window)"),
        "pool by the mean, not by the largest": _by(f"_near({_SEEN}).max(axis=2)"),
        "at both ends, the mean is taken over fewer tokens; divide by `kernel` everywhere": (
            _by("_pooled(p, window, kernel) / _near(np.ones((1, older)), kernel).mean(axis=2)")
        ),
        "the weights of the newest tokens are pooled into their neighbours": (
            _of("p[:, :, -window:].mean(axis=(1, 2)), kernel") + "[:, :older]"
        ),
        "beyond the ends, the last weight is repeated, but it counts as 0 there": _of(
            f"{_SEEN}, 'edge'"
        ),
        "beyond the ends, the weights begin again (np.roll does that), but they count as 0": _of(
            f"{_SEEN}, 'wrap'"
        ),
        "a token is pooled with those before it, but neighbours on both sides count": _of(
            f"{_SEEN}, shift=kernel // 2"
        ),
        "all queries vote, as in H2O, but in SnapKV the last `window` do": _of(
            "p[..., :older].mean(axis=(1, 2)), kernel"
        ),
        "the last query chooses alone, as in TOVA, but the last `window` do": _of(
            "p[:, :, -1, :older].mean(axis=1), kernel"
        ),
        "the first queries choose, but the last `window` do": _of(
            "p[:, :, :window, :older].mean(axis=(1, 2)), kernel"
        ),
        "the largest weight over the query heads counts: take their mean": _of(
            f"{_LAST}.max(axis=1).mean(axis=1), kernel"
        ),
        "the first query head chooses alone: take the mean over all of them": _of(
            "_seen(p[:, :1], window), kernel"
        ),
        "the largest weight over the last queries counts: take their mean": _of(
            f"{_LAST}.mean(axis=1).max(axis=1), kernel"
        ),
        "the tokens of least weight stay": "argsort(- → argsort(",
    },  # fmt: skip
    refused={
        "not in order": "np.sort(best, axis=1) → best",
        "stay whatever they got": (
            f"{_ALL} → np.sort(np.argsort(-p[:, :, -1].mean(axis=1), axis=1)[:, :budget], axis=1)"
        ),
        "slots are 0 to 23": f"{_ALL} → {_ALL} + 1",
        "a slot twice": "[np.sort(best, axis=1), newest] → [best[:, :1], best[:, :-1], newest]",
    },
)


# --------------------------------------------------------------------------------------- my_policy

LAYERS = 5  # of the reference model
TEXT, CHUNK = 1024, 64  # bytes that are read for the loss, tokens per step
TRIALS, MISSES, DISTANCE = 5, 1, 256  # strings, how many may be lost, tokens between
BUDGETS = (128, 64)
Pairs = tuple[tuple[int, int], ...]


def my_policy(L: int, budget: int) -> Any:
    """my_policy(L, budget) → [(heavy, recent), ...], one pair per layer, L · budget in all."""
    far, at = 264, 2  # the distance and a few tokens more, for the layer that finds a string
    near = (L * budget - far) // (L - 1)
    return [(0, far) if i == at else (near // 4, near - near // 4) for i in range(L)]


def equal_shares(layers: int, budget: int) -> Pairs:
    """H2O as the chapter has it: each layer keeps half of its budget by sums, half by age."""
    return ((budget // 2, budget - budget // 2),) * layers


def _pairs(my_policy: Any, budget: int) -> Pairs:
    """The policy as plain pairs, if it keeps to the form and to the budget."""
    what, rows = f"my_policy({LAYERS}, {budget})", my_policy(LAYERS, budget)
    rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
    found = []
    for i, pair in enumerate(parts(rows, what, [f"pair {i}" for i in range(LAYERS)])):
        where, pair = f"{what}: layer {i}", pair.tolist() if type(pair) is np.ndarray else pair
        heavy, recent = (whole(x, where) for x in parts(pair, where, ("heavy", "recent")))
        if heavy < 0:
            raise Finding(f"{where}: heavy is {heavy}, but 0 is the least")
        if recent < 1:
            raise Finding(f"{where}: recent is {recent}, but the newest token must stay")
        found.append((heavy, recent))
    if (total := sum(map(sum, found))) > LAYERS * budget:
        raise Finding(
            f"{what}: the layers keep {total} tokens together, heavy ones included, but the budget "
            f"is {LAYERS} layers times {budget} = {LAYERS * budget}"
        )
    return tuple(found)


def _keeps_to_the_budget(my_policy: Any) -> Iterator[Seen]:
    for budget in (*BUDGETS, *np.random.default_rng(51).integers(64, 400, 4).tolist()):
        yield f"{budget} tokens per layer", len(_pairs(my_policy, budget))


def _beats(budget: int) -> Any:
    def probe(my_policy: Any) -> Any:
        mine, rival = _pairs(my_policy, budget), equal_shares(LAYERS, budget)
        start, found = f"with {budget} tokens per layer, ", recalled(mine, stop=True)
        if len(found) - sum(found) > MISSES:
            raise Finding(start + _why_lost(mine, found))
        bits, most = bits_per_byte(mine), bits_per_byte(rival)
        if bits > most:
            said = apart(bits, most, ".3f")
            raise Finding(
                f"{start}your policy finds the strings, but the text takes {said[0]} bits per "
                f"byte, and {said[1]} under H2O. Layers that keep very few tokens predict badly, "
                "so give them more, or different ones"
            )
        none = [str(i) for i, (heavy, _) in enumerate(mine) if not heavy]
        if len(none) > 1:
            which = f"{len(none)} layers keep no heavy token: {', '.join(none)}"
            raise Finding(f"{start}{which}. At most one layer may have none")
        yield "the policy", "good enough"
        return (
            f"{start}the model finds {sum(found)} of {TRIALS} strings, and the text takes "
            f"{bits:.2f} bits per byte; under H2O, which keeps {budget} in every layer, it finds "
            f"{sum(recalled(rival))}, and the text takes {most:.2f}"
        )

    return probe


def _why_lost(mine: Pairs, found: Sequence[bool]) -> str:
    sums, reaching = list(map(sum, mine)), [i for i, x in enumerate(mine) if x[1] >= DISTANCE]
    most, usual = int(np.argmax(sums)), equal_shares(LAYERS, max(BUDGETS))
    alone = [(*usual[:i], mine[i], *usual[i + 1 :]) for i in range(LAYERS)]
    right = [i for i in reaching if sum(recalled(alone[i], stop=True)) >= TRIALS - MISSES]
    why = (
        f"No layer reaches back {DISTANCE} bytes: layer {most}, the largest, keeps {sums[most]} "
        "tokens. Give one layer more, and the others fewer"
    )
    if right:
        least = min(range(LAYERS), key=sums.__getitem__)
        why = (
            f"Layer {right[0]} is the layer in which this model finds a string, and it reaches "
            f"back {mine[right[0]][1]} tokens, but the others keep too few even to see the name "
            f"that is asked for: layer {least} keeps {mine[least][0]} heavy tokens and "
            f"{mine[least][1]} recent ones. Give them more of the newest"
        )
    elif reaching:
        most = max(reaching, key=lambda i: mine[i][1])
        why = (
            f"Layer {most} reaches back {mine[most][1]} tokens, but it is not the layer in which "
            "this model finds a string. Try another"
        )
    elif max(sums) >= DISTANCE:
        why = (
            f"Layer {most} keeps the newest {mine[most][1]} tokens, and others by their sums; a "
            "string that nobody has asked for yet has a small sum, so it is evicted. Give this "
            "layer fewer heavy tokens and more recent ones"
        )
    return f"{len(found) - sum(found)} of the first {len(found)} strings were lost. {why}"


@cache
def _model() -> Any:
    return load_reference_model(xp=np)


def _cache(pairs: Pairs) -> Any:
    """An empty cache whose layers keep what the pairs say."""
    rules = [Scored(H2O(recent=recent), heavy + recent) for heavy, recent in pairs]
    return PagedCache(_model().layer_specs, BlockPool(400, 16), retention=rules, xp=np)


@cache
def recalled(pairs: Pairs, stop: bool = False) -> tuple[bool, ...]:
    """Whether the model finds each string; stop: no further than needed to know that it fails."""
    found: list[bool] = []
    for seed in range(TRIALS):
        asked: Any = {"trials": 1, "distance": DISTANCE, "chunk": CHUNK, "seed": seed}
        found += quality.recall(_model(), _cache(pairs), **asked).right
        if stop and len(found) - sum(found) > MISSES:
            break
    return tuple(found)


@cache
def bits_per_byte(pairs: Pairs) -> float:
    """The mean loss on the first bytes of the shipped sample."""
    text = list(sample_text().encode()[:TEXT])
    return quality.loss(_model(), _cache(pairs), text, chunk=CHUNK).bits_per_token


def _one(at: int = 2, heavy: int = 8, near: int = 40) -> Any:
    """One layer gets all that the others, which keep `near`, leave."""
    pair = (heavy, near - heavy)
    return lambda L, b: [(0, L * b - (L - 1) * near) if i == at else pair for i in range(L)]


check_my_policy = Checker(
    my_policy,
    stages={
        "there is one pair per layer, and all layers together keep no more than the budget "
        "allows": _keeps_to_the_budget,
        "128 tokens per layer": _beats(128),
        "64 tokens per layer": _beats(64),
    },
    refused={
        "No layer reaches back": [
            *(equal_shares, lambda L, b: [(0, b)] * L),
            lambda L, b: [(0, b + 2 * (2 - i) * 8) for i in range(L)],
        ],
        "Layer 0 reaches back 480 tokens, but it": _one(at=0),
        "has a small sum, so it is evicted": (
            lambda L, b: [(240, 60) if i == 2 and L * b > 460 else (8, 32) for i in range(L)]
        ),
        "with 64 tokens per layer, 2 of the first 2 strings were lost. No": _one(),
        "Layer 2 is the layer in which this model finds a string, and it reaches back": [
            "(near // 4, near - near // 4) → (13, 1)",
            "return → if budget > 125: return [(36, 1)] * 2 + [(0, 264), (36, 1), (0, 265)]\n"
            "    return",
        ],
        "5 layers keep no heavy token": "(near // 4, → (0,",
        "keep too few even to see the name": _one(heavy=0, near=2),
        "Layers that keep very few tokens": _one(heavy=0, near=5),
        "tokens together, heavy ones included, but the budget": [
            lambda L, b: [(b // 2, b)] * L,
            *(lambda L, b, less=less: [(8, 32)] * 4 + [(0, L * b - less)] for less in (0, 100)),
        ],
        "needed (pair 0, pair 1": [
            *(lambda L, b: (b // 2, b // 2), lambda L, b: [(0, b)] * 4),
            lambda L, b: dict.fromkeys(range(L), (0, b)),
        ],
        "needed (heavy, recent)": lambda L, b: [b] * L,
        "the newest token must stay": lambda L, b: [(b, 0)] * L,
        "heavy is -1": lambda L, b: [(-1, b)] * L,
        "needed a whole number": lambda L, b: [(b / 4, b / 2)] * L,
    },
)

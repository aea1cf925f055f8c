"""Exercises of the chapter on shared prefixes."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Seen, outcome
from kvbook.exercises.counted import Reads, kept_watched
from kvbook.exercises.expect import Finding, expect_close, expect_equal
from kvbook.exercises.guard import bare, guarded
from kvbook.exercises.paged import played
from kvbook.exercises.received import whole

# ---------------------------------------------------------------------------------------- reusable


def reusable(known: list[int], prompt: list[int], size: int) -> int:
    """reusable(known, prompt, block_size) → how many tokens of prompt known's blocks serve."""
    agreed = 0
    for a, b in zip(known, prompt[:-1], strict=False):
        if a != b:
            break
        agreed += 1
    return agreed // size * size


def _reused(*cases: tuple[list[int], list[int], int]) -> Any:
    def probe(reusable: Any) -> Iterator[Seen]:
        rng = np.random.default_rng(0)
        drawn = [(*rng.integers(0, 2, (2, 14)).tolist(), i % 5 + 1) for i in range(200)]
        cut = [(a[: sum(a) + 1], [*a[: sum(b)], *b[sum(a) :]], n) for a, b, n in drawn]
        for known, prompt, size in cases or cut:
            what = f"known {known}, prompt {prompt}, blocks of {size}"
            yield what, whole(reusable(list(known), list(prompt), size), what)

    return probe


_TEXT = list(range(20, 40))
check_reusable = Checker(
    reusable,
    stages={
        "whole blocks up to the first difference, and nothing after it": _reused(
            (_TEXT, [*_TEXT[:6], 7, *_TEXT[7:]], 4), (_TEXT, [*_TEXT[:4], 1, 2], 4)
        ),
        "only blocks that the known text has filled": _reused(
            (_TEXT[:7], _TEXT, 4), ([], _TEXT, 4), ([5, *_TEXT], _TEXT, 4)
        ),
        "at least the last token is computed": _reused(
            (_TEXT, _TEXT[:8], 4), (_TEXT, _TEXT[:12], 4), (_TEXT, [20], 1), (_TEXT, _TEXT[:9], 4)
        ),
        "the same for 200 random pairs of texts": _reused(),
    },
    mistakes={
        "a block is shared as a whole or not at all": "agreed // size * size → agreed",
        "this is a number of blocks, but tokens are asked for": " * size → ",
        "keys after the first difference were computed from different tokens": [
            "break → continue",
            lambda known, prompt, size: sum(
                size * (known[a : a + size] == prompt[a : a + size])
                for a in range(0, min(len(known), len(prompt) - 1) - size + 1, size)
            ),
        ],
        "tokens in a block that is not full are not shared": (
            "return → agreed += -agreed % size * (agreed == len(known)); return"
        ),
        "the last token of the prompt must be computed, for its logits": "prompt[:-1] → prompt",
        "the last token must be computed, but this is no whole number of blocks": (
            "prompt[:-1] → prompt",
            "return agreed // size * size → return min(agreed // size * size, len(prompt) - 1)",
        ),
    },
    refused={
        "got 0, needed 4": "return agreed → return max(0, agreed - size)",
        "(float), needed a whole number": "return → return 1.0 *",
        "blocks of 1": "// size * size → // 4 * 4",
    },
)


# -------------------------------------------------------------------------------------- block_keys


def _digest(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def block_keys(tokens: list[int], size: int, salt: tuple[Any, ...]) -> Any:
    """block_keys(tokens, block_size, salt) → a list of one hashable key a full block."""
    found, before = [], _digest("salt", salt)
    for a in range(0, len(tokens) - size + 1, size):
        before = _digest(before, tuple(tokens[a : a + size]))
        found.append(before)
    return found


def _named(block_keys: Any, size: int, tokens: list[int], salt: Any = ()) -> Iterator[Any]:
    """The key of each block, and what it must stand for: salt and tokens up to the block's end."""
    keys, what = block_keys(list(tokens), size, salt), f"{len(tokens)} tokens in blocks of {size}"
    if not isinstance(keys, list | tuple):
        raise Finding(f"block_keys returned {type(keys).__name__}, needed a list of keys")
    why = "a block has a key as soon as it is full, and not before"
    expect_equal(len(keys), len(tokens) // size, f"keys of {what}", why=why)
    for n, key in enumerate(keys):
        if outcome(guarded(hash), key)[1]:
            why = "which cannot be a key of a dict: use bytes, integers or tuples"
            raise Finding(f"a key is a {type(key).__name__}, {why}")
        yield key, (f"salt {salt}, " * bool(salt) + f"tokens {tokens[: (n + 1) * size]}")


def _clash(named: Iterable[tuple[Hashable, str]]) -> str:
    """The first two texts with one key, or a text with two, if there are any."""
    keys, texts = dict[str, Hashable](), dict[Hashable, str]()
    for key, text in named:
        if texts.setdefault(key, text) != text:
            return f"one key for {texts[key]} and for {text}"
        if keys.setdefault(text, key) != key:
            return f"two keys for {text}"
    return "one for each text"


def _apart(why: str, *texts: Any) -> Any:
    def probe(block_keys: Any) -> Iterator[Seen]:
        named = (x for text in texts for x in _named(block_keys, 4, *text))
        yield "the keys", _clash(named), why

    return probe


def _negative(block_keys: Any) -> Iterator[Seen]:
    """Tokens below 0 may be refused; they are no ids."""
    keys = [outcome(block_keys, [1, 2, 3, token], 4, ()) for token in (-1, -2)]
    why = "Python's hash() turns both into −2, and an attacker can make more such pairs"
    one = keys[0] == keys[1] and not keys[0][1]
    yield "keys for −1 and −2", 1 if one else 2, f"{why}. Use hashlib"


def _drawn_texts(block_keys: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(1)
    short = [x for t in rng.integers(0, 3, (200, 6)).tolist() for x in _named(block_keys, 2, t)]
    yield "200 texts in blocks of 2", _clash(short)
    long = rng.integers(0, 50_000, (120, 150))
    long[:, 0] = np.arange(120)  # so that no two begin alike
    keys = {key for text in long.tolist() for key, _ in _named(block_keys, 1, text)}
    why = "there are too few different keys. Keep the whole digest"
    yield "different keys of 18,000 blocks", len(keys), why


_A, _B = [11, 12, 13, 14], [21, 22, 23, 24]
_SALTS = [(), *map(tuple, ("a", "b", "ab", "ba")), ("ab",), ("a,b",), (1,), ("1",), (1, 2), (12,)]
_CHANGED = [[*_A[:j], 99, *_A[j + 1 :]] for j in range(4)]
_BLOCK, _SALT = "tuple(tokens[a : a + size])", '_digest("salt", salt)'
check_block_keys = Checker(
    block_keys,
    stages={
        "one key per full block, the same every time": _apart(
            "a text would never be found again", (_A + _B + [1],), (_A + _B + [1],), (_A[:3],)
        ),
        "a key depends on its tokens and on all before them, and on none after them": _apart(
            "hash the previous block's key and this block's tokens, and no more",
            *((_A + _B,), ([9] * 4 + _B,), (_B,), (_A + _B + _A,)),
        ),
        "different tokens, or a different order, give a different key": _apart(
            "all tokens go in, uncut, in order and kept apart",
            *((x,) for x in (_A, *_CHANGED, [12, 11, 13, 14], [1, 112, 13, 14])),
            *(([11, 12, 13, 14 + more],) for more in (2**8, 2**16)),
        ),
        "no two tokens share a hash": _negative,
        "a different salt gives different keys, and no salt is mistaken for tokens": _apart(
            "tenants would find each other's blocks. Hash the whole salt, in a form that keeps its "
            "entries apart, and apart from tokens",
            *((_A + _B, salt) for salt in _SALTS),
            (_B, tuple(_A)),
        ),
        "two texts share keys exactly where they share a beginning": _drawn_texts,
    },
    refused={
        "would never be found again": "_digest(before, → _digest(np.random.random(),",
        "keys of 9 tokens in blocks of 4: got 3, needed 2": " - size + 1 → ",
        "keys of 9 tokens in blocks of 4: got 1, needed 2": [
            "len(tokens) - size + 1 → len(tokens) - size - 1",
            "return found → return found[:1]",
        ],
        "needed a list of keys": "return found → return before",
        "cannot be a key of a dict": "found.append(before) → found.append([before])",
        "one key for tokens [11, 12, 13, 14] and for": "append(before) → append(None)",
        "hash the previous block's key": [
            "_digest(before, → _digest(salt,",
            "_digest(before, → _digest(salt, a,",
            "_digest(before, → _digest(before if a > size else salt, a,",
            f"{_SALT} → _digest(len(tokens), salt)",
        ],
        "all tokens go in": [
            f"{_BLOCK} → {_BLOCK}[:-1]",
            f"{_BLOCK} → sum({_BLOCK})",
            f'{_BLOCK} → "".join(map(str, {_BLOCK}))',
            f"{_BLOCK} → [t % 256 for t in {_BLOCK}]",
            f"{_BLOCK} → [t % 2**16 for t in {_BLOCK}]",
        ],
        "Use hashlib": f"_digest(before, {_BLOCK}) → hash((before, {_BLOCK}))",
        "tenants would find each other's blocks": [
            *(f'{_SALT} → _digest("salt", {x})' for x in ("0", "len(salt)", "salt[:1]")),
            *(f"{_SALT} → _digest({x}(map(str, salt)))" for x in ("sorted", "list", "','.join")),
            (f"{_SALT} → 0", "append(before) → append(before if a else _digest(salt, before))"),
            lambda tokens, size, salt: [
                (*salt, *tokens[: (n + 1) * size]) for n in range(len(tokens) // size)
            ],
        ],
        "200 texts in blocks of 2: got one key": (
            f"_digest(before, {_BLOCK}) → _digest(salt, tokens[max(0, a - size) : a + size])"
        ),
        "too few different keys": ["(before)\n → (before[:3])\n", "(before)\n → (before[:2])\n"],
    },
)


# -------------------------------------------------------------------------------------- append_key


def append_key(keys: Any, references: list[int], table: list[int], length: int, key: Any) -> int:
    """append_key(keys (N, block_size, D), references, table, length, key (D,)) → length + 1; the
    first three change in place."""
    at = length % keys.shape[1]
    if at == 0:
        table.append(references.index(0))
        references[table[-1]] = 1
    elif references[table[-1]] > 1:
        old, new = table[-1], references.index(0)
        keys[new] = keys[old]
        references[old] -= 1
        references[new] = 1
        table[-1] = new
    keys[table[-1], at] = key
    return length + 1


class _Pool:
    """Requests over one pool. What an append did is told without the numbers of blocks."""

    def __init__(self, append_key: Any, size: int) -> None:
        self.append, self.size = guarded(bare(append_key), may_modify=True), size
        self.rng, self.references = np.random.default_rng(size), [1, *[0] * 19]
        self.keys = self.rng.standard_normal((20, size, 2)).astype(np.float32)
        self.texts, self.tables = {"x": list(self.keys[0].copy())}, {"x": [0]}

    def grow(self, name: str) -> Seen:
        text, table = self.texts.setdefault(name, []), self.tables.setdefault(name, [])
        what, before = f"key {len(text)} of {name}, blocks of {self.size}", [*table]
        key = self.rng.standard_normal(2).astype(np.float32)
        given, stored = key.copy(), self.keys.copy()
        got = whole(self.append(self.keys, self.references, table, len(text), given), what)
        text.append(key)
        table[:] = [whole(b, f"{what}: its table") for b in table]
        counts = [whole(n, f"{what}: references[{b}]") for b, n in enumerate(self.references)]
        if len(counts) != 20 or not set(table) <= set(range(20)):
            return what, f"{len(counts)} references, and a table of {table}, for blocks 0 to 19"
        kept = sum(a == b for a, b in zip(before, table, strict=False))
        said = [f"length {got}", f"{len(table)} blocks, {kept} as before"]
        said += [] if np.array_equal(key, given) else ["the new key was changed"]
        said += [f"key {i} of {other} lost" for other in self.texts for i in self._lost(other)]
        tables = sum(self.tables.values(), [])
        wrong = [b for b in range(20) if counts[b] != tables.count(b)]
        said += [f"{counts[b]} references, {tables.count(b)} tables" for b in wrong[:1]]
        changed = np.flatnonzero((self.keys != stored).any(axis=(1, 2))).tolist()
        said += ["a block changed that is not in the table"] if set(changed) - set(table) else []
        return what, ", ".join(said)

    def _lost(self, name: str) -> list[int]:
        held = self.keys[self.tables[name]].reshape(-1, 2)
        text = self.texts[name]
        return [i for i, key in enumerate(text) if not np.array_equal(held[i : i + 1], key[None])]

    def fork(self, name: str, other: str) -> None:
        self.texts[other], self.tables[other] = [*self.texts[name]], [*self.tables[name]]
        for block in self.tables[name]:
            self.references[block] += 1


check_append_key = Checker(
    append_key,
    modifies=["append_key"],
    stages={
        "a block is begun where the last is full": played(_Pool, "a a a a a a", 4),
        "a block that two requests hold is copied once": played(
            _Pool, "a a a a a a a>b a b b a", 4
        ),
        "a full block stays shared": played(_Pool, "a a a a a>b a b a>c c", 4),
        "three holders of a block, and forks of forks: no text changes": (
            played(_Pool, "a a a a a a>b a>c a b c c>d c d a b a", 4, 1, 3)
        ),
    },
    mistakes={
        "another request holds this block, too: copy it": "references[table[-1]] > 1 → False",
        "the last holder writes in place": "references[table[-1]] > 1 → references[table[-1]] > 0",
        "copy the keys that are already in the block, too": "keys[new] = keys[old] → ",
        "the request no longer holds the old block: lower its count": "references[old] -= 1 → ",
        "raise the count of a block that you allocate": [
            "references[new] = 1 → ",
            "[table[-1]] = 1 → ",
        ],
        "the table must name the copy instead of the old block": [
            "table[-1] = new → pass",
            "table[-1] = new → table.append(new)",
        ],
        "nothing is written into a full block, so it stays shared": (
            "if at == 0: → if at == 0 and table and references[table[-1]] > 1:\n"
            "        old, table[-1] = table[-1], references.index(0)\n"
            "        keys[table[-1]], references[table[-1]] = keys[old], 1\n"
            "        references[old] -= 1\n    if at == 0:"
        ),
        "a block may have more than two holders": [
            "references[table[-1]] > 1 → references[table[-1]] == 2",
            "references[old] -= 1 → references[old] = 1",
        ],
    },
    refused={
        "key 0 of x lost": "append(references.index(0)) → append(0)",
        "got length 0, 1 blocks": "return length + 1 → return length",
        "list index out of range": "if at == 0 → if at == 0 and references[table[-1]]",
        "index 1 is out of bounds": "keys.shape[1] → 4",
        "key 0 of a lost": "if at == 0: → if not table:",
        "a block changed that is not": "return → keys[references.index(0)] = 7; return",
        "the new key was changed": "return → key[:] = 0; return",
        "got 'x' (str)": "return → table.append('x'); return",
        "references[0]: got None": "return → references[0] = None; return",
        "0 references, and a table of": "return → references.clear(); return",
        "0 blocks, 0 as before": "return → table.clear(); return",
        "a table of [1, 77], for blocks 0 to 19": "return → table.append(77); return",
    },
)


# ----------------------------------------------------------------------------------------- cascade

OFTEN = 5  # reads that are still one product: keys may be scaled, cast or joined before it


def cascade(q: Any, k: Any, v: Any, own: Any) -> Any:
    """cascade(q (B, D), k (S, D), v (S, D), own: B pairs of (n, D)) → o (B, D)."""

    def part(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.T / np.float32(q.shape[1] ** 0.5)
        top = s.max(axis=1)
        p = np.exp(s - top[:, None])
        return p @ v / p.sum(axis=1)[:, None], top + np.log(p.sum(axis=1))

    o, lse = part(q, k, v)
    parts = [part(q[i : i + 1], *pair) for i, pair in enumerate(own)]
    mine, lse_own = (np.concatenate(x) for x in zip(*parts, strict=True))
    share = (1 / (1 + np.exp(lse_own - lse)))[:, None]
    return share * o + (1 - share) * mine


def _request(seed: int, lengths: list[int], shared: int = 6, dim: int = 8) -> Any:
    """Queries (B, D), shared keys and values (S, D), private ones (n, D) each, float32."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> Any:
        return rng.standard_normal((n, dim)).astype(np.float32)

    return draw(len(lengths)), draw(shared), draw(shared), [(draw(n), draw(n)) for n in lengths]


def _step(seed: int, lengths: list[int], cascade: Any) -> Iterator[Seen]:
    yield f"o of a step of {len(lengths)}", cascade(*_request(seed, lengths))


def _large(cascade_: Any) -> Iterator[Seen]:
    """Requests 0 and 1 have large scores; then request 2 has one that differs."""
    q, k, v, own = _request(1, [2, 2, 2])
    q[:2] *= 300
    for larger in (False, True):
        if larger:
            own[2][0][0] = 2000 * q[2]
        got = cascade_(q, k, v, own)
        why = "subtract each request's own largest score, or the larger lse, or e^lse overflows"
        # float32 rounds scores of a thousand to 1e-4, and e^score by as much: of two keys that
        # score alike the shares may differ in the third digit
        axes, right = ("request", "dim"), cascade(q, k, v, own)
        expect_close(got, right, "o with large scores", axes=axes, atol=5e-3, why=why)
        yield "o with large scores", np.zeros_like(q)


def _counted(cascade: Any) -> Iterator[Seen]:
    """Code that is right for plain arrays and cannot run with watched ones is not refused."""
    q, k, v, own = _request(4, [3] * 12, shared=300, dim=32)
    yield "o of a step of 12", cascade(q, k, v, own)
    reads = Reads({"k": k.size, "v": v.size}, width=32)
    given = reads.watch(q), reads.watch(k, "k"), reads.watch(v, "v")
    try:
        with kept_watched():
            cascade(*given, [(reads.watch(x), reads.watch(y)) for x, y in own])
    except Finding:
        return ""  # type: ignore[return-value]
    for name, product in (("k", "q @ k.T"), ("v", "p @ v")):
        times, why = reads.times(name), f"{product} serves all B queries at once"
        if times > OFTEN:
            raise Finding(f"{name} was read {times:.0f} times for 12 requests: {why}")
        if times < 0.99:
            raise Finding(f"no product read the whole of {name}. Keep it an array: {why}")
    return "the shared keys and values are read once, a counter says"  # type: ignore[return-value]


_SHARE = "(1 / (1 + np.exp(lse_own - lse)))[:, None]"
_SUM = "share * o + (1 - share) * mine"
check_cascade = Checker(
    cascade,
    letters="B D",
    typed=True,
    stages={
        "attention over shared and private keys together": partial(_step, 0, [3, 1, 5]),
        "large scores do not overflow": _large,
        "it holds for any number of requests": partial(_step, 3, [7, 1, 1, 2]),
        "it holds for twelve requests": _counted,
    },
    mistakes={
        "o is the mean of the two parts, but a part weighs e^lse": f"{_SHARE} → np.float32(0.5)",
        "o is the sum of the two parts, but their weights must add up to one": f"{_SUM} → o + mine",
        "the parts are weighted by their number of keys, but a part weighs e^lse": (
            f"{_SHARE} → np.float32([[len(k) / (len(k) + len(x))] for x, _ in own])"
        ),
        "the weights are exchanged: the part with the larger lse must count more": (
            "lse_own - lse → lse - lse_own"
        ),
        "the parts are weighted by lse, but a part weighs e^lse": (
            f"{_SHARE} → (lse / (lse + lse_own))[:, None]"
        ),
        "the lse lacks the largest score, which was subtracted: add it": "top + np.log → np.log",
        "the lse is the largest score alone: add the logarithm of the sum": (
            " + np.log(p.sum(axis=1)) → "
        ),
        "every request sees the private keys of all requests": (
            "parts = → own = [[np.concatenate(x) for x in zip(*own)]] * len(q); parts ="
        ),
        "only the shared keys count": f"{_SUM} → o",
        "only the private keys count": f"{_SUM} → mine",
        "the scores were not divided by √D": " / np.float32(q.shape[1] ** 0.5) → ",
    },
    refused={
        "or e^lse overflows": "np.exp(lse_own - lse) → np.exp(lse_own) / np.exp(lse)",
        "subtract each request's own largest score": "s.max(axis=1) → s.max() + 0 * s[:, 0]",
        "k was read 12 times": [
            lambda q, k, v, own: np.concatenate(
                [cascade(q[i : i + 1], k, v, own[i : i + 1]) for i in range(len(q))]
            ),
            "s = q @ k.T → s = np.stack([x @ k.T for x in q])",
        ],
        "v was read 12 times": "return p @ v → return np.stack([w @ v for w in p])",
        "no product read the whole of k": "s = q @ k.T → s = np.float32([[sum(x * y for x, y in "
        "zip(a, b)) for b in k.tolist()] for a in q.tolist()])",
    },
)

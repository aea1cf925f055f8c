"""Right answers of other forms than the records' pass, too."""

import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

import kvlib
from kvbook.exercises import (
    chunked,
    latent,
    naive,
    paged,
    prefixes,
    quantized,
    speculative,
    windows,
)
from kvlib.caches import SnapKV
from kvlib.codecs.packing import pack
from kvlib.errors import OutOfBlocks

f32 = np.float32


# naive --------------------------------------------------------------------------------------------


def by_kvlib(q: Any, k: Any, v: Any) -> Any:
    return kvlib.attend(q, k, v, np.arange(len(k) - len(q), len(k)), np.arange(len(k)))


def over_hidden_scores(q: Any, k: Any, v: Any) -> Any:
    """Hidden scores go with their weights, after they have been the maximum."""
    t, s = q.shape[0], k.shape[0]
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(np.float32(q.shape[2]))
    p = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(t, s, s - t)
    p = (p / p.sum(-1, keepdims=True)).astype(np.float32)
    return np.einsum("hts,shd->thd", p, v)


# chunked ------------------------------------------------------------------------------------------


def key_by_key(top: Any, total: Any, o: Any, s: Any, v: Any) -> Any:
    top, total, o = top.copy(), total.copy(), o.copy()
    for i, j in np.ndindex(s.shape):
        new = max(float(top[i, 0]), float(s[i, j]))
        if new > -math.inf:
            shrink, p = math.exp(float(top[i, 0]) - new), math.exp(float(s[i, j]) - new)
            total[i] = total[i] * shrink + p
            o[i], top[i] = o[i] * shrink + p * v[j], new
    return [top, total, o]


def in_pairs(p: int, c: int) -> Any:
    bounds, keys = chunked.read_in_chunks(p, c)
    return [tuple(pair) for pair in bounds.tolist()], float(keys)


def counted(decoding: Any, prompts: Any, budget: Any) -> Any:
    fed = Counter(decoding)
    room = (math.inf if budget is None else budget) - fed.total()
    return fed + Counter({name: min(room, n) for name, n in list(prompts.items())[:1]})


# paged --------------------------------------------------------------------------------------------


def by_request(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    out = np.empty(len(pos), dtype=np.int32)
    for row, a, b in zip(table, indptr, indptr[1:], strict=False):
        out[a:b] = row[pos[a:b] // size] * size + pos[a:b] % size
    return out


def searched(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    owner = np.searchsorted(indptr, np.arange(len(pos)), side="right") - 1
    block, offset = np.divmod(pos, size)
    return table[owner, block].astype(np.uint64) * np.uint64(size) + offset.astype(np.uint64)


def by_block(table: Any, indptr: Any, pos: Any, size: int) -> Any:
    """A loop over requests and their blocks."""
    out = np.zeros(len(pos), dtype=np.int64)
    for row, a, b in zip(table, indptr, indptr[1:], strict=False):
        first, last = int(pos[a]), int(pos[b - 1])
        for n in range(first // size, last // size + 1):
            start, stop = max(first, n * size), min(last + 1, (n + 1) * size)
            slots = np.arange(start - n * size, stop - n * size) + int(row[n]) * size
            out[a + start - first : a + stop - first] = slots
    return out


class Flags:
    def __init__(self, num_blocks: int) -> None:
        self.is_free = np.ones(num_blocks, bool)

    def allocate(self, count: int) -> Any:
        blocks = np.flatnonzero(self.is_free)[:count]
        if len(blocks) < count:
            raise OutOfBlocks("too few")
        self.is_free[blocks] = False
        return tuple(blocks)

    def free(self, blocks: list[int]) -> bool:
        if self.is_free[blocks].any() or len(set(blocks)) < len(blocks):
            raise ValueError("twice")
        self.is_free[blocks] = True
        return True


def decode(q, kb, vb, table, length, top=None, at_once=1) -> Any:
    """Some blocks at a time are gathered; the scores of all are kept."""
    heads, size, dim = kb.shape[1:]
    rows = q.reshape(heads, -1, dim) / f32(dim**0.5)

    def piece(x: Any, a: int) -> Any:
        found = x[table[a : a + at_once]].swapaxes(0, 1).reshape(heads, -1, dim)
        return found[:, : length - a * size]

    starts = range(0, len(table), at_once)
    s = np.concatenate([rows @ piece(kb, a).mT for a in starts], axis=-1)
    p = np.exp(s - (s.max(-1, keepdims=True) if top is None else top(s)))
    p /= p.sum(-1, keepdims=True)
    o = sum(p[..., a * size : (a + at_once) * size] @ piece(vb, a) for a in starts)
    return np.asarray(o).reshape(q.shape)


def in_heads(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    """A loop over heads and blocks."""
    groups, size, out = len(q) // kb.shape[1], kb.shape[2], np.zeros_like(q)
    for h in range(len(q)):
        left, scores = length, []
        for b in table:
            scores += (kb[b, h // groups, : min(size, left)] @ q[h]).tolist()
            left -= size
        p = np.exp((np.array(scores, f32) - max(scores)) / f32(q.shape[1] ** 0.5))
        for i, b in enumerate(table):
            share = p[i * size : (i + 1) * size] / p.sum()
            out[h] += share @ vb[b, h // groups, : len(share)]
    return out


def other_append(store: Any, table: Any, length: int, k: Any, pool: Any) -> Any:
    """Copies token by token, and only those there are."""
    block, off = length // store.shape[1], length % store.shape[1]
    if off == 0:
        (table[block],) = pool.allocate(1)
    elif pool.ref_count(int(table[block])) > 1:
        old, new = int(table[block]), pool.allocate(1)[0]
        for i in range(off):
            store[new][i] = store[old][i]
        table[block] = new
        pool.free([old])
    store[table[block]][off] = k
    return np.int64(length + 1)


def online(q: Any, kb: Any, vb: Any, table: Any, length: int) -> Any:
    """Online softmax, one block after another."""
    heads, size, dim = kb.shape[1:]
    rows = q.reshape(heads, -1, dim) / np.float32(dim**0.5)
    top = np.full((*rows.shape[:2], 1), -np.inf, np.float32)
    total, o = np.zeros_like(top), np.zeros_like(rows)
    for n, b in enumerate(table):
        here = min(size, length - n * size)
        s = rows @ kb[b, :, :here].mT
        new = np.maximum(top, s.max(-1, keepdims=True))
        p, shrink = np.exp(s - new), np.exp(top - new)
        total, o, top = total * shrink + p.sum(-1, keepdims=True), o * shrink, new
        o += p @ vb[b, :, :here]
    return (o / total).reshape(q.shape)


# prefixes -----------------------------------------------------------------------------------------


def numbered(tokens: Any, size: int, salt: Any, known: Any = {}) -> Any:  # noqa: B006
    """No hash at all: names are counted out as they come."""
    found, before = [], known.setdefault(("salt", salt), len(known))
    for a in range(0, len(tokens) - size + 1, size):
        before = known.setdefault((before, *tokens[a : a + size]), len(known))
        found.append(before)
    return found


def unsigned(tokens: Any, size: int, salt: Any) -> Any:
    """Tokens are never below 0, so unsigned bytes may be asked for."""
    hasher, found = hashlib.blake2b(repr(("salt", salt)).encode(), digest_size=16), []
    for row in np.array(tokens[: len(tokens) // size * size], np.uint32).reshape(-1, size):
        hasher.update(row.tobytes())
        found.append(int(hasher.hexdigest(), 16))
    return found


def highest_block(keys: Any, references: Any, table: Any, length: int, key: Any) -> Any:
    """Takes the entry out of the table and puts one back; copies only the keys there are."""
    off, free = length % keys.shape[1], max(b for b, n in enumerate(references) if n == 0)
    old = table.pop() if off else free
    if references[old] != 1:
        keys[free, :off] = keys[old, :off]
        references[old] -= off > 0
        references[free], old = 1, free
    table.append(old)
    keys[old][off][:] = key
    return np.int32(length + 1)


# quantized ----------------------------------------------------------------------------------------


def times_the_inverse(x: Any) -> Any:
    top = np.maximum(x.max(axis=1), -x.min(axis=1))
    safe = np.where(top > 0, top, f32(1))
    return np.floor(x * (f32(127) / safe)[:, None] + f32(0.5)).astype(np.int8), safe / f32(127)


def scale_zero(x: Any) -> Any:
    scales = (np.abs(x).max(axis=1) / 127).astype(f32)
    codes = np.zeros_like(x)
    np.divide(x, scales[:, None], out=codes, where=scales[:, None] > 0)
    return [np.round(codes).astype("int8"), scales]


def one_by_one(x: Any, scale: float) -> Any:
    codes = np.empty(x.shape, np.int8)
    for place, number in np.ndenumerate(x):
        codes[place] = max(-127, min(127, round(float(number) / scale)))
    return codes


def clipped_first(x: Any, scale: float) -> Any:
    return np.round(np.clip(x, -127 * scale, 127 * scale) / scale).astype(np.int8)


def packed_by_kvlib(packed: Any) -> Any:
    return pack(np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1), 4)


def by_norm(keys: Any, queries: Any, decoded: Any) -> Any:
    names = np.array(sorted(decoded, reverse=True))
    off = [np.linalg.norm(queries @ keys.T - queries @ decoded[a].T) for a in names]
    return names[int(off[1] < off[0])]


# latent -------------------------------------------------------------------------------------------


def by_loops(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """The definition, with loops over queries and heads, in float64."""
    (T, H, N), (S, R) = q.shape, k_pe.shape
    o = np.zeros((T, H, W_UV.shape[1]), f32)
    for t in range(T):
        n = S - T + t + 1
        for h in range(H):
            a = q[t, h].astype(float) @ W_UK[h]
            s = (c[:n] @ a + k_pe[:n] @ q_pe[t, h]) / np.sqrt(N + R)
            p = np.exp(s - s.max())
            o[t, h] = W_UV[h] @ (p / p.sum() @ c[:n])
    return o


def joined(q: Any, q_pe: Any, c: Any, k_pe: Any, W_UK: Any, W_UV: Any) -> Any:
    """One key of C + R numbers per token, as kernels have it, and heads first."""
    (T, _, N), (S, R) = q.shape, k_pe.shape
    both = np.concatenate([q.swapaxes(0, 1) @ W_UK, q_pe.swapaxes(0, 1)], axis=2)
    s = both @ np.concatenate([c, k_pe], axis=1).T / f32(np.sqrt(N + R))  # (H, T, S)
    s += np.where(np.tri(T, S, S - T) > 0, f32(0), f32(-np.inf))
    p = np.exp(s - s.max(-1, keepdims=True))
    return ((p / p.sum(-1, keepdims=True) @ c) @ W_UV.mT).swapaxes(0, 1)


class ByProducts:
    """One product of matrices between two copies."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        self.M, self.every, self.n, self.at = np.zeros((Dk, Dv), f32), every, 0, {}
        self.zeros = self.M

    def append(self, k: Any, v: Any) -> None:
        while len(k):
            room = self.every - self.n % self.every
            self.M = self.M + k[:room].T @ v[:room]
            self.n += len(k[:room])
            k, v = k[room:], v[room:]
            if self.n % self.every == 0:
                self.at[self.n] = self.M

    def read(self, q: Any) -> Any:
        return q @ self.M

    def truncate(self, length: int) -> int:
        if length == self.n:
            return 0
        self.at = {n: M for n, M in self.at.items() if n <= length}
        self.n = max(self.at, default=0)
        self.M = self.at.get(self.n, self.zeros)
        return length - self.n


# speculative --------------------------------------------------------------------------------------


def by_what_is_kept(p: Any, q: Any) -> Any:
    kept = np.minimum(p, q)
    return (p - kept) / (1 - kept.sum()) if kept.sum() < 1 - 1e-9 else p


def by_walking(parents: Any, length: int) -> Any:
    mask = np.zeros((len(parents), len(parents)), bool)
    for j, at in enumerate(range(len(parents))):
        while at >= 0:
            mask[j, at], at = True, parents[at]
    return mask, (length - 1 + mask.sum(axis=1)).tolist()


def prompt_in_pieces(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Reads the prompt one by one; the drafter reads its last guess, too, and the end is cut."""
    for i in range(len(prompt) - 1):
        target(prompt[i : i + 1], i)
    text, t, d = list(prompt), len(prompt) - 1, 0
    while len(text) < len(prompt) + n:
        guesses: list[int] = []
        for _ in range(gamma + 1):
            written = np.array(text + guesses)
            guesses.append(drafter(written[d:], np.int64(d))[-1])
            d = len(written)
        choices = target([text[-1], *guesses[:-1]], t)
        t += 1 + int(np.cumprod([g == c for g, c in zip(guesses[:-1], choices)]).sum())
        d, text = t, [*text, *choices][: len(text)] + choices[: t + 1 - len(text)]
    return text[len(prompt) :][:n]


# windows ------------------------------------------------------------------------------------------


def by_writing(W: int, C: int, n: int) -> Any:
    slots = np.full(W - 1 + C, -1, np.int32)
    for p in range(max(0, n - 1000), n):
        slots[p % len(slots)] = p
    return slots


def in_lists(keys: Any, positions: Any, sinks: int, recent: int) -> Any:
    row = [i for i in range(len(keys)) if i < sinks or i >= len(keys) - recent]
    turned = [windows.turn(keys[j : j + 1], [i - positions[j]])[0] for i, j in enumerate(row)]
    return np.array(turned, np.float32).reshape(-1, keys.shape[1]), list(range(len(row)))


def snapkv_by_kvlib(p: Any, window: int, kernel: int, budget: int) -> Any:
    """By the scores of kvlib's policy."""
    policy = SnapKV(window=window, kernel=kernel)
    seen = policy.fold(None, p[:, :, -window:])
    scores = policy.score(seen, seen[..., None], seen[..., None])
    scores[:, -window:] = np.inf
    return np.sort(np.argsort(-scores, axis=1)[:, :budget], axis=1)


FORMS: list[tuple[Any, tuple[Any, ...]]] = [
    (naive.check_causal_attention, (by_kvlib, over_hidden_scores)),
    (naive.check_grouped_attention, (by_kvlib,)), (chunked.check_online_update, (key_by_key,)),
    (chunked.check_read_in_chunks, (in_pairs,)), (chunked.check_fill_step, (counted,)),
    (paged.check_slot_mapping, (by_request, searched, by_block)),
    (paged.check_free_list, (Flags,)),
    (paged.check_paged_decode, (decode, in_heads, online, lambda *x: decode(*x, at_once=8))),
    (paged.check_append, (other_append,)),
    (prefixes.check_block_keys, (numbered, unsigned)),
    (prefixes.check_append_key, (highest_block,)),
    (quantized.check_int8_codes, (times_the_inverse, scale_zero)),
    (quantized.check_fixed_codes, (one_by_one, clipped_first)),
    (quantized.check_to_kvlib_order, (packed_by_kvlib,)),
    (quantized.check_choose_axis, (by_norm,)), (latent.check_absorbed, (by_loops, joined)),
    (latent.check_states, (ByProducts,)), (speculative.check_residual, (by_what_is_kept,)),
    (speculative.check_tree_mask, (by_walking,)),
    (speculative.check_speculate, (prompt_in_pieces,)),
    (windows.check_ring_positions, (by_writing,)), (windows.check_keep_sinks, (in_lists,)),
    (windows.check_snapkv_slots, (snapkv_by_kvlib,)),
]


@pytest.mark.parametrize(
    "check, answer", [(c, answer) for c, answers in FORMS for answer in answers]
)
def test_right_answers_of_other_forms(check: Any, answer: Any) -> None:
    report = check(answer)
    assert report.passed, report


def remembers(q: Any, kb: Any, vb: Any, table: Any, length: int, known: Any = {}) -> Any:  # noqa: B006
    """Copies the cache the first time a question is asked."""
    key = q.tobytes()
    if key not in known:
        known[key] = decode(q, kb, vb, table, length, at_once=len(table))
    return known[key]


def test_a_copy_is_seen_although_the_answer_was_asked_before() -> None:
    assert "the cache was copied" in paged.check_paged_decode(remembers).finding

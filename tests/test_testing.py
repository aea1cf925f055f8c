"""The kit passes what is right, and names the first schedule in which the rest fails."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from outside.listed import ListCache

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, testing
from kvlib.attention import attend
from kvlib.caches import KNorm, Memory, Retention, Scored, Sinks, Window
from kvlib.caches.protocol import Cache
from kvlib.caches.step import CachedSequence
from kvlib.codecs import PLAIN, Codec, Int8, Plain, TensorCodec, int8, kivi
from kvlib.serve import Scheduler
from kvlib.testing.check import EXTREMES
from kvlib.testing.memory import poison_unused

LAYERS = [LayerSpec(1, 8)]
DENSE = DenseCache


def dense(**methods: Any) -> type[DenseCache]:
    """A dense cache with other methods, which it gets after its class was made."""
    kind = type("Wrong", (DenseCache,), {})
    for name, method in methods.items():
        setattr(kind, name, method)
    return kind


def altered(name: str, change: Callable[..., Any], base: type[Cache] = DENSE) -> type[Any]:
    """A cache one of whose methods returns change(what it returned, *arguments)."""

    def method(self: Any, *given: Any, **more: Any) -> Any:
        return change(getattr(base, name)(self, *given, **more), *given)

    return type("Wrong", (base,), {name: method})


def one_token_too_many(self: Any, seq_id: Any, length: int) -> None:
    DENSE.truncate(self, seq_id, max(0, length - 1))


def four_slots_past_the_end(self: Any, layer: int, seq_id: Any) -> Any:
    seq = self._sequences[seq_id]
    length, seq.length = seq.length, min(self.max_seq_len, seq.length + 4)
    try:
        return DENSE.read(self, layer, seq_id)
    finally:
        seq.length = length


def without_window(self: Any, *given: Any, **more: Any) -> Any:
    layers = self.layers
    self.layers = tuple(replace(spec, window=None) for spec in layers)
    try:
        return DENSE.run(self, *given, **more)
    finally:
        self.layers = layers


def planned_one_by_one(self: Any, seq_ids: Any, q_lens: Any, tokens: Any = None) -> Any:
    return [DENSE.plan(self, [i], [n]) for i, n in zip(seq_ids, q_lens, strict=True)][-1]


def bill(payload: int, reserved: int | None = None) -> type[DenseCache]:
    def memory(self: Any) -> Memory:
        held = sum(x.nbytes for x in self.storage()) if reserved is None else reserved
        return Memory(payload=held + payload, metadata=0, reserved=held, wasted=0)

    return dense(memory=memory)


def in_silence(self: Any, layer: int, k: Any, v: Any, step: Any) -> None:
    DENSE.append(self, layer, k, v, step)
    step.ticket.appended.discard(layer)


def keeps_views(self: Any, layer: int, k: Any, v: Any, step: Any) -> None:
    DENSE.append(self, layer, k, v, step)
    for i, seq_id in enumerate(step.seq_ids):
        rows = vars(self).setdefault("views", {}).setdefault((layer, seq_id), [])
        rows += [k[t] for t in range(step.qo_indptr[i], step.qo_indptr[i + 1])]


def reads_views(self: Any, layer: int, seq_id: Any) -> Any:
    k, v, at = DENSE.read(self, layer, seq_id)
    rows = vars(self).get("views", {}).get((layer, seq_id), [])
    return np.stack(rows) if len(rows) == len(k) > 0 else k, v, at


def from_the_end(self: Any, layer: Any, seq_id: Any) -> Any:
    return DENSE.read(self, layer % len(self.layers) if layer == -1 else layer, seq_id)


def of_a_text(self: Any, layer: Any, seq_id: Any) -> Any:
    return DENSE.read(self, int(layer) if isinstance(layer, str) else layer, seq_id)


def by_key(self: Any, layer: int, seq_id: Any) -> Any:
    self._sequences[seq_id]
    return DENSE.read(self, layer, seq_id)


def of_nobody(self: Any, layer: int, seq_id: Any) -> Any:
    known = seq_id in self._sequences if isinstance(seq_id, str) else True
    return DENSE.read(self, layer, seq_id) if known else (np.zeros((0, 1, 8)),) * 3


def newest(length: int) -> range:
    return range(max(0, length - 8), length)


class Drops(DenseCache):
    """Keeps the newest 8 tokens and says so."""

    attend = Cache.attend

    def _read(self, layer: int, seq_id: Any) -> Any:
        return tuple(x[-8:] for x in super()._read(layer, seq_id))


class DropsInSilence(Drops):
    attend = DenseCache.attend


def with_lse(returned: bool) -> Callable[..., Any]:
    """A dense cache whose attention returns lse always, or never."""

    def attention(cache: Any, layer: int, q: Any, step: Any, return_lse: bool) -> Any:
        return type(cache).attend(cache, layer, q, step, returned)

    return lambda *given: DenseCache(*given, attention=attention)


WIDE = np.float64
WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "one off": (dense(truncate=one_token_too_many), "seq_len of"),
    "unused slots": (
        dense(read=four_slots_past_the_end, attend=Cache.attend),
        "but read also gives positions [0",
    ),
    "one row for a fork": (
        dense(_copy=lambda self, r, _: type(r)(r.state), _release=lambda self, seq: None),
        "changed|off by|not refused",
    ),
    "float64": (
        altered("run", lambda found, *_: found if isinstance(found, tuple) else found.astype(WIDE)),
        "is float64, q is float32",
    ),
    "lse in base 2": (
        altered(
            "run",
            lambda found, *_: (
                (found[0], found[1] / np.float32(np.log(2))) if isinstance(found, tuple) else found
            ),
        ),
        "lse of layer",
    ),
    "a window that is ignored": (dense(run=without_window), "o of layer"),
    "plans one by one": (dense(plan=planned_one_by_one), "planned|seq_len of"),
    "never full": (
        dense(_reserve=lambda self, sequences, *_: tuple(r.state for r in sequences)),
        "not refused|ValueError|IndexError|seq_len of",
    ),
    "a bill that does not add up": (bill(1), "the bytes do not add up"),
    "a bill that nobody measured": (bill(0, 1), "memory() says that 1 bytes are reserved"),
    "no list of arrays": (dense(storage=Cache.storage), "which yields every array"),
    "values are demanded": (
        dense(append=lambda self, layer, k, v, step: DENSE.append(self, layer, k, v[:], step)),
        "v_from_k=False",
    ),
    "does not say that it appended": (dense(append=in_silence), "step.ticket.appended.add(layer)"),
    "two of three": (
        dense(read=lambda *given: DENSE.read(*given)[:2], attend=Cache.attend),
        "read(layer, seq_id) returns three|needed (k, v, positions)",
    ),
    "reads float64": (
        altered("read", lambda found, *_: (*(x.astype(WIDE) for x in found[:2]), found[2])),
        "keys are float64, the cache's dtype is float32",
    ),
    "an exception": (dense(append=lambda *given: [][40]), "IndexError: list index out of range"),
    "views of the caller's arrays": (
        dense(append=keeps_views, read=reads_views, attend=Cache.attend),
        "changed|off by",
    ),
    "forgets": (Drops, "lost the tokens at|off by"),
    "counts layers from the end": (dense(read=from_the_end), "read(-1, 'r0') was not refused"),
    "takes a text for a layer": (dense(read=of_a_text), "read('0', 'r0') was not refused"),
    "KeyError": (dense(read=by_key), "read(0, 'no such request') raised KeyError, needed"),
    "forgives": (dense(read=of_nobody), "read(0, 'no such request') was not refused"),
    "never lse": (with_lse(False), "attention attention returned ndarray, needed (o, lse)"),
    "always lse": (with_lse(True), "attention attention returned tuple, needed o alone"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_caches_fail_in_a_schedule_that_can_be_played_again(name: str) -> None:
    wrong, words = WRONG[name]

    def make(layers: Any) -> Cache:
        return wrong(layers, 4, 40)

    trial = testing.check_cache(make)
    text = " ".join(repr(trial).split())
    assert not trial and any(part in text for part in words.split("|")), trial
    assert f"seed={trial.seed}, actions={trial.actions}" in text
    assert max(map(len, repr(trial).splitlines())) <= 72
    with pytest.raises((AssertionError, IndexError, TypeError, ValueError)):
        testing.replay(make, trial.seed, trial.actions)
    assert repr(testing.check_cache(make)) == repr(trial), "the same every time"


def test_kvlibs_own_caches_pass() -> None:
    for make in (
        lambda layers: DenseCache(layers, 4, 40),
        lambda layers: PagedCache(layers, BlockPool(40, 4)),
        lambda layers: QuantizedCache(layers, kivi(4, group=8, residual=3), 4, 40),
    ):
        trial = testing.check_cache(make, schedules=4, seed=7)
        assert trial and trial.compared > 50, trial
        assert "4 schedules" in repr(trial) and "not covered" not in repr(trial)
    life = testing.replay(lambda layers: DenseCache(layers, 4, 40), 3, 12)
    assert life.log and life.cache.seq_ids == tuple(life.held)


@pytest.mark.parametrize("arguments, words", [
    ({"make_cache": DenseCache(LAYERS, 1, 8)}, "make_cache: got DenseCache"),
    ({"make_cache": DenseCache, "schedules": 0}, "schedules must be at least 1, got 0"),
    ({"make_cache": DenseCache, "actions": -1}, "actions must be at least 1, got -1"),
    ({"make_cache": DenseCache, "lengths": []}, r"lengths must hold numbers .*, got \[\]"),
])
def test_arguments_that_make_no_sense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        testing.check_cache(**arguments)
    assert "needed a kvlib.Cache" in testing.check_cache(lambda layers: 3).finding
    with pytest.raises(TypeError, match="codec: got str, needed a kvlib.codecs.Codec"):
        testing.check_codec("int8")
    with pytest.raises(TypeError, match="rule: got type, needed a kvlib.caches.Retention"):
        testing.check_retention(Sinks)


def test_memory_of_an_unknown_cache_is_not_poisoned() -> None:
    class Strange(Cache):
        def storage(self) -> Any:
            raise AssertionError("nobody knows what is unused in here")

    poison_unused(Strange(LAYERS))


# What a trial does not cover ------------------------------------------------------------------


class NoFork(ListCache):
    _copy = Cache._copy


class NeverBack(Drops):
    """Refuses to give up tokens from before the last step."""

    def _check_truncate(self, seq: Any, length: int) -> None:
        if length < seq.start:
            raise ValueError(f"cannot be truncated to {length}")


def by_positions(cache: Any, layer: int, q: Any, step: Any, return_lse: bool) -> Any:
    return type(cache).attend(cache, layer, q, step, return_lse)


def planned(self: Any, seq_ids: Any, q_lens: Any, tokens: Any = None) -> Any:
    return DENSE.plan(self, seq_ids, q_lens, tokens)


FREED = "old numbers in freed memory"
GROWS = {"max_seq_len": None, "v_from_k": False, "xp": np}
SKIPPED: dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]] = {
    "an attention without trees": (
        lambda layers: DenseCache(layers, 4, 40, attention=by_positions), {},
        ["trees of guesses (its attention does not take them)"],
    ),
    "a plan without parents": (
        lambda layers: dense(plan=planned)(layers, 4, 40), {},
        ["trees of guesses (its plan has no parents)"],
    ),
    "a cache from scratch": (
        lambda layers: NoFork(layers, xp=np), GROWS,
        [
            "trees of guesses (the cache has no _keep)", "fork (the cache has no _copy)",
            "plans without room (max_seq_len=None)", "layers with v_from_k (v_from_k=False)",
            f"{FREED} (the kit knows that of kvlib's caches alone)",
        ],
    ),
    "a cache that evicts": (
        lambda layers: NeverBack(layers, 4, 40), {"keeps": newest},
        ["trees of guesses (left out where tokens are evicted)", "lengths that truncate refuses"],
    ),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_trial_says_what_it_did_not_cover(name: str) -> None:
    make, terms, words = SKIPPED[name]
    trial = testing.check_cache(make, schedules=4, **terms)
    assert trial and list(trial.skipped) == words, trial
    text = " ".join(repr(trial).split())
    assert "not covered: " + " ".join(words) in text, text


def test_a_cache_that_evicts_is_compared_with_what_it_holds() -> None:
    right = testing.check_cache(lambda layers: Drops(layers, 4, 40), schedules=8, keeps=newest)
    assert right and right.compared > 100, right
    wrong = testing.check_cache(lambda layers: DropsInSilence(layers, 4, 40), keeps=newest)
    assert not wrong and "o of layer" in wrong.finding, wrong
    more = testing.check_cache(lambda layers: Drops(layers, 4, 40), keeps=range)
    assert not more and "lost the tokens at [0" in more.finding, more


# Caches whose kv heads hold different tokens ---------------------------------------------------

RECENT, HEAVY = 4, 3


class ByHead(Cache):
    """Each kv head keeps the newest tokens, and of the older ones those with its longest keys.

    A layer of a request: k (n, Hkv, Dk), v (n, Hkv, Dv), positions (Hkv, n).
    """

    def _open(self, seq_id: Any, tokens: Any, extra: Any) -> CachedSequence:
        shapes = [
            ((0, s.num_kv_heads, s.head_dim), (0, s.num_kv_heads, s.v_dim)) for s in self.layers
        ]
        held = [
            [*(np.zeros(x, self.dtype) for x in s), np.zeros((s[0][1], 0), int)] for s in shapes
        ]
        return CachedSequence({"held": held, "evicted at": 0})

    def _reserve(self, sequences: Any, q_lens: Any, tokens: Any) -> None:
        for seq in sequences:
            if seq.length > RECENT + HEAVY:
                held = [self.kept(*layer, seq.length) for layer in seq.state["held"]]
                seq.state.update({"held": held, "evicted at": seq.length})

    def kept(self, k: Any, v: Any, at: Any, length: int) -> list[Any]:
        rows = np.stack([self.chosen(k[:, h], at[h], h, length) for h in range(len(at))])
        return [self.of_rows(k, rows), self.of_rows(v, rows), np.take_along_axis(at, rows, axis=1)]

    def of_rows(self, x: Any, rows: Any) -> Any:
        return x[rows.T, np.arange(len(rows))]  # (n, Hkv, D)

    def chosen(self, k: Any, at: Any, head: int, length: int) -> Any:
        """Rows of one head that stay, in order."""
        (newest,), (older,) = np.nonzero(at >= length - RECENT), np.nonzero(at < length - RECENT)
        heavy = older[np.argsort(-np.linalg.norm(k[older], axis=-1))[:HEAVY]]
        return np.sort(np.concatenate([heavy, newest]))

    def _truncate(self, seq: CachedSequence, length: int) -> None:
        if length < seq.state["evicted at"]:
            raise ValueError(f"cannot be truncated to {length}: some heads have evicted since")
        for layer in seq.state["held"]:
            n = int((layer[2][0] < length).sum())  # what came since is the same in every head
            layer[:] = [layer[0][:n], layer[1][:n], layer[2][:, :n]]

    def _copy(self, source: CachedSequence, seq_id: Any) -> CachedSequence:
        held = [list(layer) for layer in source.state["held"]]
        return CachedSequence({**source.state, "held": held})

    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        self._check_append(layer, k, v, step)
        for i, seq_id in enumerate(step.seq_ids):
            new = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            held = self._sequences[seq_id].state["held"][layer]
            at = np.broadcast_to(step.positions[new], (k.shape[1], step.q_lens[i]))
            pairs = zip(held, (k[new], v[new], at), (0, 0, 1), strict=True)
            held[:] = [np.concatenate([old, more], axis=axis) for old, more, axis in pairs]
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Any) -> Any:
        return tuple(self._sequences[seq_id].state["held"][layer])

    def storage(self) -> Any:
        return (x for r in self._sequences.values() for layer in r.state["held"] for x in layer)

    def memory(self) -> Memory:
        tables = sum(x.nbytes for x in self.storage() if x.dtype == np.int64)
        held = sum(x.nbytes for x in self.storage())
        return Memory(payload=held - tables, metadata=tables, reserved=held, wasted=0)


class KeepsAll(ByHead):
    _reserve = Cache._reserve


class ValuesOfHeadZero(ByHead):
    """Keys of each head's own rows, values of those that head 0 has kept."""

    def kept(self, k: Any, v: Any, at: Any, length: int) -> list[Any]:
        rows = np.stack([self.chosen(k[:, 0], at[0], 0, length)] * len(at))
        keys, _, positions = super().kept(k, v, at, length)
        return [keys, self.of_rows(v, rows), positions]


class HeadsExchanged(ByHead):
    """Rows of each head's choice, taken from the head beside it."""

    def of_rows(self, x: Any, rows: Any) -> Any:
        return x[rows.T, (np.arange(len(rows)) + 1) % len(rows)]


class OneHeadForgets(ByHead):
    """Head 1 keeps one more long key instead of its fourth newest token."""

    def chosen(self, k: Any, at: Any, head: int, length: int) -> Any:
        rows = super().chosen(k, at, head, length)
        others = np.setdiff1d(np.arange(len(at)), rows)
        return rows if head != 1 else np.sort([*np.delete(rows, -RECENT), *others[:1]])


class RunsByHeadZero(ByHead):
    """Masks every head by the positions of the first: wrong where a layer has a window."""

    def attend(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        parts = []
        for i, seq_id in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v, at = self.read(layer, seq_id)
            seen, more = step.positions[rows], self.layers[layer].settings
            parts.append(attend(q[rows], k, v, seen, at[0], return_lse=return_lse, **more))
        return self.join(parts, return_lse)


BY_HEAD: dict[str, tuple[type[ByHead], int | None, str]] = {
    "by head": (ByHead, RECENT, ""), "by head, and all of them": (KeepsAll, None, ""),
    "a position of another head": (
        altered("kept", lambda kept, *_: [*kept[:2], 0 * kept[2] + kept[2][:1]], ByHead),
        RECENT,
        "keys of layer|: read says position |in kv head 1, but the row there was appended at "
        "position |in kv head 1",
    ),
    "values of another row": (ValuesOfHeadZero, RECENT, "values of layer"),
    "rows of another head": (
        HeadsExchanged, RECENT, "kv head 0, but the row there was appended at",
    ),
    "a token that one head lost": (OneHeadForgets, RECENT, "lost the tokens at [|] in kv head 1"),
    "no order": (
        altered("chosen", lambda rows, *_: np.roll(rows, RECENT), ByHead), RECENT,
        "in kv head 0 are not in order: [",
    ),
    "tokens that are not there": (
        altered("_read", lambda read, *_: (*read[:2], read[2] + 1), ByHead), RECENT,
        "tokens, but read also gives positions [|] in kv head 0",
    ),
    "axes exchanged": (
        altered("_read", lambda read, *_: (*read[:2], read[2].T), ByHead), RECENT,
        "positions have shape (|or (Hkv, n) = (",
    ),
    "one mask for all heads": (RunsByHeadZero, RECENT, "o of layer|window|is off by"),
    "a promise that is not kept": (ByHead, 40, "lost the tokens at [|in kv head"),
}


@pytest.mark.parametrize("name", BY_HEAD)
def test_kv_heads_that_hold_different_tokens(name: str) -> None:
    """`read` gives positions (Hkv, n). With each kind: how many of the newest must be cached."""
    kind, recent, words = BY_HEAD[name]
    keeps = None if recent is None else lambda n: range(max(0, n - recent), n)
    schedules = 40 if words else 10
    trial = testing.check_cache(
        lambda layers: kind(layers, xp=np), schedules=schedules, keeps=keeps, **GROWS
    )
    assert trial.passed == (not words) and all(x in trial.finding for x in words.split("|")), trial
    assert words or trial.compared > 250, trial


def test_they_do_hold_different_tokens() -> None:
    """Else the test above would prove nothing."""
    differ = 0
    for seed in range(6):
        terms = {"keeps": lambda n: [], **GROWS}
        life = testing.replay(lambda layers: ByHead(layers, xp=np), seed, 30, **terms)
        tables = [life.read(i, x)[1] for x in life.held for i in range(len(life.layers))]
        differ += any((at != at[0]).any() for at in tables)
    assert differ > 2


# Codecs ---------------------------------------------------------------------------------------


class Drifts(Int8):
    def decode(self, parts: Any, dtype: Any) -> Any:
        parts["codes"][...] -= parts["codes"] > 0
        return super().decode(parts, dtype)


class Product(Int8):
    """Rounds by how many tokens there are, as a BLAS may."""

    def decode(self, parts: Any, dtype: Any) -> Any:
        found = super().decode(parts, dtype)
        return found * np.float32(1 + 2e-7 * (found.shape[1] % 2))


class Halved(Int8):
    """Inherits products of codes that its decode does not agree with."""

    def encode(self, x: Any) -> Any:
        return super().encode(2 * x)

    def decode(self, parts: Any, dtype: Any) -> Any:
        return super().decode(parts, dtype) / 2


class HalvedAndRight(Halved):
    scores, weigh = TensorCodec.scores, TensorCodec.weigh


class OneScale(Int8):
    def encode(self, x: Any) -> Any:
        top = np.abs(x).max(initial=1e-9).astype(np.float32)
        codes = np.round(x / top * 127).astype(np.int8)
        return {"codes": codes, "scales": np.full(x.shape[:-1], top / 127, np.float32)}


class AllMetadata(Int8):
    """Marks the codes as metadata, too."""

    def fields(self, dim: int, xp: Any, dtype: Any) -> Any:
        found = super().fields(dim, xp, dtype)
        return {name: field._replace(payload=False) for name, field in found.items()}


class DividesByZero(Int8):
    def encode(self, x: Any) -> Any:
        scales = (np.abs(x).max(axis=-1) / 127).astype(np.float32)
        with np.errstate(invalid="ignore"):
            codes = np.round(x / scales[..., None])
        return {"codes": codes.astype(np.int8), "scales": np.where(scales, scales, np.nan)}


class ForgetsScales(Int8):
    def encode(self, x: Any) -> Any:
        return {"codes": super().encode(x)["codes"]}


class Raises(Int8):
    def encode(self, x: Any) -> Any:
        if not x.any() and x.size:
            raise ZeroDivisionError("all zeros")
        return super().encode(x)


class Choosy(Int8):
    """Takes vectors of 32 and of 64 numbers."""

    def check(self, dim: int) -> None:
        if dim not in (32, 64):
            raise ValueError(f"32 or 64 numbers, got {dim}")


def of(part: TensorCodec, **more: Any) -> Codec:
    return Codec("mine", part, part, **more)


CODECS: dict[str, tuple[Codec, dict[str, Any], str]] = {
    "changes old codes": (of(Drifts()), {}, "mine, rows: failed|is off by"),
    "a product": (of(Product()), {}, "to the last bit|A matrix product breaks this rule"),
    "inherits products": (of(Halved()), {}, "scores of Halved does not agree with its decode"),
    "its own products": (of(HalvedAndRight()), {}, ""),
    "one scale for all": (of(OneScale()), {}, "however many others"),
    "no payload": (
        of(AllMetadata()), {}, "AllMetadata() marks no field as payload (codes, scales)",
    ),
    "divides by zero": (of(DividesByZero()), {}, "mine: failed|vectors of zeros|off by nan"),
    "lacks a field": (of(ForgetsScales()), {}, "mine, rows|returned the fields ['codes'], needed"),
    "raises": (of(Raises()), {}, "mine: failed|ZeroDivisionError: all zeros"),
    "other lengths": (of(Choosy()), {}, "values of 8, 16, 24, 40 numbers; lengths=[64]"),
    "its lengths": (of(Choosy()), {"lengths": (32, 64)}, ""),
    "int8 under another name": (Codec("plain", Int8(), Int8()), {}, ""),
    "plain, with a residual": (of(Plain(), residual=3), {}, ""),
    "groups": (kivi(4, group=8, residual=3), {}, ""),
}


@pytest.mark.parametrize("name", CODECS)
def test_codecs(name: str) -> None:
    codec, terms, words = CODECS[name]
    trial = testing.check_codec(codec, schedules=4, xp=np, **terms)
    text = " ".join(repr(trial).split())
    assert trial.passed == (not words) and all(part in text for part in words.split("|")), trial
    assert words or trial.compared > 100, trial


class Modest(PagedCache):
    """Counts half of its keys as scales."""

    def memory(self) -> Memory:
        found, some = super().memory(), super().memory().payload // 2
        return replace(found, payload=found.payload - some, metadata=found.metadata + some)


@pytest.mark.parametrize("codec", (PLAIN, int8(residual=5)), ids=str)
def test_what_is_payload_is_what_the_fields_say(codec: Codec) -> None:
    trial = testing.check_cache(
        lambda layers: Modest(layers, BlockPool(40, 4), codec=codec), schedules=1
    )
    assert not trial and "bytes are payload, but the fields that the codec" in trial.finding


# Rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers(Retention):
    """What a function answers."""

    name: str
    answer: Any = None

    def kept(self, positions: np.ndarray, length: int) -> Any:
        return self.answer(positions, length)


RULES: dict[str, tuple[Retention | None, str]] = {
    "nothing, everything, one in 16": (None, ""), "sinks": (Sinks(2, 5), ""),
    "a window": (Window(5), ""),
    "scores": (Scored(KNorm(recent=2), 9, every=2), ""),
    "no booleans": (Answers("numbers", lambda at, n: at), "must give one boolean for each"),
    "random": (Answers("r", lambda at, n: np.random.default_rng().random(len(at)) < 0.5), "lost"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    rule, words = RULES[name]
    trial = testing.check_retention(rule, schedules=3, xp=np)
    assert trial.passed == (not words) and words in trial.finding, trial
    assert words or (trial.compared > 100 and "bytes moved for each byte appended" in repr(trial))


def test_rules_in_a_cache_from_elsewhere() -> None:
    """A cache that takes rules is tried with the extreme ones, and one that ignores them fails."""

    def right(layers: Any, rule: Retention) -> Cache:
        return PagedCache(layers, BlockPool(160, 4), retention=rule)

    def wrong(layers: Any, rule: Retention) -> Cache:
        return Drops(layers, 4, 40)

    trial = testing.check_retention(make_cache=right, schedules=2)
    assert trial and trial.schedules == 2 * len(EXTREMES) and trial.moved is None, trial
    trial = testing.check_retention(make_cache=wrong)
    assert "retention, OneIn(n=1): failed" in repr(trial) and "lost the tokens" in trial.finding


# Schedulers -----------------------------------------------------------------------------------


class Forgets(Scheduler):
    """Loses a token of who is preempted."""

    def _record(self, r: Any, kind: str, tokens: int = 0, token: int | None = None) -> None:
        if kind == "preempt" and r.new:
            r.new.pop(0)
        super()._record(r, kind, tokens, token)


class KeepsRows(Scheduler):
    def step(self) -> Any:
        events = super().step()
        if not self.busy:
            self.cache.add("forgotten")
        return events


class StandsStill(Scheduler):
    def step(self) -> Any:
        return []


@pytest.mark.parametrize("wrong, settings, words", [
    (Forgets, {"budget": 5}, "alone it gets"),
    (KeepsRows, {}, "the cache still holds ('forgotten',)"),
    (StandsStill, {}, "a request is still not done"),
])
def test_wrong_schedulers(wrong: Any, settings: dict[str, Any], words: str) -> None:
    trial = testing.check_scheduler(
        lambda model, cache: wrong(model, cache, stop_tokens=(), **settings), schedules=40
    )
    assert not trial and words in trial.finding, trial
    assert trial.name == "scheduler" or trial.name == wrong.__name__


def test_the_budget_of_a_scheduler() -> None:
    def make(model: Any, cache: Any) -> Scheduler:
        return Scheduler(model, cache, budget=6, stop_tokens=())

    trial = testing.check_scheduler(make, budget=6)
    assert trial and trial.name == "Scheduler" and trial.compared > 40, trial
    trial = testing.check_scheduler(make, budget=5)
    assert "takes 6 tokens, more than the budget of 5" in trial.finding and "add r0" in repr(trial)

"""The checker kit passes what is right, and names the first schedule in which the rest fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache, testing
from kvlib.caches import Cache, Memory
from kvlib.codecs import PLAIN, Codec, Int8, Plain, TensorCodec, int8, kivi
from kvlib.serve import DECODING, Scheduler
from kvlib.testing.poison import poison_unused


class OneOff(DenseCache):
    """Forgets one token too many."""

    def truncate(self, seq_id: Any, length: int) -> None:
        super().truncate(seq_id, max(0, length - 1))


class ZerosAreNeutral(DenseCache):
    """Attends to four slots behind the end, as if what lies there did not count."""

    def read(self, layer: int, seq_id: Any) -> Any:
        request = self._requests[seq_id]
        length, request.length = request.length, min(self.max_seq_len, request.length + 4)
        try:
            return super().read(layer, seq_id)
        finally:
            request.length = length

    attend = Cache.attend


class SharedFork(DenseCache):
    """A fork is the same row."""

    def _copy(self, source: Any, seq_id: Any) -> Any:
        return type(source)(source.state)

    def _release(self, request: Any) -> None:
        """Rows are never given back."""


class Wide(DenseCache):
    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        found = super().run(layer, q, step, return_lse)
        return found if return_lse else found.astype(np.float64)


class Base2(DenseCache):
    """The log of the sum to another base."""

    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        found = super().run(layer, q, step, return_lse)
        return (found[0], found[1] / np.float32(np.log(2))) if return_lse else found


class NoWindow(DenseCache):
    """Attends to all, whatever the layer's window."""

    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        layers = self.layers
        self.layers = tuple(replace(spec, window=None) for spec in layers)
        try:
            return super().run(layer, q, step, return_lse)
        finally:
            self.layers = layers


class PlanChangesAll(DenseCache):
    """Room is counted while it is taken."""

    def plan(self, seq_ids: Any, q_lens: Any, tokens: Any = None) -> Any:
        steps = [super(PlanChangesAll, self).plan([i], [n]) for i, n in zip(seq_ids, q_lens)]
        return super().plan(seq_ids, [1] * len(q_lens)) if len(steps) > 9 else steps[-1]


class NeverFull(DenseCache):
    def _reserve(self, requests: Any, q_lens: Any, tokens: Any) -> Any:
        return tuple(r.state for r in requests)


class Bill(DenseCache):
    def memory(self) -> Memory:
        held = sum(x.nbytes for x in self.storage())
        return Memory(payload=held + 1, metadata=0, reserved=held, wasted=0)


class Guessed(DenseCache):
    def memory(self) -> Memory:
        return Memory(payload=1, metadata=0, reserved=1, wasted=0)


class Unnamed(DenseCache):
    storage = Cache.storage


class NeedsValues(DenseCache):
    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        super().append(layer, k, v[:], step)


class Silent(DenseCache):
    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        super().append(layer, k, v, step)
        step.ticket.appended.discard(layer)


class Pair(DenseCache):
    attend = Cache.attend

    def read(self, layer: int, seq_id: Any) -> Any:
        return super().read(layer, seq_id)[:2]


def reading(read: Callable[..., Any]) -> type:
    """A dense cache with another `read`, which it gets after its class was made."""
    found = type(read.__name__, (DenseCache,), {})
    found.read = read  # type: ignore[attr-defined]
    return found


def counts_from_the_end(self: Any, layer: int, seq_id: Any) -> Any:
    return DenseCache.read(self, layer % len(self.layers) if layer == -1 else layer, seq_id)


def takes_text(self: Any, layer: Any, seq_id: Any) -> Any:
    return DenseCache.read(self, int(layer) if isinstance(layer, str) else layer, seq_id)


def raises_key_errors(self: Any, layer: int, seq_id: Any) -> Any:
    self._requests[seq_id]
    return DenseCache.read(self, layer, seq_id)


def forgives(self: Any, layer: int, seq_id: Any) -> Any:
    if seq_id == "no such request":
        return np.zeros((0, 1, 8)), np.zeros((0, 1, 8)), np.zeros(0)
    return DenseCache.read(self, layer, seq_id)


def without_lse(cache: Any, layer: int, q: Any, step: Any, return_lse: bool) -> Any:
    return type(cache).attend(cache, layer, q, step, False)


def always_lse(cache: Any, layer: int, q: Any, step: Any, return_lse: bool) -> Any:
    return type(cache).attend(cache, layer, q, step, True)


class WideRead(DenseCache):
    def read(self, layer: int, seq_id: Any) -> Any:
        k, v, at = super().read(layer, seq_id)
        return k.astype(np.float64), v.astype(np.float64), at


class Raises(DenseCache):
    def append(self, *args: Any) -> None:
        raise IndexError("slot 40")


class Views(DenseCache):
    """Keeps what it was handed, which the caller goes on using."""

    attend = Cache.attend

    def _rows(self, layer: int, seq_id: Any) -> list[Any]:
        return vars(self).setdefault("kept", {}).setdefault((layer, seq_id), [])

    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        super().append(layer, k, v, step)
        for i, seq_id in enumerate(step.seq_ids):
            for t in range(step.qo_indptr[i], step.qo_indptr[i + 1]):
                self._rows(layer, seq_id).append(k[t])

    def read(self, layer: int, seq_id: Any) -> Any:
        k, v, at = super().read(layer, seq_id)
        rows = self._rows(layer, seq_id)
        return np.stack(rows) if len(rows) == len(k) > 0 else k, v, at


class Drops(DenseCache):
    """Keeps the newest 8 tokens and says so."""

    attend = Cache.attend

    def _read(self, layer: int, seq_id: Any) -> Any:
        return tuple(x[-8:] for x in super()._read(layer, seq_id))


class DropsInSilence(Drops):
    attend = DenseCache.attend


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "one off": (OneOff, "seq_len of"),
    "unused slots": (ZerosAreNeutral, "but read also gives positions [0"),
    "one row for a fork": (SharedFork, "changed|off by|not refused"),
    "float64": (Wide, "is float64, q is float32"),
    "lse in base 2": (Base2, "lse of layer"),
    "a window that is ignored": (NoWindow, "o of layer"),
    "plans one by one": (PlanChangesAll, "planned|seq_len of"),
    "never full": (NeverFull, "not refused|ValueError|IndexError|seq_len of"),
    "a bill that does not add up": (Bill, "the bytes do not add up"),
    "a bill that nobody measured": (Guessed, "memory() says that 1 bytes are reserved"),
    "no list of arrays": (Unnamed, "which yields every array"),
    "values are demanded": (NeedsValues, "v_from_k=False"),
    "does not say that it appended": (Silent, "step.ticket.appended.add(layer)"),
    "two of three": (Pair, "read(layer, seq_id) returns three|needed (k, v, positions)"),
    "reads float64": (WideRead, "keys are float64, the cache's dtype is float32"),
    "an exception": (Raises, "IndexError: slot 40"),
    "views of the caller's arrays": (Views, "changed|off by"),
    "forgets": (Drops, "lost the tokens at|off by"),
    "counts layers from the end": (reading(counts_from_the_end), "read(-1, 'r0') was not refused"),
    "takes a text for a layer": (reading(takes_text), "read('0', 'r0') was not refused"),
    "KeyError": (reading(raises_key_errors), "read(0, 'no such request') raised KeyError, needed"),
    "forgives": (reading(forgives), "read(0, 'no such request') was not refused"),
    "ignores return_lse": (
        lambda *args: DenseCache(*args, attention=without_lse),
        "with return_lse=True the attention without_lse returned ndarray, needed (o, lse)",
    ),
    "always returns lse": (
        lambda *args: DenseCache(*args, attention=always_lse),
        "with return_lse=False the attention always_lse returned tuple, needed o alone",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_caches_fail_in_a_schedule_that_can_be_played_again(name: str) -> None:
    wrong, words = WRONG[name]

    def make(layers: Any) -> Cache:
        return wrong(layers, 4, 40)

    trial = testing.check_cache(make)
    assert not trial and trial.name in (wrong.__name__, "cache", "DenseCache")
    text = " ".join(repr(trial).split())
    assert any(part in text for part in words.split("|")), trial
    assert f"seed={trial.seed}, actions={trial.actions}" in text
    assert max(map(len, repr(trial).splitlines())) <= 72
    with pytest.raises((AssertionError, IndexError, TypeError, ValueError)):
        testing.replay(make, trial.seed, trial.actions)
    assert repr(testing.check_cache(make)) == repr(trial), "the same every time"


def test_a_cache_that_evicts_is_compared_with_what_it_holds() -> None:
    def newest(length: int) -> range:
        return range(max(0, length - 8), length)

    right = testing.check_cache(lambda layers: Drops(layers, 4, 40), schedules=8, keeps=newest)
    assert right and right.compared > 100, right
    wrong = testing.check_cache(lambda layers: DropsInSilence(layers, 4, 40), keeps=newest)
    assert not wrong and "o of layer" in wrong.finding, wrong
    assert "not covered: trees of guesses" in repr(right), right
    more = testing.check_cache(lambda layers: Drops(layers, 4, 40), keeps=lambda n: range(n))
    assert not more and "lost the tokens at [0" in more.finding, more


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


def by_positions(cache: Any, layer: int, q: Any, step: Any, return_lse: bool) -> Any:
    return type(cache).attend(cache, layer, q, step, return_lse)


class NeverBack(Drops):
    """Refuses to give up tokens from before the last step."""

    def _truncate(self, request: Any, length: int) -> None:
        if length < request.begun:
            raise ValueError(f"cannot go back to {length}")
        super()._truncate(request, length)


def test_a_trial_says_what_it_did_not_cover() -> None:
    trial = testing.check_cache(
        lambda layers: DenseCache(layers, 4, 40, attention=by_positions), schedules=2
    )
    assert trial and repr(trial).splitlines()[-1].strip() == "not covered: trees of guesses"
    trial = testing.check_cache(
        lambda layers: NeverBack(layers, 4, 40), schedules=8, keeps=lambda n: range(n)[-8:]
    )
    words = r"trees of guesses, \d+ lengths that\s+truncate refused"
    assert trial and re.search(words, repr(trial)), trial


def test_a_codec_that_encodes_anew_is_caught() -> None:
    class Drifts(Int8):
        def decode(self, parts: Any, dtype: Any) -> Any:
            parts["codes"][...] += 1
            return super().decode(parts, dtype)

    codec = Codec("drifts", Drifts(), Drifts())
    trial = testing.check_cache(lambda layers: QuantizedCache(layers, codec, 4, 40))
    assert not trial and "is off by" in trial.finding, trial


def test_a_codec_that_rounds_by_how_many_tokens_there_are_is_told_so() -> None:
    class Product(Int8):
        def decode(self, parts: Any, dtype: Any) -> Any:
            found = super().decode(parts, dtype)
            return found * np.float32(1 + 2e-7 * (found.shape[1] % 2))  # as a BLAS may

    codec = Codec("product", Product(), Product())
    trial = testing.check_cache(lambda layers: QuantizedCache(layers, codec, 4, 40, xp=np), xp=np)
    assert "changed at position" in trial.finding and "to the last bit" in trial.finding, trial


def test_a_codec_that_inherits_how_codes_are_multiplied_is_told_so() -> None:
    class Halved(Int8):
        def encode(self, x: Any) -> Any:
            return super().encode(2 * x)

        def decode(self, parts: Any, dtype: Any) -> Any:
            return super().decode(parts, dtype) / 2

    class Right(Halved):
        scores, weigh = TensorCodec.scores, TensorCodec.weigh

    for part, words in ((Halved, "scores of Halved does not agree with its decode"), (Right, "")):
        codec = Codec("halved", part(), part())
        trial = testing.check_cache(
            lambda layers, codec=codec: QuantizedCache(layers, codec, 4, 40, xp=np),
            schedules=4,
            xp=np,
        )
        assert words in (trial.finding or ""), trial
        assert trial.passed == (part is Right), trial


def test_a_scale_of_all_that_is_encoded_together_is_told_so() -> None:
    class OneScale(Int8):
        def encode(self, x: Any) -> Any:
            top = np.abs(x).max(initial=1e-9).astype(np.float32)
            codes = np.round(x / top * 127).astype(np.int8)
            return {"codes": codes, "scales": np.full(x.shape[:-1], top / 127, np.float32)}

    codec = Codec("one scale", OneScale(), OneScale())
    trial = testing.check_cache(lambda layers: QuantizedCache(layers, codec, 4, 40, xp=np), xp=np)
    assert "however many others" in trial.finding and "product" not in trial.finding, trial


class Choosy(Int8):
    """Takes vectors of 32 and of 64 numbers."""

    def check(self, dim: int) -> None:
        if dim not in (32, 64):
            raise ValueError(f"32 or 64 numbers, got {dim}")


def test_a_codec_that_takes_some_lengths_alone() -> None:
    codec = Codec("choosy", Choosy(), Choosy())

    def make(layers: Any) -> QuantizedCache:
        assert all(spec.head_dim in seen for spec in layers)
        return QuantizedCache(layers, codec, 4, 40, xp=np)

    seen: tuple[int, ...] = (8, 16, 24)
    trial = testing.check_cache(make, xp=np)
    assert not trial and "values of 8, 16, 24, 40 numbers; lengths=[64]" in trial.finding, trial
    for seen in ((32, 64), (64,)):
        trial = testing.check_cache(make, xp=np, schedules=8, lengths=seen)
        assert trial and trial.compared > 50, trial


class AllMetadata(Int8):
    """Marks the codes as metadata, too."""

    def fields(self, dim: int, xp: Any, dtype: Any) -> Any:
        found = super().fields(dim, xp, dtype)
        return {name: field._replace(payload=False) for name, field in found.items()}


class Modest(PagedCache):
    """Counts half of its keys as scales."""

    def memory(self) -> Memory:
        found, some = super().memory(), super().memory().payload // 2
        return replace(found, payload=found.payload - some, metadata=found.metadata + some)


def test_what_is_payload_is_what_the_fields_say() -> None:
    unmarked = Codec("unmarked", AllMetadata(), AllMetadata())
    trial = testing.check_cache(lambda layers: QuantizedCache(layers, unmarked, 4, 40), schedules=1)
    assert not trial and trial.compared == 0, trial
    assert "AllMetadata() marks no field as payload (codes, scales)" in trial.finding, trial
    for codec in (PLAIN, int8(residual=5)):
        trial = testing.check_cache(
            lambda layers, codec=codec: Modest(layers, BlockPool(40, 4), codec=codec), schedules=1
        )
        assert not trial and "bytes are payload, but the fields that the codec" in trial.finding


def test_a_codec_is_what_it_does_and_not_what_it_is_called() -> None:
    """int8 under the name of numbers as they come; those under another, with a residual."""
    for codec in (Codec("plain", Int8(), Int8()), Codec("mine", Plain(), Plain(), residual=3)):
        trial = testing.check_cache(
            lambda layers, codec=codec: QuantizedCache(layers, codec, 4, 40), schedules=4
        )
        assert trial and trial.compared > 50, trial


LAYERS = [LayerSpec(1, 8)]


def test_memory_of_a_strange_cache_is_left_alone() -> None:
    class Strange(Cache):
        def storage(self) -> Any:
            raise AssertionError("nobody knows what is unused in here")

    poison_unused(Strange(LAYERS))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"make_cache": DenseCache(LAYERS, 1, 8)}, "make_cache: got DenseCache"),
        ({"make_cache": DenseCache, "schedules": 0}, "schedules must be at least 1, got 0"),
        ({"make_cache": DenseCache, "actions": -1}, "actions must be at least 1, got -1"),
        ({"make_cache": DenseCache, "lengths": []}, r"lengths must hold numbers .*, got \[\]"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        testing.check_cache(**arguments)
    assert "needed a kvlib.Cache" in testing.check_cache(lambda layers: 3).finding


# Schedulers -----------------------------------------------------------------------------------


class Forgets(Scheduler):
    """Loses a token of who is preempted."""

    def _note(self, r: Any, kind: str, tokens: int = 0, token: int | None = None) -> None:
        if kind == "preempt" and r.new:
            r.new.pop(0)
        super()._note(r, kind, tokens, token)


class KeepsRows(Scheduler):
    def step(self) -> Any:
        events = super().step()
        if not self.busy:
            self.cache.add("forgotten")
        return events


class StandsStill(Scheduler):
    def step(self) -> Any:
        return []


class Wrong(Scheduler):
    def step(self) -> Any:
        events = super().step()
        for r in self._running:
            if r.state == DECODING and len(r.new) == 2:
                r.new[-1] = (r.new[-1] + 1) % 61
        return events


@pytest.mark.parametrize(
    "wrong, settings, words",
    [
        (Forgets, {"budget": 5}, "alone it gets"),
        (KeepsRows, {}, "the cache still holds ('forgotten',)"),
        (StandsStill, {}, "a request is still not done"),
        (Wrong, {}, "alone it gets"),
    ],
)
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

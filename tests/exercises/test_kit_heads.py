"""The kit on caches whose kv heads hold different tokens: `read` gives positions (Hkv, n)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvlib import testing
from kvlib.attention import attend
from kvlib.caches import Cache, Memory
from kvlib.caches.step import Request
from kvlib.testing import Trial

RECENT, HEAVY = 4, 3


class ByHead(Cache):
    """Each kv head keeps the newest tokens, and of the older ones those with its longest keys.

    A layer of a request: k (n, Hkv, Dk), v (n, Hkv, Dv), positions (Hkv, n).
    """

    def _open(self, seq_id: Any, tokens: Any, extra: Any) -> Request:
        held = []
        for spec in self.layers:
            k, v = (np.zeros((0, spec.num_kv_heads, d)) for d in (spec.head_dim, spec.v_dim))
            at = np.zeros((spec.num_kv_heads, 0), np.int64)
            held.append([k.astype(self.dtype), v.astype(self.dtype), at])
        return Request({"held": held, "evicted at": 0})

    def _reserve(self, requests: Any, q_lens: Any, tokens: Any) -> None:
        for request in requests:
            if request.length > RECENT + HEAVY:
                request.state["evicted at"] = request.length
                request.state["held"] = [
                    self.kept(*layer, request.length) for layer in request.state["held"]
                ]

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

    def _truncate(self, request: Request, length: int) -> None:
        if length < request.state["evicted at"]:
            raise ValueError(f"cannot go back to {length}: some heads have evicted since")
        for layer in request.state["held"]:
            n = int((layer[2][0] < length).sum())  # what came since is the same in every head
            layer[:] = [layer[0][:n], layer[1][:n], layer[2][:, :n]]

    def _copy(self, source: Request, seq_id: Any) -> Request:
        held = [list(layer) for layer in source.state["held"]]
        return Request({"held": held, "evicted at": source.state["evicted at"]})

    def append(self, layer: int, k: Any, v: Any, step: Any) -> None:
        self._check_append(layer, k, v, step)
        for i, seq_id in enumerate(step.seq_ids):
            new = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            held = self._requests[seq_id].state["held"][layer]
            at = np.broadcast_to(step.positions[new], (k.shape[1], step.q_lens[i]))
            held[:] = [
                np.concatenate([held[0], k[new]]),
                np.concatenate([held[1], v[new]]),
                np.concatenate([held[2], at], axis=1),
            ]
        step.ticket.appended.add(layer)

    def _read(self, layer: int, seq_id: Any) -> Any:
        return tuple(self._requests[seq_id].state["held"][layer])

    def storage(self) -> Any:
        for request in self._requests.values():
            for layer in request.state["held"]:
                yield from layer

    def memory(self) -> Memory:
        tables = sum(x.nbytes for x in self.storage() if x.dtype == np.int64)
        held = sum(x.nbytes for x in self.storage())
        return Memory(payload=held - tables, metadata=tables, reserved=held, wasted=0)


class PositionsOfHeadZero(ByHead):
    """Evicts head by head, and notes what head 0 has kept for all of them."""

    def kept(self, *layer: Any) -> list[Any]:
        k, v, at = super().kept(*layer)
        return [k, v, np.broadcast_to(at[:1], at.shape)]


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
    """The last head keeps one more long key in the place of its fourth newest token."""

    def chosen(self, k: Any, at: Any, head: int, length: int) -> Any:
        rows = super().chosen(k, at, head, length)
        if head != 1:
            return rows
        others = np.setdiff1d(np.arange(len(at)), rows)
        return np.sort(np.concatenate([np.delete(rows, -RECENT), others[:1]]))


class OutOfOrder(ByHead):
    """The long keys behind the newest."""

    def chosen(self, *given: Any) -> Any:
        return np.roll(super().chosen(*given), RECENT)


class TokensOutside(ByHead):
    def _read(self, layer: int, seq_id: Any) -> Any:
        k, v, at = super()._read(layer, seq_id)
        return k, v, at + 1


class Transposed(ByHead):
    """Positions (n, Hkv), as keys have their axes."""

    def _read(self, layer: int, seq_id: Any) -> Any:
        k, v, at = super()._read(layer, seq_id)
        return k, v, at.T


class RunsByHeadZero(ByHead):
    """Masks every head by the positions of the first: wrong where a layer has a window."""

    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        parts = []
        for i, seq_id in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v, at = self.read(layer, seq_id)
            seen, more = step.positions[rows], self.layers[layer].settings
            parts.append(attend(q[rows], k, v, seen, at[0], return_lse=return_lse, **more))
        return self.join(parts, return_lse)


def newest(length: int) -> range:
    return range(max(0, length - RECENT), length)


TERMS: dict[str, Any] = {"keeps": newest, "max_seq_len": None, "v_from_k": False, "xp": np}


def trial_of(kind: Any, schedules: int = 40, **terms: Any) -> Trial:
    terms = {"schedules": schedules, **TERMS, **terms}
    return testing.check_cache(lambda layers: kind(layers, xp=np), **terms)


def test_a_cache_that_evicts_by_head_passes() -> None:
    trial = trial_of(ByHead, 12)
    assert trial and trial.compared > 300, trial


def test_it_does_evict_by_head() -> None:
    """Else the test above would prove nothing."""
    differ = 0
    for seed in range(6):
        life = testing.replay(lambda layers: ByHead(layers, xp=np), seed, 30, **TERMS)
        tables = [life.read(i, x)[1] for x in life.held for i in range(len(life.layers))]
        differ += any((at != at[0]).any() for at in tables)
    assert differ > 2


def test_positions_by_head_of_a_cache_that_keeps_all() -> None:
    class KeepsAll(ByHead):
        def kept(self, k: Any, v: Any, at: Any, length: int) -> list[Any]:
            return [k, v, at]

        def _reserve(self, *given: Any) -> None:
            """Nothing is evicted."""

    trial = trial_of(KeepsAll, 4, keeps=None)
    assert trial and trial.compared > 100, trial


WRONG = {
    "a position of another head": (
        PositionsOfHeadZero,
        "keys of layer|: read says position |in kv head 1, but the row there was appended at "
        "position |in kv head 1",
    ),
    "values of another row": (ValuesOfHeadZero, "values of layer"),
    "rows of another head": (HeadsExchanged, "kv head 0, but the row there was appended at"),
    "a token that one head lost": (OneHeadForgets, "lost the tokens at [|] in kv head 1"),
    "no order": (OutOfOrder, "in kv head 0 are not in order: ["),
    "tokens that are not there": (
        TokensOutside,
        "tokens, but read also gives positions [|] in kv head 0",
    ),
    "axes exchanged": (Transposed, "positions have shape (|or (Hkv, n) = ("),
    "one mask for all heads": (RunsByHeadZero, "o of layer|window|is off by"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_told_what_is_wrong(name: str) -> None:
    kind, words = WRONG[name]
    trial = trial_of(kind)
    assert not trial, trial
    assert all(part in trial.finding for part in words.split("|")), trial


def test_a_promise_that_the_policy_does_not_keep() -> None:
    trial = trial_of(ByHead, keeps=range)
    assert not trial and "lost the tokens at [" in trial.finding, trial
    assert "in kv head" in trial.finding

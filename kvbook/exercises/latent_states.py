"""A learner's recurrent state as a checker uses it, and what it should hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers, whole_number
from kvbook.exercises.report import (
    Finding,
    diagnose,
    expect_close,
    expect_dtype,
    expect_shape,
    guarded,
    method,
)


class Tokens:
    """Keys (T, Dk) and values (T, Dv), float32; sliced and joined like a list of tokens."""

    def __init__(self, dk: int, dv: int, k: Any = None, v: Any = None) -> None:
        self.k = np.zeros((0, dk), np.float32) if k is None else k
        self.v = np.zeros((0, dv), np.float32) if v is None else v

    def __len__(self) -> int:
        return len(self.k)

    def __getitem__(self, part: slice) -> Tokens:
        return Tokens(0, 0, self.k[part], self.v[part])

    def __add__(self, more: Tokens) -> Tokens:
        both = (np.concatenate(x) for x in ((self.k, more.k), (self.v, more.v)))
        return Tokens(0, 0, *both)

    def state(self) -> np.ndarray:
        """(Dk, Dv) float64: the sum of the outer products."""
        found: np.ndarray = self.k.astype(np.float64).T @ self.v.astype(np.float64)
        return found


class States:
    """The learner's object, guarded, and the length at which it should stand."""

    def __init__(self, states: type, dk: int, dv: int, every: int) -> None:
        self.dk, self.dv, self.every = dk, dv, every
        stores = (list, dict, set, np.ndarray)
        held = [n for n, x in vars(states).items() if type(x) in stores and not n.startswith("__")]
        self.shared = f"{', '.join(held)} belongs to the class, so all objects share it; make it "
        self.shared = self.shared + "in __init__" if held else ""
        thing = guarded(states, may_return_none=True)(dk, dv, every)
        none: Any = {"may_return_none": True}
        self._append = method(thing, "append", "States", **none)
        # this one copies no arguments
        self.append_lightly = method(thing, "append", "States", may_modify=True, **none)
        self._read, self._truncate = (method(thing, n, "States") for n in ("read", "truncate"))

    def append(self, tokens: Tokens) -> None:
        """Append a chunk; the caller then uses its arrays for something else."""
        k, v = tokens.k.copy(), tokens.v.copy()
        self._append(k, v)
        k[...] = v[...] = np.nan

    def append_all(self, tokens: Tokens, chunks: Sequence[int]) -> None:
        done = 0
        for n in chunks:
            self.append(tokens[done : done + n])
            done += n

    def read(self, q: np.ndarray) -> np.ndarray:
        got = numbers(self._read(q), "what read returns")
        expect_shape(got, (self.dv,), "what read returns", letters="Dv")
        expect_dtype(got, np.float32, "what read returns")
        return got

    def truncate(self, length: int, held: Tokens, chunks: Sequence[int] = ()) -> None:
        """Truncate; raise a Finding if the count that it returns is wrong.

        held    the tokens that the state is made of
        chunks  the lengths of the chunks in which they came
        """
        now, every = len(held), self.every
        what = f"truncate({length}) of {now} tokens with every = {every}"
        got = whole_number(self._truncate(length), what)
        stands = length if length == now else length // every * every
        if got == length - stands:
            return
        words = _usual(length, stands, now, every)
        ends = [end for end in np.cumsum(chunks).tolist() if end <= length and end % every]
        if ends:
            words.setdefault(
                length - ends[-1],
                f"the state stands after {ends[-1]} tokens, where a chunk ended; a copy is due "
                f"after every {every} tokens, also in the middle of a chunk",
            )
        others = {
            now - length: "these are the tokens that have gone; the caller needs to know how many "
            "it has to append again",
            now - stands: "these are the tokens between the copy and the old end; the caller "
            "appends again only those up to the length",
            stands: f"this is where the state stands now. The caller has to append "
            f"{length - stands} tokens to reach {length}",
        }
        words = others | words
        why = f": {words[got]}" if got in words else self.shared and f": {self.shared}"
        raise Finding(f"{what}: got {got}, needed {length - stands}{why}")


def _usual(length: int, stands: int, now: int, every: int) -> dict[int, str]:
    """Counts that `truncate` may return, by mistake, and the words for each."""
    copy = f"the copy after {stands} tokens"
    if length == now:
        again = "the state stands there already, so nothing has to go, and it stays as it is"
        return {now - now // every * every: again, length: again}
    words = {}
    if stands != length:
        words[0] = (
            f"no copy was due after {length} tokens. A state is a sum: k v.T cannot be subtracted "
            f"exactly in float32, and a copy per token needs too much memory. Go back to {copy}"
        )
    if stands:
        words[length] = (
            f"as if there were no copy at or before {length}; {copy} was due, also if a chunk went "
            "on after it"
        )
    if stands > every:
        words[length - stands + every] = (
            f"the state went back one copy too far: the newest one at or before {length} is {copy}"
        )
    return words


def expect_state(
    one: States,
    tokens: Tokens,
    what: str,
    *,
    chunks: Sequence[int] = (),
    before: Tokens | None = None,
    old: Tokens | None = None,
    why: str = "",
) -> None:
    """Whatever the query, the state is that of these tokens.

    chunks  in which they came
    before  what it held before it was truncated
    old     tokens whose copy had to be forgotten
    """
    state = tokens.state()
    q = 1 + 2 * np.arange(one.dk, dtype=np.float32)
    got, right = one.read(q), state.T @ q
    if np.isnan(got).any():
        raise Finding(
            f"{what}: read gives NaN. The caller writes NaN into its arrays after each append, so "
            "copy what you keep of them"
        )
    if not np.array_equal(got, right):
        found = _suspects(tokens, chunks, before, old)
        suspects = {f"{what}: {words}": m.T @ q for words, m in found.items()}
        if one.dk == one.dv:
            words = f"{what}: read gave M @ q, needed M.T @ q, because row i of M belongs to q[i]"
            suspects[words] = state @ q
        diagnose(got, suspects, rtol=1e-6, atol=0)
    why = "; ".join(filter(None, (why, one.shared)))
    expect_close(got, right, f"{what}: read", axes=("number",), rtol=0, atol=0, why=why)


def _suspects(
    tokens: Tokens, chunks: Sequence[int], before: Tokens | None, old: Tokens | None
) -> dict[str, np.ndarray]:
    """States of known mistakes, (Dk, Dv) each, by the words for them."""
    found = {}
    if len(chunks) > 1:
        last = tokens[len(tokens) - chunks[-1] :]
        found["only the last chunk is in the state; M is kept and added to"] = last.state()
    if before is not None:
        for n in range(len(before)):
            words = f"this is the state after {n} tokens, and it should be that after {len(tokens)}"
            found[words] = before[:n].state()
        words = (
            f"the state is still that of {len(before)} tokens. Either truncate left it as it was, "
            "or the copy is the very array that `+=` goes on changing: copy M when you keep it, "
            "and copy it again when you go back to it"
        )
        found[words] = before.state()
    if old is not None:
        words = (
            f"this is the state of the {len(old)} tokens before, which were truncated away: "
            "forget the copies after the length that you go back to"
        )
        found[words] = old.state()
    return found

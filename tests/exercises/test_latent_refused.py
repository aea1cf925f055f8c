"""Known wrong answers on a state that can go back: each refused in fitting words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises.latent import check_states

f32 = np.float32


def refused(report: Any, message: str) -> None:
    assert report.status == "not yet", report
    assert message in report.finding, report.finding
    assert "mistake of the checker" not in report.finding, report.finding


class States:
    """The right answer; those below change one thing in it."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        self.M = np.zeros((Dk, Dv), f32)
        self.every, self.length, self.kept = every, 0, [self.M.copy()]

    def keep(self) -> None:
        if self.length % self.every == 0:
            self.kept.append(self.M.copy())

    def append(self, k: Any, v: Any) -> Any:
        for one_k, one_v in zip(k, v):
            self.M += np.outer(one_k, one_v)
            self.length += 1
            self.keep()

    def read(self, q: Any) -> Any:
        return self.M.T @ q

    def back(self, n: int) -> None:
        """To copy number n, where 0 is the zeros."""
        self.kept = self.kept[: n + 1]
        self.M, self.length = self.kept[n].copy(), n * self.every

    def truncate(self, length: int) -> Any:
        if length < self.length:
            self.back(length // self.every)
        return length - self.length


class ByProducts:
    """One product of matrices between two copies, and a dict of copies."""

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


class RoundsEachToken(States):
    """Each token is added in float64, and the sum is kept in float32."""

    def append(self, k: Any, v: Any) -> None:
        for one_k, one_v in zip(k, v):
            self.M = (self.M + np.outer(one_k.astype(np.float64), one_v)).astype(f32)
            self.length += 1
            self.keep()


@pytest.mark.parametrize("right", [States, ByProducts, RoundsEachToken])
def test_states(right: type) -> None:
    report = check_states(right)
    assert report.passed, report


class KeepsTheLiveState(States):
    def keep(self) -> None:
        if self.length % self.every == 0:
            self.kept.append(self.M)


class GoesOnInTheCopy(States):
    def back(self, n: int) -> None:
        self.kept = self.kept[: n + 1]
        self.M, self.length = self.kept[n], n * self.every


class AtChunkEnds(States):
    """A copy after a chunk, if enough tokens have come since the last copy."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.ends = [0]

    def append(self, k: Any, v: Any) -> Any:
        self.M += k.T @ v
        self.length += len(k)
        if self.length - self.ends[-1] >= self.every:
            self.kept.append(self.M.copy())
            self.ends.append(self.length)

    def truncate(self, length: int) -> Any:
        if length < self.length:
            while self.ends[-1] > length:
                self.ends.pop()
                self.kept.pop()
            self.M, self.length = self.kept[-1].copy(), self.ends[-1]
        return length - self.length


class AtFittingChunkEnds(States):
    def append(self, k: Any, v: Any) -> Any:
        self.M += k.T @ v
        self.length += len(k)
        if self.length % self.every == 0:
            self.kept.append(self.M.copy())

    def truncate(self, length: int) -> Any:
        if length < self.length:
            self.back(min(length // self.every, len(self.kept) - 1))
        return length - self.length


class KeepsOldCopies(States):
    def back(self, n: int) -> None:
        self.M, self.length = self.kept[n].copy(), n * self.every


class OldCopiesByLength(States):
    """A dict in which a copy is made only where there is none."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.at = {0: self.M.copy()}

    def keep(self) -> None:
        if self.length % self.every == 0:
            self.at.setdefault(self.length, self.M.copy())

    def back(self, n: int) -> None:
        self.length = n * self.every
        self.M = self.at[self.length].copy()


class NeverForgets(States):
    """A list of pairs that is searched from its end, and never gets shorter."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.pairs = [(0, self.M.copy())]

    def keep(self) -> None:
        if self.length % self.every == 0:
            self.pairs.append((self.length, self.M.copy()))

    def back(self, n: int) -> None:
        self.length = n * self.every
        self.M = next(M for at, M in self.pairs[::-1] if at == self.length).copy()


class Subtracts(States):
    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.tokens: list[Any] = []

    def append(self, k: Any, v: Any) -> Any:
        super().append(k, v)
        self.tokens += [(a.copy(), b.copy()) for a, b in zip(k, v)]

    def truncate(self, length: int) -> Any:
        while self.length > length:
            self.M -= np.outer(*self.tokens.pop())
            self.length -= 1
        return 0


class SubtractsToTheCopy(Subtracts):
    """Says the right number and goes to the right length, without a copy."""

    def truncate(self, length: int) -> Any:
        if length < self.length:
            super().truncate(length // self.every * self.every)
        return length - self.length


class ReplaysAtTheEnd(States):
    def truncate(self, length: int) -> Any:
        self.back(length // self.every)
        return length - self.length


class Saying(States):
    """Goes back rightly and says another number."""

    def says(self, length: int, before: int) -> Any:
        raise NotImplementedError

    def truncate(self, length: int) -> Any:
        before = self.length
        super().truncate(length)
        return 0 if length == before else self.says(length, before)


def saying(says: Callable[..., Any]) -> type:
    return type("States", (Saying,), {"says": says})


class BeforeTheNewest(States):
    def truncate(self, length: int) -> Any:
        if length < self.length:
            self.back(max(0, (length - 1) // self.every))
        return length - self.length


class NothingHappens(States):
    def truncate(self, length: int) -> Any:
        return 0 if length == self.length else length % self.every


class StateAtTheNextCopy(States):
    """Goes to the copy after the length, and says the number for the one before."""

    def truncate(self, length: int) -> Any:
        if length < self.length:
            n = min(-(-length // self.every), len(self.kept) - 1)
            self.M = self.kept[n].copy()
            self.kept, self.length = self.kept[: n + 1], length // self.every * self.every
        return length - self.length


class LastChunkAlone(States):
    def append(self, k: Any, v: Any) -> Any:
        self.M[:] = 0
        super().append(k, v)


class LastTokenOfAChunk(States):
    def append(self, k: Any, v: Any) -> Any:
        super().append(k[-1:], v[-1:])


class Transposed(States):
    def read(self, q: Any) -> Any:
        return self.M @ q


class TransposedWhereSquare(States):
    def read(self, q: Any) -> Any:
        return self.M @ q if self.M.shape[0] == self.M.shape[1] else self.M.T @ q


class OfTheClass(States):
    M = np.zeros((3, 5), f32)

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        if (Dk, Dv) == (3, 5):
            del self.M


class CopiesOfTheClass(States):
    kept: list[Any] = []

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        own = self.kept
        super().__init__(Dk, Dv, every)
        own.append(self.kept[0])
        self.kept = own

    def back(self, n: int) -> None:
        self.M, self.length = self.kept[n].copy(), n * self.every
        del self.kept[n + 1 :]


class InFloat64(States):
    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.M, self.kept = np.zeros((Dk, Dv)), [np.zeros((Dk, Dv))]


class HoldsFloat64(States):
    """The state is float64; what is read is cast."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.M = self.M.astype(np.float64)

    def read(self, q: Any) -> Any:
        return super().read(q).astype(np.float32)


class HoldsTheArrays(States):
    """Adds up what it was given only when it is read."""

    def __init__(self, Dk: int, Dv: int, every: int) -> None:
        super().__init__(Dk, Dv, every)
        self.given: list[Any] = []

    def append(self, k: Any, v: Any) -> Any:
        self.given.append((k, v))

    def read(self, q: Any) -> Any:
        return sum((k.T @ v for k, v in self.given), self.M).T @ q


class StateOfEachToken(States):
    """The running sums of a chunk at once; the copies are views of them."""

    def append(self, k: Any, v: Any) -> Any:
        sums = self.M + np.cumsum(k[:, :, None] * v[:, None], axis=0, dtype=f32)
        n = self.length + 1 + np.arange(len(k))
        self.kept += list(sums[n % self.every == 0])
        self.M, self.length = sums[-1].copy(), self.length + len(k)


class CopyOfEachToken(States):
    def keep(self) -> None:
        self.kept.append(self.M.copy())

    def back(self, n: int) -> None:
        n *= self.every
        self.kept = self.kept[: n + 1]
        self.M, self.length = self.kept[n].copy(), n


class NoAppend(States):
    append = None  # type: ignore[assignment]


class ChangesTheQuery(States):
    def read(self, q: Any) -> Any:
        q *= 2
        return self.M.T @ q / 2


class ForgetsToReturn(States):
    def truncate(self, length: int) -> Any:
        super().truncate(length)


class SaysText(States):
    def truncate(self, length: int) -> Any:
        return str(super().truncate(length))


class LosesAChunk(States):
    """Right in every test but the random ones."""

    def append(self, k: Any, v: Any) -> Any:
        if not (len(k) == 8 and self.every == 50):
            super().append(k, v)


WRONG_STATES: dict[str, tuple[type, str]] = {
    "live state kept": (KeepsTheLiveState, "the very array that `+=` goes on changing"),
    "goes on in the copy": (GoesOnInTheCopy, "copy it again when you go back"),
    "at chunk ends": (AtChunkEnds, "where a chunk ended"),
    "at fitting chunk ends": (AtFittingChunkEnds, "as if there were no copy at or before 6"),
    "old copies stay": (KeepsOldCopies, "forget the copies after the length"),
    "old copies by length": (OldCopiesByLength, "forget the copies after the length"),
    "never forgets": (NeverForgets, "Forget the copies after the length"),
    "subtracts": (Subtracts, "cannot be subtracted exactly"),
    "subtracts to the copy": (SubtractsToTheCopy, "does not bring them back"),
    "replays at the end": (ReplaysAtTheEnd, "the state stands there already"),
    "says what has gone": (saying(lambda self, n, was: was - n), "the tokens that have gone"),
    "says all that has gone": (
        saying(lambda self, n, was: was - self.length),
        "between the copy and the old end",
    ),
    "says where it stands": (saying(lambda self, n, was: self.length), "where the state stands"),
    "says the length": (saying(lambda self, n, was: n), "as if there were no copy"),
    "says one more": (saying(lambda self, n, was: n - self.length + 1), "got 3, needed 2"),
    "before the newest": (BeforeTheNewest, "one copy too far: the newest one at or before 8"),
    "nothing happens": (NothingHappens, "still that of 11 tokens"),
    "at the next copy": (StateAtTheNextCopy, "this is the state after 8 tokens"),
    "last chunk alone": (LastChunkAlone, "only the last chunk is in the state"),
    "last token of a chunk": (LastTokenOfAChunk, "after chunks of 9 tokens"),
    "transposed": (Transposed, "read raised ValueError"),
    "transposed where square": (TransposedWhereSquare, "read gave M @ q, needed M.T @ q"),
    "state of the class": (OfTheClass, "M belongs to the class"),
    "copies of the class": (CopiesOfTheClass, "kept belongs to the class"),
    "float64": (InFloat64, "twice the bytes"),
    "holds float64": (HoldsFloat64, "the state has more digits than float32"),
    "holds the arrays": (HoldsTheArrays, "copy what you keep of them"),
    "a state per token": (StateOfEachToken, "Keep no state per token"),
    "a copy per token": (CopyOfEachToken, "Keep no state per token"),
    "no append": (NoAppend, "States has no method append"),
    "changes the query": (ChangesTheQuery, "argument 1 of read was changed in place"),
    "says a text": (SaysText, "expected one number, got str"),
    "loses a chunk": (LosesAChunk, "of 15 tokens with every = 50"),
}


@pytest.mark.parametrize("name", WRONG_STATES)
def test_wrong_states(name: str) -> None:
    wrong, message = WRONG_STATES[name]
    refused(check_states(wrong), message)


def test_a_function_is_no_class() -> None:
    refused(check_states(lambda Dk, Dv, every: States(Dk, Dv, every)), "hand over the class")


class Stub:
    def __init__(self, Dk: int, Dv: int, every: int) -> None: ...

    def append(self, k: Any, v: Any) -> None: ...

    def read(self, q: Any) -> None: ...

    def truncate(self, length: int) -> None: ...


def test_no_class_written_yet() -> None:
    assert check_states(Stub).status == "not done yet"
    assert check_states(ForgetsToReturn).status == "not done yet"

"""The checker of SnapKV's choice: whose weights count, how they are pooled, and who chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kvbook.exercises.received import numbers
from kvbook.exercises.report import Finding, checker, expect_close
from kvbook.exercises.windows_snapkv_wrong import (
    SUSPECTS,
    agrees,
    best,
    scores_of,
    slots_that_stay,
)

GAP = 1e-3  # between the last score that stays and the first that goes; rounding moves them by 1e-7
TRIES = 6  # inputs that are drawn for a case, to find one that tells the mistakes apart


@checker
def check_snapkv_slots(snapkv_slots: Callable[..., Any]) -> Iterator[str]:
    """snapkv_slots(p (Hkv, G, T, S), window, kernel, budget) → slots (Hkv, budget), in order."""
    rng, could = np.random.default_rng(41), dict.fromkeys(SUSPECTS, True)
    first = _Asked(snapkv_slots, rng, (2, 2, 12, 24), 4, 5, 12, apart=True)
    first.expect_form()
    yield "each kv head keeps `budget` slots, in order, and the newest are among them"

    first.expect_slots(could)
    _Asked(snapkv_slots, rng, (3, 1, 8, 30), 2, 1, 9).expect_slots(could)
    _Asked(snapkv_slots, rng, (1, 4, 9, 20), 3, 1, 8).expect_slots(could)
    yield "each kv head chooses, by the mean over its query heads and over the last queries"

    for shape, window, kernel, budget in (
        ((2, 2, 12, 24), 4, 3, 10),
        ((1, 4, 9, 20), 3, 7, 8),
        ((2, 3, 6, 18), 5, 3, 9),
        ((3, 1, 8, 30), 2, 5, 9),
    ):
        _Asked(snapkv_slots, rng, shape, window, kernel, budget, apart=True).expect_slots(could)
    yield "weights are pooled with their neighbours, and count as 0 beyond both ends"

    for shape, window, kernel, budget in (
        ((2, 2, 6, 9), 4, 3, 9),
        ((1, 2, 4, 5), 4, 3, 9),
        ((2, 2, 6, 9), 4, 3, 4),
    ):
        _Asked(snapkv_slots, rng, shape, window, kernel, budget).expect_few()
    yield "a budget for all tokens keeps all, and a budget of the window alone keeps the window"

    for hkv, g, window, half, more in rng.integers((1, 1, 1, 0, 1), (4, 4, 6, 4, 9), (5, 5)):
        shape, kernel = (int(hkv), int(g), int(window) + 4, 32), 2 * int(half) + 1
        asked = _Asked(snapkv_slots, rng, shape, int(window), kernel, int(window + more))
        asked.expect_slots(could)
    yield "this also holds for other heads, windows, kernels and budgets"


class _Asked:
    """What an answer was asked, what it said, and what is right."""

    def __init__(
        self,
        snapkv_slots: Callable[..., Any],
        rng: np.random.Generator,
        shape: tuple[int, int, int, int],
        window: int,
        kernel: int,
        budget: int,
        apart: bool = False,
    ) -> None:
        p, self.right, self.wrong = _case(rng, shape, window, kernel, budget, apart)
        self.window, self.budget, self.s = window, budget, shape[3]
        self.what = f"window {window}, kernel {kernel}, budget {budget} of {self.s} tokens"
        self.got = numbers(snapkv_slots(p, window, kernel, budget), f"{self.what}: the slots")
        if self.got.dtype.kind not in "iu":
            raise Finding(
                f"{self.what}: got an array of {self.got.dtype}, needed integers, the numbers of "
                "the slots that stay"
            )

    def expect_form(self) -> None:
        """The shape, the order, the range, the newest."""
        got, right, what = self.got, self.right, self.what
        if got.shape != right.shape:
            raise Finding(
                f"{what}: got the shape {got.shape}, needed {right.shape} (Hkv, budget)"
                + self._why_shape()
            )
        if got.size and (got.min() < 0 or got.max() >= self.s):
            raise Finding(
                f"{what}: slot {got.min() if got.min() < 0 else got.max()} is not there; slots "
                f"are counted from 0 to {self.s - 1}"
            )
        steps = np.diff(got.astype(np.int64), axis=1)
        for h in range(len(got)):
            if len(set(got[h].tolist())) < got.shape[1]:
                raise Finding(f"{what}: kv head {h} keeps a slot twice: {got[h].tolist()}")
            missing = set(range(self.s - self.window, self.s)) - set(got[h].tolist())
            if missing:
                raise Finding(
                    f"{what}: kv head {h} lets slot {min(missing)} go, one of the newest "
                    f"{self.window}; these stay whatever their weight"
                )
        if (steps <= 0).any():
            h = int(np.argwhere((steps <= 0).any(axis=1))[0, 0])
            raise Finding(
                f"{what}: the slots of kv head {h} are not in order: {got[h].tolist()}; sort them, "
                "so that the cache keeps the order of the text"
            )

    def _why_shape(self) -> str:
        got, right = self.got, self.right
        if got.ndim == 3:
            return ": query heads that share a kv head must agree, because it stores one set"
        if got.shape == (right.shape[1],):
            return ": each kv head chooses for itself"
        if got.ndim == 2 and got.shape[1] == right.shape[1] + self.window:
            return ": the newest tokens are a part of the budget, not an addition to it"
        if got.ndim == 2 and got.shape[1] == right.shape[1] - self.window:
            return ": the newest tokens are missing; they stay, too"
        if got.ndim == 2 and len(got) > len(right):
            return ": one set per kv head; its query heads choose together"
        return ""

    def expect_slots(self, could: dict[str, bool]) -> None:
        """The right slots, else the mistakes of `could` that fit this answer and all before."""
        self.expect_form()
        for words, wrong in self.wrong.items():
            could[words] &= agrees(self.got, wrong)
        if (self.got == self.right).all():
            return
        fits = "; or ".join([words for words in could if could[words]][:2])
        if fits:
            raise Finding(f"{self.what}: {fits}")
        axes = ("kv head", "place")
        what = f"{self.what}: the slots"
        expect_close(self.got, self.right, what, axes=axes, rtol=0, atol=0)

    def expect_few(self) -> None:
        """All tokens, or the newest alone, stay: nobody is chosen."""
        if self.got.shape == self.right.shape:
            self.expect_form()
            return
        n = self.got.shape[1] if self.got.ndim == 2 else -1
        words = ""
        if self.budget == self.window and n > self.budget:
            words = (
                ": if no older token may stay, a slice such as [-0:] takes all of them; count "
                "from the front"
            )
        elif self.budget >= self.s:
            words = ": there are no more tokens than the budget, so all stay"
        raise Finding(
            f"{self.what}: got the shape {self.got.shape}, needed {self.right.shape}{words}"
        )


def _case(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    window: int,
    kernel: int,
    budget: int,
    apart: bool,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Probabilities without a near tie, the right slots, and how the mistakes would score.

    apart: of several draws, the one on which most mistakes keep slots of their own.
    """
    s, older, most = shape[3], shape[3] - window, 1 + len(SUSPECTS)
    found: list[tuple[int, np.ndarray, np.ndarray, dict[str, np.ndarray]]] = []
    while len(found) < TRIES:
        p = _probabilities(rng, shape)
        right = slots_that_stay(p, window, kernel, budget)
        if not window < budget < s:
            return p, right, {}
        ranked = np.sort(scores_of(p, window, kernel), axis=1)[:, ::-1]
        at = budget - window
        if (ranked[:, at - 1] - ranked[:, at] < GAP * ranked[:, 0]).any():
            continue
        wrong = {words: score(p, window, kernel)[:, :older] for words, score in SUSPECTS.items()}
        if not apart:
            return p, right, wrong
        others = (best(scores, s, window, budget) for scores in wrong.values())
        differ = len({x.tobytes() for x in (right, *others)})
        found.append((differ, p, right, wrong))
        if differ == most:
            break
    return max(found, key=lambda case: case[0])[1:]


def _probabilities(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """What the last T queries of a text of S tokens gave its keys: (Hkv, G, T, S) float32."""
    *_, t, s = shape
    scores = 2.5 * rng.standard_normal(shape)
    raised = rng.random((shape[0], 1, 1, s)) < 0.3
    scores += np.where(raised, 1.5, 0.0)  # tokens that many queries look at
    scores = np.where(np.tri(t, s, s - t, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: np.ndarray = (p / p.sum(axis=-1, keepdims=True)).astype(np.float32)
    return found

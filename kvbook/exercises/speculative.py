"""Exercises of the chapter on speculative decoding."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kvbook.exercises.cached import recompute, tiny_model
from kvbook.exercises.checker import Checker, Seen
from kvbook.exercises.expect import Finding
from kvbook.exercises.received import numbers, token_list, whole
from kvlib.model import Decoder
from kvlib.serve import greedy
from kvlib.speculation import lower_layers

# ---------------------------------------------------------------------------------------- accepted


def accepted(p: Any, q: Any, draft: Any, u: Any) -> int:
    """accepted(p (n + 1, V), q (n, V), draft (n ids), u (n,)) → how many guesses the text keeps."""
    i = np.arange(len(draft))
    ratio = p[i, draft] / q[i, draft]
    return int(np.cumprod(u < ratio).sum())


def _chain(rng: Any, n: int = 0, keeps: int = -1, drawn: bool = True) -> Any:
    """p, q, draft and u, so that no rounding decides; drawn: not a guess without alternative."""
    n = n or int(rng.integers(1, 7))
    while True:
        p, i = rng.dirichlet(np.ones(3), n + 1), np.arange(n)
        q = (p[:-1] + rng.dirichlet(np.ones(3), n)) / 2
        draft, u = [int(rng.choice(3, p=row)) for row in q], rng.random(n)
        q = q if drawn else np.eye(3)[draft]
        clear = (np.abs(u * q[i, draft] - p[i, draft]) > 1e-3).all()
        if clear and keeps in (-1, accepted(p, q, draft, u)):
            return p, q, draft, u


def _greedy(rng: Any) -> Any:
    """The first guesses are the model's certain choice; the u of the next is 0."""
    p, q, draft, u = _chain(rng)
    right = int(rng.integers(len(draft)))
    best = [*draft[:right], (draft[right] + 1) % 3, *rng.integers(0, 3, len(draft) - right)]
    u[right] = 0.0
    return np.eye(3)[best], q, draft, u


def _task(rng: Any) -> Any:
    p = [[0.1, 0.6, 0.3], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1, 0, 0]]
    q = [[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.1, 0.2, 0.7]]
    return np.array(p), np.array(q), [1, 0, 2, 2], np.array([0.9, 0.5, 0.3, 0.7])


def _chains(*make: Callable[[Any], Any]) -> Any:
    def probe(answer: Any) -> Iterator[Seen]:
        rng, p = np.random.default_rng(61), np.array([[0.25, 0.75], [0.5, 0.5]])
        what = "a guess with p / q = 0.5, at u = 0.1 and at 0.9: how many times it is kept"
        # 1 - u is as uniform as u. An answer that accepts a ratio of 0.5 at u = 0.9, and not at
        # 0.1, compares 1 - u, and gets that number from here on.
        kept = [whole(answer(p, p[1:], [0], np.array([x])), what) for x in (0.1, 0.9)]
        yield what, sum(kept)
        for p, q, draft, u in (chain(rng) for chain in make):
            i, turned = np.arange(len(draft)), kept == [0, 1]
            given = np.minimum(1 - u, np.nextafter(1, 0)) if turned else u
            ratios, drawn = (np.round(x, 3).tolist() for x in (p[i, draft] / q[i, draft], u))
            what = f"p / q = {ratios} and {'1 - u' if turned else 'u'} = {drawn}: guesses kept"
            yield what, whole(answer(p, q, draft, given), what)

    return probe


_VERDICT = "u < ratio → "

check_accepted = Checker(
    accepted,
    stages={
        "a guess is accepted while u < p / q; a refused one ends the chain": (
            _chains(_task, *[_chain] * 15)
        ),
        "all guesses of a chain may be accepted, or none": _chains(
            *[lambda rng: _chain(rng, 1)] * 4,
            *(lambda rng, n=n, k=k: _chain(rng, n, keeps=n * k) for n in (1, 3, 6) for k in (0, 1)),
        ),
        "greedy, where p is 0 or 1: only the likeliest token is kept": _chains(*[_greedy] * 6),
        "a guess that was not drawn (q is 0 or 1) is accepted with probability p": (
            _chains(*[lambda rng: _chain(rng, drawn=False)] * 8)
        ),
    },
    mistakes={
        "a refused guess ends the chain": [
            f"np.cumprod(u < ratio) → ({u} < ratio)" for u in ("u", "1 - u")
        ],
        "count the guesses alone, not the token after them": ".sum()) → .sum()) + 1",
        "the refused guess was counted: it is not kept": (
            ".sum()) → .sum()) + int(not np.all(u < ratio))"
        ),
        "the last guess was not judged": f"{_VERDICT}(u < ratio)[:-1]",
        "guesses were accepted where u is above p / q": f"{_VERDICT}u >= ratio",
        "upside down: divide p by q": f"{_VERDICT}u < 1 / ratio",
        "u was compared with p alone": f"{_VERDICT}u < p[i, draft]",
        "guesses were kept only where p is at least q: where p is smaller, u decides": (
            f"{_VERDICT}ratio >= 1"
        ),
        "only the likeliest token was accepted, which is right for greedy decoding alone": (
            f"{_VERDICT}p[i].argmax(axis=1) == draft"
        ),
        "the row of p after the guess was read: row i is the distribution at guess i": (
            "p[i, draft] → p[i + 1, draft]"
        ),
        "the first u decided on all guesses: each has its own": f"{_VERDICT}u[0] < ratio",
        "the ratios were multiplied along the chain; each guess is judged by its own": [
            f"{_VERDICT}u < np.cumprod({ratios})" for ratios in ("ratio", "np.minimum(ratio, 1)")
        ],
        "the ratio p / q counts, not the difference": "/ q → - q",
        "the first row of p judged all guesses": "p[i, draft] → p[0, draft]",
        "the largest number of the row of p was read": "p[i, draft] → p[i].max(axis=1)",
        "u was ignored": f"{_VERDICT}u < 2",
        "a guess of probability 0 is refused at u = 0, too": f"{_VERDICT}u <= ratio",
    },
    refused={
        "got -1, needed 1": ".sum()) → .sum()) - 1",
        "needed a whole number": [
            *("int(np.cumprod(u < ratio).sum()) → u < ratio", "int(np → draft[:1] or int(np"),
            "int(np → float(np",
        ],
        "got 2, needed 1": "p[i, draft] → p[draft[0]]",
    },
)


# ---------------------------------------------------------------------------------------- residual


def residual(p: Any, q: Any) -> Any:
    """residual(p (V,), q (V,)) → (V,): the distribution from which a refused guess is replaced."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    return rest / total if total > 0 else p


def law(p: Any, q: Any, rest: Any) -> Any:
    """How many times each token came out, (V,): the guess, accepted, or one drawn from `rest`."""
    kept = np.minimum(p, q)  # q(x) · min(1, p(x) / q(x))
    return kept + (1.0 - kept.sum()) * rest


def _comes_out(residual: Any, p: np.ndarray, q: np.ndarray) -> Seen:
    p_q = (f"{x} = [{', '.join(f'{v:.4g}' for v in y)}]" for x, y in (("p", p), ("q", q)))
    got = numbers(residual(p, q), "the result")
    if got.shape != p.shape:
        raise Finding(f"the result has shape {got.shape}, needed {p.shape}")
    return f"{', '.join(p_q)}: the probability of each token", law(p, q, got)


_EXAMPLE = [[0.5, 0.25, 0.25], [0.25, 0.125, 0.625]]


def _drawn_pairs(residual: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(64)
    pairs: list[Any] = [rng.dirichlet(np.ones(size), 2) for size in (6, 6, 2, 4, 8)]
    for pair in (np.array(_EXAMPLE), *pairs):
        yield _comes_out(residual, *pair)
    p, q = rng.dirichlet(np.ones(5), 2)
    i, j = np.eye(5)[rng.choice(5, 2, replace=False)]
    for pair in ((i, q), (p, j), (i, j)):  # greedy decoding, and guesses that were not drawn
        yield _comes_out(residual, *pair)


def _alike(residual: Any) -> Iterator[Seen]:
    p = np.random.default_rng(64).dirichlet(np.ones(4))
    q = p + np.array([1, 1, -2, 0]) * 2.0**-16
    yield "the sum where p and q differ by 0.00003", float(numbers(residual(p, q), "").sum())
    yield _comes_out(residual, p, q)
    for same in (np.array(_EXAMPLE[0]), p, np.eye(4)[2]):
        yield f"p and q are both {same.tolist()}: the result", residual(same, same)


_REST, _RESULT = "np.maximum(p - q, 0.0) → ", "rest / total → "

check_residual = Checker(
    residual,
    letters="token",
    rtol=1e-6,
    atol=1e-6,
    stages={
        "over all guesses, accepted or refused, each token comes out with exactly the probability "
        "that the model gives it": _drawn_pairs,
        "this also holds where p and q are alike; where they are equal, the result is p": _alike,
    },
    mistakes={
        "p - q sums to 0; keep its positive part": (f"{_REST}p - q", " if total > 0 else p → "),
        "keep the positive part before you divide by the sum": (
            f"{_RESULT}np.maximum(p - q, 0) / np.abs(p - q).sum()"
        ),
        "divide by the sum": f"{_RESULT}rest",
        "numbers are below 0 where q is larger than p: such a token gets 0": f"{_RESULT}p - q",
        "p and q are exchanged": f"{_REST}np.maximum(q - p, 0.0)",
        "this is p; what came as an accepted guess must not be drawn a second time": f"{_RESULT}p",
        "this is q, from which the refused guess came": f"{_RESULT}q",
        "the absolute difference was taken": f"{_REST}np.abs(p - q)",
        "these are the right tokens, but with their whole p: subtract q": (
            f"{_REST}np.where(p > q, p, 0.0)"
        ),
        "each token must get its share of p - q": [
            f"{_REST}1.0 * (p > q)",
            f"{_RESULT}np.eye(len(p))[(p - q).argmax()]",
        ],
        "the likeliest token gets everything, which is right for greedy decoding alone": (
            f"{_RESULT}np.eye(len(p))[p.argmax()]"
        ),
        "min(p, q) is the part that is accepted already": [
            f"{text}np.minimum(p, q)" for text in (_REST, _RESULT)
        ],
        "divide the differences by their sum, without a softmax": [
            f"{_REST}np.exp(p - q)",
            f"{_RESULT}np.exp(rest) / np.exp(rest).sum()",
        ],
        "the differences were squared": "0.0) → 0.0) ** 2",
        "the difference was divided by p or by q, but it counts as it is": [
            f"{_REST}np.where(p > 0, np.maximum(1 - q / np.where(p > 0, p, 1), 0), 0)",
            "0.0) → 0.0) / q",
        ],
        "this is the mean of p and of the right result": f"{_RESULT}(p + rest / total) / 2",
        "divide by the sum itself, with nothing added to it": f"{_RESULT}rest / (total + 1e-8)",
        "needed p, because rounding may refuse a guess even then; 0 / 0 is not a number": (
            " if total > 0 else p → "
        ),
        "needed p, because rounding may refuse a guess even then": "else p → else 0 * p",
    },
    refused={
        "was changed in place": "p - q → np.subtract(p, q, out=p)",
    },
)


# --------------------------------------------------------------------------------------- tree_mask

EXAMPLE = (-1, 0, 0, 1, 1, 2, 3)  # of the task: two branches, one of which splits again


def tree_mask(parents: Any, length: int) -> Any:
    """tree_mask(parents (n ids), length) → mask (n, n) bool, positions (n,) integers."""
    n = len(parents)
    mask = np.eye(n, dtype=bool)
    for j, parent in enumerate(parents):
        if parent >= 0:
            mask[j] |= mask[parent]
    depth = mask.sum(axis=1) - 1
    return mask, length + depth


def _trees(*asked: tuple[Sequence[int], int]) -> Any:
    def probe(tree_mask: Any) -> Iterator[Seen]:
        rng, trees = np.random.default_rng(63), list(asked)
        if not asked:
            for n, length in rng.integers((3, 0), (16, 3000), (8, 2)).tolist():
                trees.append(([int(rng.integers(-1, j)) for j in range(n)], length))
        for parents, length in trees:
            what = f"parents {list(parents)} after {length} tokens"
            yield what, tree_mask(list(parents), length)

    return probe


_MASK, _AT = "return mask → return ", "length + depth → "

check_tree_mask = Checker(
    tree_mask,
    names=("the mask", "the positions"),
    letters="guess guess",
    rtol=1e-9,
    atol=0,
    stages={
        "each guess sees itself and its ancestors, one position after its parent": (
            _trees((EXAMPLE, 10))
        ),
        "the same for a chain, several roots, and trees written by branch or by level": _trees(
            *((range(-1, n), 7) for n in (0, 1, 4)),
            *(((-1, -1, -1), 4), ((-1, -1, 0, 1, 2, 3), 4)),
            *(((-1, 0, 1, 2, 0, 4, 1), 5), ((-1, 0, 0, 1, 2, 3, 4), 5)),
        ),
        "this holds for any tree in which parents come before their children": _trees(),
    },
    mistakes={
        "guess 2 sees guess 1, which is on another branch: this is the mask of a chain": (
            f"{_MASK}np.tri(n, dtype=bool)"
        ),
        "every guess sees every other": f"{_MASK}np.ones((n, n), bool)",
        "a guess sees itself alone: it must see its ancestors, too": (
            f"{_MASK}np.eye(n, dtype=bool)"
        ),
        "a guess sees its parent, but not the ancestors of its parent": (
            f"{_MASK}np.eye(n, dtype=bool) | (np.c_[parents] == np.arange(n))"
        ),
        "no guess sees itself, but each must": f"{_MASK}mask & ~np.eye(n, dtype=bool)",
        "rows and columns are exchanged: row j says what guess j sees": f"{_MASK}mask.T",
        "the mask holds in both directions, but an ancestor does not see its descendants": (
            f"{_MASK}mask | mask.T"
        ),
        "a guess sees all guesses of smaller depth, but only ancestors may be seen": [
            f"{_MASK}(depth < depth[:, None]) | np.eye(n, dtype=bool)",
            f"{_MASK}depth <= depth[:, None]",
        ],
        "guesses with one parent see one another, but they are guesses for one position": (
            f"{_MASK}mask | (np.c_[parents] == parents)"
        ),
        "True and False are exchanged: True means that a guess sees another": f"{_MASK}~mask",
        "in NumPy, row -1 is the last row; copy nothing for a root": "if parent >= 0 → if True",
        "every root was taken for a child of guess 0": (
            "parent >= 0 → j",
            "[parent] → [max(parent, 0)]",
        ),
        "guess 0 was left out of the ancestors": "parent >= 0 → parent > 0",
        "roots see one another, but each is on a branch of its own": (
            f"{_MASK}mask | (np.c_[parents] + np.r_[parents] == -2)"
        ),
        "every guess sees the older tokens; the mask says which guesses it sees": (
            f"{_MASK}np.pad(mask, ((0, 0), (length, 0)), constant_values=True)"
        ),
        "the positions run on with the slots: a position is the length plus the depth": (
            f"{_AT}length + np.arange(n)"
        ),
        "these are the depths: add the number of older tokens": f"{_AT}depth",
        "these are one off: a root is at the position after the last older token": [
            f"{_AT}length + depth {x} 1" for x in "+-"
        ],
        "these are the numbers of the guesses": f"{_AT}np.arange(n)",
        "all guesses are at the position of a root, but each is one after its parent": (
            f"{_AT}length + 0 * depth"
        ),
    },
    refused={
        "was changed in place": "depth = → parents[0] = 0; depth =",
    },
)


# --------------------------------------------------------------------------------------- speculate

# Cuts a cache to `start` tokens, reads the tokens after them, and chooses the next after each.
Read = Callable[[list[int], int], list[int]]


def speculate(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """speculate(target, drafter, prompt, n, gamma) → n greedy tokens; target(tokens, start)."""
    text, end, t, d = list(prompt), len(prompt) + n, 0, 0
    while len(text) < end:
        guesses: list[int] = []
        for _ in range(min(gamma, end - len(text) - 1)):
            unread = (text + guesses)[d:]
            guesses.append(drafter(unread, d)[-1])
            d += len(unread)
        choices = target(text[t:] + guesses, t)[-len(guesses) - 1 :]
        a = next((i for i, x in enumerate(guesses) if x != choices[i]), len(guesses))
        t = len(text) + a
        d = min(d, t)
        text += choices[: a + 1]
    return text[len(prompt) :]


# A target and a drafter look up their choices, which depend on every token of the text.
V, STATES = 64, 4099


def _reader(table: np.ndarray) -> Read:
    """One of the two, with its own cache: the state after each token."""
    states = [1]

    def read(tokens: list[int], start: int) -> list[int]:
        del states[start + 1 :]
        for token in tokens:
            states.append((states[-1] * 131 + token + 1) % STATES)
        return [int(table[state]) for state in states[start + 1 :]]

    return read


def _of_model(model: Decoder, most: int) -> Read:
    """A model and its cache, which has room for `most` tokens."""
    cache = model.new_cache(1, most)
    cache.add("text")

    def read(tokens: list[int], start: int) -> list[int]:
        cache.truncate("text", start)
        step = cache.plan(["text"], [len(tokens)])
        return greedy(model.forward(tokens, cache, step, rows="all"))

    return read


class _Play:
    """One text: what is known of it, what the drafter guesses next, and what an answer did wrong.

    truth: the prompt, and after it more tokens of the target than the answer can come to see.
    """

    def __init__(self, prompt: Sequence[int], n: int, gamma: int, truth: Sequence[int]) -> None:
        self.prompt, self.n, self.gamma, self.truth = list(prompt), n, gamma, list(truth)
        self.known, self.end = len(prompt), len(prompt) + n  # tokens that the answer can know
        self.guesses: list[int] = []
        self.right = self.guessed = 0
        self.last = ""  # what the last step of the target found, in words
        self.finding: Finding | None = None  # kept in case the answer catches it

    def run(self, speculate: Any, target: Read, drafter: Read) -> Seen:
        models = _Fed(self, "target", target), _Fed(self, "drafter", drafter)
        got = speculate(*models, list(self.prompt), self.n, self.gamma)
        if self.finding:
            raise self.finding
        what = f"{self.n} new token{'s' * (self.n > 1)} with gamma = {self.gamma}"
        return what, token_list(got, what)

    def checked(self, guesses: Sequence[int]) -> None:
        """The target has read the known text and these guesses."""
        n, before = _common(guesses, self.truth[self.known :]), self.known - 1
        self.known += n + 1
        self.right, self.guessed, self.guesses = self.right + n, self.guessed + len(guesses), []
        self.last = (
            f". The target's last step began with {before} tokens in the cache and read one more "
            f"and {len(guesses)} guesses, of which {n} {'was' if n == 1 else 'were'} accepted: "
            f"{before} + 1 + {n} = {before + 1 + n} tokens are right" * bool(guesses)
        )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    both = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(both) if x != y), min(len(a), len(b)))


class _Fed:
    """A model with a cache, watched: it knows which tokens it holds, and which it should."""

    def __init__(self, play: _Play, name: str, read: Read) -> None:
        self._play, self._name, self._read, self._held = play, name, read, list[int]()

    def __call__(self, tokens: Any, start: Any) -> list[int]:
        play, name = self._play, self._name
        try:
            if play.finding:  # the answer went on in spite of it
                raise play.finding
            fed = token_list(tokens, f"the tokens that the {name} is fed")
            self._look(fed, start := whole(start, f"start of the {name}"))
        except Finding as finding:
            play.finding = finding
            raise
        self._held[start:] = fed
        choices, known = self._read(fed, start), play.known - start
        if name == "target" and len(fed) >= known:
            play.checked(fed[known:])
        if name == "drafter" and len(fed) == known + len(play.guesses):
            play.guesses.append(choices[-1])
        return choices

    def _look(self, fed: list[int], start: int) -> None:
        """Both keep what is right and nothing else, and are fed what they lack."""
        play, held, name = self._play, self._held, self._name
        began, is_target = play.known > len(play.prompt), name == "target"
        text = play.truth[: play.known] + play.guesses * (not is_target)
        right, end = _common(held, text[: len(text) - (began and is_target)]), play.last
        if not fed:
            raise Finding(f"the {name} is fed an empty list; it needs at least one token")
        if not 0 <= start <= len(held):
            why = (
                ". It was never fed its own last guess, so after a step that accepted all guesses, "
                "it holds one token fewer than the target, and must be fed that guess first"
            ) * (start == len(held) + 1 and not is_target)
            raise Finding(
                f"the {name} is fed with start = {start}, but it holds {len(held)} tokens, so "
                f"start can be 0 to {len(held)}{why}{end}"
            )
        if is_target and play.known >= play.end:
            raise Finding(f"all {play.n} new tokens are known, and the target is called again")
        if start != right:
            which = f"tokens at positions {start} to {right - 1}, which are"
            which = f"token at position {start}, which is" if start == right - 1 else which
            does = f"throws away the {which} right"
            if start > right:
                does = f"keeps token {held[right]} at position {right}, a refused guess"
            raise Finding(
                f"the {name} holds {len(held)} tokens, of which the first {right} belong to the "
                f"text, but it is fed with start = {start}. So it {does}{end}"
            )
        unread = text[start:]
        i = _common(fed, unread)
        if i < min(len(fed), len(unread)):
            why = (
                f". The drafter was never fed token {unread[i]}, because it was the last guess of "
                "a step that accepted all guesses. The new tokens stay right, but from now on the "
                "drafter guesses after a text that lacks a token"
            ) * (fed[i:] == unread[i + 1 :][: len(fed) - i] and not is_target)
            raise Finding(
                f"the {name} is fed token {fed[i]} at position {start + i}, where the text has "
                f"{unread[i]}{why}{end}"
            )
        if not is_target and (i < len(fed) or len(play.guesses) > play.gamma):
            raise Finding(f"gamma is {play.gamma}, but the drafter is fed more, or asked for more")
        if is_target and (began or len(fed) > len(unread)):
            self._look_at_guesses(fed[len(unread) :], len(unread) - len(fed), began)

    def _look_at_guesses(self, guesses: list[int], missing: int, began: bool) -> None:
        play, count, i = self._play, len(guesses), _common(guesses, self._play.guesses)
        needed = min(play.gamma, play.end - play.known - 1)
        if missing > 0:
            raise Finding(f"one step of the target should read all known tokens; {missing} lack")
        if count > play.gamma:
            raise Finding(
                f"gamma is {play.gamma}, but the target is fed {count} guesses; leave out the "
                "token that the drafter chooses after the last guess"
            )
        if i < count:
            said = f"chose {play.guesses[i]}" if i < len(play.guesses) else "was not asked for it"
            raise Finding(f"the target is fed {guesses[i]} as guess {i}, but the drafter {said}")
        if began and count < needed:
            raise Finding(
                f"the target is fed {count} guesses, needed {needed}: gamma is {play.gamma}, and "
                f"{play.end - play.known} tokens are still to come"
            )


def _texts(seed: int, *asked: tuple[float, int, int], said: str = "") -> Any:
    """(share of the drafter's guesses that are right, new tokens, gamma) of each text."""

    def probe(speculate: Any) -> Any:
        rng, plays = np.random.default_rng(seed), list[_Play]()
        for right, n, gamma in asked:
            table = rng.integers(0, V, STATES)
            wrong = (table + rng.integers(1, V, STATES)) % V
            text, read = _prompt(rng), _reader(table)
            prompt = list(text)
            while len(text) < len(prompt) + n + gamma + 2:
                text += read(text, 0)[-1:]
            drafted = np.where(rng.random(STATES) < right, table, wrong)
            plays.append(_Play(prompt, n, gamma, text))
            yield plays[-1].run(speculate, read, _reader(drafted))
        return said.format(sum(x.right for x in plays), sum(x.guessed for x in plays))

    return probe


def _prompt(rng: np.random.Generator) -> list[int]:
    found: list[int] = rng.integers(0, V, int(rng.integers(3, 9))).tolist()
    return found


def _on_a_model(speculate: Any) -> Iterator[Seen]:
    """A random model, and its own first layer as the drafter."""
    model, prompt, n, gamma = tiny_model(), _prompt(np.random.default_rng(64)), 10, 3
    play = _Play(prompt, n, gamma, [*prompt, *recompute(model, prompt, n + gamma + 2)])
    most = len(play.truth)
    yield play.run(speculate, _of_model(model, most), _of_model(lower_layers(model, 1), most))


def _swallows(target: Any, drafter: Any, prompt: Any, n: int, gamma: int) -> Any:
    """Lets no message of the two models through."""
    try:
        target([], 0)
    except BaseException:
        return [0] * n


_FED, _CUT = "[d:] → [-1 if d else 0 :]", "d = min(d, t) → "
_RETURN, _NONE = "return text[len(prompt) :] → return ", "min(gamma, end - len(text) - 1) → 0"

check_speculate = Checker(
    speculate,
    stages={
        "one token needs no guesses; where every guess is refused, both caches drop all of them": (
            _texts(64, (0.7, 1, 3), (0.0, 12, 3))
        ),
        "where some are accepted, both caches keep these and drop the others": (
            _texts(66, (0.7, 40, 4), (0.7, 40, 4))
        ),
        "where all are accepted, the drafter is also fed the last guess before it guesses on": (
            _texts(67, (1.0, 25, 1), (1.0, 25, 3))
        ),
        "1 to 7 guesses per step": _texts(
            68,
            *((0.5, 30, 1), (0.8, 30, 2), (0.6, 17, 7), (0.9, 30, 5)),
            said="with 1 to 7 guesses per step, the target gets the text that it writes alone; {} "
            "of {} guesses were right, as many as this drafter can get",
        ),
        "with models and caches of kvlib, no step reads the key of a refused guess": _on_a_model,
    },
    mistakes={
        "cut off what is more than n": "min(gamma, end - len(text) - 1) → gamma",
        "return the new tokens alone, not the prompt": f"{_RETURN}text",
        "the first new token is missing": f"{_RETURN}text[len(prompt) + 1 :]",
    },
    refused={
        "So it throws away the token at position": [
            *("len(text) + a → len(text) + a - 1", f"{_CUT}d = min(d, t - 1)"),
            ("len(text) + a → len(text) + a - 1", f"{_CUT}d = min(d, t + 1)"),
        ],
        "a refused guess": [
            ("t = len(text) + a → t = len(text) + a + 1", _FED),
            (_FED, "        d = min(d, t)\n → "),
            (_FED, "        d = min(d, t)\n → ", "len(text) + a → len(text) + len(guesses)"),
        ],
        "It was never fed its own last guess": (_FED, f"{_CUT}d = t"),
        "The drafter was never fed token": _FED,
        "the target is fed 0 guesses, needed 3": _NONE,
        "So it throws away the tokens at positions 0 to": [
            (_NONE, "text[t:] + guesses, t → text, 0"),
            "drafter(unread, d) → drafter(text + guesses, 0)",
        ],
        "gamma is 3, but the target is fed 4 guesses": "min(gamma, → min(gamma + 1,",
        "the target is fed 1 guesses, needed 3": "min(gamma, → min(1,",
        "is fed 77 as guess 2, but": "+ guesses, → + [*guesses[:-1], 77][: len(guesses)],",
        "the target is called again": f"{_RETURN}target(text[-1:], len(text) - 1) and text[1:]",
        "where the text has": "choices[: a + 1] → [*guesses, choices[-1]][: a + 1]",
        "got []": f"{_RETURN}text[len(prompt) : -n // 2]",
        "needed a list of token ids": f"{_RETURN}str(text)",
        "1 new token with gamma = 3: got": [
            f"{_RETURN}[*text[len(prompt) : -1], text[-1] ^ 1]",
            lambda target, drafter, prompt, n, gamma: [0] * n,
        ],
        "start of the target: got 0.5 (float), needed a whole number": "s, t) → s, 0.5)",
        "the target is fed an empty list": ["text[t:] + guesses, t → [], t", _swallows],
    },
)

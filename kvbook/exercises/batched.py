"""Exercises of the chapter on batches."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kvbook.exercises.cached import tiny_model
from kvbook.exercises.checker import Checker, Draws, Seen, Shows, parts
from kvbook.exercises.counted import python_steps
from kvbook.exercises.expect import Finding
from kvbook.exercises.received import token_list
from kvlib.caches import DenseCache, Step
from kvlib.errors import CacheFull
from kvlib.model import Decoder
from kvlib.serve import greedy

# -------------------------------------------------------------------------------------------- pack


def pack(prompts: list[list[int]]) -> Any:
    """pack(prompts): B lists of ids → tokens (T,), positions (T,), qo_indptr (B + 1,), integers."""
    lengths = [len(p) for p in prompts]
    positions = np.concatenate([np.arange(n) for n in lengths])
    return np.concatenate(prompts), positions, np.cumsum([0, *lengths])


def _packed(prompts: list[list[int]], pack: Any) -> Iterator[Seen]:
    yield f"{len(prompts)} prompts", pack(prompts)


def _drawn_prompts(pack: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(0)
    for count in (1, 4, 7):
        lengths = rng.integers(1, 9, count)
        yield from _packed([rng.integers(0, 256, n).tolist() for n in lengths], pack)


check_pack = Checker(
    pack,
    names=("tokens", "positions", "indptr"),
    stages={
        "prompts follow each other without padding, request i has the rows indptr[i] to "
        "indptr[i + 1], and its positions start at 0": (
            partial(_packed, [[5, 9, 2], [7], [1, 1, 4, 8, 3]])
        ),
        "the same for any prompts": _drawn_prompts,
    },
    mistakes={
        "the prompts are in a rectangle: join them without padding": (
            "np.concatenate(prompts) → "
            "np.array([p + [0] * (max(lengths) - len(p)) for p in prompts])"
        ),
        "these are the lengths, but indptr must hold their running sum, the offsets": (
            "np.cumsum([0, *lengths]) → np.array(lengths)"
        ),
        "the last entry is missing, which says where the last request ends: B requests have B + 1 "
        "offsets": "*lengths] → *lengths][:-1]",
        "the first entry is missing: request 0 starts at row 0": "[0, *lengths] → lengths",
        "after the 0, it must hold the running sum of the lengths": "np.cumsum( → np.array(",
        "positions run on across requests, but every request starts at 0": (
            "np.concatenate([np.arange(n) for n in lengths]) → np.arange(sum(lengths))"
        ),
        "all requests end at 4, as in a left-padded rectangle. Without padding each starts at 0": (
            "np.arange(n) → np.arange(max(lengths) - n, max(lengths))"
        ),
        "the first token of a request is at 0": "np.arange(n) → np.arange(n) + 1",
    },
)


# ------------------------------------------------------------------------------------- packed_mask


def packed_mask(indptr: np.ndarray) -> Any:
    """packed_mask(indptr (B + 1,)) → (T, T) bool, True where query row i may see key row j."""
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return (owner[:, None] == owner) & np.tri(len(owner), dtype=bool)


def _offsets(rng: np.random.Generator) -> Any:
    for lengths in ([1], [2, 2], [4, 1, 1, 6], *rng.integers(1, 6, (2, 5)).tolist()):
        yield (np.cumsum([0, *lengths]),)


check_packed_mask = Checker(
    packed_mask,
    letters="query key",
    typed=True,
    stages={
        "a query sees itself and what is before it in its own request": [(np.array([0, 3, 4, 9]),)],
        "the same for any lengths": Draws(_offsets),
    },
    mistakes={
        "row 3, the first of request 1, sees key 0 of request 0: a causal mask alone lets request "
        "B see request A": "(owner[:, None] == owner) & → ",
        "row 0 sees key 2 of its request: the past sees the future": (
            " & np.tri(len(owner), dtype=bool) → "
        ),
        "the mask is transposed: its rows must be queries and its columns keys": "bool) → bool).T",
        "True and False are exchanged: True means that a query may see a key": (
            lambda indptr: ~packed_mask(indptr)
        ),
        "row 0 does not see key 0, but a query sees itself": "dtype=bool → k=-1, dtype=bool",
    },
    refused={"query 3, key 0 is True": "[:, None] == owner → [:, None] // 2 == owner // 2"},
)


# ------------------------------------------------------------------------------------- append_rows


def append_rows(slots: Any, new: Any, lengths: Any) -> Any:
    """append_rows(slots (B, S, Hkv, D), new (B, Hkv, D), lengths (B,)) → lengths + 1; slots
    change in place."""
    slots[np.arange(len(lengths)), lengths] = new
    return lengths + 1


def _appended(*given: int) -> Any:
    """Rows of so many keys; their free slots are NaN, so that a hole is seen."""

    def probe(append_rows: Any) -> Iterator[Seen]:
        rng, lengths = np.random.default_rng(2), np.array(given)
        slots = rng.standard_normal((len(given), 8, 2, 4)).astype(np.float32)
        slots[np.arange(8) >= lengths[:, None]] = np.nan
        new = rng.standard_normal((len(given), 2, 4)).astype(np.float32)
        longer = append_rows(slots, new, lengths)
        yield f"the slots of rows that held {list(given)}", slots
        yield "the returned lengths", longer
        if lengths.tolist() != list(given):
            raise Finding("lengths was changed in place: the caller still needs it")

    return probe


def _without_a_loop(append_rows: Any) -> Iterator[Seen]:
    slots, new = np.zeros((2000, 2, 1, 1), np.float32), np.ones((2000, 1, 1), np.float32)
    longer, steps = python_steps(append_rows, slots, new, np.zeros(2000, np.int64))
    yield "2,000 rows", longer
    if steps >= 2000:
        raise Finding(
            f"2,000 rows took {steps:,} steps of Python: somewhere a loop goes over the rows. "
            "Index slots with the numbers of the rows and with the lengths, in one assignment"
        )


check_append_rows = Checker(
    append_rows,
    modifies=["append_rows"],
    letters="row slot Hkv D",
    stages={
        "row i's new key is in slot lengths[i], nothing else was touched, and the lengths returned "
        "are one longer": _appended(5, 2, 3),
        "the same after the longest row has finished": _appended(3, 4),
        "2,000 rows are written without a loop": _without_a_loop,
    },
    mistakes={
        "row 1 holds 2 tokens, and its new key went to slot 5, the longest row's end: slots 2 to 4 "
        "stay empty and will be attended to": "lengths] = new → lengths.max()] = new",
        "the last key was overwritten: the next free slot is lengths[i], not lengths[i] - 1": (
            "lengths] = new → lengths - 1] = new"
        ),
        "slot lengths[i] stays empty and will be attended to: slots count from 0": (
            "lengths] = new → lengths + 1] = new"
        ),
        "every new key went to row 0": "np.arange(len(lengths)) → 0",
        "this crosses every row with every length: index the rows, too": (
            "np.arange(len(lengths)) → :"
        ),
        "slots is unchanged: write into it": "slots[np → slots = slots + 0; slots[np",
        "these are the lengths before the append: add 1": "return lengths + 1 → return lengths",
    },
    refused={
        "lengths was changed in place": "return lengths + 1 → lengths += 1; return lengths",
        "rows that held [3, 4]": "lengths] = new → lengths if len(lengths) == 3 else 6] = new",
        "a loop goes over the rows": (
            "slots[np.arange(len(lengths)), lengths] = new → "
            "for i, n in enumerate(lengths): slots[i, n] = new[i]"
        ),
    },
)


# ------------------------------------------------------------------------------------------- serve

NEW_TOKENS = [4, 11, 3, 6, 2, 7, 5]


def serve(model: Decoder, cache: Any, prompts: list[list[int]], new_tokens: list[int]) -> Any:
    """serve(model, cache, prompts, new_tokens) → B lists of new tokens, greedy, each request
    joining as soon as the cache has a row and leaving when it has its tokens."""
    waiting, feed = list(range(len(prompts))), dict[int, list[int]]()
    answers: list[list[int]] = [[] for _ in prompts]
    while waiting or feed:
        while waiting and len(feed) < cache.max_seqs:
            i = waiting.pop(0)
            cache.add(i)
            feed[i] = prompts[i]
        now = list(feed)
        step = cache.plan(now, [len(feed[i]) for i in now])
        logits = model.forward([t for i in now for t in feed[i]], cache, step)
        for i, token in zip(now, greedy(logits), strict=True):
            answers[i].append(token)
            feed[i] = [token]
            if len(answers[i]) == new_tokens[i]:
                cache.free(i)
                del feed[i]
    return answers


class WatchedCache(DenseCache):
    """A dense cache that counts its plans, and the tokens of the requests that were freed."""

    steps = tokens = 0

    def plan(self, *args: Any, **settings: Any) -> Step:
        self.steps += 1
        return super().plan(*args, **settings)

    def free(self, seq_id: Any) -> None:
        self.tokens += self.seq_len(seq_id)
        super().free(seq_id)


def _served(rows: int, serve: Any) -> Iterator[Seen]:
    """Seven prompts of 2 to 9 tokens."""
    rng, model = np.random.default_rng(4), tiny_model()
    prompts = [rng.integers(1, 64, n).tolist() for n in (5, 3, 9, 2, 6, 4, 7)]
    cache = WatchedCache(model.layer_specs, rows, 64, dtype=model.dtype, xp=np)
    names = [f"list {i}" for i in range(7)]
    lent = copy.deepcopy(prompts), list(NEW_TOKENS)
    try:
        answers = parts(serve(model, cache, *lent), "what serve returned", names)
    except Finding as error:
        if not isinstance(error.__cause__, CacheFull):
            raise
        why = "Let a request wait until a row is free, and free its row when it has its tokens"
        raise Finding(f"{error}\n{why}") from None
    if lent != (prompts, list(NEW_TOKENS)):
        raise Finding("prompts or new_tokens was changed in place: the caller still needs them")
    tokens = [token_list(new, name) for new, name in zip(answers, names, strict=True)]
    yield "how many tokens each request got", [len(new) for new in tokens]
    yield "the first token of each request", {i: new[0] for i, new in enumerate(tokens)}
    for i, new in enumerate(tokens):
        why = "it gets others alone, so something of another request has reached it"
        yield f"the tokens of request {i}", new, why
    why = "free a request when it has its tokens"
    yield "requests open at the end", str(list(cache.seq_ids)), why
    yield "tokens of requests when they were freed", cache.tokens
    yield "steps", cache.steps


def _mixed(got: Any, needed: Any) -> bool:
    """Whether a request got the first token of another."""
    if not type(got) is type(needed) is dict:
        return False
    return any(got[i] != n and got[i] in needed.values() for i, n in needed.items())


check_serve = Checker(
    serve,
    modifies=["serve"],
    stages={
        "each request's tokens are those it gets alone, every row is freed, and no row is empty "
        "while a request waits": partial(_served, 3),
        "the same with two rows": partial(_served, 2),
    },
    mistakes={
        "a finished request keeps generating until others are done": Shows(
            "== new_tokens[i] → == max(new_tokens)",
            lambda got, needed: needed == NEW_TOKENS and np.greater_equal(got, needed).all(),
        ),
        "the step over the prompt gives the first token, and each later step gives one more": (
            "return answers → return [new[1:] for new in answers]"
        ),
        "these are in the order in which the requests finished. List i must belong to prompt i": (
            "for _ in prompts] → for _ in prompts]; done = []",
            "cache.free(i) → cache.free(i); done.append(answers[i])",
            "return answers → return done",
        ),
        "free the old request and add a new one for each prompt": (
            "for _ in prompts] → for _ in prompts]; names, old = {}, []",
            "cache.add(i) → names[i] = old.pop() if old else cache.add(i) or i",
            "cache.plan(now, → cache.plan([names[i] for i in now],",
            "cache.free(i) → old.append(names[i])",
        ),
        "row r of the logits is that of step.seq_ids[r], and rows move up as requests end": Shows(
            "in zip(now → in zip(sorted(now, key=lambda i: (i % 2, i))", _mixed
        ),
        "a last token was fed back, although nothing is needed after it": (
            "== new_tokens[i] → > new_tokens[i]",
            "return answers → return [new[:-1] for new in answers]",
        ),
        "a new prompt and the running requests fit into one plan": (
            "now = list(feed) → now = [i for i in feed if not answers[i]] or list(feed)"
        ),
        "rows were empty. Let a request join as soon as another leaves": (
            "while waiting and len(feed) < cache.max_seqs: → "
            "for _ in range(0 if feed else min(len(waiting), cache.max_seqs)):"
        ),
        "let a request join as soon as another leaves, and run its prompt with the others": Shows(
            (
                "len(feed) < cache.max_seqs → len(feed) < cache.max_seqs - 1",
                "now = list(feed) → now = [i for i in feed if not answers[i]] or list(feed)",
            ),
            lambda got, needed: type(got) is int and got > needed,
        ),
    },
    refused={
        "Let a request wait until a row is free": [
            "cache.free(i) → ",
            " and len(feed) < cache.max_seqs → ",
        ],
        "got ['forgotten'], needed []: free a request": (
            "return answers → cache.add('forgotten'); return answers"
        ),
        "something of another request has reached it": (
            "return answers → answers[1][4] = 1; return answers"
        ),
    },
)

"""The explorer of eviction: what a policy and a budget leave of a model's own attention.

Every scene is a life of a live cache under one of kvlib's retention rules. A question of the recall
task is read in chunks, and which keys a head still holds is read back from the cache after each
step. The map is the attention of the same queries in a cache that keeps everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvbook.explorers.controls import Choice, Slider
from kvbook.explorers.explorer import Explorer, Scene
from kvbook.explorers.scenes.panels import bars_panel
from kvbook.explorers.scenes.words import bytes_words, percent_words, tokens_words
from kvbook.explorers.svg import LEVELS, SHARES
from kvlib.arguments import check_integer, listed
from kvlib.arrays import to_numpy
from kvlib.caches import (
    H2O,
    BlockPool,
    KNorm,
    PagedCache,
    Retention,
    Scored,
    Sinks,
    SnapKV,
    Tova,
    Window,
    layer_groups,
)
from kvlib.model import Decoder
from kvlib.reference import load_reference_model
from kvlib.reference.recall import recall_prompt

PROMPT, ANSWER = recall_prompt(random.Random(0), 41, 3, lead=8)
TEXT = PROMPT + ANSWER[:-1]  # what the model reads
LAYER, HEAD = 2, 0  # the kv head whose attention is drawn
CHUNK = 8  # tokens of a step while the prompt is read
Rule = Callable[[int], Retention]
BUDGETS = (16, 24, 32, 40, 48, 56, 64)
# What stays between two steps is `budget` tokens; a window counts the query's own token as well.
POLICIES: Mapping[str, Rule] = {
    "window": lambda budget: Window(budget + 1),
    "sinks": lambda budget: Sinks(4, budget - 3),
    "k-norm": lambda budget: Scored(KNorm(recent=8), budget),
    "TOVA": lambda budget: Scored(Tova(recent=1), budget),
    "H2O": lambda budget: Scored(H2O(recent=8), budget),
    "SnapKV": lambda budget: Scored(SnapKV(window=8), budget),
}
NAMES = {"window": "a window", "sinks": "4 sinks and a window"}
LEGEND = [
    {"role": "cached", "label": "attention to a key that is still cached (area: weight)"},
    {"role": "free", "label": "to a key that was dropped, on grey"},
    {"role": "query", "label": "where the answer is read from"},
]


def eviction_explorer(
    policies: Mapping[str, Rule] = POLICIES, budgets: Sequence[int] = BUDGETS
) -> Explorer:
    """Return controls for policy and budget over the reference model's attention to a question.

    policies  name → a function from a budget to a retention rule; two or more
    budgets   two or more numbers of tokens that stay between steps, none above the text's length

    The prompt is read in chunks of 8 bytes; then the bytes of the right answer are fed one by one,
    so that the model predicts each of them after the right ones. ValueError for another budget.

    >>> from kvbook.explorers.eviction import POLICIES
    >>> two = {name: POLICIES[name] for name in ("window", "TOVA")}
    >>> explorer = eviction_explorer(policies=two, budgets=(32, 48))
    >>> [explorer.scene(policy=name, budget=48)["numbers"][-1]["text"] for name in two]  # right
    ['4 of 4', '0 of 4']
    """
    sizes = [
        check_integer("budgets", budget, 1, len(TEXT))
        for budget in listed("budgets", budgets, "tokens")
    ]
    model = load_reference_model(xp=np)

    def live(rule: Retention | None) -> Life:
        return lived(model, rule, TEXT, len(PROMPT), LAYER, HEAD)

    full = live(None)
    p = attention(full.q, full.k, HEAD, model.layer_specs[LAYER].sm_scale)
    texts = [f"{percent_words(b / len(TEXT))}, {tokens_words(b)}" for b in sizes]
    controls = [
        Choice("policy", "Policy", {name: name for name in policies}),
        Slider("budget", "Budget", sizes, texts=texts),
    ]
    scenes = [
        _scene(name, budget, live(policies[name](budget)), p, full.payload)
        for name in policies
        for budget in sizes
    ]
    title = "What a budget leaves of the attention"
    return Explorer.from_frames("eviction", title, controls, scenes, "eviction-explorer")


def _scene(name: str, budget: int, life: Life, p: np.ndarray, payload: int) -> Scene:
    """p (n, n): the head's attention where nothing is lost; payload: bytes of that cache."""
    n, last = len(p), len(ANSWER)
    held = life.lost > np.arange(n)[:, None]  # (query, key)
    shares = 1 - (p * ~held).sum(axis=1)  # exactly 1 where nothing is lost
    read = p[-last:].argmax(axis=1)  # where each byte of the answer is read from
    sources_held = int(held[np.arange(n - last, n), read].sum())
    right = sum(a == b for a, b in zip(life.answer, ANSWER, strict=True))
    stay, every, answering = int((life.lost == n).sum()), shares.mean(), shares[-last:].mean()
    size, full = (bytes_words(nbytes, 1024) for nbytes in (life.payload, payload))
    cache, freed = "Keys and values of all layers at the end", payload - life.payload
    parts = [["cached", life.payload / 1024, "cached"], ["freed", freed / 1024, "free"]]
    lines = _lines(TEXT)
    numbered = [f"{i + 1} {line['label']}" for i, line in enumerate(lines)]
    return {
        "title": f"{name}, {budget} of {n} tokens: {right} of {last} bytes right",
        "summary": (
            f"With {NAMES.get(name, name)} and a budget of {budget} tokens, {stay} of {n} keys of"
            " the head are still cached at the end. Over all queries, the cached keys have"
            f" {percent_words(every)} of the attention; for the {last} queries that answer, they"
            f" have {percent_words(answering)}. Of the {last} keys that the answer is read from,"
            f" {sources_held} are still cached, and the model gets {right} of {last} bytes right."
            f" The cache takes {size} of {full}."
        ),
        "formula": [
            f"answer: {_shown(ANSWER)}",
            f"model:  {_shown(life.answer)}",
            f"lines:  {', '.join(numbered)}",
        ],
        "numbers": [
            {"label": "Attention to cached keys, all queries", "text": percent_words(every)},
            {"label": "The same, queries that answer", "text": percent_words(answering)},
            {"label": "Bytes of the cache", "text": f"{size} of {full}"},
            {"label": "Keys that the answer needs, cached", "text": f"{sources_held} of {last}"},
            {"label": "Bytes of the answer right", "text": f"{right} of {last}"},
        ],
        "panels": [
            {
                "kind": "map",
                "label": f"Attention of kv head {HEAD} in layer {LAYER}: queries down, keys across",
                "lines": lines,
                "letters": _shown(TEXT),
                "levels": _levels(p),
                "lost": life.lost.tolist(),
                "shares": np.floor(SHARES * shares + 0.5).astype(int).tolist(),
                "ring": "where the answer is read from",
                "rings": [[n - last + i, int(key)] for i, key in enumerate(read)],
                "legend": LEGEND,
            },
            bars_panel(cache, "KiB", payload / 1024 * 1.04, [["cache", parts]]),
        ],
    }


def _levels(p: np.ndarray) -> list[str]:
    """A digit per key that a query sees: the root of the weight in ninths."""
    digits = np.floor((len(LEVELS) - 1) * np.sqrt(p) + 0.5).astype(int)
    return ["".join(LEVELS[d] for d in row[: t + 1]) for t, row in enumerate(digits)]


def _lines(text: bytes) -> list[dict[str, Any]]:
    """Where the lines of a text begin, and what they say."""
    lines, at = [], 0
    for line in text.decode("latin-1").splitlines(keepends=True):
        lines.append({"at": at, "label": line.strip()})
        at += len(line)
    return lines


def _shown(text: bytes) -> str:
    """One letter that can be seen for each byte."""
    seen = {10: "\u21b5", 32: "\u00b7"}
    return "".join(seen.get(b, chr(b) if 32 < b < 127 else "\ufffd") for b in text)


class Life(NamedTuple):
    """What a cache kept while a text was read, and what the model said.

    q (n, Hq, D): queries of the layer. k (S, Hkv, D): the keys that it holds at the end.
    lost (n,): the first query without this key; n if none. answer: the likeliest byte at each of
    its positions. payload: bytes of keys and values at the end, all layers.
    """

    q: np.ndarray
    k: np.ndarray
    lost: np.ndarray
    answer: bytes
    payload: int


class _Watched(PagedCache):
    """A paged cache that records the queries of one layer."""

    watched: int
    queries: list[np.ndarray]

    def run(self, layer: int, q: Any, step: Any, return_lse: bool = False) -> Any:
        if layer == self.watched:
            self.queries.append(np.array(to_numpy(q)))
        return super().run(layer, q, step, return_lse)


def lived(
    model: Decoder, rule: Retention | None, text: bytes, prompt_length: int, layer: int, head: int
) -> Life:
    """Read a text under a retention rule: `asked` bytes in chunks, then byte by byte."""
    n, specs = len(text), model.layer_specs
    groups = len(layer_groups(specs, rule))
    pool = BlockPool(2 * groups * (n + CHUNK), block_size=1)  # a rule with holes copies what stays
    cache = _Watched(specs, pool, retention=rule, xp=model.xp)
    cache.watched, cache.queries = layer, []
    cache.add("text")
    starts = [*range(0, prompt_length, CHUNK), *range(prompt_length, n)]
    lost, answer = np.full(n, n), []
    for start, stop in zip(starts, [*starts[1:], n], strict=True):
        stop = min(stop, prompt_length) if start < prompt_length else stop
        step = cache.plan(["text"], [stop - start])
        logits = model.forward(list(text[start:stop]), cache, step, rows="last")
        if stop >= prompt_length:
            answer.append(int(np.argmax(to_numpy(logits)[-1])))
        k, _, positions = map(to_numpy, cache.read(layer, "text"))
        dropped = np.ones(stop, dtype=bool)
        dropped[positions[head] if positions.ndim == 2 else positions] = False
        lost[:stop] = np.where(dropped, np.minimum(lost[:stop], start), n)
    payload = cache.memory().payload
    return Life(np.concatenate(cache.queries), k, lost, bytes(answer), payload)


def attention(q: np.ndarray, k: np.ndarray, head: int, scale: float | None) -> np.ndarray:
    """The causal attention (n, n) of a kv head, the mean over its query heads, in float64."""
    n, heads, dim = k.shape
    group = q.shape[1] // heads
    queries = q[:, head * group : (head + 1) * group].astype(np.float64)
    s = np.einsum("tgd,sd->gts", queries, k[:, head].astype(np.float64))
    s *= dim**-0.5 if scale is None else scale
    s[:, ~np.tri(n, dtype=bool)] = -np.inf
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray((p / p.sum(axis=-1, keepdims=True)).mean(axis=0))

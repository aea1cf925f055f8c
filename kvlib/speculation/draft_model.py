"""Guesses of a smaller model, which has a separate cache."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvlib.arguments import check_integer
from kvlib.arrays import Array, to_numpy
from kvlib.caches import Cache
from kvlib.caches.trees import Parents, chained, depths
from kvlib.config.shape import Router
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.model.decoder import Decoder
from kvlib.serve.distribution import greedy, probabilities
from kvlib.serve.prompts import check_cache, check_model
from kvlib.serve.sampling import rng_at
from kvlib.speculation.acceptance import DRAFTED, inverse
from kvlib.speculation.draft import (
    Draft,
    Drafter,
    Text,
    chain,
    check_texts,
    check_tree,
    children,
    ranks,
    renumbered,
)


class DraftModel(Drafter):
    """A small model that writes a few tokens ahead.

    model   a Decoder with the vocabulary of the model that checks its guesses
    cache   any cache of ``model.layer_specs``. Unless given, a dense one for `max_seqs` requests.
            A request for which it has no room gets no guesses.
    tree    the parents of a tree of guesses, such as ``branches(3, 2, 1)``, of which a text gets
            the first `most`. Unless given, the guesses are a chain.

    The guesses are the likeliest tokens or, at a temperature, drawn by the request's settings,
    siblings without replacement. A call removes refused guesses from the cache and feeds it what it
    lacks. Then the drafts of all texts grow together, one level per step.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> drafter = DraftModel(lower_layers(model, 4), max_seqs=1, tree=(-1, -1, 0))
    >>> bytes(drafter.draft([Text("a", list(b"import o"), most=3)])[0].tokens)
    b'sr.'
    """

    def __init__(
        self,
        model: Decoder,
        cache: Cache | None = None,
        *,
        max_seqs: int = 8,
        tree: Sequence[int] | None = None,
    ) -> None:
        check_model(model)
        if cache is None:
            cache = model.new_cache(check_integer("max_seqs", max_seqs))
        check_cache(model, cache)
        self.model, self.cache = model, cache
        self.tree = None if tree is None else check_tree("tree", tree)
        self._cached: dict[Hashable, _CachedText] = {}

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        """Up to ``most`` guesses for each text, in a step of the small model for each level."""
        check_texts(texts)
        trees = [chain(t.most) if self.tree is None else self.tree for t in texts]
        drafts = [GrowingDraft(t, tree) for t, tree in zip(texts, trees, strict=True)]
        growing = [d for d in drafts if d.level and self._opened(d.text)]
        while growing and (logits := self._forward(growing)) is not None:
            row = 0
            for d in growing:
                rows = slice(row, row + len(d.level))
                d.draw(logits[rows, ...])
                row = rows.stop
            growing = [d for d in growing if d.level]
        return [d.draft() for d in drafts]

    def free(self, name: Hashable) -> None:
        if name in self._cached:
            self.cache.free(name)
            del self._cached[name]

    def _opened(self, text: Text) -> bool:
        """Open the text in the cache, or remove its refused guesses; False if it has no room."""
        if len(text.tokens) + text.most > self.model.config.max_position_embeddings:
            return False
        cached = self._cached.get(text.name)
        if cached is not None:
            same = cached.agreeing(text.tokens)
            try:
                self.cache.truncate(text.name, same)
            except ValueError:  # the cache has dropped what it would need: read the text again
                self.free(text.name)
            else:
                del cached.tokens[same:]
                cached.compared = same
                return True
        try:
            self.cache.add(text.name)
        except (CacheFull, OutOfBlocks):
            return False
        self._cached[text.name] = _CachedText([])
        return True

    def _forward(self, growing: "list[GrowingDraft]") -> Array | None:
        """Return logits after the guesses of each level; None if the cache has no room for them."""
        feed, logit_rows, end = list[list[int]](), list[int](), 0
        trees = list[Parents | None]()
        for d in growing:
            guesses, tree, from_end = d.inputs()
            known = len(self._cached[d.text.name].tokens)
            held = max(0, known - len(d.text.tokens))  # guesses, which are a chain
            tree = tuple(parent - held for parent in tree[held:])
            if chained(tree) < len(tree):  # a cache takes no tree on top of another
                self.cache.truncate(d.text.name, known)
                trees.append(tree)
            else:
                trees.append(None)
            feed.append([*d.text.tokens, *guesses][known:])
            end += len(feed[-1])
            logit_rows += [end - n for n in from_end]
        names, lengths = [d.text.name for d in growing], [*map(len, feed)]
        tokens = [token for fed in feed for token in fed]
        parents = {"parents": trees} if any(trees) else {}
        try:
            step = self.cache.plan(names, lengths, tokens, **parents)
        except (CacheFull, OutOfBlocks):
            return None
        rows = "last" if logit_rows == step.last_rows else logit_rows
        logits = self.model.forward(tokens, self.cache, step, rows)
        for name, fed, tree_or_chain in zip(names, feed, trees, strict=True):
            if tree_or_chain is None:
                self._cached[name].tokens += fed
        return logits

    def __repr__(self) -> str:
        return f"DraftModel({self.model!r}, {self.cache!r})"


@dataclass
class _CachedText:
    """The tokens that the cache holds of a text; the first `compared` of them are the text's."""

    tokens: list[int]
    compared: int = 0

    def agreeing(self, text: Sequence[int]) -> int:
        """Return how many of its tokens the text begins with, without the text's last token."""
        most = min(len(self.tokens), len(text) - 1)
        return next((i for i in range(self.compared, most) if self.tokens[i] != text[i]), most)


class GrowingDraft:
    """The guesses `made` for one text, number → token, and the `level` that the next ones
    follow."""

    def __init__(self, text: Text, tree: Parents) -> None:
        self.text, self.tree = text, tree[: text.most]
        self.made: dict[int, int] = {}
        self.level = [-1] if self.tree else []
        self._q: dict[int, np.ndarray] = {}
        self._after, self._depths = children(self.tree), depths(self.tree)
        self._in_level = ranks(self._depths)  # of each guess within its level

    def inputs(self) -> tuple[list[int], Parents, list[int]]:
        """Return the guesses to read before the next level, their parents, rows from the end."""
        inner = [j for j in sorted(self.made) if j in self._after]
        distance = {j: len(inner) - i for i, j in enumerate(inner)}
        from_end = [distance.get(j, 1) for j in self.level]
        return [self.made[j] for j in inner], renumbered(self.tree, inner), from_end

    def draw(self, logits: Array) -> None:
        """Add the next level, from logits (guesses of this level, V)."""
        text, after = self.text, [self._after[at] for at in self.level]
        if text.temperature:
            drawn = []
            p = probabilities(logits, text.temperature, text.top_k, text.top_p)
            for q, siblings in zip(p, after, strict=True):
                drawn.append(without_replacement(q, [self._number(j) for j in siblings]))
                self._q.update(dict.fromkeys(siblings[: len(drawn[-1])], q))
        else:
            drawn = likeliest(logits, max(map(len, after)))
        made = {j: t for siblings, tokens in zip(after, drawn) for j, t in zip(siblings, tokens)}
        self.made |= made  # there may be fewer tokens than siblings
        self.level = [j for j in made if j in self._after]

    def _number(self, j: int) -> float:
        """The random number of a guess. Each guess of a level has a separate stream."""
        at = len(self.text.tokens) + self._depths[j]
        return rng_at(self.text.seed, at, DRAFTED + 2 * self._in_level[j]).random()

    def draft(self) -> Draft:
        """The guesses made so far."""
        numbers = sorted(self.made)
        tokens = [self.made[j] for j in numbers]
        q = np.stack([self._q[j] for j in numbers]) if self._q else None
        return Draft(tokens, q, renumbered(self.tree, numbers))


def without_replacement(q: np.ndarray, numbers: Sequence[float]) -> list[int]:
    """Draw different tokens from q (V,), one after the other: fewer if q has no more."""
    rest, tokens = q, list[int]()
    for number in numbers:
        if tokens:
            rest = rest.copy() if rest is q else rest
            rest[tokens[-1]] = 0
            if not rest.any():
                break
        tokens.append(inverse(rest, number))
    return tokens


def likeliest(logits: Array, n: int) -> list[list[int]]:
    """Return the n likeliest tokens of each row of logits (B, V), the lowest id first of equals."""
    by_row = [[token] for token in greedy(logits)]
    if n > 1:
        x = to_numpy(logits).astype(np.float64)
        for _ in range(n - 1):
            for row, tokens in zip(x, by_row):
                row[tokens[-1]] = -np.inf
                best = int(row.argmax())
                tokens += [best] if row[best] > -np.inf else []
    return by_row


def lower_layers(model: Decoder, layers: int) -> Decoder:
    """Return a draft model of the first layers of a model, its norm and its output matrix.

    It shares the weights (self-speculation without training; LayerSkip, arXiv:2404.16710, trains
    for it).

    >>> from kvlib import load_reference_model
    >>> lower_layers(load_reference_model(), 2).config.num_hidden_layers
    2
    """
    check_model(model)
    config = model.config
    layers = check_integer("layers", layers, 1, config.num_hidden_layers)
    experts = config.experts
    if experts is not None:
        sparse = tuple(layer for layer in experts.layers if layer < layers)
        experts = experts._replace(layers=sparse) if sparse else None
    shorter = replace(
        config,
        num_hidden_layers=layers,
        windows=config.windows[:layers],
        experts=experts,
        router=config.router if experts is not None else Router(),
    )
    weights = {
        name: weight
        for name, weight in model.weights.items()
        if not name.startswith("layers.") or int(name.split(".")[1]) < layers
    }
    return Decoder(shorter, weights, model.tokenizer)

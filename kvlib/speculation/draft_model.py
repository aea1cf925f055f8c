"""Guesses of a smaller model, which keeps a cache of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from kvlib.arguments import check_integer
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.caches.trees import Parents, chained
from kvlib.config.shape import Router
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.model.decoder import Decoder
from kvlib.serve.prompts import check_cache, check_model
from kvlib.speculation.draft import Draft, Drafter, Text, check_texts
from kvlib.speculation.tree import chain, check_tree
from kvlib.speculation.writing import Writing


class DraftModel(Drafter):
    """A small model that writes a few tokens ahead.

    model   a Decoder with the vocabulary of the model that checks its guesses
    cache   any cache of ``model.layer_specs``. Unless given, a dense one for `max_seqs` requests.
            A request for which it has no room gets no guesses.
    tree    the parents of a tree of guesses, such as ``branches(3, 2, 1)``: the likeliest tokens
            or, at a temperature, tokens drawn without replacement. If a text may get
            fewer guesses than the tree has (its `most`, which the scheduler takes from gamma), only
            the first guesses of the tree are made. Unless given, the guesses are a chain.

    Between two calls a text grows by the guesses that were accepted and one token more. The next
    call removes refused guesses from the cache and feeds it what it lacks, in one step for all
    texts. Then the drafts of all texts grow together, one level per step; with a tree, a step may
    feed guesses of earlier levels again. If a request draws its tokens at a temperature, its
    guesses are drawn by the same settings.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> drafter = DraftModel(lower_layers(model, 4), max_seqs=1)
    >>> len(drafter.draft([Text("a", list(b"import o"), most=3)])[0].tokens)
    3
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
        self._fed: dict[Hashable, _Fed] = {}

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        """Up to ``most`` guesses for each text, in a step of the small model for each level."""
        check_texts(texts)
        writing = [Writing(t, chain(t.most) if self.tree is None else self.tree) for t in texts]
        live = [w for w in writing if w.level and self._opened(w.text)]
        while live:
            logits = self._forward(live)
            if logits is None:
                break
            row = 0
            for w in live:
                rows = slice(row, row + len(w.level))
                w.draw(logits[rows, ...])
                row = rows.stop
            live = [w for w in live if w.level]
        return [w.draft() for w in writing]

    def free(self, name: Hashable) -> None:
        if name in self._fed:
            self.cache.free(name)
            del self._fed[name]

    def _opened(self, text: Text) -> bool:
        """Open the text in the cache, or take its refused guesses back; False if it has no room."""
        if len(text.tokens) + text.most > self.model.config.max_position_embeddings:
            return False
        fed = self._fed.get(text.name)
        if fed is not None:
            same = fed.agreeing(text.tokens)
            try:
                self.cache.truncate(text.name, same)
            except ValueError:  # the cache has given up what it would need: read the text again
                self.free(text.name)
            else:
                del fed.tokens[same:]
                fed.sure = same
                return True
        try:
            self.cache.add(text.name)
        except (CacheFull, OutOfBlocks):
            return False
        self._fed[text.name] = _Fed([])
        return True

    def _forward(self, live: list[Writing]) -> Array | None:
        """Logits after the guesses of each one's level; None if the cache has no room for them."""
        parts, rows, end = list[list[int]](), list[int](), 0
        trees = list[Parents | None]()
        for w in live:
            tokens, tree, behind = w.fed()
            known = len(self._fed[w.text.name].tokens)
            held = max(0, known - len(w.text.tokens))  # guesses, which are a chain
            tree = tuple(parent - held for parent in tree[held:])
            if chained(tree) < len(tree):  # a cache takes no tree on top of another
                self.cache.truncate(w.text.name, known)
                trees.append(tree)
            else:
                trees.append(None)
            parts.append([*w.text.tokens, *tokens][known:])
            end += len(parts[-1])
            rows += [end - n for n in behind]
        names, lengths = [w.text.name for w in live], [*map(len, parts)]
        fed = [token for part in parts for token in part]
        parents = {"parents": trees} if any(trees) else {}
        try:
            step = self.cache.plan(names, lengths, fed, **parents)
        except (CacheFull, OutOfBlocks):
            return None
        wanted = "last" if rows == step.last_rows else rows
        logits = self.model.forward(fed, self.cache, step, wanted)
        for name, part, own in zip(names, parts, trees, strict=True):
            if own is None:
                self._fed[name].tokens += part
        return logits

    def __repr__(self) -> str:
        return f"DraftModel({self.model!r}, {self.cache!r})"


@dataclass
class _Fed:
    """What the cache holds of a text: its tokens, of which the first `sure` are the text's own."""

    tokens: list[int]
    sure: int = 0

    def agreeing(self, text: Sequence[int]) -> int:
        """How many of its tokens the text begins with, its last token left out."""
        most = min(len(self.tokens), len(text) - 1)
        return next((i for i in range(self.sure, most) if self.tokens[i] != text[i]), most)


def lower_layers(model: Decoder, layers: int) -> Decoder:
    """A draft model made of the first layers of a model, its norm and its output matrix.

    It shares the weights, so it takes no memory beside its cache (self-speculation without
    training; compare LayerSkip, arXiv:2404.16710, which trains for it).

    >>> from kvlib import load_reference_model
    >>> lower_layers(load_reference_model(), 2).config.num_hidden_layers
    2
    """
    check_model(model)
    config = model.config
    layers = check_integer("layers", layers, 1, config.num_hidden_layers)
    experts = config.experts
    if experts is not None:
        own = tuple(layer for layer in experts.layers if layer < layers)
        experts = experts._replace(layers=own) if own else None
    shorter = replace(
        config,
        num_hidden_layers=layers,
        windows=config.windows[:layers],
        experts=experts,
        router=config.router if experts is not None else Router(),
    )
    kept = {
        name: weight
        for name, weight in model.weights.items()
        if not name.startswith("layers.") or int(name.split(".")[1]) < layers
    }
    return Decoder(shorter, kept, model.tokenizer)

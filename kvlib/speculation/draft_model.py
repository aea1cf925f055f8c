"""Guesses of a smaller model, which keeps a cache of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvlib.arguments import check_integer
from kvlib.arrays import Array
from kvlib.caches import Cache
from kvlib.errors import CacheFull, OutOfBlocks
from kvlib.model.decoder import Decoder
from kvlib.prompts import check_cache, check_model
from kvlib.sampling import greedy, probabilities, rng_at
from kvlib.speculation.acceptance import DRAFTED, inverse
from kvlib.speculation.draft import Draft, Drafter, Text


class DraftModel(Drafter):
    """A small model that writes a few tokens ahead.

    model   a Decoder with the vocabulary of the model that checks its guesses
    cache   any cache of ``model.layer_specs``. Unless given, a dense one for `max_seqs` requests.
            A request for which it has no room gets no guesses.

    Between two calls a text grows by the guesses that were accepted and one token more. Refused
    guesses are removed from the cache. New tokens that it does not hold yet are fed in one step for
    all texts, because the drafts of a batch are written side by side. If a
    request draws its tokens at a temperature, its guesses are drawn by the same settings.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> drafter = DraftModel(lower_layers(model, 4), max_seqs=1)
    >>> len(drafter.draft([Text("a", list(b"import o"), most=3)])[0].tokens)
    3
    """

    def __init__(self, model: Decoder, cache: Cache | None = None, *, max_seqs: int = 8) -> None:
        check_model(model)
        if cache is None:
            cache = model.new_cache(check_integer("max_seqs", max_seqs))
        check_cache(model, cache)
        self.model, self.cache = model, cache
        self._fed: dict[Hashable, _Fed] = {}

    def draft(self, texts: Sequence[Text]) -> list[Draft]:
        """Up to ``most`` tokens for each text, in as many steps of the small model."""
        writing = [_Writing(text, [], []) for text in texts]
        live = [w for w in writing if w.text.most and self._opened(w.text)]
        while live:
            logits = self._forward([(w.text.name, [*w.text.tokens, *w.tokens]) for w in live])
            if logits is None:
                break
            for row, w in enumerate(live):
                w.draw(logits[row : row + 1, ...])
            live = [w for w in live if len(w.tokens) < w.text.most]
        return [Draft(w.tokens, np.stack(w.q) if w.q else None) for w in writing]

    def free(self, name: Hashable) -> None:
        if self._fed.pop(name, None) is not None:
            self.cache.free(name)

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

    def _forward(self, texts: list[tuple[Hashable, list[int]]]) -> Array | None:
        """Logits (B, V) after each of the texts; None if the cache has no room for the step."""
        parts = [(name, tokens[len(self._fed[name].tokens) :]) for name, tokens in texts]
        fed = [token for _, part in parts for token in part]
        try:
            step = self.cache.plan([name for name, _ in parts], [len(p) for _, p in parts], fed)
        except (CacheFull, OutOfBlocks):
            return None
        logits = self.model.forward(fed, self.cache, step)
        for name, part in parts:
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


@dataclass
class _Writing:
    """The guesses for one text, as they are written."""

    text: Text
    tokens: list[int]
    q: list[np.ndarray]

    def draw(self, logits: Array) -> None:
        """Add the next guess, from logits (1, V)."""
        text = self.text
        if not text.temperature:
            self.tokens += greedy(logits)
            return
        q = probabilities(logits, text.temperature, text.top_k, text.top_p)[0]
        rng = rng_at(text.seed, len(text.tokens) + len(self.tokens), DRAFTED)
        self.tokens.append(inverse(q, rng.random()))
        self.q.append(q)


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
        config, num_hidden_layers=layers, windows=config.windows[:layers], experts=experts
    )
    kept = {
        name: weight
        for name, weight in model.weights.items()
        if not name.startswith("layers.") or int(name.split(".")[1]) < layers
    }
    return Decoder(shorter, kept, model.tokenizer)

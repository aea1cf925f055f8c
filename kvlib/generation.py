"""Prompts in, tokens out, on any cache."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from kvlib.caches import Cache
from kvlib.caches.checks import is_integer
from kvlib.model.decoder import Decoder
from kvlib.sampling import check_settings, sample

_names = count()


def generate(
    model: Decoder,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_tokens: Sequence[int] | None = None,
    seed: int = 0,
    cache: Cache | None = None,
    progress: bool | None = None,
) -> list[Any]:
    """Continue each prompt; returns the new tokens of each, in the order of the prompts.

    prompts          lists of token ids of any lengths, or texts if the model has a tokenizer
    max_new_tokens   tokens for each prompt (32)
    temperature      0 is greedy (the default); top_k, top_p as in :func:`kvlib.sample`
    stop_tokens      ids that end a request and are not returned; the model's own unless given
    seed             draws are repeatable, and a request's do not depend on the others' (0)
    cache            any cache built from ``model.layer_specs``; a dense one of just the right
                     size unless given. Requests are opened in it and freed again.
    progress         True: a bar; False: none; None: a bar on a terminal after two seconds

    Returns lists of token ids, or texts for texts.
    Raises ValueError for an empty prompt, ids outside the vocabulary, more tokens than the model
    has positions; CacheFull or OutOfBlocks if the cache given has no room.
    """
    ids, are_texts = _as_ids(model, prompts)
    results: list[list[int]] = [[] for _ in ids]
    tokens = stream(
        model,
        ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop_tokens=stop_tokens,
        seed=seed,
        cache=cache,
    )
    with _bar(progress, len(ids) * max_new_tokens) as bar:
        for i, token in tokens:
            results[i].append(token)
            bar.update()
    return [model.tokenizer.decode(new) for new in results] if are_texts else results


def stream(
    model: Decoder,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_tokens: Sequence[int] | None = None,
    seed: int = 0,
    cache: Cache | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield (index of the prompt, new token) as soon as each is known.

    The arguments are those of :func:`kvlib.generate`, and are checked before the first token.
    """
    prompts, _ = _as_ids(model, prompts)
    _check(model, prompts, max_new_tokens)
    check_settings(temperature, top_k, top_p)
    if not is_integer(seed) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    stops = frozenset(
        model.config.eos_token_ids if stop_tokens is None else _ids("stop_tokens", stop_tokens)
    )
    if cache is None:
        longest = max((len(p) for p in prompts), default=1)
        cache = model.new_cache(max(1, len(prompts)), longest + max_new_tokens)
    rngs = [np.random.default_rng([seed, i]) for i in range(len(prompts))]
    return _steps(model, prompts, cache, max_new_tokens, stops, rngs, (temperature, top_k, top_p))


def _steps(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    cache: Cache,
    max_new_tokens: int,
    stops: frozenset[int],
    rngs: list[np.random.Generator],
    settings: tuple[float, int | None, float | None],
) -> Iterator[tuple[int, int]]:
    """Prefill all prompts in one pass, then decode together whoever is left."""
    run = next(_names)
    names: dict[int, Hashable] = {}
    try:
        feed: dict[int, Sequence[int]] = {}
        for i, prompt in enumerate(prompts):
            name: Hashable = ("generate", run, i)
            held = cache.add(name, prompt)
            names[i] = name
            feed[i] = prompt[held:]
        for made in range(1, max_new_tokens + 1):
            if not feed:
                break
            rows = list(feed)
            tokens = [t for i in rows for t in feed[i]]
            step = cache.plan([names[i] for i in rows], [len(feed[i]) for i in rows], tokens)
            logits = model.forward(tokens, cache, step)
            drawn = sample(logits, *settings, rngs=[rngs[i] for i in rows])
            feed = {}
            for i, token in zip(rows, drawn, strict=True):
                stopped = token in stops
                if stopped or made == max_new_tokens:
                    cache.free(names.pop(i))
                else:
                    feed[i] = [token]
                if not stopped:
                    yield i, token
    finally:
        for name in names.values():
            cache.free(name)


def _as_ids(model: Decoder, prompts: Sequence[Any]) -> tuple[list[list[int]], bool]:
    """The prompts as token ids, and whether they were texts."""
    if isinstance(prompts, str):
        raise TypeError("prompts must be a list of prompts, got one text: write [text]")
    prompts = list(prompts)
    kinds = {isinstance(p, str) for p in prompts}
    if kinds == {True, False}:
        raise TypeError("prompts must be all texts or all lists of token ids, got both")
    if kinds != {True}:
        return [_ids(f"prompt {i}", p) for i, p in enumerate(prompts)], False
    if model.tokenizer is None:
        raise TypeError("this model has no tokenizer: prompts must be lists of token ids")
    return [list(model.tokenizer.encode(p)) for p in prompts], True


def _ids(name: str, tokens: Any) -> list[int]:
    """Token ids as Python integers; nothing is rounded to one."""
    if isinstance(tokens, str) or not hasattr(tokens, "__iter__"):
        raise TypeError(f"{name} must be a list of token ids, got {tokens!r}")
    ids = list(tokens)
    wrong = [t for t in ids if not is_integer(t)]
    if wrong:
        raise TypeError(f"{name} must hold integers, got {wrong[0]!r}")
    return [int(t) for t in ids]


def _check(model: Decoder, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
    if not is_integer(max_new_tokens) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be an integer of at least 1, got {max_new_tokens!r}")
    limit, vocabulary = model.config.max_position_embeddings, model.config.vocab_size
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {i} is empty: at least one token is needed to start from")
        # The last new token is returned and never fed back, so it needs no position.
        needed = len(prompt) + max_new_tokens - 1
        if needed > limit:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens; with {max_new_tokens} new ones it needs "
                f"{needed} positions, and the model has {limit}"
            )
        wrong = [t for t in prompt if not 0 <= t < vocabulary]
        if wrong:
            raise ValueError(f"prompt {i} holds token {wrong[0]}, needed: 0 ... {vocabulary - 1}")


class _NoBar:
    """Stands in where tqdm is not installed or no bar is wanted."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to close."""

    def update(self) -> None:
        """Nothing to draw."""


def _bar(progress: bool | None, total: int) -> Any:
    # A notebook calls its output a terminal; a bar there would become part of the page.
    if progress is False or (progress is None and "ipykernel" in sys.modules):
        return _NoBar()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            raise ImportError("a progress bar needs tqdm: pip install tqdm") from None
        return _NoBar()
    quiet = {} if progress else {"delay": 2, "disable": None}
    return tqdm(total=total, unit="token", desc="generate", **quiet)

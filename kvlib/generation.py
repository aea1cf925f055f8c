"""Prompts in, tokens out, on any cache."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import count
from typing import Any

from kvlib.caches import Cache
from kvlib.model.decoder import Decoder
from kvlib.progress import bar as _bar
from kvlib.prompts import (
    as_ids,
    check_cache,
    check_positive,
    check_prompt,
    seeds_of,
    stop_ids,
)
from kvlib.sampling import check_settings, rng_at, sample
from kvlib.serving import take_back

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
    seed: int | Sequence[int] = 0,
    cache: Cache | None = None,
    prefill_chunk: int | None = None,
    progress: bool | None = None,
) -> list[Any]:
    """Continue each prompt; returns the new tokens of each, in the order of the prompts.

    prompts          lists of token ids of any lengths, or texts if the model has a tokenizer
    max_new_tokens   tokens for each prompt (32)
    temperature      0 is greedy (the default); top_k, top_p as in :func:`kvlib.sample`
    stop_tokens      ids that end a request and are not returned; the model's own unless given
    seed             an integer for every prompt (0), or a sequence with one integer per prompt.
                     A draw depends on its request's seed and position alone
                     (:func:`kvlib.sampling.rng_at`), so equal prompts with one integer get equal
                     texts: give them seeds of their own, such as range(8), for different samples.
    cache            any cache built from ``model.layer_specs``; a dense one of just the right
                     size unless given. Requests are opened in it and freed again. What it holds
                     of a prompt already (PagedCache) is not computed again, and of prompts that
                     begin alike one is read first and the others when its blocks can be found.
    prefill_chunk    feed each prompt so many tokens a pass, in place of whole: the tokens stay the
                     same, what a pass needs beside the cache shrinks from O(prompt) to O(chunk).
                     Who has read his prompt decodes while others still read theirs.
    progress         True: a bar; False: none; None: a bar on a terminal after two seconds

    Under a codec that keeps the newest tokens as they came, early chunks attend to numbers that a
    whole prompt attends to as codes, so the tokens may differ. Chunked prefill: Sarathi,
    arXiv:2308.16369.

    Returns lists of token ids, or texts for texts.
    Raises ValueError for an empty prompt, ids outside the vocabulary, more tokens than the model
    has positions, a cache of other layers; CacheFull or OutOfBlocks if the cache given has no room.

    >>> from kvlib import load_reference_model
    >>> generate(load_reference_model(), ["import o"], max_new_tokens=1)
    ['s']
    """
    ids, are_texts = as_ids(model, prompts)
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
        prefill_chunk=prefill_chunk,
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
    seed: int | Sequence[int] = 0,
    cache: Cache | None = None,
    prefill_chunk: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield (index of the prompt, new token) as soon as each is known.

    The arguments are those of :func:`kvlib.generate`, and are checked before the first token.

    >>> from kvlib import load_reference_model
    >>> for i, token in stream(load_reference_model(), ["import o"], max_new_tokens=1):
    ...     print(i, chr(token))
    0 s
    """
    prompts, _ = as_ids(model, prompts)
    check_positive("max_new_tokens", max_new_tokens)
    for i, prompt in enumerate(prompts):
        check_prompt(model, f"prompt {i}", prompt, max_new_tokens)
    check_settings(temperature, top_k, top_p)
    seeds = seeds_of(seed, len(prompts))
    if prefill_chunk is not None:
        check_positive("prefill_chunk", prefill_chunk)
    stops = stop_ids(model, stop_tokens)
    longest = max((len(p) for p in prompts), default=1)
    if cache is None:
        cache = model.new_cache(max(1, len(prompts)), longest + max_new_tokens)
    else:
        check_cache(model, cache)
    settings, chunk = (temperature, top_k, top_p), int(prefill_chunk or longest)
    return _steps(model, prompts, cache, max_new_tokens, chunk, stops, seeds, settings)


def _steps(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    cache: Cache,
    max_new_tokens: int,
    chunk: int,
    stops: frozenset[int],
    seeds: Sequence[int],
    settings: tuple[float, int | None, float | None],
) -> Iterator[tuple[int, int]]:
    """Feed everyone at most `chunk` tokens a pass; whose prompt is through gets a token of it."""
    run = next(_names)
    names: dict[int, Hashable] = {}
    made = [0] * len(prompts)
    try:
        feed: dict[int, Sequence[int]] = {}  # what the next passes are fed, of whoever is left
        waiting = list(range(len(prompts)))
        while waiting or feed:
            for i in feed if waiting else ():
                cache.settle(names[i])  # what it has computed may be what another waits for
            for i in list(waiting):
                if not cache.waits_for(prompts[i], [(names[j], prompts[j]) for j in feed]):
                    name: Hashable = ("generate", run, i)
                    held = cache.add(name, prompts[i])
                    names[i] = name
                    feed[i] = prompts[i][held:]
                    waiting.remove(i)
            rows = list(feed)
            parts = [feed[i][:chunk] for i in rows]
            tokens = [t for part in parts for t in part]
            step = cache.plan([names[i] for i in rows], [len(part) for part in parts], tokens)
            feed = {i: feed[i][chunk:] for i in rows}
            ready = [n for n, i in enumerate(rows) if not feed[i]]
            try:
                logits = model.forward(tokens, cache, step)
                if not ready:
                    continue
                if len(ready) < len(rows):
                    logits = model.xp.take(logits, model.xp.asarray(ready), axis=0)
                drawing = [rows[n] for n in ready] if settings[0] else []
                rngs = [rng_at(seeds[i], len(prompts[i]) + made[i]) for i in drawing]
                drawn = sample(logits, *settings, rngs=rngs)
            except BaseException:
                take_back(cache, step)  # before free lets others find what it has written
                raise
            for i, token in zip([rows[n] for n in ready], drawn, strict=True):
                made[i] += 1
                stopped = token in stops
                if stopped or made[i] == max_new_tokens:
                    del feed[i]
                    cache.free(names.pop(i))
                else:
                    feed[i] = [token]
                if not stopped:
                    yield i, token
    finally:
        for name in names.values():
            cache.free(name)

"""Prompts in, tokens out, on any cache."""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

from kvlib.arguments import check_flag, check_integer
from kvlib.caches import Cache
from kvlib.model.decoder import Decoder
from kvlib.progress import bar as _bar
from kvlib.serve.distribution import check_settings
from kvlib.serve.prompts import as_ids, check_prompt, seeds_of
from kvlib.serve.request import WAITING, Gamma, Request, raise_failed
from kvlib.serve.scheduler import Scheduler

if TYPE_CHECKING:
    from kvlib.kernels.step import CompiledStep
    from kvlib.speculation import Drafter

_runs = count()  # names differ from run to run, so that several can share a cache


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
    drafter: "Drafter | None" = None,
    gamma: Gamma = 4,
    compiled: "CompiledStep | bool | None" = None,
    progress: bool | None = None,
) -> list[Any]:
    """Continue each prompt; returns the new tokens of each, in the order of the prompts.

    prompts          lists of token ids of any lengths, or texts if the model has a tokenizer
    temperature      0 is greedy; top_k, top_p as in :func:`kvlib.sample`
    stop_tokens      ids that end a request and are not returned; the model's own unless given
    seed             an integer for every prompt, or a sequence with one per prompt. A draw depends
                     on seed and position alone (:func:`kvlib.serve.rng_at`), so equal prompts with
                     equal seeds get equal texts.
    cache            any cache built from ``model.layer_specs``; a dense one of just the right
                     size unless given. Requests are opened in it and freed again. What a
                     PagedCache holds of a prompt is not computed again, and of prompts that begin
                     alike, one is read first.
    prefill_chunk    feed at most so many tokens of each prompt per step. The tokens stay the same,
                     and the memory of a step beside the cache shrinks from O(prompt) to O(chunk)
                     (Sarathi, arXiv:2308.16369).
    drafter, gamma   a kvlib.speculation.Drafter, such as PromptLookup(), makes up to gamma guesses,
                     and one step checks them. The tokens stay the same or, if guesses are drawn
                     from a model, keep their probabilities.
    compiled         whether decode steps run as one CUDA graph, as in :class:`kvlib.Scheduler`
    progress         True: a bar; False: none; None: a bar on a terminal after two seconds

    A cache that forgets by a rule (such as Sinks or Scored), or that encodes groups of tokens or
    leaves the newest ones unencoded, does so between steps. Chunks and guesses make other steps, so
    the tokens may differ there.

    Returns lists of token ids, or texts for texts. Raises ValueError for prompts that the model
    cannot continue and a cache for other layers; CacheFull or OutOfBlocks if the cache has no room.
    If other code frees, truncates or plans one of the requests in the cache, that request ends, the
    others go on, and a ValueError at the end says what happened.

    >>> from kvlib import load_reference_model
    >>> generate(load_reference_model(), ["import o"], max_new_tokens=1)
    ['s']
    """
    if progress is not None:
        progress = check_flag("progress", progress)
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
        drafter=drafter,
        gamma=gamma,
        compiled=compiled,
    )
    with closing(tokens), _bar(progress, len(ids) * max_new_tokens) as bar:
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
    drafter: "Drafter | None" = None,
    gamma: Gamma = 4,
    compiled: "CompiledStep | bool | None" = None,
) -> Generator[tuple[int, int], None, None]:
    """Yield (index of the prompt, new token) as soon as each is known; arguments as in `generate`.

    >>> from kvlib import load_reference_model
    >>> list(stream(load_reference_model(), ["import o"], max_new_tokens=1))
    [(0, 115)]
    """
    prompts, _ = as_ids(model, prompts)
    max_new_tokens = check_integer("max_new_tokens", max_new_tokens)
    for i, prompt in enumerate(prompts):
        check_prompt(model, f"prompt {i}", prompt, max_new_tokens)
    settings = check_settings(temperature, top_k, top_p)
    seeds = seeds_of(seed, len(prompts))
    if cache is None:
        longest = max((len(p) for p in prompts), default=1)
        cache = model.new_cache(max(1, len(prompts)), longest + max_new_tokens)
    # All prompts are read at the same time, and where there is no room the caller is told.
    scheduler = Scheduler(
        model,
        cache,
        prefill_chunk=prefill_chunk,
        max_prefills=None,
        victim=None,
        drafter=drafter,
        gamma=gamma,
        stop_tokens=stop_tokens,
        compiled=compiled,
    )
    run = next(_runs)
    for i, prompt in enumerate(prompts):
        name = ("generate", run, i)
        request = Request(name, prompt, max_new_tokens, [], WAITING, *settings, seeds[i])
        scheduler.submit(request)
    return _tokens(scheduler)


def _tokens(scheduler: Scheduler) -> Generator[tuple[int, int], None, None]:
    """Step until all requests are done; whatever ends the loop, none stays open."""
    numbers = {name: i for i, name in enumerate(scheduler.requests)}
    try:
        while scheduler.busy:
            scheduler.events.clear()  # of a long run they would take more memory than its tokens
            for event in scheduler.step():
                if event.token is not None:
                    yield numbers[event.request], event.token
        raise_failed(scheduler.requests.values())
    finally:
        scheduler.close()

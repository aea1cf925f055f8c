"""The checker of the decode loop in which finished requests leave and waiting ones join."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvbook.exercises.received import token_list
from kvbook.exercises.report import Finding, checker, expect_equal
from kvlib.caches import DenseCache, Step
from kvlib.errors import CacheFull
from kvlib.model import Decoder, ModelConfig
from kvlib.model.config import RopeConfig
from kvlib.model.weights import random_weights
from kvlib.serve.generation import generate

ROWS = 3
NEW_TOKENS = (4, 11, 3, 6, 2, 7, 5)


class Pass(NamedTuple):
    """One plan as the learner made it; ``held`` is what its requests held before."""

    q_lens: tuple[int, ...]
    held: tuple[int, ...]
    open_requests: int


class WatchedCache(DenseCache):
    """A dense cache that records the plans made with it and the requests freed."""

    def __init__(self, model: Decoder, max_seqs: int) -> None:
        super().__init__(model.layer_specs, max_seqs, 64, dtype=model.dtype, xp=model.xp)
        self.passes: list[Pass] = []
        self.freed: list[int] = []

    def plan(
        self,
        seq_ids: Sequence[Hashable],
        q_lens: Sequence[int],
        tokens: Sequence[int] | None = None,
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> Step:
        step = super().plan(seq_ids, q_lens, tokens, parents)
        held = tuple(s - n for s, n in zip(step.seq_lens, step.q_lens, strict=True))
        self.passes.append(Pass(step.q_lens, held, len(self.seq_ids)))
        return step

    def free(self, seq_id: Hashable) -> None:
        length = self.seq_len(seq_id)
        super().free(seq_id)
        self.freed.append(length)


def tiny_model() -> Decoder:
    """A random Llama of two layers, quick enough to be run some hundred times."""
    config = ModelConfig(
        model_type="llama",
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        rope=RopeConfig(),
    )
    return Decoder(config, random_weights(config, seed=8, xp=np))


def task(model: Decoder) -> tuple[list[list[int]], list[list[int]]]:
    """Seven prompts of 2 to 9 tokens, and what each gives alone. Drawn at each call, because a
    hidden test draws others."""
    rng = np.random.default_rng(4)
    prompts = [rng.integers(1, 61, n).tolist() for n in (5, 3, 9, 2, 6, 4, 7)]
    alone = [
        generate(model, [p], max_new_tokens=n, stop_tokens=(), progress=False)[0]
        for p, n in zip(prompts, NEW_TOKENS, strict=True)
    ]
    return prompts, alone


def passes_needed(new_tokens: Sequence[int], rows: int) -> int:
    """Steps needed when a waiting request joins in the step after another one left."""
    waiting, passes = list(new_tokens), 0
    running: list[int] = []
    while waiting or running:
        while waiting and len(running) < rows:
            running.append(waiting.pop(0))
        running = [n - 1 for n in running if n > 1]
        passes += 1
    return passes


@checker
def check_serve(serve: Callable[..., Any]) -> Iterator[str]:
    """serve(model, cache, prompts, new_tokens) → B lists of new tokens, greedy, each request
    joining as soon as the cache has a row and leaving when it has its tokens."""
    model = tiny_model()
    prompts, alone = task(model)
    cache = WatchedCache(model, ROWS)
    try:
        result = serve(model, cache, [list(p) for p in prompts], list(NEW_TOKENS))
    except Finding as finding:
        if isinstance(finding.__cause__, CacheFull):
            raise Finding(_full(cache)) from None
        raise
    got = _lists(result)
    _expect_lengths(got)
    yield "every request got as many tokens as it asked for"

    for p in cache.passes:
        for n, held in zip(p.q_lens, p.held, strict=True):
            if n > 1 and held:
                raise Finding(
                    f"a prompt of {n} tokens was planned after {held} tokens that another request "
                    "left in the cache: free the old request and add a new one for each prompt"
                )
    for i, tokens in enumerate(got):
        if tokens == alone[i]:
            continue
        firsts = [others[0] for others in alone]
        if tokens[0] != alone[i][0] and tokens[0] in firsts:
            raise Finding(
                f"request {i} got the first token of request {firsts.index(tokens[0])}: row r of "
                "the logits belongs to step.seq_ids[r], and rows move up when a request leaves"
            )
        at = next(k for k, t in enumerate(tokens) if t != alone[i][k])
        raise Finding(
            f"request {i}, token {at}: got {tokens[at]}, but alone it is {alone[i][at]}, so "
            "something of another request has reached it"
        )
    yield "each request's tokens are those it gets alone"

    _expect_rows_given_back(cache, prompts)
    yield "every row was freed"

    _expect_few_passes(cache)
    yield f"no row stood empty while a request waited: {len(cache.passes)} steps"


def _full(cache: WatchedCache) -> str:
    if not cache.passes:
        return (
            f"the cache has {cache.max_seqs} rows, and one more request was opened before any had "
            "finished: let it wait until a row is free"
        )
    return (
        f"CacheFull after {len(cache.passes)} steps: a finished request still holds its row. "
        "Call cache.free when a request has its tokens"
    )


def _lists(result: Any) -> list[list[int]]:
    result = list(result) if isinstance(result, np.ndarray) and result.ndim else result
    if not isinstance(result, list | tuple):
        raise Finding(f"serve returned {type(result).__name__}, needed a list of B lists of tokens")
    expect_equal(len(result), len(NEW_TOKENS), "requests in the result")
    return [token_list(new, f"the tokens of request {i}") for i, new in enumerate(result)]


def _expect_lengths(got: list[list[int]]) -> None:
    lengths = [len(tokens) for tokens in got]
    if lengths != list(NEW_TOKENS) and sorted(lengths) == sorted(NEW_TOKENS):
        raise Finding(
            f"the lists have {lengths} tokens, needed {list(NEW_TOKENS)}: they seem to stand in "
            "the order in which the requests finished. List i must belong to prompt i"
        )
    for i, (tokens, n) in enumerate(zip(got, NEW_TOKENS, strict=True)):
        if len(tokens) > n:
            raise Finding(
                f"request {i} got {len(tokens)} tokens, asked for {n}: a finished request keeps "
                "generating until the others are done"
            )
        if len(tokens) < n:
            raise Finding(
                f"request {i} got {len(tokens)} tokens, asked for {n}: the step over the prompt "
                "gives the first token, and each later step gives one more"
            )


def _expect_rows_given_back(cache: WatchedCache, prompts: list[list[int]]) -> None:
    if cache.seq_ids:
        names = ", ".join(repr(s) for s in cache.seq_ids)
        raise Finding(f"still open at the end: {names}. Free a request when it has its tokens")
    needed = sum(len(p) + n - 1 for p, n in zip(prompts, NEW_TOKENS, strict=True))
    if sum(cache.freed) > needed:
        raise Finding(
            f"{sum(cache.freed)} tokens were cached, {needed} are needed: a request's last token "
            "was fed back although nothing is needed after it"
        )


def _expect_few_passes(cache: WatchedCache) -> None:
    made, needed = len(cache.passes), passes_needed(NEW_TOKENS, ROWS)
    for k, p in enumerate(cache.passes):
        if len(p.q_lens) < p.open_requests and made > needed:
            raise Finding(
                f"step {k} planned {len(p.q_lens)} of {p.open_requests} open requests, and {made} "
                f"steps were taken where {needed} are enough: a new prompt and the running "
                "requests fit into one plan"
            )
    if made > needed:
        raise Finding(
            f"{made} steps were taken, {needed} are enough: rows stood empty while requests waited "
            "for the longest of their batch. Let one join as soon as another leaves"
        )

"""Checkers of the chapter on memory: the longest context by search, and a calculator to mend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from kvbook.exercises.received import whole
from kvbook.exercises.report import Finding, checker, expect_equal

MAX_CALLS = 200  # 2^40 tokens take 40 halvings and 40 doublings


# ---------------------------------------- the longest context, by search


@checker
def check_longest(longest: Any) -> Iterator[str]:
    """longest(request_bytes, budget, limit) -> the most tokens whose bytes are within budget."""
    plain = 131_072
    for what, nbytes, budget, limit in (
        ("16 bits", lambda n: plain * n, 10 * plain + 5, 10_000),
        ("16 bits, the budget used up to the byte", lambda n: plain * n, 977 * plain, 10_000),
        ("blocks of 16", lambda n: plain * _blocks(n, 16), 1000 * plain, 10_000),
        ("int8 with scales, in blocks of 16", _int8, 3 * 2**30, 10**6),
        ("2 bits, and the newest 128 tokens in 16 bits", _residual, 2**30, 10**6),
    ):
        yield _search(longest, what, nbytes, budget, limit)
    rng = np.random.default_rng(0)
    for _ in range(4):
        a, size, budget, limit = rng.integers(1, (10**6, 100, 10**10, 10**5)).tolist()
        blocks = f"{a:,} bytes per token, in blocks of {size}"
        _search(longest, blocks, partial(_in_blocks, a, size), budget, limit)
    yield _search(longest, "room for more than the model can read", _int8, 2**50, 131_072)
    yield _search(longest, "windows in all layers", lambda n: min(n, 4096) * 8, 2**20, 2**40)
    yield _search(longest, "no room for one token", lambda n: plain * n, plain - 1, 10_000)


def _blocks(tokens: int, size: int) -> int:
    return -(-tokens // size) * size


def _in_blocks(a_token: int, size: int, tokens: int) -> int:
    return a_token * _blocks(tokens, size)


def _int8(tokens: int) -> int:
    """32 layers, 8 key/value heads of 128, 8 bits a number and 32 a vector, blocks of 16."""
    return 32 * 2 * 8 * (128 + 4) * _blocks(tokens, 16)


def _residual(tokens: int) -> int:
    """The same layers in 2 bits, 32 bits for every 32 numbers; the last 128 tokens in 16 bits."""
    recent = min(tokens, 128)
    return 32 * 2 * 8 * (recent * 256 + (tokens - recent) * 48)


def _search(longest: Any, what: str, nbytes: Callable[[int], int], budget: int, limit: int) -> str:
    asked: list[int] = []

    def request_bytes(tokens: Any) -> int:
        asked.append(tokens)
        if len(asked) > MAX_CALLS:
            raise Finding(
                f"{what}: you called request_bytes more than {MAX_CALLS} times. Going from token "
                "to token takes as many calls as there are tokens; halve what is left instead"
            )
        if tokens != int(tokens):
            raise Finding(
                f"{what}: you called request_bytes with {tokens!r} tokens, which is "
                "not a whole number"
            )
        return nbytes(int(tokens))

    got = whole(longest(request_bytes, budget, limit), what)
    if got < 0:
        raise Finding(f"{what}: got {got}, but if not even one token fits, the answer is 0")
    if got > limit:
        raise Finding(f"{what}: got {got:,}, but the model reads no more than {limit:,} (limit)")
    if got > 0 and nbytes(int(got)) > budget:
        one_over = got == 1 or nbytes(int(got) - 1) <= budget
        hint = "this is the first length that does not fit; " if one_over else ""
        hint += "blocks are rounded up, so tokens times the bytes of one is too little"
        raise Finding(
            f"{what}: {got:,} tokens take {nbytes(int(got)):,} bytes of {budget:,}: {hint}"
        )
    if got < limit and nbytes(int(got) + 1) <= budget:
        first = nbytes(1)
        hint = "search until the next length does not fit"
        if got == budget // first:
            hint = (
                "budget / request_bytes(1) charges every token what the first one costs, but later "
                "ones may cost less: the first one opens a whole block, or stays in 16 bits"
            )
        raise Finding(f"{what}: got {got:,}, but {got + 1:,} tokens also fit: {hint}")
    return f"{what}: {got:,} tokens, found with {len(asked)} call{'s' * (len(asked) != 1)}"


# ---------------------------------------- a calculator to mend

_MODELS: dict[str, dict[str, int]] = {
    "Llama-2-7B": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
    "Llama-3.1-8B": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "Qwen3-32B": {
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}
_PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-3.1-8B": 8_030_261_248,
    "Qwen3-32B": 32_762_123_264,
}
_MEMORY = 81_559 * 2**20
_BUGS = {
    "heads": "it still counts num_attention_heads, but the cache keeps num_key_value_heads",
    "dim": "it still divides hidden_size by the number of heads, but the config states head_dim",
    "batch": "it still gives the whole memory to one request, but the batch shares it",
}
_SETS = [bugs for n in range(1, len(_BUGS) + 1) for bugs in combinations(_BUGS, n)]


@checker
def check_context_that_fits(context_that_fits: Any) -> Iterator[str]:
    """context_that_fits(config, memory, weights, batch) -> tokens each request can hold."""
    for name, batch in (("Llama-2-7B", 1), ("Llama-3.1-8B", 1), ("Qwen3-32B", 1)):
        yield _fits(context_that_fits, name, batch)
    for name, batch in (("Llama-2-7B", 7), ("Qwen3-32B", 4)):
        yield _fits(context_that_fits, name, batch)
    rng = np.random.default_rng(0)
    for name in _MODELS:
        batch, more = int(rng.integers(1, 20)), int(rng.integers(0, 10**11))
        _fits(context_that_fits, name, batch, _MEMORY + more)
    config, weights = _MODELS["Qwen3-32B"], 2 * _PARAMETERS["Qwen3-32B"]
    got = context_that_fits(dict(config), weights - 2**30, weights, 1)
    if isinstance(got, int | float) and got < 0:
        raise Finding(
            f"weights larger than the memory: expected 0 tokens, because nothing fits; got {got:,}"
        )
    expect_equal(got, 0, "weights larger than the memory: tokens")
    yield "weights larger than the memory: 0 tokens"


def _fits(context_that_fits: Any, name: str, batch: int, memory: int = _MEMORY) -> str:
    config, weights = _MODELS[name], 2 * _PARAMETERS[name]
    what = f"{name}, {batch} request{'s' if batch > 1 else ''}"
    got = whole(context_that_fits(dict(config), memory, weights, batch), what)
    right = _context(config, memory - weights, batch, ())
    if got != right:
        alike = [bugs for bugs in _SETS if got == _context(config, memory - weights, batch, bugs)]
        if alike:  # of the sets of faults that give this number, the smallest says enough
            words = "; and ".join(_BUGS[bug] for bug in min(alike, key=len))
            raise Finding(f"{what}: expected {right:,} tokens, got {got:,}: {words}")
        if got == _context(config, memory, batch, ()):
            raise Finding(f"{what}: expected {right:,} tokens, got {got:,}: subtract the weights")
        if got == right + 1:
            raise Finding(
                f"{what}: got {got:,}, but the last token fits only in part, so round down"
            )
    expect_equal(got, right, f"{what}: tokens for each")
    return f"{what}: {right:,} tokens each"


def _context(config: dict[str, int], left: int, batch: int, bugs: tuple[str, ...]) -> int:
    """Tokens a request in the bytes that are left, 16 bits a number, with the named faults."""
    heads = config["num_attention_heads" if "heads" in bugs else "num_key_value_heads"]
    dim = config["head_dim"]
    if "dim" in bugs:
        dim = config["hidden_size"] // config["num_attention_heads"]
    token = 2 * config["num_hidden_layers"] * heads * dim * 2
    return max(0, left // (token * (1 if "batch" in bugs else batch)))

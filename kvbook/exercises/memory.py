"""Exercises of the chapter on memory."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from kvbook.exercises.checker import Checker, Draws, Seen, outcome
from kvbook.exercises.expect import Finding
from kvbook.exercises.received import whole

# ------------------------------------------------------------------------------------- token_bytes


def token_bytes(c: dict[str, Any], size: int) -> Any:
    """token_bytes(config, bytes_per_number) → bytes that one token adds; config is a dict."""
    layers, q_heads = c["num_hidden_layers"], c["num_attention_heads"]
    if "kv_lora_rank" in c:
        return layers * (c["kv_lora_rank"] + c["qk_rope_head_dim"]) * size
    heads, dim = c.get("num_key_value_heads"), c.get("head_dim")
    return 2 * layers * (heads or q_heads) * (dim or c["hidden_size"] // q_heads) * size


def _config(layers: int, hidden: int, heads: int, kv_heads: int = 0, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    return sizes | ({"num_key_value_heads": kv_heads} if kv_heads else {}) | more


ODD = _config(3, 120, 12, 4, head_dim=24)  # every factor differs from every other
LLAMA = _config(32, 4096, 32, 8)
QWEN = _config(28, 1024, 16, 8, head_dim=128)
DEEPSEEK = _config(61, 7168, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64)


def _sparse(token_bytes: Any) -> Iterator[Seen]:
    for what, config in (
        ("a file without head_dim", LLAMA),
        ("a file without num_key_value_heads and head_dim", _config(32, 4096, 32)),
        ("a file whose head_dim is null", _config(28, 3584, 28, 4, head_dim=None)),
    ):
        got, error = outcome(token_bytes, config, 2)
        yield f"{what}: the error", error or "none"
        yield what, got


def _configs(rng: np.random.Generator) -> Any:
    for layers, groups, heads, dim in rng.integers(2, 60, (4, 4)).tolist():
        yield _config(layers, 8 * groups * heads, groups * heads, heads, head_dim=dim), 3


check_token_bytes = Checker(
    token_bytes,
    stages={
        "every factor counts once: 2, layers, kv heads, head_dim, bytes": [(ODD, 4), (ODD, 1)],
        "files that leave something out, or say null": _sparse,
        f"{token_bytes(LLAMA, 2):,} bytes in 16 bits for Llama-3.1-8B, "
        f"{token_bytes(QWEN, 2):,} for Qwen3-0.6B": [(LLAMA, 2), (QWEN, 2)],
        f"{token_bytes(DEEPSEEK, 2):,} bytes in 16 bits for DeepSeek-V3": [(DEEPSEEK, 2)],
        "any file": Draws(_configs),
    },
    mistakes={
        "this counts query heads, not key/value heads": "(heads or q_heads) → q_heads",
        "this is hidden_size / heads, but the file states head_dim": "(dim or → (",
        "this counts hidden_size numbers per key": (
            '(heads or q_heads) * (dim or c["hidden_size"] // q_heads) → c["hidden_size"]'
        ),
        "half of the bytes are missing: this counts the keys alone, or 16 bits per number": [
            "2 * layers → layers",
            "q_heads) * size → q_heads) * 2",
        ],
        "these are one layer's bytes: every layer has its own": "2 * layers → 2",
        "these are numbers, not bytes: multiply by bytes_per_number": "q_heads) * size → q_heads)",
        "these are bits, not bytes": "q_heads) * size → q_heads) * size * 8",
        "without num_key_value_heads, every query head has its own keys and values": (
            'c.get("num_key_value_heads") → c["num_key_value_heads"]'
        ),
        "without head_dim, the size of a head is hidden_size / num_attention_heads": (
            'c.get("head_dim") → c["head_dim"]'
        ),
        "a key that says null is as good as left out": (
            'c.get("head_dim") → c.get("head_dim", c["hidden_size"] // q_heads)',
            '(dim or c["hidden_size"] // q_heads) → dim',
        ),
        "these are keys and values of every head, but with kv_lora_rank, one latent vector serves "
        "all heads": '"kv_lora_rank" in c → False',
        "the rotated part of the key is cached, too": ' + c["qk_rope_head_dim"] → ',
        "the latent vector serves as key and as value, and is cached once": [
            "return layers * → return 2 * layers *",
            'c["kv_lora_rank"] + → 2 * c["kv_lora_rank"] +',
        ],
    },
    refused={"got 2305, needed 2304": "q_heads) * size → q_heads) * size + 1"},
)


# ------------------------------------------------------------------------------------ hybrid_bytes


def hybrid_bytes(windows: list[int | None], layer_bytes: int, seq_len: int) -> int:
    """hybrid_bytes(windows, layer_bytes, seq_len) → bytes; windows: None or W, layer by layer."""
    kept = [seq_len if w is None else min(seq_len, w) for w in windows]
    return layer_bytes * sum(kept)


def _models(hybrid_bytes: Any) -> Iterator[Seen]:
    rng = np.random.default_rng(0)
    drawn = [w if w < 40 else None for w in rng.integers(1, 80, 7).tolist()]
    for what, windows, layer, seq_len in (
        ("Gemma-3-27B", [None if i % 6 == 5 else 1024 for i in range(62)], 8192, 131_072),
        ("gpt-oss-120b", [None if i % 2 else 128 for i in range(36)], 2048, 131_072),
        *((f"windows {drawn}", drawn, *rng.integers(1, 100, 2).tolist()) for _ in range(4)),
    ):
        yield f"{what} at {seq_len:,} tokens", hybrid_bytes(windows, layer, seq_len)


WINDOWS = [4, None, 4, None, 6]
check_hybrid_bytes = Checker(
    hybrid_bytes,
    stages={
        "texts shorter than a window, exactly as long, one longer, and twice as long": [
            (WINDOWS, 10, seq_len) for seq_len in (12, 8, 7, 6, 5, 4, 3, 1)
        ],
        "Gemma-3-27B and gpt-oss-120b at 131,072 tokens, and any other windows": _models,
    },
    mistakes={
        "every layer is counted in full, but a layer drops tokens that have left its window": (
            "min(seq_len, w) → seq_len"
        ),
        "one layer's window was taken for all layers: look at each layer by itself": (
            "in windows → in windows[:1] * len(windows)"
        ),
        "one token too few: W includes the query's own": "min(seq_len, w) → min(seq_len, w - 1)",
        "one token too many: W includes the query's own": "min(seq_len, w) → min(seq_len, w + 1)",
        "a text may be shorter than W": "min(seq_len, w) → w",
        "layers without a window are left out, but None means that a layer keeps everything": (
            "seq_len if w is None → 0 if w is None"
        ),
    },
    refused={
        "raised TypeError": "seq_len if w is None else → ",
        "got 340, needed 380": "in windows → in windows[1:]",
    },
)


# ----------------------------------------------------------------------------------------- longest


def longest(request_bytes: Callable[[int], int], budget: int, limit: int) -> Any:
    """longest(request_bytes, budget, limit) → the most tokens whose bytes are within budget."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if request_bytes(middle) <= budget else (low, middle)
    return low


def _in_blocks(size: int, a_token: int = 131_072) -> Callable[[int], int]:
    return lambda tokens: a_token * -(-tokens // size) * size


def _recent(tokens: int) -> int:
    """32 layers of 8 heads in 2 bits, 32 bits for 32 numbers; the last 128 tokens in 16 bits."""
    return 32 * 2 * 8 * (tokens * 48 + min(tokens, 128) * (256 - 48))


def _searched(*cases: tuple[Callable[[int], int], int, int]) -> Any:
    """How many tokens are found, for each (bytes of so many tokens, budget, limit)."""

    def probe(longest: Any) -> Iterator[Seen]:
        draws = np.random.default_rng(0).integers(1, (10**6, 100, 10**10, 10**5), (4, 4)).tolist()
        drawn = [(_in_blocks(size, a), budget, limit) for a, size, budget, limit in draws]
        for nbytes, budget, limit in cases or drawn:
            asked: list[Any] = []

            def request_bytes(tokens: Any, asked: Any = asked, nbytes: Any = nbytes) -> int:
                asked.append(tokens)
                if len(asked) > 200:  # 2^40 tokens take 40 halvings and 40 doublings
                    raise Finding("request_bytes was called 200 times. Halve what remains instead")
                if tokens != int(tokens):
                    raise Finding(f"request_bytes({tokens!r}): needed a whole number of tokens")
                return int(nbytes(int(tokens)))

            what = f"longest(request_bytes, {budget:,}, {limit:,})"
            yield what, whole(longest(request_bytes, budget, limit), what)

    return probe


A_TOKEN = 131_072
check_longest = Checker(
    longest,
    stages={
        "16 bits a number": _searched((_in_blocks(1), 10 * A_TOKEN + 5, 10_000)),
        "a budget used up to the byte": _searched((_in_blocks(1), 977 * A_TOKEN, 10_000)),
        "blocks of 16": _searched((_in_blocks(16), 1000 * A_TOKEN, 10_000)),
        "2 bits, and the newest 128 tokens in 16 bits": _searched((_recent, 2**30, 10**6)),
        "any blocks and budget": _searched(),
        "memory for more than the model can read": _searched((_in_blocks(1), 2**50, A_TOKEN)),
        "windows in all layers": _searched((lambda n: min(n, 4096) * 8, 2**20, 2**40)),
        "too little memory for one token": _searched((_in_blocks(1), A_TOKEN - 1, 10_000)),
    },
    mistakes={
        "this is the first length that does not fit": "return low → return high",
        "the first token costs more than a later one: it opens a block, or stays in 16 bits": (
            lambda request_bytes, budget, limit: min(limit, budget // request_bytes(1))
        ),
        "a length whose bytes are the budget itself fits": "<= budget → < budget",
        "the model reads no more than limit": "limit + 1 → 2**42",
        "if not even one token fits, the answer is 0": [
            "return low → return max(1, low)",
            "return low → return low or -1",
        ],
    },
    refused={
        "got 10000, needed 10": "return low → return limit",
        "Halve what remains instead": "(low + high) // 2 → low + 1",
        "(float), needed a whole number": "return low → return float(low)",
        "needed a whole number of tokens": "return low → return low + request_bytes(limit / 3)",
    },
)


# ------------------------------------------------------------------------------- context_that_fits

_MODELS = {  # and their weights in 16 bits
    "Llama-2-7B": (_config(32, 4096, 32, 32, head_dim=128), 2 * 6_738_415_616),
    "Llama-3.1-8B": (_config(32, 4096, 32, 8, head_dim=128), 2 * 8_030_261_248),
    "Qwen3-32B": (_config(64, 5120, 64, 8, head_dim=128), 2 * 32_762_123_264),
}


def context_that_fits(config: dict[str, int], memory: int, weights: int, batch: int) -> int:
    """context_that_fits(config, memory, weights, batch) → tokens each request can hold."""
    heads, dim = config["num_key_value_heads"], config["head_dim"]
    token = 2 * config["num_hidden_layers"] * heads * dim * 2
    return max(0, (memory - weights) // (token * batch))


def _fits(name: str, batch: int, memory: int = 81_559 * 2**20, drawn: bool = False) -> Any:
    def probe(context_that_fits: Any) -> Iterator[Seen]:
        more = np.random.default_rng(0).integers(0, (20, 10**11)).tolist() if drawn else (0, 0)
        n, gpu, (config, weights) = batch + more[0], memory + more[1], _MODELS[name]
        what = f"{name}, {n} request{'s' * (n > 1)}, {gpu / 2**30:.4g} GiB: tokens each"
        yield what, whole(context_that_fits(dict(config), gpu, weights, n), what)

    return probe


_BUGS = {
    "the cache holds num_key_value_heads": "num_key_value → num_attention",
    "the config states head_dim": '"head_dim" → "hidden_size"] // config["num_attention_heads"',
    "the batch shares the memory": "token * batch → token",
}
_SETS = [bugs for n in range(1, len(_BUGS) + 1) for bugs in combinations(_BUGS, n)]
check_context_that_fits = Checker(
    context_that_fits,
    stages={
        "Llama-2-7B, 1 request: the calculator was right": _fits("Llama-2-7B", 1),
        "Qwen3-32B, 4 requests: grouped heads, a head size from the config": _fits("Qwen3-32B", 4),
        "Llama-3.1-8B, any number of requests, any memory": _fits("Llama-3.1-8B", 1, drawn=True),
        "weights larger than the memory: 0 tokens": _fits("Qwen3-32B", 1, 2**35),
    },
    mistakes={
        **{"; and ".join(bugs): tuple(_BUGS[bug] for bug in bugs) for bugs in _SETS},
        "subtract the weights": "(memory - weights) → memory",
        "the last token fits only in part, so round down": "(token * batch) → (token * batch) + 1",
        "nothing fits": "max(0, → max(-memory,",
    },
    refused={
        "got 0, needed 19070": "memory - weights → memory - weights * batch",
        "(float), needed a whole number": "return max(0, → return 1.0 * max(0,",
    },
)

"""Measure memory and time of decoding past the window, where layers give back what they cannot see.

Four layers, three with a window of 512 tokens and one that looks at everything (the pattern of
many models), and those three alone, decode far past four windows. Every half window: the bytes
that the request's tokens have claimed, and the median time of a step's appends and attention.

With --stream 100000, a long text runs through caches that forget (a window; sinks; spans that are
cut out, as StreamingLLM does; H2O), beside a dense cache that keeps all of it.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import harness

WINDOW, BLOCK = 512, 16
# of the long stream: first tokens that stay, tokens per step on the way, and layers
FIRST, CHUNK, LAYERS = 4, 64, 2
MARKS = (1000, 2000, 5000, 10_000, 20_000, 50_000)  # tokens after which decode steps are timed
DECODED, TURN = 128, 16  # steps of each cache there, and how many before the next one's turn


def layers(window: int | None) -> Any:
    """Two kv heads of 64 in each of four layers; the last looks at everything."""
    from kvlib import LayerSpec

    return [LayerSpec(2, 64, window=window if i < 3 else None) for i in range(4)]


def caches(tokens: int) -> dict[str, Any]:
    """The ways to hold the same tokens."""
    import numpy as np

    from kvlib import BlockPool, DenseCache, PagedCache
    from kvlib.caches import KeepAll

    specs, blocks = layers(WINDOW), -(-tokens // BLOCK)
    local = specs[:3]
    return {
        "windows alone": PagedCache(local, BlockPool(blocks, BLOCK), xp=np),
        "blocks": PagedCache(specs, BlockPool(4 * blocks, BLOCK), xp=np),
        "rows": DenseCache(specs, 1, tokens, xp=np),
        "rows, all kept": DenseCache(specs, 1, tokens, retention=KeepAll(), xp=np),
    }


def decoded(cache: Any, tokens: int) -> list[dict[str, float]]:
    """What a request claims and what a step takes, every half window."""
    import numpy as np

    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 1, 2, 64)).astype(np.float32)
    q = rng.standard_normal((1, 8, 64)).astype(np.float32)
    cache.add("a")
    found, times = [], []
    for n in range(1, tokens + 1):
        start = time.perf_counter()
        step = cache.plan(["a"], [1])
        for layer in range(len(cache.layers)):
            cache.append(layer, k, v, step)
            cache.run(layer, q, step)
        times.append(time.perf_counter() - start)
        if n % (WINDOW // 2) == 0:
            memory = cache.memory()
            claimed = memory.payload + memory.wasted
            found.append({"tokens": n, "payload": memory.payload, "claimed": claimed})
            found[-1]["median_us"] = round(statistics.median(times) * 1e6, 1)
            times.clear()
    return found


def streams(tokens: int) -> dict[str, Any]:
    """A dense cache that keeps all of the text, and four that keep about a window of it."""
    import numpy as np

    from kvlib import BlockPool, DenseCache, PagedCache
    from kvlib.caches import H2O, KeepAll, Scored, Sinks

    pool = -(-2 * (WINDOW + CHUNK) // BLOCK) * LAYERS
    specs = [full(None)] * LAYERS
    sinks, scored = Sinks(FIRST, WINDOW, CHUNK), Scored(H2O(CHUNK), WINDOW, CHUNK)
    return {
        "all kept": DenseCache(specs, 1, tokens, retention=KeepAll(), xp=np),
        "window": DenseCache([full(WINDOW)] * LAYERS, 1, tokens, xp=np),
        "sinks": PagedCache(specs, BlockPool(pool, BLOCK), retention=sinks, xp=np),
        "cut spans": DenseCache(specs, 1, 2 * WINDOW, xp=np),
        "h2o": PagedCache(specs, BlockPool(pool, BLOCK), retention=scored, xp=np),
    }


def full(window: int | None) -> Any:
    """A layer of two kv heads of 64."""
    from kvlib import LayerSpec

    return LayerSpec(2, 64, window=window)


class Stream:
    """One cache, and the text that runs through it."""

    def __init__(self, name: str, cache: Any) -> None:
        import numpy as np

        from kvlib.model import Decoder, ModelConfig, random_weights

        config = ModelConfig("llama", 16, 64, 64, LAYERS, 8, 2, 64, 2 * WINDOW)
        self.name, self.cache = name, cache
        self.model = Decoder(config, random_weights(config))  # whose keys remove_span rotates
        rng = np.random.default_rng(0)
        self.k, self.v = rng.standard_normal((2, CHUNK, 2, 64), dtype=np.float32)
        self.q = rng.standard_normal((CHUNK, 8, 64), dtype=np.float32)
        cache.add("a")

    def feed(self, n: int, run: bool = True) -> None:
        """A step of n tokens; what it takes to make room for them is part of it."""
        from kvlib import remove_span

        if self.name == "cut spans" and self.cache.seq_len("a") + n > 2 * WINDOW:
            remove_span(self.model, self.cache, "a", FIRST, FIRST + WINDOW)
        step = self.cache.plan(["a"], [n])
        for layer in range(LAYERS):
            self.cache.append(layer, self.k[:n], self.v[:n], step)
            if run:
                self.cache.run(layer, self.q[:n], step)


def streamed(tokens: int) -> list[dict[str, Any]]:
    """Bytes, and the processor time of a decode step after so many tokens, all caches in turn.

    With one thread, processor time is the time on the clock of a machine that does nothing else. On
    a shared one, other programs cut into a long step and not into a short one.
    """
    marks = [n for n in MARKS if n < tokens] + [tokens]
    caches = streams(tokens + DECODED * len(marks))
    found, at, begun = [], 0, time.perf_counter()
    running = [Stream(name, cache) for name, cache in caches.items()]
    for mark in marks:
        while at < mark:
            n = min(CHUNK, mark - at)
            for stream in running:
                stream.feed(n, run=stream.name != "all kept")  # nothing there looks at queries
            at += n
        held = {stream.name: stream.cache.memory() for stream in running}
        times: dict[str, list[float]] = {stream.name: [] for stream in running}
        for _ in range(DECODED // TURN):
            for stream in running:
                for _ in range(TURN):
                    start = time.thread_time()
                    stream.feed(1)
                    times[stream.name].append((time.thread_time() - start) * 1e6)
        for stream in running:
            memory, own = held[stream.name], times[stream.name]
            row = {"cache": stream.name, "tokens": mark, "payload": memory.payload}
            row["claimed"] = memory.payload + memory.wasted
            row["median_us"] = round(statistics.median(own), 1)
            row["mean_us"] = round(statistics.mean(own), 1)  # making room happens once in a while
            found.append(row)
        at += DECODED
        seconds = time.perf_counter() - begun
        print(f"{mark:,} of {tokens:,} tokens, {seconds:.0f} s", file=sys.stderr)
    return found


def show_streams(rows: list[dict[str, Any]]) -> None:
    """A line for each length, a column for each cache."""
    names = list(dict.fromkeys(row["cache"] for row in rows))
    print(f"{'tokens':>8}" + "".join(f"{name:>24}" for name in names))
    for tokens in dict.fromkeys(row["tokens"] for row in rows):
        own = [row for row in rows if row["tokens"] == tokens]
        cells = (f"{row['payload']:>12,} B {row['median_us']:>6.0f} µs" for row in own)
        print(f"{tokens:>8}" + "".join(f"{cell:>24}" for cell in cells))


def main() -> None:
    parser = harness.parser(__doc__, "windows or stream")
    parser.add_argument(
        "--tokens", type=int, default=10 * WINDOW, help="tokens to decode (default: ten windows)"
    )
    parser.add_argument(
        "--stream",
        type=int,
        metavar="N",
        help="instead, stream N tokens through caches that forget and one that keeps all, and "
        f"time {DECODED} decode steps of each, in turn, at 1,000, 2,000, 5,000 ... tokens",
    )
    args = parser.parse_args()
    harness.limit_threads(1)
    if args.stream is not None:
        if args.stream < 1:
            parser.error(f"--stream must be at least 1, got {args.stream}")
        rows = streamed(args.stream)
        show_streams(rows)
        settings = {"window": WINDOW, "first_tokens": FIRST, "every": CHUNK, "layers": LAYERS}
        harness.save("stream", {**settings, "results": rows}, args.json)
        return
    found = {name: decoded(cache, args.tokens) for name, cache in caches(args.tokens).items()}
    print(f"{'tokens':>8}" + "".join(f"{name:>22}" for name in found))
    for rows in zip(*found.values(), strict=True):
        cells = (f"{row['claimed']:>12,} B {row['median_us']:>5.0f} µs" for row in rows)
        print(f"{rows[0]['tokens']:>8}" + "".join(f"{cell:>22}" for cell in cells))
    harness.save("windows", {"window": WINDOW, "block": BLOCK, "results": found}, args.json)


if __name__ == "__main__":
    main()

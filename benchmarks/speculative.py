"""Measure what guesses gain: tokens per second with speculative decoding, beside plain decoding.

A Llama of 100 M parameters with random weights gets guesses that are right with probability 0.8
(`Rehearsed`), 1 to 8 per step, in batches of 1 to 8. Beside each gain are three predictions: from
the measured time of a bare forward pass of so many rows, and two from counted bytes and operations,
which bound each other: as if memory and arithmetic took turns, and as if the faster of them were
hidden behind the slower one.
Then the shipped model writes code with the shipped draft model, a lookup and its own lower layers.

    python benchmarks/speculative.py [--threads 1] [--clock wall] [--json FILE]

One thread is the default: with several, a step of several rows waits for threads to wake, which no
count knows (README.md shows both). Schedulers take turns, a few steps each, with a rest before each
turn. On a machine that also does other work, use `--clock processor`: the processor time of one
thread is what the clock would show if it were alone.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import harness
from decode import build

ACCEPTANCE, PROMPT, NEW = 0.8, 128, 480
GAMMAS = (1, 2, 3, 4, 5, 6, 7, 8)
STEPS = {1: 80, 2: 48, 4: 32, 8: 24}  # timed steps by batch: about as many tokens each
TURN = 8
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


class Server:
    """A scheduler whose requests have read their prompts; `step` times one step of it."""

    def __init__(
        self, model: Any, prompts: Sequence[list[int]], new: int, clock: Callable[[], float],
        drafter: Any = None, gamma: Any = 0, temperature: float = 0.0,
    ) -> None:  # fmt: skip
        from kvlib import Scheduler

        cache = model.new_cache(len(prompts), max(map(len, prompts)) + new)
        settings: Any = dict(max_prefills=None, stop_tokens=())
        self.scheduler = Scheduler(model, cache, drafter=drafter, gamma=gamma, **settings)
        for i, prompt in enumerate(prompts):
            self.scheduler.add(i, prompt, new, temperature=temperature, seed=i)
        self.scheduler.step()
        self.requests = list(self.scheduler.requests.values())
        self.clock, self.times, self.begun = clock, list[float](), self.tokens
        self.steps = self.judged = self.right = 0

    @property
    def tokens(self) -> int:
        return sum(len(r.new) for r in self.requests)

    def step(self) -> None:
        start = self.clock()
        events = self.scheduler.step()
        self.times.append(self.clock() - start)
        for r in self.requests:
            own = [e for e in events if e.request == r.name]
            guesses = sum(e.tokens - 1 for e in own if e.kind == "decode")
            right = sum(e.kind == "accept" for e in own)
            self.steps += any(e.kind == "decode" for e in own)
            self.right += right
            self.judged += min(guesses, right + 1)

    def row(self) -> dict[str, Any]:
        """Tokens of a request per step, and of all per second; the share of right guesses."""
        tokens = self.tokens - self.begun
        row: dict[str, Any] = {
            **{k: round(v, 3) for k, v in harness.summary([t * 1e3 for t in self.times]).items()},
            "tokens_per_step": round(tokens / self.steps, 3),
        }
        if self.judged:
            row["accepted"] = round(self.right / self.judged, 3)
        return row


def forward_times(
    model: Any, batch: int, rows: Sequence[int], clock: Callable[[], float], calls: int = 9
) -> dict[int, float]:
    """Seconds of a bare forward pass of so many tokens per request after a prompt, medians."""
    import numpy as np

    ids, rng = list(range(batch)), np.random.default_rng(0)
    cache, vocabulary = model.new_cache(batch, PROMPT + NEW), model.config.vocab_size
    for i in ids:
        cache.add(i)
    length = PROMPT + NEW // 4  # about where the timed steps are
    fed = rng.integers(0, vocabulary, batch * length)
    model.forward(fed, cache, cache.plan(ids, [length] * batch))
    times: dict[int, list[float]] = {n: [] for n in rows}
    for _ in range(calls // 3):
        for n in rows:
            tokens = rng.integers(0, vocabulary, batch * n)
            harness.rest()
            for _ in range(3):
                start = clock()
                model.forward(tokens, cache, cache.plan(ids, [n] * batch), rows="all")
                times[n].append(clock() - start)
                for i in ids:
                    cache.truncate(i, length)
    return {n: statistics.median(values) for n, values in times.items()}


def counted_times(machine: Any, work: Any, gamma: int) -> dict[str, float]:
    """Seconds of a step with gamma guesses per request, from the counts of a decode step.

    "counts": memory and arithmetic take turns; "overlap": the roofline, the longer one of the two.
    """
    moved = work.weights + work.kv_read + (gamma + 1) * work.kv_written
    memory = (moved / machine.bandwidth).value
    arithmetic = ((gamma + 1) * work.total.flops / machine.flops).value
    return {"counts": memory + arithmetic, "overlap": max(memory, arithmetic)}


def spread(rows: Sequence[dict[str, Any]], name: str) -> float:
    """The typical factor between a prediction and that of the bare passes (log, root mean square).

    1.0 would be no difference at all.
    """
    logs = [math.log(row[name] / row["predicted"]) for row in rows]
    return round(math.exp(math.sqrt(statistics.fmean(x * x for x in logs))), 3)


def random_model(
    machine: Any, clock: Callable[[], float], batches: Sequence[int], bar: Any
) -> list[dict]:
    """Gains of the 100 M-parameter model, and what two counts predict."""
    import numpy as np

    from kvlib.costs import ModelSpec, decode
    from kvlib.speculation import Rehearsed, expected_tokens, speed_up

    model = build()
    c, rng = model.config, np.random.default_rng(0)
    spec = ModelSpec.from_config(
        dict(
            model_type="llama", vocab_size=c.vocab_size, hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size, num_hidden_layers=c.num_hidden_layers,
            num_attention_heads=c.num_attention_heads, num_key_value_heads=c.num_key_value_heads,
            head_dim=c.head_dim, max_position_embeddings=2048, tie_word_embeddings=True,
        )
    )  # fmt: skip
    prompts = rng.integers(0, c.vocab_size, (max(batches), PROMPT)).tolist()
    texts = written(model, prompts, NEW, bar)
    found = []
    for batch in batches:
        own = prompts[:batch]
        servers = {0: Server(model, own, NEW, clock)}
        for gamma in GAMMAS:
            oracle = Rehearsed(texts, ACCEPTANCE, c.vocab_size, seed=gamma)
            servers[gamma] = Server(model, own, NEW, clock, oracle, gamma)
        for done in range(0, STEPS[batch], TURN):
            for server in servers.values():
                harness.rest()
                for _ in range(min(TURN, STEPS[batch] - done)):
                    server.step()
            bar.update()
        bare = forward_times(model, batch, (1, *(g + 1 for g in GAMMAS)), clock)
        work = decode(spec, batch, PROMPT + NEW // 4, "float32", "float32")
        plain = servers[0].row()
        for gamma in GAMMAS:
            row = {"batch": batch, "gamma": gamma, **servers[gamma].row()}
            row["plain_ms"] = plain["median_ms"]
            # of equal acceptance, so that a lucky draw of the oracle is no gain
            tokens = expected_tokens(ACCEPTANCE, gamma)
            row["step_ratio"] = round(row["median_ms"] / plain["median_ms"], 3)
            row["gain"] = round(tokens / row["step_ratio"], 3)
            row["gain_as_drawn"] = round(row["tokens_per_step"] / row["step_ratio"], 3)
            ratio = bare[gamma + 1] / bare[1]
            row["forward_ratio"] = round(ratio, 3)
            row["predicted"] = round(speed_up(ACCEPTANCE, gamma, 0.0, ratio), 3)
            one = counted_times(machine, work, 0)
            for name, seconds in counted_times(machine, work, gamma).items():
                gain = speed_up(ACCEPTANCE, gamma, 0.0, seconds / one[name])
                row[f"predicted_from_{name}"] = round(gain, 3)
            found.append(row)
            bar.write(line(row))
    return found


def written(model: Any, prompts: list[list[int]], new: int, bar: Any) -> dict[int, list[int]]:
    """What the model writes after each prompt without guesses, prompts included."""
    server = Server(model, prompts, new, time.perf_counter)
    while server.scheduler.busy:
        server.step()
        if len(server.times) % 16 == 0:
            bar.update()
    return {r.name: [*r.prompt, *r.new] for r in server.requests}


def shipped_model(clock: Callable[[], float], rounds: int, bar: Any) -> list[dict]:
    """Gains of the reference model on code, by drafter; medians of whole texts."""
    from kvlib import load_draft_model, load_reference_model
    from kvlib.reference import sample_text
    from kvlib.speculation import DraftModel, PromptLookup, adaptive, lower_layers, speed_up

    model, small = load_reference_model(), load_draft_model()
    lower = lower_layers(model, 3)
    models = {"shipped, 2": (small, 2), "shipped, 4": (small, 4), "3 lower layers, 2": (lower, 2)}
    sample, new = list(sample_text().encode()), 128
    drafters: dict[str, tuple[Callable[[], Any], Any]] = {
        "plain": (lambda: None, 0),
        "shipped, 2": (lambda: DraftModel(small), 2),
        "shipped, 4": (lambda: DraftModel(small), 4),
        "shipped, adaptive": (lambda: DraftModel(small), adaptive(most=8, cost=0.3)),
        "lookup, 4": (lambda: PromptLookup(), 4),
        "lookup, adaptive": (lambda: PromptLookup(), adaptive(most=8, cost=0.01)),
        "3 lower layers, 2": (lambda: DraftModel(lower), 2),
    }
    found = []
    for batch, temperature in ((1, 0.0), (4, 0.0), (1, 1.0)):
        times: dict[str, list[float]] = {name: [] for name in drafters}
        rows: dict[str, dict] = {}
        prompts = [sample[a : a + 512] for a in range(0, 2000 * batch, 2000)]
        for _ in range(rounds):
            for name, (drafter, gamma) in drafters.items():
                server = Server(model, prompts, new, clock, drafter(), gamma, temperature)
                harness.rest()
                while server.scheduler.busy:
                    server.step()
                times[name].append(sum(server.times) / (server.tokens - server.begun))
                rows[name] = server.row()
            bar.update()
        plain = statistics.median(times["plain"])
        bare = forward_times(model, batch, (1, 3, 5), clock)
        for name in drafters:
            row = {"batch": batch, "temperature": temperature, "drafter": name}
            row |= {k: v for k, v in rows[name].items() if k in ("tokens_per_step", "accepted")}
            each = statistics.median(times[name])
            row |= {"tokens_per_second": round(1 / each, 1), "gain": round(plain / each, 3)}
            if name in models:
                guesser, gamma = models[name]
                cost = forward_times(guesser, batch, (1,), clock)[1] / bare[1]
                ratio, share = bare[gamma + 1] / bare[1], row["accepted"]
                row |= {"cost": round(cost, 3), "forward_ratio": round(ratio, 3)}
                row["predicted"] = round(speed_up(share, gamma, cost, ratio), 3)
            found.append(row)
            bar.write(str(row))
    return found


def line(row: dict[str, Any]) -> str:
    """One row for a reader."""
    return (
        f"batch {row['batch']}  gamma {row['gamma']}  step {row['median_ms']:.1f} ms "
        f"({row['plain_ms']:.1f} plain)  accepted {row['accepted']:.2f}  gain {row['gain']:.2f}, "
        f"predicted {row['predicted']:.2f} (from counts {row['predicted_from_counts']:.2f}, "
        f"with overlap {row['predicted_from_overlap']:.2f})"
    )


def main() -> None:
    parser = harness.parser(__doc__, "speculative", threads=1)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="(default: wall)")
    parser.add_argument("--batches", type=int, nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=7, help="texts of each drafter (default: 7)")
    args = parser.parse_args()
    if args.clock == "processor" and args.threads != 1:
        parser.error("--clock processor adds up the time of all threads; use it with --threads 1")
    harness.limit_threads(args.threads)
    from tqdm import tqdm

    from kvlib.machine import measure_machine

    machine = measure_machine()
    blocks = sum(-(-STEPS[b] // TURN) for b in args.batches) + NEW // 16 + 3 * args.rounds
    with tqdm(total=blocks, unit="block") as bar:
        clock = CLOCKS[args.clock]
        results = {
            "random_model": random_model(machine, clock, args.batches, bar),
            "shipped_model": shipped_model(clock, args.rounds, bar),
        }
    settings = {"threads": args.threads, "clock": args.clock, "acceptance": ACCEPTANCE}
    rates = {"bytes_per_second": machine.bandwidth.value, "flops_per_second": machine.flops.value}
    settings["measured_rates"] = rates
    names = ("predicted_from_counts", "predicted_from_overlap")
    settings["factor_from_predicted"] = {n: spread(results["random_model"], n) for n in names}
    harness.save("speculative", {**settings, **results}, args.json)


if __name__ == "__main__":
    main()

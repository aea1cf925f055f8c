"""The differential test of a cache, a codec, a retention rule or a scheduler, in one call."""

import functools
import textwrap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kvlib.arrays import default_namespace
from kvlib.caches import (
    BlockPool,
    Cache,
    DenseCache,
    LayerSpec,
    PagedCache,
    QuantizedCache,
    Retention,
    Step,
    layer_groups,
)
from kvlib.codecs import Codec, TensorCodec
from kvlib.meter import Count, Meter
from kvlib.model import Decoder, ModelConfig
from kvlib.model.weights import random_weights
from kvlib.serve.generation import generate
from kvlib.testing.memory import poison_all
from kvlib.testing.oracle import float64
from kvlib.testing.schedule import Schedule, Terms, seeded

MakeCache = Callable[[Sequence[LayerSpec]], Cache]
WIDTH = 72
NEWEST = 8  # actions of a failed schedule that are shown


@dataclass(frozen=True, repr=False)
class Trial:
    """What a check found: true when nothing failed. `replay` plays the first failure again.

    finding        what was wrong; log: what was done until then
    seed, actions  of the schedule that failed
    compared       how many results were compared
    skipped        what no schedule covered, and what the cache refused to do, in words
    moved          of a retention rule, bytes moved for each byte that was appended
    """

    name: str
    schedules: int
    compared: int
    finding: str = ""
    seed: int | None = None
    actions: int = 0
    log: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    moved: float | None = None

    @property
    def passed(self) -> bool:
        return not self.finding

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.passed:
            counts = f"{self.schedules} schedules, {self.compared:,} results compared"
            lines = [f"{self.name}: passed", f"  {counts}"]
            if self.moved is not None:
                lines.append(f"  {self.moved:.2f} bytes moved for each byte appended")
            for i, words in enumerate(self.skipped):
                lines += _wrapped("not covered: " if i == 0 else " " * 13, words)
        elif self.seed is None:
            lines = [f"{self.name}: failed", *_wrapped("wrong: ", self.finding)]
        else:
            earlier = max(0, len(self.log) - NEWEST)
            log = [f"({earlier} actions before)"] * bool(earlier) + [*self.log[earlier:]]
            lines = [
                f"{self.name}: failed in schedule {self.schedules}",
                *_wrapped("wrong: ", self.finding),
                *_wrapped("after: ", "; ".join(log) or "nothing"),
                f"  again: seed={self.seed}, actions={self.actions}",
            ]
        return "\n".join(lines)


def _wrapped(label: str, text: str) -> list[str]:
    """Wrap a text after a label."""
    indent = " " * (len(label) + 2)
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label}", subsequent_indent=indent, max_lines=12
    )


def check_cache(
    make_cache: MakeCache,
    *,
    schedules: int = 40,
    actions: int = 30,
    seed: int = 0,
    xp: Any = None,
    **terms: Any,
) -> Trial:
    """Play random lives of a cache and compare every result with attention in float64.

    make_cache(layers) returns an empty cache with room for 4 requests of 40 tokens, on the array
    library `xp`, by default the one that caches take. A life is a row of random actions: add, step
    (plan, append, run with ragged lengths), truncate, fork, free, steps that fail, plans that must
    be refused, and trees of guesses. After each one the whole cache is read. Memory that was never
    written holds NaN, and in kvlib's own kinds of caches so does freed memory.

    schedules of `actions` actions each (40 take up to three seconds in NumPy); terms: see `Terms`.
    Keys have 8, 16 or 24 numbers per head, values up to 40; choose others with ``lengths=[64]``.

    Stops at the first failure. TypeError or ValueError for arguments that make no sense.
    """
    if not callable(make_cache):
        raise TypeError(f"make_cache: got {type(make_cache).__name__}, needed layers → cache")
    for name, value in (("schedules", schedules), ("actions", actions)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    asked, compared, name, skipped = Terms(**terms), 0, "cache", dict[str, None]()
    for number in range(1, schedules + 1):
        life, failure, life_seed = None, None, seed + number - 1
        try:
            life = _life(make_cache, life_seed, xp, asked)
            with np.errstate(all="ignore"):  # NaN that is read shows in the results
                life.play(actions)
        except Exception as error:  # whatever a first cache raises becomes words
            failure = error
        if life is not None:
            name, compared = type(life.cache).__name__, compared + life.compared
            skipped |= life.skipped
        if failure is not None:
            words, log = in_words(failure), () if life is None else tuple(life.log)
            if life is None and not isinstance(failure, TypeError):
                lengths = ", ".join(map(str, sorted({n for kind in asked.dims for n in kind})))
                words += (
                    f". The kit builds caches for keys and values of {lengths} numbers; "
                    "lengths=[64] asks for 64 alone"
                )
            return Trial(name, number, compared, words, life_seed, actions, log)
    return Trial(name, schedules, compared, skipped=tuple(skipped))


def replay(
    make_cache: MakeCache, seed: int, actions: int = 30, *, xp: Any = None, **terms: Any
) -> Schedule:
    """Play one schedule again and raise its error, with the traceback; returns the schedule, with
    its `cache`, `held` and `log`, if nothing fails."""
    life = _life(make_cache, seed, xp, Terms(**terms))
    life.play(actions)
    return life


def _life(make_cache: MakeCache, seed: int, xp: Any, terms: Terms) -> Schedule:
    def make(layers: Sequence[LayerSpec]) -> Cache:
        cache = make_cache(layers)
        if not isinstance(cache, Cache):
            raise TypeError(f"make_cache gave {type(cache).__name__}, needed a kvlib.Cache")
        poison_all(cache)
        return cache

    return Schedule(make, seeded(seed), xp=default_namespace() if xp is None else xp, terms=terms)


# What a first cache gets wrong: a part of the error, and what to do.
HINTS = {
    "'NoneType' object": "Was v None? A layer with v_from_k appends v=None, because its values "
    "are the first v_dim numbers of its keys. Store those, or check with v_from_k=False",
    "has not appended its keys": "Append must end by saying that the layer's keys are "
    "there: step.ticket.appended.add(layer)",
    "does not name its arrays": "Write storage(), which yields every array that the cache holds",
    "does not measure its memory": "Write memory(), which returns a kvlib.caches.Memory measured "
    "from the arrays",
    "unpack (expected 3, got 2)": "Read(layer, seq_id) returns three: (k, v, positions)",
    "cannot be read": "Write _read(layer, seq_id), which returns (k, v, positions)",
    "cannot append": "Write append(layer, k, v, step)",
}


def in_words(error: Exception) -> str:
    """Name an error and what may have caused it; of a check that failed, its words alone."""
    text = str(error).split("\nafter: ")[0]
    if isinstance(error, AssertionError):
        return text
    hints = [hint for part, hint in HINTS.items() if part in text]
    return ". ".join([f"{type(error).__name__}: {text}", *hints])


def check_codec(codec: Codec, *, schedules: int = 20, xp: Any = None, **asked: Any) -> Trial:
    """Run `check_cache` on caches that write with this codec, in rows and in blocks.

    The codec alone is tried first: `scores` and `weigh` must agree with `decode`, and a token must
    become the same numbers, to the last bit, however many others are encoded or decoded with it.
    Zeros, a constant and a single large number must come back finite, and no farther off than the
    largest of them.

    asked: what `check_cache` takes, for example ``lengths=[64]`` for a codec of that length alone.
    """
    if not isinstance(codec, Codec):
        raise TypeError(f"codec: got {type(codec).__name__}, needed a kvlib.codecs.Codec")
    size = -(-8 // codec.group) * codec.group  # whole groups of tokens
    room = -(-40 // size) * size

    def rows(layers: Sequence[LayerSpec]) -> Cache:
        return QuantizedCache(layers, codec, 4, room, xp=xp)

    def blocks(layers: Sequence[LayerSpec]) -> Cache:
        pool = BlockPool(4 * room // size * len(layer_groups(layers)), size)
        return PagedCache(layers, pool, codec=codec, xp=xp)

    keys, values = Terms(lengths=asked.get("lengths")).dims
    parts = [(codec.keys, dim) for dim in keys]
    parts += [(codec.values, dim) for dim in (*keys, *values)]
    failure = ""
    try:
        for part, dim in parts:
            _check_part(part, dim, default_namespace() if xp is None else xp)
    except AssertionError as error:
        return Trial(codec.name, 0, 0, str(error))
    except Exception as error:  # where a cache refuses the codec, it says more
        failure = in_words(error)
    asked |= dict(schedules=schedules, xp=xp, max_seq_len=room)
    homes = {make.__name__: partial(check_cache, make, **asked) for make in (rows, blocks)}
    trial = _all_of(codec.name, homes)
    return Trial(codec.name, 0, 0, failure) if trial and failure else trial


def _check_part(part: TensorCodec, dim: int, xp: Any) -> None:
    """Check the codec of keys or of values on vectors of that length; AssertionError says more."""
    try:
        part.check(dim)
    except ValueError:  # a cache says so in its own words
        return
    rng, n, kind = np.random.default_rng(0), 40 * part.group, type(part).__name__

    def draw(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal((2, *shape)).astype(np.float32))

    def decode(parts: Any) -> np.ndarray:
        return float64(part.decode(parts, xp.float32))

    x, rows, p = draw(n, dim), draw(3, dim), draw(3, n)
    with np.errstate(all="ignore"):
        zeros = np.zeros((2, 4 * part.group, dim), np.float32)
        constant, single = zeros + np.float32(7.5), zeros.copy()
        single[0, 0, 1] = -1e4
        for what, special in ("zeros", zeros), ("7.5", constant), ("zeros and one -1e4", single):
            off = np.abs(decode(part.encode(xp.asarray(special))) - special).max()
            assert off <= np.abs(special).max(), (
                f"{kind} encodes vectors of {what}, and what it decodes is off by {off:.2g}, "
                "more than the largest of the numbers"
            )
        parts = part.encode(x)
        decoded = decode(parts)
        for name, product, needed in (
            ("scores", part.scores(rows, parts), float64(rows) @ decoded.swapaxes(1, 2)),
            ("weigh", part.weigh(p, parts, dim), float64(p) @ decoded),
        ):
            off = np.abs(float64(product) - needed).max()
            assert off <= 1e-3 * np.abs(needed).max(), (
                f"{name} of {kind} does not agree with its decode: the products differ by "
                f"{off:.2g}. If {kind} inherits {name} from another codec but has its own "
                f"decode, write {name} = TensorCodec.{name} in {kind}: that version calls "
                "decode"
            )
        for fewer in (count * part.group for count in (1, 2, 3, 4, 7, 14, 33)):
            off = np.abs(decode(part.encode(x[:, :fewer, :])) - decoded[:, :fewer]).max()
            product_rounds = off <= 1e-5 * np.abs(decoded).max()
            assert off == 0, (
                f"{kind} gives a token other numbers in a batch of {fewer} than in a batch of "
                f"{n}. A codec must give a token the same numbers, to the last bit, however many "
                "others it encodes or decodes with it"
            ) + (
                ". A matrix product breaks this rule, because it rounds differently for different "
                "numbers of rows"
            ) * bool(product_rounds)


@dataclass(frozen=True)
class OneIn(Retention):
    """Keep one token in `n`: everything with 1, and nothing with 0."""

    n: int

    def kept(self, positions: np.ndarray, length: int) -> np.ndarray:
        return positions % self.n == 0 if self.n else positions < 0


EXTREMES = (OneIn(0), OneIn(1), OneIn(16))


def check_retention(
    rule: Retention | None = None,
    make_cache: Callable[[Sequence[LayerSpec], Retention], Cache] | None = None,
    *,
    schedules: int = 12,
    xp: Any = None,
    keeps: Callable[[int], Sequence[int]] | None = None,
    **asked: Any,
) -> Trial:
    """Run `check_cache` on caches under this rule: in rows, in blocks, and with codes in blocks.

    rule: yours; without one, rules that keep nothing, everything, and one token in 16.
    make_cache(layers, rule): your cache, if it takes rules; kvlib's caches unless given.
    keeps: the positions that are cached at a length. Unless given, those that `kept` has left in
    at every length so far, or of a `Scored` the newest. asked: what `check_cache` takes.

    Of kvlib's caches the trial also says how many bytes were moved for each byte that was appended,
    at worst over 256 single tokens: at most one if the rule leaves `every` out.
    """
    if rule is not None and not isinstance(rule, Retention):
        raise TypeError(f"rule: got {type(rule).__name__}, needed a kvlib.caches.Retention")
    asked |= {"schedules": schedules, "xp": xp, "keeps": keeps}
    if rule is None:
        rules = {repr(r): partial(check_retention, r, make_cache, **asked) for r in EXTREMES}
        return _all_of("retention", rules)
    asked["keeps"] = keeps or must_hold(rule)
    if make_cache is not None:
        return check_cache(lambda layers: make_cache(layers, rule), **asked)

    homes = _homes(rule, 40, xp)
    trial = _all_of(repr(rule), {x: partial(check_cache, homes[x], **asked) for x in homes})
    if not trial:
        return trial
    spec = LayerSpec(1, Terms(lengths=asked.get("lengths")).dims[0][0])
    moved = max(_moved(make([spec])) for make in _homes(rule, 256, xp).values())
    return replace(trial, moved=moved)


def _homes(rule: Retention, room: int, xp: Any) -> dict[str, MakeCache]:
    """Return makers of caches under a rule, with room for 4 requests."""

    def rows(layers: Sequence[LayerSpec]) -> Cache:
        return DenseCache(layers, 4, room, retention=rule, xp=xp)

    def blocks(layers: Sequence[LayerSpec], codec: str = "plain") -> Cache:
        return PagedCache(layers, BlockPool(4 * room, 4), codec=codec, retention=rule, xp=xp)

    return {"rows": rows, "blocks": blocks, "codes in blocks": partial(blocks, codec="int8")}


def _all_of(name: str, checks: Mapping[str, Callable[[], Trial]]) -> Trial:
    """Return the sum of several trials, or the first that failed, with its number in the name."""
    trials = []
    for where, check in checks.items():
        trials.append(check())
        if not trials[-1]:
            return replace(trials[-1], name=f"{name}, {where}")
    skipped = dict.fromkeys(words for trial in trials for words in trial.skipped)
    counts = sum(t.schedules for t in trials), sum(t.compared for t in trials)
    moved = [trial.moved for trial in trials if trial.moved is not None]
    return Trial(name, *counts, skipped=tuple(skipped), moved=max(moved, default=None))


def must_hold(rule: Any) -> Callable[[int], Sequence[int]]:
    """Return a function from a length to the positions that must be cached then."""
    if rule.per_layer:  # a Scored, of whose choice only this is known
        return lambda length: range(max(0, length - rule.policy.recent), length)

    def staying(held: np.ndarray, length: int) -> np.ndarray:
        stays = np.asarray(rule.kept(held, length) if length else held)
        return held[stays] if stays.dtype == bool and stays.shape == held.shape else held

    @functools.cache
    def held(length: int) -> np.ndarray:
        if not length:
            return np.arange(0)
        return np.append(staying(held(length - 1), length - 1), length - 1)

    return lambda length: staying(held(length), length).tolist()  # type: ignore[no-any-return]


def _moved(cache: Cache) -> float:
    """Return the bytes moved for each byte appended, of a request that grows token by token."""
    cache.add("a")
    x = cache.xp.zeros((1, 1, cache.layers[0].head_dim), dtype=cache.dtype)
    with Meter() as meter:
        for _ in range(256):
            step = cache.plan(["a"], [1])
            cache.append(0, x, x, step)
            cache.run(0, x, step)
    return meter.by_label.get("move", Count()).copied / meter.by_label["append"].written


LONGEST = 24  # tokens of a request, prompt and answer
STEPS = 400  # after which a scheduler counts as stuck
MakeScheduler = Callable[[Decoder, Cache], Any]


def check_scheduler(
    make_scheduler: MakeScheduler,
    *,
    schedules: int = 20,
    seed: int = 0,
    budget: int | None = None,
) -> Trial:
    """Serve random requests at random times, on caches with room for all of them and for few.

    make_scheduler(model, cache) returns a scheduler without requests, with `add(name, prompt,
    max_new_tokens)`, `step()`, `busy`, and `requests` by name, each with its `new` tokens, as
    `kvlib.serve.Scheduler` has them. Every request must end, with the greedy tokens it gets alone;
    the cache must be empty then; and no step may take more than `budget` tokens.
    """
    compared, name = 0, "scheduler"
    for number in range(1, schedules + 1):
        log: list[str] = []
        try:
            name, results = _serve(make_scheduler, seed + number - 1, budget, log)
        except Exception as error:  # whatever it raises becomes words
            words, run_seed = in_words(error), seed + number - 1
            return Trial(name, number, compared, words, run_seed, len(log), tuple(log))
        compared += results
    return Trial(name, schedules, compared)


def _serve(
    make_scheduler: MakeScheduler, seed: int, budget: int | None, log: list[str]
) -> tuple[str, int]:
    """Play one run; return the scheduler's name and how many answers were compared."""
    choose, model = seeded(seed), _model()
    cache = _watched(model, choose(0, 2), budget)
    server = make_scheduler(model, cache)
    wanted: dict[str, tuple[list[int], int]] = {}
    coming = choose(1, 7)
    for _ in range(STEPS):
        if coming and (not server.busy or choose(0, 2) == 0):
            prompt = [choose(1, 60) for _ in range(choose(1, LONGEST - 4))]
            name, new = f"r{len(wanted)}", choose(1, LONGEST - len(prompt))
            log.append(f"add {name}: prompt of {len(prompt)}, {new} new")
            server.add(name, list(prompt), new)
            wanted[name], coming = (prompt, new), coming - 1
        elif server.busy:
            server.step()
            log.append("step")
        else:
            break
    assert not server.busy and not coming, f"after {STEPS} steps a request is still not done"
    assert cache.seq_ids == (), f"all requests are done, but the cache still holds {cache.seq_ids}"
    for name, (prompt, new) in wanted.items():
        got = list(server.requests[name].new)
        alone = generate(model, [prompt], max_new_tokens=new, stop_tokens=(), progress=False)[0]
        assert got == alone, f"{name} got the tokens {got}, but alone it gets {alone}"
    return type(server).__name__, len(wanted)


def _watched(model: Decoder, kind: int, budget: int | None) -> Any:
    """Return a dense cache with room, one with two rows, or a pool for about two requests."""
    specs = model.layer_specs
    cache: Any
    if kind == 2:
        cache = PagedCache(specs, BlockPool(2 * LONGEST // 4, 4), xp=np)
    else:
        cache = DenseCache(specs, (8, 2)[kind], LONGEST, xp=np)
    plan = cache.plan

    def watched(
        seq_ids: Sequence[Hashable], q_lens: Sequence[int], tokens: Sequence[int] | None = None
    ) -> Step:
        fed = sum(q_lens)
        assert budget is None or fed <= budget, (
            f"a step takes {fed} tokens, more than the budget of {budget}"
        )
        return plan(seq_ids, q_lens, tokens)  # type: ignore[no-any-return]

    cache.plan = watched
    return cache


@functools.cache
def _model() -> Decoder:
    """Return a random Llama of two layers."""
    sizes: dict[str, Any] = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    sizes |= dict(vocab_size=61, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    config = ModelConfig(model_type="llama", max_position_embeddings=64, **sizes)
    return Decoder(config, random_weights(config, seed=8, xp=np))

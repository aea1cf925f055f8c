"""A decode step as one CUDA graph: launches that are made once, over arrays that never move.

    compiled = compile_step(model, cache)
    logits = compiled.forward(tokens, cache, cache.plan(names, [1] * len(names)))
    tokens = compiled.greedy(logits)

A step of a model has hundreds of launches, and from Python each takes longer to start than to run.
A graph starts all of them in one call. It can, because nothing that the host knows is an argument
of a launch: tokens, positions, lengths and block tables are arrays on the device
(`kvlib.kernels.mirror`), which the step itself brings up to date for the next one.

There is a graph for each padded batch (1, 2, 4 ... rows), and for each number of splits that decode
attention has as the texts grow. Rows without a request have length 0.

Codecs such as KIVI let a request's newest tokens wait. The graph appends to these, and attends to
them and to codes; the host encodes a group before the step that makes it due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kvlib.arguments import check_integer, type_of
from kvlib.arrays import Array, to_numpy
from kvlib.caches import Cache, Step
from kvlib.caches.stored import StoredCache
from kvlib.kernels import decode, engine, product, token
from kvlib.kernels.caches import Kernels, stored_arrays, unsuited
from kvlib.kernels.checks import Settings, check_settings
from kvlib.kernels.codes import Piece
from kvlib.kernels.launch import SHARED, Launch, _function, device_of, run
from kvlib.kernels.mirror import HISTORY, State, Waiting
from kvlib.kernels.twins import attention as attention_twin
from kvlib.kernels.twins import product as product_twin
from kvlib.kernels.twins import token as token_twin
from kvlib.kernels.types import CTYPES
from kvlib.model.decoder import Decoder
from kvlib.model.rope import tables as rope_tables
from kvlib.serve.distribution import check_finite, greedy

MOST_ROWS = 16


def compile_step(
    model: Decoder, cache: Cache, *, max_batch: int = MOST_ROWS, run_on: str | None = None
) -> CompiledStep:
    """Prepare decode steps of a model with a cache, of up to `max_batch` (at most 16) requests.

    run_on: "device", "processor" or "twin"; what `use_kernels` was given, or the arrays, decide by
    default. A device captures a graph when a batch of that size, or texts that need more splits,
    first run.

    >>> import kvlib
    >>> model = kvlib.load_reference_model()
    >>> cache = model.new_cache(max_seqs=1, max_seq_len=32)
    >>> compiled = compile_step(model, cache)
    >>> compiled.explain()  # nothing is in the way
    []
    >>> by_graph = kvlib.generate(model, ["def "], cache=cache, max_new_tokens=8, compiled=compiled)
    >>> by_graph == kvlib.generate(model, ["def "], max_new_tokens=8)
    True
    """
    return CompiledStep(model, cache, check_integer("max_batch", max_batch, 1, MOST_ROWS), run_on)


class CompiledStep:
    """The decode steps of a model and a cache as `compile_step` prepares them.

    Other steps, and models and caches that `explain` finds unfit, run as ``model.forward`` does.
    uploads: how many times numbers have been sent to the device
    """

    def __init__(self, model: Decoder, cache: Cache, max_batch: int, run_on: str | None) -> None:
        self.model, self.max_batch = model, max_batch
        self.cache: Any = cache
        if run_on is None and isinstance(cache.attention, Kernels):
            run_on = cache.attention.run_on
        self.run_on = engine.engine_of(run_on, model.weights["embed.weight"])
        self._reasons = [*_unfit_model(model), *_unfit_cache(cache)]
        if not self._reasons:
            self._reasons = [*_unfit_arrays(model, cache)]
        self._batches: dict[int, _Batch] = {}
        self._last: _Last | None = None
        self._next: _Batch | None = None  # whose next step is under way
        self.uploads = 0
        self._waiting: Waiting | None = None  # of tokens that wait to be encoded
        if not self._reasons:
            self._angles = _angles(model, cache)
            if self.cache.codec.waits:
                rows = min(max_batch, getattr(cache, "max_seqs", max_batch))
                self._waiting = Waiting(cache, rows)

    def explain(self, step: Step | None = None) -> list[str]:
        """Why this model and cache, or one of their steps, can't be compiled; [] if they can."""
        reason = None if step is None else self._unfit_step(step)
        return [*self._reasons, *([] if reason is None else [reason])]

    def _unfit_step(self, step: Step) -> str | None:
        if step.owner is not self.cache:
            return "the step was planned by another cache"
        if step.parents is not None or step.num_tokens != len(step.seq_ids):
            return f"a step of one new token per request is needed, got q_lens {list(step.q_lens)}"
        if len(step.seq_ids) > self.max_batch:
            return f"the step has {len(step.seq_ids)} requests, at most {self.max_batch} fit"
        ticket = step.ticket
        if not (step.appends and ticket.live and ticket.gap is None and not ticket.appended):
            return "a step that nothing has been appended in is needed"
        cache = self.cache
        if any(cache.pages(step, g.layers[0]) is None for g in cache.groups):
            return "a request has a private row: its last prompt was longer than its row"
        if any(x.residuals and x.num_paged >= n for x, n in zip(step.states, step.seq_lens)):
            return "a new token is encoded at once, with those that have waited for it"
        return None

    def forward(
        self,
        tokens: Sequence[int] | Array | None,
        cache: Cache,
        step: Step,
        rows: str | Sequence[int] = "last",
    ) -> Array:
        """The logits (B, V) of ``model.forward``, in an array that the next step overwrites.

        tokens: None for those that the step before has found likeliest, which must have been of the
        same requests. The device then needs nothing from the host, which may plan steps ahead.

        Raises what ``model.forward`` raises.
        """
        fits = not self._reasons and cache is self.cache and isinstance(rows, str)
        fits = fits and rows in ("last", "all")
        if not fits or self._unfit_step(step) is not None:
            self._drop_next()
            self._last = None
            return self.model.forward(tokens, cache, step, rows)  # type: ignore[arg-type]
        requests = [self.cache._sequences[name] for name in step.seq_ids]
        stamps = [(request, request.length, request.plans) for request in requests]
        follows = self._last is not None and self._last.next_stamps() == stamps
        if tokens is None and not follows:
            raise ValueError("tokens may be None after a step of the same requests")
        ids = self.model.check([0] * len(stamps) if tokens is None else tokens, step)
        ids = None if tokens is None else to_numpy(ids)
        last, self._last, batch = self._last, None, self._batch(len(step.seq_ids))
        runs = 1 + last.runs if last is not None and follows else 1
        if batch.state.doubtful:
            batch.state.forget()
            self._next, runs = None if self._next is batch else self._next, 1
        try:
            if self._waiting is not None:
                self._waiting.take(step)
            if self._next is not batch or not follows or batch.state.missing(ids, step):
                runs = runs if self._next is None else 1
                self._drop_next()
                self.uploads += batch.state.update(ids, step)
                batch.state.doubtful = True  # until what the host knows is what the device has
                batch.run(max(step.seq_lens))
            self._next = None
            batch.state.advance()
            batch.state.doubtful = False
            cache.mark_appended(step)
        except BaseException:
            if self._waiting is not None:
                self._waiting.undo(step)
            raise
        self._last = _Last(step, stamps, runs, batch, batch.logits[: len(step.seq_ids)])
        return self._last.logits

    def _batch(self, requests: int) -> _Batch:
        rows = 1 << (requests - 1).bit_length()
        if rows not in self._batches:
            self._batches[rows] = _Batch(self, rows)
        return self._batches[rows]

    def launches(self, requests: int, longest: int) -> list[Launch]:
        """The launches of a step of so many requests, over texts of up to `longest` tokens."""
        return self._batch(requests).launches(longest)

    def start_next(self) -> bool:
        """Start the step after the last one, with the tokens that it will choose; whether it could.

        The device then works while the host reads these tokens and plans. If the next `forward` is
        of the same requests and tokens, its step is under way; if not, this one was in vain. Of the
        last step's logits only `greedy` is known afterwards.
        """
        last = self._last
        if last is None or self._next is not None or self.cache.forgets:
            return False
        if not (last.step.ticket.live and last.batch.has_room()):
            return False
        last.batch.state.doubtful = True
        last.batch.run(max(last.step.seq_lens) + 1)
        self._next = last.batch
        last.batch.state.doubtful = False
        return True

    def _drop_next(self) -> None:
        """Count a step that was started in vain: what it stored is beyond the ends of its texts."""
        if self._next is not None:
            self._next.state.advance()
        self._next = None

    def greedy(self, logits: Array) -> list[int]:
        """The likeliest token of each row, as the function `kvlib.serve.distribution.greedy`.

        Those of the last step's logits come from the device with no call of its driver.
        """
        if self._last is None or self._last.logits is not logits:
            return greedy(logits)
        ids, unfit = self._last.batch.state.read()
        check_finite(np.array([token.UNFIT[i] for i in unfit[: len(logits)]], np.float32))
        return ids[: len(logits)]

    def history(self, count: int) -> np.ndarray:
        """The likeliest tokens (B, count) of the last `count` steps of the same requests."""
        if self._last is None:
            raise ValueError("no step has run, or the last one failed")
        count = check_integer("count", count, 1, min(HISTORY, self._last.runs))
        return self._last.batch.state.history(count)[: len(self._last.logits)]


class _Last(NamedTuple):
    """The last step, how it left its requests, the arrays of its batch, and its logits.

    runs: steps of the same requests that have run in a row, this one included
    """

    step: Step
    stamps: list[Any]
    runs: int
    batch: _Batch
    logits: Array

    def next_stamps(self) -> list[Any]:
        """What the stamps will be if one more token of each request is all that is planned."""
        return [(request, length + 1, plans + 1) for request, length, plans in self.stamps]


class _Batch:
    """The arrays of steps of up to `rows` requests, and what runs such a step."""

    def __init__(self, owner: CompiledStep, rows: int) -> None:
        model, self.cache, self.rows = owner.model, owner.cache, rows
        self.model, self.run_on, self.angles = model, owner.run_on, owner._angles
        c, heads = model.config, model.config.num_attention_heads
        inner = model._blocks[0].feed_forward.w["down.weight"].shape[1]
        self.x, self.h = self._floats(c.hidden_size), self._floats(inner)
        self.qkv = self._floats((heads + 2 * c.num_key_value_heads) * c.head_dim)
        self.q, self.o = (self._floats(heads, c.head_dim) for _ in "qo")
        self.lse, self.logits = self._floats(heads), self._floats(c.vocab_size)
        widths = [_width(model, self.cache, group.layers[0]) for group in self.cache.groups]
        self.waiting = owner._waiting
        self.state = State(self.cache, rows, widths, self.waiting)
        self._by_bucket: dict[int, Callable[[], Any]] = {}
        self._by_splits: dict[tuple[int, ...], Callable[[], Any]] = {}

    def _floats(self, *shape: int) -> Array:
        return self.model.xp.zeros((self.rows, *shape), dtype=self.model.xp.float32)

    def run(self, longest: int) -> None:
        """Start a step over texts of up to so many tokens; `advance` the state afterwards."""
        most = _bucket(longest)
        if most not in self._by_bucket:
            self._by_bucket[most] = self._prepared(most)
        self._by_bucket[most]()

    def has_room(self) -> bool:
        """Whether one more token of each request has a position and a slot."""
        return self.state.has_room(self.model.config.max_position_embeddings)

    def _prepared(self, most: int) -> Callable[[], Any]:
        """What runs a step over texts of up to `most` tokens: a graph on a device."""
        pieces = self._pieces(most)
        splits = tuple(piece.plan.splits[0] for of_layer in pieces for piece in of_layer)
        if splits not in self._by_splits:
            parts = [*self._parts(pieces)]
            launches = [launch for part in parts for launch in part.launches]
            if self.run_on == "device":
                self._by_splits[splits] = captured(launches)
            elif self.run_on == "processor":
                self._by_splits[splits] = partial(engine.start, "processor", *launches)
            else:
                self._by_splits[splits] = lambda: [part.twin() for part in parts]
        return self._by_splits[splits]

    def launches(self, longest: int) -> list[Launch]:
        """New launches of a step over texts of up to so many tokens."""
        parts = self._parts(self._pieces(_bucket(longest)))
        return [launch for part in parts for launch in part.launches]

    def _pieces(self, most: int) -> list[list[Piece]]:
        """The keys of each layer, with as many splits for each request; last, those that wait."""
        pieces, state, waiting = [], self.state, self.waiting
        newest, slots = state.lens.array[0], state.slots.array.reshape(-1, 1)
        for layer, g in enumerate(self.cache.group_of):
            k, v = stored_arrays(self.cache, layer)
            arrays = self.q, k, v, state.paged.array[g], state.tables[g].array
            settings: Any = {"settings": self._settings(layer), "run_on": self.run_on}
            behind = None if waiting is None else newest
            of_layer = [decode.piece_of(*arrays, max_len=most, behind=behind, **settings)]
            if waiting is not None:
                arrays, room = (self.q, *waiting.layers[layer], newest, slots), waiting.room
                of_layer.append(decode.piece_of(*arrays, max_len=min(most, room), **settings))
            pieces.append(of_layer)
        return pieces

    def _settings(self, layer: int) -> Settings:
        spec = self.cache.layers[layer]
        return check_settings(spec.head_dim, spec.sm_scale, spec.softcap, spec.window)

    def _parts(self, pieces: Sequence[list[Piece]]) -> Iterator[_Part]:
        """The launches of a step, in order."""
        model, state, rows = self.model, self.state, self.rows
        embedding, final = model._embedding, model._norm
        ids, positions, steps = (x.array[0] for x in (state.ids, state.positions, state.steps))
        yield _small(token.embed_launch(self.x, embedding.table, ids))
        as_float32 = partial(model.xp.asarray, dtype=model.xp.float32)
        room: dict[int, Any] = {}  # for partial results, by splits; layers take turns
        for layer, (block, of_layer) in enumerate(zip(model._blocks, pieces, strict=True)):
            mixer: Any = block.mixer
            piece = of_layer[-1]
            mlp, settings = block.feed_forward, self._settings(layer)
            first, second, (cos, sin) = block.attn_norm, block.mlp_norm, self.angles[layer]
            yield self._product(self.qkv, self.x, mixer.w, "qkv", norm=first.weight, eps=first.eps)
            norms = [n and as_float32(n.weight) for n in (mixer.q_norm, mixer.k_norm)]
            yield _small(
                token.append_launch(
                    self.q, piece.stored, self.qkv, cos, sin, positions, piece.seq_lens,
                    piece.table, q_norm=norms[0], k_norm=norms[1], eps=first.eps,
                )
            )  # fmt: skip
            yield _Part(
                decode.launches_of(self.o, self.lse, self.q, of_layer, settings, room, early=True),
                partial(_attend, self.o, self.q, of_layer, settings),
            )
            heads = self.o.reshape(rows, -1)
            yield self._product(self.x, heads, mixer.w, "o", residual=self.x)
            yield self._product(
                self.h, self.x, mlp.w, "gate_up", norm=second.weight, eps=second.eps, gated=True
            )
            yield self._product(self.x, self.h, mlp.w, "down", residual=self.x)
        head = {"head.weight": embedding.head}
        yield self._product(self.logits, self.x, head, "head", norm=final.weight, eps=final.eps)
        lens, words = state.lens.array, state.device_words
        yield _small(token.choice_launch(ids, positions, lens, words, steps, self.logits))

    def _product(
        self, out: Array, x: Array, w: dict[str, Array], name: str, **settings: Any
    ) -> _Part:
        weight, settings["bias"] = w[f"{name}.weight"], w.get(f"{name}.bias")
        sizes = self.rows, out.shape[1], x.shape[1], weight.dtype, settings.get("gated", False)
        settings["plan"] = product.tuned(*sizes, device_of(self.run_on))
        launches = product.launches_of(out, x, weight, **settings)
        return _Part(launches, partial(_multiply, out, x, weight, **settings))


def _bucket(longest: int) -> int:
    """The power of two that a step over texts of up to so many tokens is planned for."""
    return 1 << max(1, longest - 1).bit_length()


class _Part(NamedTuple):
    """A part of a step: its launches, and the same in NumPy."""

    launches: list[Launch]
    twin: Callable[[], None]


def _small(launch: Launch) -> _Part:
    return _Part([launch], partial(token_twin.run, launch))


def _multiply(
    out: np.ndarray, x: np.ndarray, weight: np.ndarray, gated: bool = False, **settings: Any
) -> None:
    settings = {"norm": None, "eps": 0.0, "residual": None, **settings}
    out[...] = product_twin.product(x, weight, **settings)


def _attend(o: np.ndarray, q: np.ndarray, pieces: list[Piece], settings: Settings) -> None:
    o[...] = attention_twin.decode(q, pieces, settings)[0]


def captured(launches: Sequence[Launch]) -> Callable[[], None]:
    """Record launches in a CUDA graph; returns what replays it on the current stream."""
    import cupy

    for launch in launches:  # loaded now, because a capture can't
        _function(launch.kernel, launch.shared if launch.shared > SHARED else 0).num_regs  # noqa: B018
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        try:
            for launch in launches:
                run(launch)
        finally:
            graph = stream.end_capture()
    return partial(_replay, graph, launches)


def _replay(graph: Any, launches: Sequence[Launch]) -> None:
    """Start a graph; `launches` are here because their arrays must stay where they are."""
    graph.launch()


def _angles(model: Decoder, cache: Any) -> list[tuple[Array, Array]]:
    """cos and sin (positions, rotated numbers) of each layer, for all positions that fit."""
    positions = model.config.max_position_embeddings
    if not cache.forgets:
        keys = cache.stores[0].keys
        positions = min(positions, keys.pages * keys.size)
    of_kind: list[Any] = [
        r.config and rope_tables(r.config, r.head_dim, positions, model.xp, model.xp.float32)
        for r in model._rotations
    ]
    return [of_kind[kind] for kind in model._rope]


def _width(model: Decoder, cache: Any, layer: int) -> int:
    """The most pages that a request has in a layer."""
    if cache.allocator.one_page:
        return 1
    keys = cache.stores[layer].keys
    return min(keys.pages, 1 - -model.config.max_position_embeddings // keys.size)


def _unfit_model(model: Decoder) -> Iterator[str]:
    """Sentences that say what a compiled step can't do of a model."""
    c = model.config
    weights = {np.dtype(w.dtype).name for w in model.weights.values()}
    if type(model).forward is not Decoder.forward:
        yield f"{type_of(model)} has a way of its own to compute"
    for unfit, words in (
        (c.latent is not None, "attention is latent"),
        (c.experts is not None, "a layer has a mixture of experts"),
        (c.norm != "rms", f"norms must be RMSNorm (rms), got {c.norm}"),
        (c.post_norms, "the outputs of attention and MLP are normed"),
        (c.qk_norm_wide, "queries and keys are normed over all heads at once"),
        (c.parallel_residual, "attention and MLP are parallel"),
        (not c.gated_mlp or c.hidden_act != "silu", "MLPs must be gated by silu"),
        (c.mlp_bias, "MLPs have biases"),
        (c.swiglu_limit is not None, "the gates of MLPs are clamped"),
        (c.positions != "rope", "positions are learned"),
        (c.embedding_scale != 1.0, "embeddings are scaled"),
        (c.residual_scale != 1.0, "what a layer adds is scaled"),
        (c.logit_scale != 1.0, "logits are scaled"),
        (c.head_bias, "logits have a bias"),
        (c.unrotated, "a layer has no rope"),
        (c.final_logit_softcapping is not None, "logits are capped"),
        (c.sinks, "attention has sinks"),
        (weights - CTYPES.keys(), f"weights must be of {', '.join(CTYPES)}, got {weights}"),
    ):
        if unfit:
            yield words


def _unfit_cache(cache: Any) -> Iterator[str]:
    """The same of a cache."""
    names = "append", "run", "attend", "placement"
    if any(getattr(type(cache), n) is not getattr(StoredCache, n, None) for n in names):
        yield f"a cache of rows or of blocks is needed, got {type_of(cache)}"
        return
    for reason in dict.fromkeys(unsuited(cache, layer) for layer in range(len(cache.layers))):
        if reason is not None:
            yield reason
    if cache.wants_queries or any(group.retention.holes for group in cache.groups):
        yield "a rule drops tokens between others"
    if not (cache.attention is None or isinstance(cache.attention, Kernels)):
        yield f"the cache attends by {cache.attention!r}"


def _unfit_arrays(model: Decoder, cache: Any) -> Iterator[str]:
    """The same of the arrays and sizes of a model and a cache that have the right parts."""
    sizes = [
        [(x.num_kv_heads, x.head_dim, x.window, x.sm_scale, x.softcap) for x in layers]
        for layers in (model.layer_specs, cache.layers)
    ]
    if sizes[0] != sizes[1]:
        yield "the cache is for other layers than the model's"
    rotated = {r.config.rotated(r.head_dim) for r in model._rotations if r.config}
    if any(n % 8 for n in rotated):
        yield f"RoPE must rotate 8, 16 ... numbers of a head, got {rotated}"
    types = dict[str, None]()
    for name, x in model.weights.items():
        start = x.ctypes.data if isinstance(x, np.ndarray) else int(x.data.ptr)
        if start % 16 or not x.flags.c_contiguous or not x.dtype.isnative:
            yield f"weights must be contiguous from a multiple of 16 bytes on, not as {name} is"
            return
        if x.ndim == 2 and x.shape[1] * x.dtype.itemsize % 16:
            yield f"rows of weights must be multiples of 16 bytes, got {x.shape} of {x.dtype}"
            return
        if x.ndim == 2 or x.dtype != np.float32:
            types[np.dtype(x.dtype).name] = None
    if len(types) > 1:
        yield f"matrices must be of one type and vectors of it or float32, got {', '.join(types)}"

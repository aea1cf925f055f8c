"""A cache whose attention runs on the kernels, on the arrays as they are stored.

Codes are one piece of a request's keys and the newest tokens, which wait to be encoded, a second;
the kernels attend to each where it is stored, and the results merge.

A step of a few guesses over codes takes two calls. No older token is hidden from a guess unless a
window hides one, so decode_tensor.cu takes the guesses as more query heads and reads the older
codes once for every eight rows of a kv head. Attention to the new tokens is apart.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kvlib.arguments import type_of
from kvlib.arrays import Array, namespace
from kvlib.attention.partials import merge_states, with_sink
from kvlib.caches.protocol import Cache
from kvlib.caches.step import Step, Ticket
from kvlib.codecs import Plain
from kvlib.kernels import engine
from kvlib.kernels.checks import check_settings
from kvlib.kernels.codes import Codes, unreadable
from kvlib.kernels.decode import attend, keys_read, piece_of
from kvlib.kernels.prefill import prefill_attention, split_work
from kvlib.kernels.trees import MOST_NODES, Tree, tree_of
from kvlib.kernels.types import HEAD_DIMS

C = TypeVar("C", bound=Cache)


def use_kernels(cache: C, *, run_on: str | None = None) -> C:
    """Let a cache compute attention with the kernels; returns the same cache.

    Steps of one token per request run :func:`decode_attention`, others :func:`prefill_attention`
    if the cache stores numbers of q's type. Over codes, only steps of a few guesses have a kernel,
    in layers where no window hides a token yet. Whatever has no kernel runs as before.
    run_on: "device", "processor" or "twin"; the arrays decide by default.

    Raises ValueError, with the reason, if the kernels suit no layer of the cache.

    >>> import kvlib
    >>> model = kvlib.load_reference_model()  # on a device, where there is one
    >>> cache = use_kernels(model.new_cache(max_seqs=1, max_seq_len=32))
    >>> by_kernels = kvlib.generate(model, ["def "], cache=cache, max_new_tokens=8)
    >>> by_kernels == kvlib.generate(model, ["def "], max_new_tokens=8)
    True
    """
    kernels = Kernels(run_on=run_on)
    kernels.suited(cache)
    cache.attention = kernels
    return cache


class Kernels:
    """Attention by the kernels for one cache, as `use_kernels` says: ``attention=Kernels()``.

    >>> import numpy as np
    >>> from kvlib import DenseCache, LayerSpec
    >>> DenseCache([LayerSpec(1, 64)], 1, 8, xp=np, attention=Kernels(run_on="twin")).attention
    Kernels(run_on='twin')
    """

    trees = True  # it looks at step.parents

    def __init__(self, *, run_on: str | None = None) -> None:
        self.run_on = run_on
        self._layers: Any = None
        self._suited: list[bool] = []
        self._last = _CurrentStep()

    def __repr__(self) -> str:
        return f"Kernels(run_on={self.run_on!r})"

    def suited(self, cache: Cache) -> list[bool]:
        """Which layers of a cache the kernels suit. Raises ValueError if they suit none."""
        if self._layers is not cache.layers:
            suited = [unsuited(cache, layer) is None for layer in range(len(cache.layers))]
            if not any(suited):
                raise ValueError(
                    f"the kernels suit no layer of this cache: {unsuited(cache, 0)}. "
                    "Use the cache as it is, without use_kernels"
                )
            self._layers, self._suited = cache.layers, suited
        return self._suited

    def __call__(
        self, cache: Any, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """What ``cache.run(layer, q, step, return_lse)`` gives."""
        tables, results, run_on = None, None, self.run_on
        if self.suited(cache)[layer] and q.size:
            tables = self._last.tables(cache, step, layer)
        if tables is not None:
            if step.parents is None and all(n == 1 for n in step.q_lens):
                results = _decode(cache, layer, q, step, tables, run_on)
            elif all(len(parents or ()) <= MOST_NODES for parents in step.parents or ()):
                results = _prefill(cache, layer, q, step, tables, self._last, run_on)
        if results is None:
            return cache.attend(layer, q, step, return_lse)
        (o, lse), sinks = results, cache.layers[layer].sinks
        if sinks is not None:
            o, lse = with_sink(cache.xp, o, lse, sinks)
        return (o, lse) if return_lse else o


class _CurrentStep:
    """Tables of the current step, by group of layers; a reference to it would keep its cache."""

    def __init__(self) -> None:
        self._of: tuple[Ticket | None, tuple[int, ...]] = None, ()
        self._tables: dict[int, StepTables | None] = {}
        self.offsets: Array | None = None
        self.tree: Tree | None = None

    def tables(self, cache: Any, step: Step, layer: int) -> "StepTables | None":
        ticket, q_lens = self._of
        if step.ticket is not ticket or step.q_lens != q_lens:
            self._of, self._tables = (step.ticket, step.q_lens), {}
            self.offsets = cache.xp.asarray(np.array(step.qo_indptr, dtype=np.int32))
            self.tree = None
        group = cache.group_of[layer]
        if group not in self._tables:
            self._tables[group] = step_tables(cache, step, layer)
        return self._tables[group]

    def tree_of(self, cache: Any, step: Step) -> Tree | None:
        """The trees of the step, after `tables`; None if there are none."""
        if self.tree is None and step.parents is not None:
            self.tree = tree_of(step.parents, cache.xp)
        return self.tree


def _prefill(
    cache: Any,
    layer: int,
    q: Array,
    step: Step,
    tables: "StepTables",
    last: _CurrentStep,
    run_on: str | None,
) -> tuple[Array, Array] | None:
    """Several tokens of some request: o and lse without sinks, or None where no kernel fits."""
    spec = cache.layers[layer]  # `run` has checked the arguments
    (k, v), tree = stored_arrays(cache, layer), last.tree_of(cache, step)
    if isinstance(k, Codes) or isinstance(v, Codes) or cache.codec.waits:
        return decode_guesses(cache, layer, q, step, tables, last.offsets, tree, run_on)
    if k.dtype != q.dtype:
        return None
    q = cache.xp.ascontiguousarray(q)
    key = q.shape[1:], np.dtype(q.dtype).name, spec.num_kv_heads, spec.window
    if key not in tables.shared:  # the work is the same for layers that are alike
        lens = tables.lens[0]
        if spec.window is not None:
            pairs = zip(lens, step.q_lens, strict=True)
            lens = tuple(min(end, spec.window + n - 1) for end, n in pairs)
        run_on = engine.engine_of(run_on, q)
        tables.shared[key] = split_work(q, spec.num_kv_heads, step.q_lens, lens, run_on=run_on)
    results: tuple[Array, Array] = prefill_attention(
        q, k, v, last.offsets, tables.stored, tables.block_table,
        window=spec.window, sm_scale=spec.sm_scale, softcap=spec.softcap,
        max_new=max(step.q_lens), tree=tree, work=tables.shared[key],
        return_lse=True, run_on=run_on,
    )  # fmt: skip
    return results


class StepTables(NamedTuple):
    """Arguments of the kernels in a step, for all layers of a group.

    block_table (B, W) int32   stored (B,) int32: tokens in the blocks   waiting (B,) or None:
    those after them that wait to be encoded   lens: both as Python ints   work: the work items of
    the layers so far   shared: what layers share in a step with several rows per request
    """

    block_table: Array
    stored: Array
    waiting: Array | None
    lens: tuple[tuple[int, ...], tuple[int, ...]]
    work: dict[Any, Any]
    shared: dict[Any, Any]


def step_tables(cache: Any, step: Step, layer: int = 0) -> StepTables | None:
    """Block tables and lengths of a step, sent to the device once for all layers of a group; None
    where a request is not in the cache's pages in this step (a long prompt in a small row)."""
    xp, lens = cache.xp, cache.placement(layer, step).stored_lens
    pages, waits = cache.pages(step, layer), cache.codec.waits
    if pages is None:
        return None
    stored = cache.paged_lens(step, layer)
    table = np.zeros((len(pages), max(1, *map(len, pages))), np.int32)
    for row, blocks in zip(table, pages, strict=True):
        row[: len(blocks)] = blocks
    waiting = [n - m for n, m in zip(lens, stored, strict=True)]
    behind = xp.asarray(np.array(waiting, np.int32)) if waits else None
    sizes = xp.asarray(np.array(stored, np.int32))
    return StepTables(xp.asarray(table), sizes, behind, (tuple(stored), tuple(waiting)), {}, {})


def unsuited(cache: Cache, layer: int) -> str | None:
    """Why the kernels cannot run this layer of this cache; None where they can."""
    spec = cache.layers[layer]
    if spec.v_from_k or spec.v_dim != spec.head_dim:
        return "values must be stored separately, and as long as keys"
    if spec.head_dim not in HEAD_DIMS:
        return f"head_dim must be one of {HEAD_DIMS}, got {spec.head_dim}"
    if np.dtype(cache.dtype).name not in ("float32", "float16"):
        return f"the cache must hold float32 or float16, got {cache.dtype}"
    if cache.block_size is not None and cache.block_size & (cache.block_size - 1):
        return f"block_size must be a power of two, got {cache.block_size}"
    if not cache.fields(layer):
        return f"a cache of rows or of blocks needed, got {type_of(cache)}"
    return unreadable(cache.codec.keys, cache.codec.values)


def _decode(
    cache: Any, layer: int, q: Array, step: Step, tables: StepTables, run_on: str | None
) -> tuple[Array, Array]:
    """A step of one token per request: o (B, Hq, D) and lse (B, Hq) without sinks."""
    spec, run_on = cache.layers[layer], engine.engine_of(run_on, q)
    q = namespace(q).ascontiguousarray(q) if not q.flags.c_contiguous else q
    settings = check_settings(q.shape[-1], spec.sm_scale, spec.softcap, spec.window)
    (k, v), (older, newer), pieces = stored_arrays(cache, layer), tables.lens, []
    if any(older):
        lens = keys_read(older, newer, settings.window)
        pieces.append(
            piece_of(
                q, k, v, tables.stored, tables.block_table, settings,
                behind=tables.waiting, lens=lens, run_on=run_on,
            )
        )  # fmt: skip
    if any(newer):
        k, v = _waiting(cache.xp, step, layer)
        lens = keys_read(newer, [0] * len(newer), settings.window)
        pieces.append(piece_of(q, k, v, tables.waiting, None, settings, lens=lens, run_on=run_on))
    return attend(q, pieces, settings, run_on, tables.work)


def stored_arrays(cache: Any, layer: int) -> list[Array | Codes]:
    """Keys and values of a layer as they are stored: rows, blocks, or blocks of codes."""
    return [
        arrays["x"] if type(codec) is Plain else Codes(codec, **arrays)
        for codec, arrays in cache.fields(layer)
    ]


MOST_ROWS = 64  # per kv head: the decode kernel reads the codes once for every eight of them


class _Rows(NamedTuple):
    """A step's rows as a block of equally many per request, and back; and the older tokens.

    block (B · most,): row of the step for each row of the block   back (T,): the inverse
    older (B,) int32: tokens of each request in codes that all its rows see; lens: as integers
    at: block and position of each new token that is encoded, the request's last if it has fewer
    """

    block: Array
    back: Array
    older: Array
    lens: tuple[int, ...]
    at: tuple[Array, Array] | None


def decode_guesses(
    cache: Any,
    layer: int,
    q: Array,
    step: Step,
    tables: StepTables,
    ends: Array,
    tree: Tree | None,
    run_on: str | None,
) -> tuple[Array, Array] | None:
    """q (T, Hq, D) → o (T, Hq, D), lse (T, Hq) float32; None for a step that the cache computes.

    That is a step with more than MOST_ROWS rows per kv head of a request, with new tokens that have
    been encoded in groups, with a window that hides something, or with queries of another type
    than the cache. ends (B + 1,) int32: offsets of the requests' rows.
    """
    spec, xp, (coded, waiting) = cache.layers[layer], cache.xp, tables.lens
    lens = [n + m for n, m in zip(coded, waiting, strict=True)]
    parents = step.parents or (None,) * len(lens)
    new = [n if p is None else len(p) for n, p in zip(step.q_lens, parents, strict=True)]
    waits = cache.codec.waits
    if (
        max(step.q_lens) * (q.shape[1] // spec.num_kv_heads) > MOST_ROWS
        or np.dtype(q.dtype) != np.dtype(cache.dtype)
        or (spec.window is not None and max(lens) > spec.window)
        or (waits and any(n > m for n, m in zip(new, waiting, strict=True)))
    ):
        return None
    k, v = stored_arrays(cache, layer)
    rows: _Rows | None = tables.shared.get("guesses")
    if rows is None:  # once for all layers of a group
        rows = tables.shared["guesses"] = _rows(cache, layer, step, tables, new)
    if waits:
        behind, k_new, v_new = tables.waiting, *_waiting(xp, step, layer)
    else:
        assert isinstance(k, Codes) and isinstance(v, Codes) and rows.at is not None
        k_new, v_new = (_decoded(xp, x, rows.at, len(new), cache.dtype) for x in (k, v))
        behind = xp.asarray(np.array(new, dtype=np.int32))
    settings = {"sm_scale": spec.sm_scale, "softcap": spec.softcap}
    o, lse = prefill_attention(
        xp.ascontiguousarray(q), k_new, v_new, ends, behind, max_new=max(step.q_lens), tree=tree,
        return_lse=True, run_on=run_on, **settings,
    )  # fmt: skip
    if not any(rows.lens):
        return o, lse
    run_on = engine.engine_of(run_on, q)
    heads = _as_heads(xp, q[rows.block], len(new), spec.num_kv_heads)
    unwindowed = check_settings(heads.shape[-1], spec.sm_scale, spec.softcap, None)
    piece = piece_of(
        heads, k, v, rows.older, tables.block_table, unwindowed, lens=rows.lens, run_on=run_on
    )  # fmt: skip
    results = attend(heads, [piece], unwindowed, run_on, tables.work)
    old_o, old_lse = (_as_rows(xp, x, spec.num_kv_heads, q.shape[1])[rows.back] for x in results)
    o, lse = merge_states(xp.stack([old_o, xp.astype(o, xp.float32)]), xp.stack([old_lse, lse]))
    return xp.astype(o, q.dtype), lse


def _rows(cache: Any, layer: int, step: Step, tables: StepTables, new: Sequence[int]) -> _Rows:
    xp, most, (older, _), at = cache.xp, max(step.q_lens), tables.lens, None
    block = [
        first + min(i, n - 1)
        for first, n in zip(step.qo_indptr, step.q_lens, strict=False)
        for i in range(most)
    ]
    back = [b * most + i for b, n in enumerate(step.q_lens) for i in range(n)]
    if not cache.codec.waits:
        older = tuple(end - n for end, n in zip(older, new, strict=True))
        size, pages = cache.fields(layer)[0][1]["codes"].shape[2], cache.pages(step, layer)
        slots = [
            (blocks[j // size], j % size)
            for blocks, begin, n in zip(pages, older, new, strict=True)
            for j in (begin + min(i, n - 1) for i in range(max(new)))
        ]
        blocks_of, inside = np.array(slots, dtype=np.int64).T
        at = xp.asarray(blocks_of), xp.asarray(inside)
    lens = xp.asarray(np.array(older, dtype=np.int32))
    return _Rows(xp.asarray(np.array(block)), xp.asarray(np.array(back)), lens, older, at)


def _decoded(xp: Any, coded: Codes, at: tuple[Array, Array], batch: int, dtype: Any) -> Array:
    """Return tokens by block and slot as rows of a dense cache (B, Hkv, n, D)."""
    fields = zip(coded._fields[1:], coded[1:], strict=True)
    parts = {name: x[at[0], :, at[1]] for name, x in fields if x is not None}
    x = coded.codec.decode(parts, dtype)  # (B · n, Hkv, D)
    x = xp.reshape(x, (batch, -1, *x.shape[1:]))
    return xp.ascontiguousarray(xp.permute_dims(x, (0, 2, 1, 3)))


def _waiting(xp: Any, step: Step, layer: int) -> list[Array]:
    """Keys and values that wait to be encoded, as rows (B, Hkv, room, D); one is not copied."""
    padded = []
    for arrays in zip(*(state.residuals[layer].waiting for state in step.states), strict=True):
        if len({x.shape[1] for x in arrays}) == 1:
            padded.append(arrays[0][None] if len(arrays) == 1 else xp.stack(list(arrays)))
            continue
        heads, _, dim = arrays[0].shape
        room = max(x.shape[1] for x in arrays)
        rows = xp.zeros((len(arrays), heads, room, dim), dtype=arrays[0].dtype)
        for row, x in zip(rows, arrays, strict=True):
            row[:, : x.shape[1], :] = x
        padded.append(rows)
    return padded


def _as_heads(xp: Any, q: Array, batch: int, num_kv_heads: int) -> Array:
    """q (B · n, Hq, D) as float32 with n times as many query heads per kv head, (B, n · Hq, D)."""
    dim = q.shape[2]
    q = xp.reshape(
        xp.astype(q, xp.float32), (batch, -1, num_kv_heads, q.shape[1] // num_kv_heads, dim)
    )
    return xp.ascontiguousarray(xp.reshape(xp.permute_dims(q, (0, 2, 1, 3, 4)), (batch, -1, dim)))


def _as_rows(xp: Any, x: Array, num_kv_heads: int, num_qo_heads: int) -> Array:
    """The way back: x (B, n · Hq, ...) → (B · n, Hq, ...)."""
    batch, rest = x.shape[0], x.shape[2:]
    x = xp.reshape(x, (batch, num_kv_heads, -1, num_qo_heads // num_kv_heads, *rest))
    x = xp.permute_dims(x, (0, 2, 1, *range(3, x.ndim)))
    return xp.reshape(x, (-1, num_qo_heads, *rest))

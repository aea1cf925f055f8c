"""The protocol of all caches, and what they share.

    cache.add("a")                             open a request
    step = cache.plan(["a"], [T])              room for T new tokens, in all layers, or an error
    for each layer:
        cache.append(layer, k, v, step)        store
        o = cache.run(layer, q, step)          attend
    cache.truncate("a", n); cache.fork("a", "b"); cache.free("a")

``truncate`` undoes a step that failed, exactly, until the request's next ``plan``. After that,
tokens that some layer never appended are a gap, and no layer appends or runs until the request is
truncated to where the gap begins.

A custom cache inherits from `Cache` and overrides what differs (book/extend.ipynb writes one, and
``kvlib.testing`` plays random lives of it): ``_open``, ``_read`` and ``_truncate``; ``append``,
which first asks ``_check_append`` and ends with ``step.ticket.appended.add(layer)``;
``_keep`` for trees of guesses, ``_copy`` for ``fork``, ``_release`` for ``free``, ``storage`` and
``memory`` for those who count bytes. What cannot be undone, such as eviction, belongs in
``_reserve``. ``attend`` is attention over ``read``, right and slow, until you override it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import check_flag, describe, is_integer
from kvlib.arrays import Array, default_namespace
from kvlib.attention import attend as attend_by_positions
from kvlib.caches import checks
from kvlib.caches.allocation.table import Extra
from kvlib.caches.retention.rules import LayerGroup
from kvlib.caches.spec import LayerSpec, Memory, check_layers
from kvlib.caches.step import CachedSequence, Step, Ticket
from kvlib.caches.trees import (
    Trees,
    check_chain,
    check_finished,
    check_no_tree,
    check_parents,
    check_path,
    check_takes_trees,
)
from kvlib.codecs.base import PLAIN, Codec, TensorCodec

Answer = Array | tuple[Array, Array]  # o (T, Hq, Dv), or o and lse (T, Hq)
# (cache, layer, q, step, return_lse) → o, or (o, lse)
Attention = Callable[["Cache", int, Array, Step, bool], Any]


class Cache:
    """Keys and values of many requests, for all layers of one model.

    layers: one LayerSpec per layer. dtype: what is stored (float32 unless given). xp: the array
    library (``kvlib.arrays.default_namespace()`` unless given). attention: what ``run`` calls with
    (cache, layer, q, step, return_lse), such as ``kvlib.caches.run_cascade``; ``attend`` unless
    given.

    A call that fails leaves the cache as it was. It raises CacheFull or OutOfBlocks if there is no
    room, ValueError or TypeError for input that does not fit, and never KeyError.

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(num_kv_heads=2, head_dim=4)], max_seqs=2, max_seq_len=16)
    >>> isinstance(cache, Cache), cache.add("a"), cache.seq_len("a")
    (True, 0, 0)
    """

    # Where keys are stored, for code that reads them in place (kernels, cascade)
    codec: Codec = PLAIN
    block_size: Any = None  # tokens of a block, where requests are in blocks of a pool
    wants_queries = False  # whether `observe_queries` wants to see the queries of every step
    groups: Sequence[LayerGroup] = ()  # layers that share tables, in a cache that has tables
    forgets = False  # whether a layer drops tokens while its request goes on
    undoable: int | None = None  # tokens of the longest step that can be undone in part; None: any

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        *,
        dtype: Any = None,
        xp: Any = None,
        attention: Any = None,
    ) -> None:
        kind = type(self)
        if kind._truncate is Cache._truncate and kind._check_truncate is not Cache._check_truncate:
            raise TypeError(
                f"{kind.__name__} writes _check_truncate and not _truncate, so truncate would "
                "forget nothing; write both, or _truncate alone if every length is allowed"
            )
        self.layers = check_layers(layers)
        if attention is not None and not callable(attention):
            raise TypeError(
                "attention must be a function (cache, layer, q, step, return_lse), such as "
                f"kvlib.caches.run_cascade, got {describe(attention)}"
            )
        self.attention = attention
        self.xp = default_namespace() if xp is None else xp
        if not hasattr(self.xp, "isdtype"):
            raise TypeError(f"xp must be an array library, the module itself, got {describe(xp)}")
        try:
            probe = self.xp.empty((0,), dtype=self.xp.float32 if dtype is None else dtype)
        except (TypeError, ValueError):
            raise TypeError(f"dtype must be floating, got {describe(dtype)}") from None
        native = getattr(probe.dtype, "isnative", True)  # other arrays would not fit its bytes
        if not self.xp.isdtype(probe.dtype, "real floating") or not native:
            raise TypeError(
                f"dtype must be floating, in the machine's byte order, got {probe.dtype}"
            )
        self.dtype = probe.dtype
        self.array_type: Any = type(probe)
        self.group_of: Sequence[int] = (0,) * len(self.layers)  # layers of a group share tables
        for i, spec in enumerate(self.layers):
            if spec.sinks is not None:
                checks.check_library(self, "sinks", spec.sinks, i)
        self._sequences: dict[Hashable, CachedSequence] = {}

    @property
    def seq_ids(self) -> tuple[Hashable, ...]:
        """The open requests, in the order they were opened."""
        return tuple(self._sequences)

    def __len__(self) -> int:
        """How many requests are open."""
        return len(self._sequences)

    def __contains__(self, seq_id: Hashable) -> bool:
        return seq_id in self._sequences

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache: ``cache or another`` must not drop it

    def __repr__(self) -> str:
        tokens = sum(seq.length for seq in self._sequences.values())
        try:
            held = f"{self.memory().reserved:,} bytes"
        except Exception:  # a custom cache, half written; repr is how its author looks at it
            held = "bytes not measured"
        return (
            f"{type(self).__name__}({len(self.layers)} layers, {len(self._sequences)} requests, "
            f"{tokens} tokens, {held})"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: its arrays, its pool and the "
            "steps under way belong together. fork copies a request; to_dense and from_dense "
            "(kvlib.caches.layouts) carry requests into another cache, as arrays that can be saved"
        )

    # What a user calls ------------------------------------------------------------------------

    def add(self, seq_id: Hashable, tokens: Sequence[int] = (), *, extra: Extra = ()) -> int:
        """Open a request, and return how many of its prompt's tokens are already cached.

        Always fewer than len(tokens): the last one is computed for its logits. extra: what else the
        keys depend on (an adapter, a tenant); requests with different extras never share.
        """
        checks.check_new(self._sequences, seq_id)
        checks.check_extra(extra)
        seq = self._open(seq_id, checks.token_ids(tokens), extra)
        seq.name, self._sequences[seq_id] = seq_id, seq
        return seq.length

    def plan(
        self,
        seq_ids: Sequence[Hashable],
        q_lens: Sequence[int],
        tokens: Sequence[int] | None = None,
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> Step:
        """Reserve room for the new tokens of some requests in all layers; all or nothing.

        seq_ids: B names, each once. q_lens: B lengths of at least 1. tokens: the T = Σ q_lens new
        token ids, packed in that order. parents: B entries, None for a request whose new tokens
        follow one another; else, for each new token, the number of the earlier new token that it
        follows, or -1 if it follows older tokens. Such tokens are a tree of guesses: a token sees
        its ancestors, older tokens and itself. `keep` the right path; until then, the request
        cannot be planned, forked or settled. ``truncate`` undoes a step that fails.
        """
        sequences, q_lens, tokens = checks.check_plan(self._sequences, seq_ids, q_lens, tokens)
        trees = None if parents is None else check_parents(parents, seq_ids, q_lens)
        gaps = [seq.next_gap() for seq in sequences]
        if trees is None:
            states = self._reserve(sequences, q_lens, tokens)
        else:
            states = self._reserve_trees(sequences, trees, q_lens, tokens)
        seq_lens = tuple(seq.length + n for seq, n in zip(sequences, q_lens, strict=True))
        ticket = Ticket(len(self.layers))
        step = Step(self, ticket, tuple(seq_ids), q_lens, seq_lens, states, True, trees)
        if step.num_tokens > len(sequences):
            _ = step.positions  # before anything changes, because memory may be too small
        for seq, end, gap in zip(sequences, seq_lens, gaps, strict=True):
            if seq.ticket is not None:
                seq.ticket.live = False
            seq.ticket, seq.gap = ticket, gap
            seq.start, seq.length = seq.length, end
            seq.plans += 1
            if gap is not None:
                ticket.gap = seq.name, gap
        return step

    def _reserve_trees(self, sequences: list[CachedSequence], trees: Trees, *new: Any) -> Any:
        check_takes_trees(self)
        for seq, tree in zip(sequences, trees, strict=True):
            seq.tree = tree
        try:
            return self._reserve(sequences, *new)
        except BaseException:
            for seq in sequences:
                seq.tree = None
            raise

    def run(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """Attend from q (T, Hq, Dk) to what the requests hold: o (T, Hq, Dv), or o and lse (T,
        Hq)."""
        # A step proves that its plan was valid. `check_run` says what is wrong with the rest.
        fits = type(layer) is int and type(step) is Step and step.owner is self
        fits = fits and layer in step.ticket.appended and step.ticket.live
        fits = fits and step.ticket.gap is None and type(q) is self.array_type
        if fits and q.dtype == self.dtype and len(q.shape) == 3:
            spec, (t, heads, dim) = self.layers[layer], q.shape
            fits = t == step.qo_indptr[-1] and dim == spec.head_dim
            fits = fits and heads > 0 and heads % spec.num_kv_heads == 0
            fits = fits and (spec.sinks is None or spec.sinks.shape == (heads,))
        else:
            fits = False
        if not fits:
            checks.check_run(self, layer, q, step)
        if return_lse is not True and return_lse is not False:
            return_lse = check_flag("return_lse", return_lse)
        attention = type(self).attend if self.attention is None else self.attention
        with_lse = return_lse or self.wants_queries
        answer = attention(self, layer, q, step, with_lse)
        if isinstance(answer, tuple | list) != with_lse or (with_lse and len(answer) != 2):
            name = getattr(attention, "__name__", attention)
            raise TypeError(
                f"with return_lse={with_lse} the attention {name} returned "
                f"{type(answer).__name__}, needed {'(o, lse)' if with_lse else 'o alone'}"
            )
        if not self.wants_queries:
            return answer
        o, lse = answer
        self.observe_queries(layer, q, lse, step)
        return (o, lse) if return_lse else o

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return what a layer stores of a request: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,).

        Decoded, in the order of positions; a tree of guesses comes last. The arrays may be views:
        do not write to them. A cache that evicts per head gives positions (Hkv, S).
        """
        checks.check_layer(self, layer)
        checks.get_open(self._sequences, seq_id)
        return self._read(layer, seq_id)

    def seq_len(self, seq_id: Hashable) -> int:
        """The absolute length of the request in tokens, even if some are no longer stored."""
        return checks.get_open(self._sequences, seq_id).length

    def truncate(self, seq_id: Hashable, length: int) -> None:
        """Shorten a request to its first ``length`` tokens."""
        seq = checks.get_open(self._sequences, seq_id)
        if type(length) is not int and is_integer(length):
            length = index(length)
        if type(length) is not int or not 0 <= length <= seq.length:
            raise ValueError(
                f"request {describe(seq_id)} holds {seq.length} tokens and can be truncated to a "
                f"length of 0 ... {seq.length}, got {describe(length)}"
            )
        if seq.tree is not None and length > seq.start:
            check_chain(seq, length)
            return self.keep(seq_id, range(length - seq.start))
        # A step that is undone has no gap.
        gap = seq.next_gap() if length > seq.start else seq.gap
        self._check_truncate(seq, length)
        self._truncate(seq, length)
        seq.gap = None if gap is None or gap >= length else gap
        seq.start, seq.length, seq.tree = min(seq.start, length), length, None
        self._end_step(seq)

    def keep(self, seq_id: Hashable, path: Sequence[int]) -> None:
        """Keep some new tokens of a request's last step, and forget the others.

        path: numbers of new tokens within the step, from a root from parent to child, as in
        ``plan``; an empty one forgets all. No layer can run the step any more. Raises ValueError
        for no such path, an unfinished tree, and a request whose last step has ended.
        """
        seq = checks.get_open(self._sequences, seq_id)
        path = check_path(seq, path)
        if seq.tree is None or not path:
            return self.truncate(seq_id, seq.start + len(path))
        check_finished(seq)
        self._keep(seq, path)
        seq.length, seq.tree = seq.start + len(path), None
        self._end_step(seq)

    def settle(self, seq_id: Hashable) -> None:
        """End the last step of a request, as its next ``plan`` would: no layer can run it again."""
        check_no_tree(checks.get_open(self._sequences, seq_id))
        self.truncate(seq_id, self.seq_len(seq_id))

    def fork(self, src: Hashable, dst: Hashable) -> None:
        """Open request ``dst`` with everything that ``src`` holds; the two are then independent."""
        source = checks.get_open(self._sequences, src)
        checks.check_new(self._sequences, dst)
        check_no_tree(source)
        gap, seq = source.next_gap(), self._copy(source, dst)
        seq.length = seq.start = source.length
        seq.gap = gap
        seq.name, self._sequences[dst] = dst, seq

    def free(self, seq_id: Hashable) -> None:
        """Close a request and free its room."""
        seq = checks.get_open(self._sequences, seq_id)
        if seq.tree is not None:  # no lookup may find wrong guesses
            self.truncate(seq_id, seq.start)
        self._release(seq)
        self._end_step(seq)
        del self._sequences[seq_id]

    @staticmethod
    def _end_step(seq: CachedSequence) -> None:
        if seq.ticket is not None:
            seq.ticket.live = False
            seq.ticket = None

    # What a custom cache overrides ------------------------------------------------------------

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> CachedSequence:
        """Make a new request, or raise. ``seq.length`` is how many tokens are already cached."""
        return CachedSequence(None)

    def _reserve(
        self, sequences: list[CachedSequence], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> Any:
        """Make room for all new tokens, or raise and change nothing; return ``step.states``."""
        return None

    def _check_truncate(self, seq: CachedSequence, length: int) -> None:
        """Raise ValueError for a length that ``truncate`` must refuse; it then changes nothing."""

    def _truncate(self, seq: CachedSequence, length: int) -> None:
        """Forget all tokens after the first ``length``, which `_check_truncate` has let through."""
        ticket = seq.ticket
        planned = ticket is not None and not ticket.appended and length >= seq.start
        if length < seq.length and not planned:  # a layer may have stored the tokens
            raise TypeError(
                f"{type(self).__name__} cannot truncate requests: write _truncate(seq, length)"
            )

    def _keep(self, seq: CachedSequence, path: Sequence[int]) -> None:
        """Forget the step's new tokens but those of a path: ``path[i]`` becomes ``start + i``."""
        raise TypeError(f"{type(self).__name__} cannot keep a path of a tree")

    def _check_trees(self) -> None:
        """Raise ValueError if the cache cannot hold trees of guesses."""
        if type(self)._keep is Cache._keep:
            raise ValueError(
                f"parents must be left out: {type(self).__name__} has no method _keep, so it "
                "cannot give back what is wrong of a tree"
            )

    def _copy(self, source: CachedSequence, seq_id: Hashable) -> CachedSequence:
        """Return a second request with the content of ``source``, or raise."""
        raise TypeError(f"{type(self).__name__} cannot fork requests")

    def _release(self, seq: CachedSequence) -> None:
        """Free the memory of a request."""

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        """For keys and for values of a layer, the codec and its arrays (pages, Hkv, n, ...) by
        name. Values taken from the keys are left out; a cache without pages returns an empty
        tuple."""
        return ()

    def storage(self) -> Iterator[Array]:
        """Every array that the cache has allocated."""
        raise TypeError(f"{type(self).__name__} does not name its arrays")

    def _check_append(self, layer: int, k: Array, v: Array | None, step: Step) -> LayerSpec:
        """Return the layer's spec, after refusing what doesn't fit it or the step."""
        return checks.check_append(self, layer, k, v, step)

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Store the step's k (T, Hkv, Dk) and v (T, Hkv, Dv); v is None if taken from the keys."""
        raise TypeError(f"{type(self).__name__} cannot append")

    def mark_appended(self, step: Step) -> None:
        """Record that a kernel has stored the step's tokens in all layers, as ``append`` would."""
        checks.check_live(self, step)
        step.ticket.appended.update(range(len(self.layers)))

    def _read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return what ``read`` returns, for a layer and a request that exist."""
        raise TypeError(f"{type(self).__name__} cannot be read")

    def memory(self) -> Memory:
        """Return the bytes of the cache, measured from its arrays."""
        raise TypeError(f"{type(self).__name__} does not measure its memory")

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """Compute the result of ``run``, after ``run`` has checked the arguments."""
        results: list[Any] = []
        settings = {**self.layers[layer].settings, "return_lse": return_lse}
        for i, seq_id in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v, positions = self.read(layer, seq_id)
            queries, at, tree = q[rows, ...], step.positions[rows], step.ancestors(i)
            if tree is None:
                results.append(attend_by_positions(queries, k, v, at, positions, **settings))
                continue
            old, guesses = k.shape[0] - tree.shape[1], []
            for row, ancestors in enumerate(tree):  # each guess sees its ancestors and no other
                line = np.flatnonzero(ancestors)
                which = np.concatenate([np.arange(old), old + line])
                which = self.xp.asarray(which, dtype=self.xp.int64, device=k.device)
                seen_k, seen_v = (self.xp.take(x, which, axis=0) for x in (k, v))
                seen_at, one = self.xp.take(positions, which, axis=-1), slice(row, row + 1)
                depths = self.xp.arange(len(line) - 1, -1, -1, dtype=seen_at.dtype)
                seen_at[..., old:] = at[row] - depths
                args = queries[one, ...], seen_k, seen_v, at[one], seen_at
                guesses.append(attend_by_positions(*args, **settings))
            results.append(self.join(guesses, return_lse))
        return self.join(results, return_lse)

    def join(self, parts: list[Any], return_lse: bool) -> Any:
        """Join the results of single requests to that of ``run``: o, or o and lse."""
        if len(parts) == 1:
            return parts[0]
        if not return_lse:
            return self.xp.concat(parts, axis=0)
        return tuple(self.xp.concat([p[i] for p in parts], axis=0) for i in (0, 1))

    def observe_queries(self, layer: int, q: Array, lse: Array, step: Step) -> None:
        """Look at q (T, Hq, Dk) and its lse (T, Hq); ``run`` calls it if `wants_queries`."""

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Raise CacheFull or OutOfBlocks for a length that a request could not reach alone."""

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether a prompt should wait, because one of others (name, prompt) computes its start."""
        return False

"""The protocol of all caches, and what they share.

    cache.add("a")                             open a request
    step = cache.plan(["a"], [T])              room for T new tokens, in all layers, or an error
    for each layer:
        cache.append(layer, k, v, step)        store
        o = cache.run(layer, q, step)          attend
    cache.truncate("a", n); cache.fork("a", "b"); cache.free("a")

A step may also hold a tree of guesses, of which one path turns out to be right:

    step = cache.plan(["a"], [3], parents=[[-1, 0, 0]])    tokens 1 and 2 both follow token 0
    ...                                                    append and run, as above
    cache.keep("a", [0, 2])                                tokens 0 and 2 stay, as if alone

``truncate`` undoes a step that failed, exactly, until the request's next ``plan``. If the request
is planned again without that, the tokens that some layer never appended are a gap, and no layer
appends or runs until the request is truncated to where the gap begins.

`Cache` holds what all caches have in common. What differs from one kind to the next, and how to
write a cache of your own, is in ``kvlib.caches.hooks``.
"""
# Long, because each operation says here what it promises.

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import index
from typing import Any

from kvlib.arguments import check_flag, describe, is_integer
from kvlib.arrays import Array
from kvlib.caches.checks import (
    check_extra,
    check_layer,
    check_new,
    check_plan,
    check_run,
    get_open,
    token_ids,
)
from kvlib.caches.checks_trees import (
    check_chain,
    check_no_tree,
    check_parents,
    check_path,
    check_takes_trees,
    check_whole,
)
from kvlib.caches.hooks import Answer
from kvlib.caches.open_requests import OpenRequests
from kvlib.caches.step import Extra, Request, Step, Ticket
from kvlib.caches.trees import Trees

# (cache, layer, q, step, return_lse) → o, or (o, lse)
Attention = Callable[["Cache", int, Array, Step, bool], Any]


class Cache(OpenRequests):
    """Keys and values of many requests, for all layers of one model.

    layers: one LayerSpec per layer. dtype: the dtype that is stored (float32 unless given). xp: the
    array library (``kvlib.arrays.default_namespace()`` unless given). attention: the function that
    ``run`` calls with (cache, layer, q, step, return_lse), such as ``kvlib.caches.run_cascade``,
    ``kvlib.caches.Quest(1024)`` or ``kvlib.kernels.Kernels()``; the cache's own ``attend`` unless
    given.

    A call that fails leaves the cache as it was. It raises CacheFull or OutOfBlocks if there is no
    room, ValueError or TypeError for input that does not fit, and never KeyError.

    Every cache is used in the same way:

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(num_kv_heads=2, head_dim=4)], max_seqs=2, max_seq_len=16)
    >>> isinstance(cache, Cache), cache.add("a"), cache.seq_len("a")
    (True, 0, 0)
    """

    def add(self, seq_id: Hashable, tokens: Sequence[int] = (), *, extra: Extra = ()) -> int:
        """Open a request; give its prompt as ``tokens`` to reuse what the cache holds of it.

        extra: what else the keys depend on (an adapter, a tenant's salt); requests with different
        extras never share.

        Returns how many of these tokens are already held, so that the step starts after them;
        always fewer than len(tokens), because the last one has to be computed for its logits.
        """
        check_new(self._requests, seq_id)
        check_extra(extra)
        request = self._open(seq_id, token_ids(tokens), extra)
        request.name, self._requests[seq_id] = seq_id, request
        return request.length

    def plan(
        self,
        seq_ids: Sequence[Hashable],
        q_lens: Sequence[int],
        tokens: Sequence[int] | None = None,
        parents: Sequence[Sequence[int] | None] | None = None,
    ) -> Step:
        """Reserve room for the new tokens of some requests in all layers; all or nothing.

        seq_ids: B names, each once. q_lens: B lengths of at least 1. tokens: the T = Σ q_lens new
        token ids, packed in that order, for caches that look at them. parents: B entries. The entry
        of a request is None if its new tokens follow one another. Otherwise it lists for each new
        token the number of the new token that it follows, which is lower than its own, or -1 if it
        follows the tokens that the request held before.

        With parents, the new tokens are a tree of guesses. A token stands after its ancestors and
        sees them, older tokens and itself, but no other new token: two tokens that follow the same
        one have the same position. `keep` the right path afterwards; until then, the request cannot
        be planned, forked or settled. Raises ValueError for a tree in a cache that cannot hold one.

        The lengths of the requests grow now; ``truncate`` undoes a step that fails. If you plan a
        request again before all layers have appended its last step, some layers lack tokens, which
        leaves a gap. The plan is still made, but ``append`` and ``run`` refuse the request until
        you truncate it to where the gap begins.
        """
        requests, q_lens, tokens = check_plan(self._requests, seq_ids, q_lens, tokens)
        trees = None if parents is None else check_parents(parents, seq_ids, q_lens)
        gaps = [self._gap(request) for request in requests]
        if trees is None:
            states = self._reserve(requests, q_lens, tokens)
        else:
            states = self._reserve_trees(requests, trees, q_lens, tokens)
        seq_lens = tuple(r.length + n for r, n in zip(requests, q_lens, strict=True))
        ticket = Ticket()
        step = Step(self, ticket, tuple(seq_ids), q_lens, seq_lens, states, True, trees)
        for request, end, gap in zip(requests, seq_lens, gaps, strict=True):
            if request.ticket is not None:
                request.ticket.live = False
            request.ticket, request.gap = ticket, gap
            request.begun, request.length = request.length, end
            request.plans += 1
            if gap is not None:
                ticket.gap = request.name, gap
        return step

    def _reserve_trees(self, requests: list[Request], trees: Trees, *new: Any) -> Any:
        check_takes_trees(self)
        for request, tree in zip(requests, trees, strict=True):
            request.tree = tree
        try:
            return self._reserve(requests, *new)
        except BaseException:
            for request in requests:
                request.tree = None
            raise

    def run(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """Attend from the step's queries to all tokens that their requests hold.

        q (T, Hq, Dk)  →  o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq). Raises TypeError if a
        custom attention returns one where the other was asked for.
        """
        # A step proves that its plan was valid. `check_run` says what is wrong with the rest.
        fits = type(layer) is int and 0 <= layer < len(self.layers) and type(step) is Step
        fits = fits and step.owner is self and layer in step.ticket.appended
        fits = fits and step.ticket.live and step.ticket.gap is None
        if fits and type(q) is self.array_type and q.dtype == self.dtype and len(q.shape) == 3:
            spec, (t, heads, dim) = self.layers[layer], q.shape
            fits = t == step.qo_indptr[-1] and dim == spec.head_dim and heads > 0
            fits = fits and heads % spec.num_kv_heads == 0
            fits = fits and (spec.sinks is None or spec.sinks.shape == (heads,))
        else:
            fits = False
        if not fits:
            check_run(self, layer, q, step)
        if return_lse is not True and return_lse is not False:
            return_lse = check_flag("return_lse", return_lse)
        attend = type(self).attend if self.attention is None else self.attention
        with_lse = return_lse or self.watches
        found = attend(self, layer, q, step, with_lse)
        if isinstance(found, tuple | list) != with_lse or (with_lse and len(found) != 2):
            raise TypeError(
                f"with return_lse={with_lse} the attention {getattr(attend, '__name__', attend)} "
                f"returned {type(found).__name__}, needed {'(o, lse)' if with_lse else 'o alone'}"
            )
        if not self.watches:
            return found
        o, lse = found
        self.watch(layer, q, lse, step)
        return (o, lse) if return_lse else o

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return what a layer stores of a request: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,).

        The numbers are decoded, in the order of positions. Only the tokens of a tree of guesses,
        which come last, are in the order in which they were planned. The arrays may be views of the
        storage, so do not write to them. A cache that evicts per head gives positions (Hkv, S),
        each head's in order. Raises ValueError for a layer or a request that does not exist.
        """
        check_layer(self, layer)
        get_open(self._requests, seq_id)
        return self._read(layer, seq_id)

    def seq_len(self, seq_id: Hashable) -> int:
        """The absolute length of the request in tokens, even if some are no longer stored."""
        return get_open(self._requests, seq_id).length

    def truncate(self, seq_id: Hashable, length: int) -> None:
        """Shorten a request to its first ``length`` tokens."""
        request = get_open(self._requests, seq_id)
        if type(length) is not int and is_integer(length):
            length = index(length)
        if type(length) is not int or not 0 <= length <= request.length:
            raise ValueError(
                f"request {describe(seq_id)} holds {request.length} tokens and can be truncated "
                f"to a "
                f"length of 0 ... {request.length}, got {describe(length)}"
            )
        if request.tree is not None and length > request.begun:
            check_chain(request, length)
            return self.keep(seq_id, range(length - request.begun))
        # A step that is taken back wholly takes what it missed with it.
        gap = self._gap(request) if length > request.begun else request.gap
        self._check_truncate(request, length)
        self._truncate(request, length)
        request.gap = None if gap is None or gap >= length else gap
        request.length, request.tree = length, None
        self._end_step(request)

    def keep(self, seq_id: Hashable, path: Sequence[int]) -> None:
        """Keep some new tokens of a request's last step, and forget the others.

        path: the numbers of the tokens to keep, counted from 0 within the step. The first is a
        root, and each later one is a child of the one before. An empty path forgets all. The
        request is then as if its last step had held only these tokens: their keys and values are
        moved together, nothing is computed again, and no layer can run the step any more. If the
        request's new tokens are no tree, ``keep(seq_id, range(n))`` keeps the first n of them, as
        ``truncate`` would.

        Raises ValueError for numbers that are no such path, for a request whose last step has
        ended, and for tokens of a tree that some layer has not appended yet.

        >>> import numpy as np
        >>> from kvlib import DenseCache, LayerSpec
        >>> cache = DenseCache([LayerSpec(1, 2)], max_seqs=1, max_seq_len=16, xp=np)
        >>> cache.add("a")
        0
        >>> step = cache.plan(["a"], [3], parents=[[-1, 0, 0]])  # 1 and 2 both follow 0
        >>> k = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
        >>> cache.append(0, k, k, step)
        >>> cache.keep("a", [0, 2])
        >>> cache.read(0, "a")[0][:, 0].tolist(), cache.seq_len("a")
        ([[0.0, 1.0], [4.0, 5.0]], 2)
        """
        request = get_open(self._requests, seq_id)
        kept = check_path(request, path)
        if request.tree is None or not kept:
            return self.truncate(seq_id, request.begun + len(kept))
        check_whole(request, len(self.layers))
        self._keep(request, kept)
        request.length, request.tree = request.begun + len(kept), None
        self._end_step(request)

    def settle(self, seq_id: Hashable) -> None:
        """End the last step of a request, as its next ``plan`` would: no layer can run it again."""
        check_no_tree(get_open(self._requests, seq_id))
        self.truncate(seq_id, self.seq_len(seq_id))

    def fork(self, src: Hashable, dst: Hashable) -> None:
        """Open request ``dst`` with everything that ``src`` holds; the two are then independent."""
        source = get_open(self._requests, src)
        check_new(self._requests, dst)
        check_no_tree(source)
        gap, request = self._gap(source), self._copy(source, dst)
        request.length = request.begun = source.length
        request.gap = gap
        request.name, self._requests[dst] = dst, request

    def free(self, seq_id: Hashable) -> None:
        """Close a request and free its room."""
        request = get_open(self._requests, seq_id)
        if request.tree is not None:  # wrong guesses must not be found by anybody
            self.truncate(seq_id, request.begun)
        self._release(request)
        self._end_step(request)
        del self._requests[seq_id]

    def _gap(self, request: Request) -> int | None:
        """The first token that some layer would lack for good if the request were planned now."""
        return request.gap_after(len(self.layers))

    @staticmethod
    def _end_step(request: Request) -> None:
        if request.ticket is not None:
            request.ticket.live = False
            request.ticket = None

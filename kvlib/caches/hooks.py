"""The methods that a cache of your own overrides, and what each does where it is not overridden.

* ``_open`` gives a `Request`; the cache may note in its ``state`` whatever it needs.
* ``append`` first asks ``self._check_append``, which refuses what does not fit. It stores rows
  ``step.qo_indptr[i]`` to ``step.qo_indptr[i + 1]`` for request i, and at the end notes the layer:
  ``step.ticket.appended.add(layer)``. Without that, ``run`` refuses the layer.
* ``_read`` gives all of it back. ``read`` asks it only for layers and requests that exist.
* ``_truncate`` forgets, exactly to where the last step began. ``_check_truncate`` refuses lengths
  that it cannot go back to, and is always asked first. What cannot be undone (eviction, for
  example) belongs in ``_reserve``, which ``plan`` calls.
* ``_keep`` serves ``keep``, and ``plan`` refuses trees of guesses where it is missing. The new
  tokens of such a step lie in the order in which they were planned, whatever their positions.
* ``_copy`` serves ``fork``, ``_release`` gives back what ``free`` must give back, and ``storage``
  and ``memory`` are for those who count bytes. A cache works without these.
* ``attend`` is attention over ``read``, right and slow, until you override it to be fast.

book/extend.ipynb writes such a cache, and `kvlib.testing` plays random lives of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kvlib.arrays import Array
from kvlib.attention import attend
from kvlib.caches.retention.rules import LayerGroup
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Extra, Request, Step
from kvlib.codecs.base import PLAIN, Codec, TensorCodec

Answer = Array | tuple[Array, Array]  # o (T, Hq, Dv), or o and lse (T, Hq)


class CacheHooks:
    """The methods of a cache that differ from one kind to the next. `Cache` calls them."""

    layers: tuple[LayerSpec, ...]
    xp: Any
    dtype: Any
    array_type: Any  # the class of its arrays

    # Where keys are stored, for code that reads them in place (kernels, cascade) ------------------

    codec: Codec = PLAIN
    block_size: Any = None  # tokens of a block, where requests lie in blocks of a pool
    watches = False  # whether `watch` wants to see the queries of every step
    groups: Sequence[LayerGroup] = ()  # layers that share tables, in a cache that has tables
    forgets = False  # whether a layer gives tokens back while its request goes on
    undoable: int | None = None  # tokens of the longest step that can be undone in part; None: any

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        """How a layer's keys and its values are stored: for each, the codec and its arrays by name.

        An array is (pages, Hkv, n, ...). A page is a block of a PagedCache or a row of a
        DenseCache. For the tokens of one page, this array has n entries per head: one per token, or
        one per group of tokens. Values that are taken from the keys are left out, and a cache
        without pages returns an empty tuple.
        """
        return ()

    # What a cache does with requests --------------------------------------------------------------

    def _open(self, seq_id: Hashable, tokens: Sequence[int], extra: Extra) -> Request:
        """Make a new request, or raise. ``request.length`` is how many tokens are already held."""
        return Request(None)

    def _reserve(
        self, requests: list[Request], q_lens: Sequence[int], tokens: Sequence[int] | None
    ) -> Any:
        """Make room for all of the new tokens, or raise before changing anything.

        Returns what the step should carry for ``append`` and ``run`` as ``step.states``.
        """
        return None

    def _seen_again(self, requests: list[Request]) -> Any:
        """What a step that appends nothing (`cross_step`) should carry as ``step.states``."""
        return None

    def _check_truncate(self, request: Request, length: int) -> None:
        """Raise ValueError for a length that ``truncate`` must refuse; it then changes nothing."""

    def _truncate(self, request: Request, length: int) -> None:
        """Forget all tokens after the first ``length``, which `_check_truncate` has let through."""
        ticket = request.ticket
        planned = ticket is not None and not ticket.appended and length >= request.begun
        if length < request.length and not planned:  # somebody has stored what is to go
            raise TypeError(
                f"{type(self).__name__} cannot truncate requests: write _truncate(request, length)"
            )

    def _keep(self, request: Request, path: Sequence[int]) -> None:
        """Forget the step's new tokens but those of a path, and move these together.

        path: their numbers, in rising order. New token ``path[i]`` becomes token
        ``request.begun + i``. Keys need no other rotation, because each has had that position all
        the time.
        """
        raise TypeError(f"{type(self).__name__} cannot keep a path of a tree")

    def _check_trees(self) -> None:
        """Raise ValueError if the cache cannot hold trees of guesses."""
        if type(self)._keep is CacheHooks._keep:
            raise ValueError(
                f"parents must be left out: {type(self).__name__} has no method _keep, so it "
                "cannot give back what is wrong of a tree"
            )

    def _copy(self, source: Request, seq_id: Hashable) -> Request:
        """A second request with the content of ``source``, or raise."""
        raise TypeError(f"{type(self).__name__} cannot fork requests")

    def _release(self, request: Request) -> None:
        """Take back the memory of a request."""

    def storage(self) -> Iterator[Array]:
        """Every array that the cache has allocated."""
        raise TypeError(f"{type(self).__name__} does not name its arrays")

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Store the step's keys and values: k (T, Hkv, Dk), v (T, Hkv, Dv).

        v is None where the layer takes its values from its keys.
        """
        raise TypeError(f"{type(self).__name__} cannot append")

    if TYPE_CHECKING:  # of Cache: it checks the arguments, and then calls _read

        def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]: ...

    def _read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Return what ``read`` returns, for a layer and a request that exist."""
        raise TypeError(f"{type(self).__name__} cannot be read")

    def memory(self) -> Memory:
        """Bytes held, measured from the arrays."""
        raise TypeError(f"{type(self).__name__} does not measure its memory")

    def attend(self, layer: int, q: Array, step: Step, return_lse: bool = False) -> Answer:
        """Compute the result of ``run``, after ``run`` has checked the arguments."""
        parts: list[Any] = []
        settings = {**self.layers[layer].settings, "return_lse": return_lse}
        for i, seq_id in enumerate(step.seq_ids):
            rows = slice(step.qo_indptr[i], step.qo_indptr[i + 1])
            k, v, positions = self.read(layer, seq_id)
            own, at, seen = q[rows, ...], step.positions[rows], step.ancestors(i)
            if seen is None:
                parts.append(attend(own, k, v, at, positions, **settings))
                continue
            old, each = k.shape[0] - seen.shape[1], []
            for row in range(len(seen)):  # one at a time: its ancestors, and nothing beside them
                line = np.flatnonzero(seen[row])
                where = np.concatenate([np.arange(old), old + line])
                some = self.xp.asarray(where, dtype=self.xp.int64, device=k.device)
                x, y = (self.xp.take(whole, some, axis=0) for whole in (k, v))
                of, one = self.xp.take(positions, some, axis=-1), slice(row, row + 1)
                of[..., old:] = at[row] - self.xp.arange(len(line) - 1, -1, -1, dtype=of.dtype)
                each.append(attend(own[one, ...], x, y, at[one], of, **settings))
            parts.append(self.join(each, return_lse))
        return self.join(parts, return_lse)

    def join(self, parts: list[Any], return_lse: bool) -> Any:
        """Join the results of single requests to that of ``run``: o, or o and lse."""
        if len(parts) == 1:
            return parts[0]
        if not return_lse:
            return self.xp.concat(parts, axis=0)
        return tuple(self.xp.concat([p[i] for p in parts], axis=0) for i in (0, 1))

    def watch(self, layer: int, q: Array, lse: Array, step: Step) -> None:
        """Look at queries q (T, Hq, Dk) that ``run`` has answered, and their lse (T, Hq).

        ``run`` calls it where `watches` is True. By default it does nothing.
        """

    def check_room(self, seq_id: Hashable, length: int) -> None:
        """Refuse a request that could not grow to `length` tokens even if it were alone.

        Raises CacheFull or OutOfBlocks. A cache without a fixed size refuses no request.
        """

    def waits_for(
        self, tokens: Sequence[int], others: Iterable[tuple[Hashable, Sequence[int]]]
    ) -> bool:
        """Whether a prompt should be opened later, because another request is computing its tokens.

        A cache whose requests share nothing answers False.
        tokens: the prompt. others: names and prompts of open requests.
        """
        return False

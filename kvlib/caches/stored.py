"""What the caches that keep pages of codes have in common: dense rows are one page each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from kvlib.arrays import Array, is_numpy, itemsize, nbytes
from kvlib.attention.batched import alike, attend_rows, by_text, taken
from kvlib.attention.pieces import attend_pieces
from kvlib.caches.checks import check_layer, get_open
from kvlib.caches.gather import VIEWED, StoredPieces, side_by_side
from kvlib.caches.protocol import Attention, Cache, Request
from kvlib.caches.spec import LayerSpec, Memory
from kvlib.caches.step import Step
from kvlib.caches.store import Store, Tail
from kvlib.codecs import PLAIN, Codec
from kvlib.codecs import codec as codec_of
from kvlib.codecs.base import TensorCodec
from kvlib.meter import counting, report


class Place:
    """Where a request lies: its pages, how many of its first tokens are codes, what waits.

    start, before: length and coded tokens at the last plan, to which a step can be taken back.
    table: the pages as an array where the cache lives, for the step at hand; NumPy needs none.
    """

    __slots__ = ("before", "coded", "pages", "start", "table", "tails")

    def __init__(self, pages: list[int], tails: list[Tail | None], coded: int = 0) -> None:
        self.pages, self.tails = pages, tails
        self.coded = self.before = coded
        self.start = 0
        self.table: Array | None = None


class StoredCache(Cache):
    """Pages of `size` tokens, encoded by `codec`; a subclass decides who gets which pages.

    codec: a Codec or its name (kvlib.codecs.NAMES); numbers as they come where it is None.
    size_name: what that size is called where the cache is made.
    """

    size_name = "size"

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        pages: int,
        size: int,
        codec: Codec | str | None,
        dtype: Any,
        xp: Any,
        attention: Attention | None,
    ) -> None:
        super().__init__(layers, dtype=dtype, xp=xp, attention=attention)
        self.codec = PLAIN if codec is None else codec_of(codec)
        if size % self.codec.group:
            raise ValueError(
                f"{self.size_name} must be a multiple of the {self.codec.group} tokens that "
                f"{self.codec.made_by} encodes together, got {size}"
            )
        self.page_size = size
        self._lent = threading.local()  # memory for copies of keys and of values, for each thread
        self.stores = [Store(self.xp, self.codec, s, pages, size, self.dtype) for s in self.layers]

    def _tails(self, like: Place | None = None) -> list[Tail | None]:
        """Room for tokens that wait, one a layer; with the content of another request's."""
        tails = [store.tail() for store in self.stores]
        for new, old in zip(tails, like.tails if like else (), strict=False):
            if new is not None and old is not None:
                for x, y in ((new.k, old.k), (new.v, old.v)):
                    if x is not None and y is not None:
                        x[...] = y
        return tails

    def pages(self, step: Step) -> list[Sequence[int]]:
        return [place.pages for place in step.places]

    def paged_lens(self, step: Step) -> Sequence[int]:
        return [p.coded for p in step.places] if self.codec.waits else step.seq_lens

    def fields(self, layer: int) -> tuple[tuple[TensorCodec, Mapping[str, Array]], ...]:
        return tuple((fields.codec, fields.arrays) for fields in self.stores[layer].both)

    # Steps --------------------------------------------------------------------------------------

    def _begin(self, request: Request, n: int) -> None:
        """A new step of n tokens: what the last one pushed out of the tail is gone for good."""
        place = request.place
        self._settle_tails(place, request.length)
        place.coded = max(place.coded, self.codec.coded(request.length + n))

    def _send_tables(self, requests: list[Request]) -> None:
        """The pages of a step's requests to the device, in one copy for all layers."""
        xp, places = self.xp, [request.place for request in requests]
        if is_numpy(xp):
            return
        table = xp.asarray([page for place in places for page in place.pages], dtype=xp.int64)
        at = 0
        for place in places:
            place.table = table[at : at + len(place.pages)]
            at += len(place.pages)

    def _sure(self, request: Request) -> int:
        place = request.place
        # What should have been encoded in an unfinished pass waits for ever, and is lost.
        return place.start if place.coded == place.before else min(place.start, place.before)

    def _truncate(self, request: Request, length: int) -> None:
        place, group = request.place, self.codec.group
        restored = place.before <= length <= place.start  # the last step is taken back
        if not restored and length < place.coded and length % group:
            name = next(s for s, r in self._requests.items() if r is request)
            raise ValueError(
                f"request {name!r} cannot go back to {length} tokens: {self.codec.made_by} has "
                f"encoded the first {place.coded} in groups of {group}; it can to multiples of "
                f"{group}, to {place.before} ... {place.start} and to {place.coded} ... "
                f"{request.length}"
            )
        for tail in place.tails:
            if tail is not None and restored and tail.previous is not None:
                tail.k, tail.v = tail.previous
        place.coded = place.before if restored else min(place.coded, length)
        self._settle_tails(place, length)

    def _settle_tails(self, place: Place, length: int) -> None:
        """From here on the step before cannot be taken back any more."""
        for tail in place.tails:
            if tail is not None:
                tail.previous = None
        place.start, place.before = length, place.coded

    def append(self, layer: int, k: Array, v: Array | None, step: Step) -> None:
        """Write the step's keys and values where their requests have room.

        k (T, Hkv, Dk)   v (T, Hkv, Dv), or None where the layer takes values from its keys.
        """
        self._check_append(layer, k, v, step)
        new = [None if x is None else self._heads_first(x) for x in (k, v)]
        for i, place in enumerate(step.places):
            a, b, end = step.qo_indptr[i], step.qo_indptr[i + 1], step.seq_lens[i]
            part = [None if x is None else x[:, a:b, :] for x in new]
            span, coded = (end - b + a, end), (place.before, place.coded)
            written = self.stores[layer].write(
                place.pages, place.tails[layer], span, coded, part[0], part[1]
            )
            if counting():
                report("append", written=written)
        step.ticket.appended.add(layer)

    def _heads_first(self, x: Array) -> Array:
        if x.dtype != self.dtype:
            x = self.xp.astype(x, self.dtype)
        return self.xp.permute_dims(x, (1, 0, 2))

    def attend(
        self, layer: int, q: Array, step: Step, return_lse: bool = False
    ) -> Array | tuple[Array, Array]:
        """Attend: q (T, Hq, Dk) → o (T, Hq, Dv), and with ``return_lse`` lse (T, Hq).

        One request after the other, or several short ones in one product where each has one query.
        """
        spec = self.layers[layer]
        parts: dict[int, Any] = {}
        one_each = 1 < len(step.places) == step.qo_indptr[-1]
        for batch in self._batches(spec, step) if one_each else ():
            found = self._run_batch(layer, q, step, batch, return_lse)
            if len(batch) == len(step.places):
                return found
            parts |= by_text(found, batch)
        for i, (place, end) in enumerate(zip(step.places, step.seq_lens, strict=True)):
            if i in parts:
                continue
            rows = q[step.qo_indptr[i] : step.qo_indptr[i + 1], :, :]
            first = 0 if spec.window is None else max(0, end - rows.shape[0] - spec.window + 1)
            pieces = StoredPieces(
                self.stores[layer],
                place.pages,
                place.tails[layer],
                place.coded,
                first,
                end,
                place.table,
            )
            parts[i] = attend_pieces(
                rows, pieces, end, self.xp, return_lse=return_lse, **spec.settings
            )
        return self._join([parts[i] for i in range(len(parts))], return_lse)

    def _batches(self, spec: LayerSpec, step: Step) -> list[list[int]]:
        """Which requests of a step of one query each attend in one product.

        Small blocks have to be gathered anyway, so gathering several requests at once costs nothing
        more. Codes and 16-bit numbers are left out: they become floats one piece at a time.
        """
        wide = self.dtype in (self.xp.float32, self.xp.float64)
        plain = self.codec.plain and not self.codec.waits
        if not (wide and plain and is_numpy(self.xp) and self.page_size < VIEWED):
            return []
        return alike(step.seq_lens, spec.num_kv_heads * spec.v_dim, spec.window)

    def _run_batch(
        self, layer: int, q: Array, step: Step, batch: list[int], return_lse: bool
    ) -> Any:
        spec, size = self.layers[layer], self.page_size
        longest = max(step.seq_lens[i] for i in batch)
        # Pages behind the window are skipped. The requests then have one length (see `pays`), so
        # `attend_rows` does not look at the ends, which still count the skipped tokens.
        first = 0 if spec.window is None else max(0, longest - spec.window) // size
        left_out = first * size
        tables = [step.places[i].pages for i in batch]
        # Kept between calls, about GATHERED numbers each for layers of one shape: fresh memory from
        # the system would cost more than the copies themselves.
        rooms = self._lent.__dict__.setdefault("rooms", ({}, {}))
        k, v = side_by_side(self.stores[layer], tables, first, longest - left_out, rooms)
        return attend_rows(
            taken(self.xp, q, batch),
            k,
            v,
            [step.seq_lens[i] - left_out for i in batch],
            taken(self.xp, step.lengths, batch),
            return_lse=return_lse,
            **spec.settings,
        )

    def read(self, layer: int, seq_id: Hashable) -> tuple[Array, Array, Array]:
        """Copies of what a layer holds, decoded: k (S, Hkv, Dk), v (S, Hkv, Dv), positions (S,)."""
        request = get_open(self._requests, seq_id)
        check_layer(self, layer)
        place, xp, s = request.place, self.xp, request.length
        coded, tail = self._held(request), place.tails[layer]
        found = self.stores[layer].decoded(place.pages, tail, coded, s)
        k, v = (xp.permute_dims(x, (1, 0, 2)) for x in found)
        return k, v, xp.arange(s, dtype=xp.int64)

    def storage(self) -> Iterator[Array]:
        """Every field of every layer, and the tails of open requests."""
        for store in self.stores:
            yield from store.arrays()
        for request in self._requests.values():
            for tail in request.place.tails:
                if tail is not None:
                    yield from tail.arrays()

    # Bytes --------------------------------------------------------------------------------------

    def _filled(self) -> dict[int, int]:
        """Page → tokens in it that belong to somebody, shared pages once."""
        size = self.page_size
        filled: dict[int, int] = {}
        for request in self._requests.values():
            held, pages = self._held(request), request.place.pages
            full = min(held // size, len(pages))
            filled.update(dict.fromkeys(pages[:full], size))
            for n, page in enumerate(pages[full:], full):
                filled[page] = max(filled.get(page, 0), max(0, held - n * size))
        return filled

    def _held(self, request: Request) -> int:
        """Tokens of a request that lie in its pages."""
        return request.place.coded if self.codec.waits else request.length

    def memory(self) -> Memory:
        """Bytes measured from the arrays: numbers of live tokens, their scales, all, and waste."""
        filled = self._filled()
        alike = Counter(filled.values())  # most pages are full: counted, not looked at one by one
        payload = metadata = claimed = 0
        for store in self.stores:
            for fields in store.both:
                claimed += len(filled) * fields.nbytes(self.page_size)
                for tokens, pages in alike.items():
                    for name, size in fields.of(tokens).items():
                        if fields.fields[name].payload:
                            payload += pages * size
                        else:
                            metadata += pages * size
        for request in self._requests.values():
            waiting = request.length - request.place.coded
            for tail in request.place.tails:
                if tail is not None:
                    claimed += sum(nbytes(x) for x in tail.arrays())
                    for x in (tail.k, tail.v):
                        if x is not None:
                            row = x.shape[0] * x.shape[2] * itemsize(self.xp, x.dtype)
                            payload += waiting * row
        reserved = sum(nbytes(x) for x in self.storage())
        return Memory(payload, metadata, reserved, wasted=claimed - payload - metadata)

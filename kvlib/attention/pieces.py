"""Where attention reads keys and values: slices of two arrays, or pages in which codecs write them.

The loops of `kvlib.attention.causal` multiply one piece after the other. A piece is a few hundred
tokens of a request: a view of an array or of a large page, a copy of several small pages in one
buffer (so memory doesn't grow with the text), or the tokens that wait to be encoded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from kvlib import blas
from kvlib.arguments import describe
from kvlib.arrays import Array, itemsize, kv_nbytes, nbytes, new_array
from kvlib.attention.partials import as_dtype
from kvlib.codecs.base import Encoded, Field, Plain, TensorCodec
from kvlib.meter import report

VIEWED = 64  # pages of at least so many tokens are read where they are stored; of smaller ones,
# several are copied into one piece, but a piece that one page holds is read there, too
# Tokens that smaller pages are gathered into, or larger ones cut to; 256 fit the processor's cache.
# With 2 heads of 64 numbers, pieces of 64 took over twice as long, because of their calls; with 8
# heads of 128, about as long (pages of 16 tokens, 2,048 and 8,192 tokens, one thread).
STORED_PIECE = 256
Buffers = dict[str, Array]  # name, shape and dtype of a row → an array of such rows to copy into
# Where a piece is: (page, a, b), slots of a page, read where they are stored; (index, a, b), tokens
# of some pages, copied one after the other, with index from `page_head_index`; (None, a, b), tokens
# that wait to be encoded.
Where = tuple[Any, int, int]
WHAT = "the rows or blocks of one layer"  # in the error if there is no memory for them


class Pieces:
    """Keys and values of one request in one layer in pieces; spans: (first, last + 1) of each."""

    spans: list[tuple[int, int]]
    num_kv_heads: int
    v_dim: int

    def scores(self, i: int, rows: Array) -> Array:
        """rows (Hkv, R, Dk) · keys of piece i → (Hkv, R, n), an array that may be overwritten."""
        raise NotImplementedError

    def weigh(self, i: int, p: Array) -> Array:
        """p (Hkv, R, n) · values of piece i → (Hkv, R, Dv), an array that may be overwritten."""
        raise NotImplementedError

    def nbytes(self, i: int) -> int:
        """Bytes that piece i takes where it is stored: what reading it costs."""
        raise NotImplementedError

    def seen(self, low: int, high: int) -> Sequence[int]:
        """Which pieces hold a token of low ... high − 1; asked once for each chunk of queries."""
        return [i for i, (a, b) in enumerate(self.spans) if b > low and a < high]


def report_piece(pieces: Pieces, i: int, rows: Array) -> None:
    """Report what attention from rows (Hkv, R, Dk) to piece i computes and reads."""
    a, b = pieces.spans[i]
    dims = rows.shape[2] + pieces.v_dim
    flops = 2 * rows.shape[0] * rows.shape[1] * (b - a) * dims
    report("attention", flops=flops, read=pieces.nbytes(i))


def piece_length(xp: Any, q: Array, k: Array, v: Array) -> int:
    """Keys in a piece: few enough for the processor's cache, many where each costs a launch."""
    if q.shape[0] > 1:
        rows = q.shape[0] * q.shape[1] // k.shape[0]
        return blas.piece_of_a_chunk(xp, rows, max(q.shape[2], v.shape[2]))
    if k.dtype == q.dtype and not (xp is np and q.shape[1] > k.shape[0]):
        return max(1, k.shape[1])
    return blas.DECODE_PIECE if xp is np else blas.DEVICE_PIECE


class Slices(Pieces):
    """k (Hkv, S, Dk) and v (Hkv, S, Dv), cut anew for each chunk of queries."""

    def __init__(self, xp: Any, k: Array, v: Array, piece_length: int) -> None:
        self.xp, self.k, self.v, self.piece_length = xp, k, v, piece_length
        self.spans: list[tuple[int, int]] = []
        self.num_kv_heads, _, self.v_dim = v.shape

    def seen(self, low: int, high: int) -> range:
        """Cut keys low ... high − 1 into pieces of much the same size; all of them are seen."""
        count = round((high - low) / self.piece_length) or 1
        length = -(-(high - low) // count)
        self.spans = [(a, min(a + length, high)) for a in range(low, high, length)]
        return range(len(self.spans))

    def scores(self, i: int, rows: Array) -> Array:
        a, b = self.spans[i]
        return blas.scores(self.xp, rows, as_dtype(self.xp, self.k[:, a:b, :], rows.dtype))

    def weigh(self, i: int, p: Array) -> Array:
        a, b = self.spans[i]
        return blas.weigh(self.xp, p, as_dtype(self.xp, self.v[:, a:b, :], p.dtype))

    def nbytes(self, i: int) -> int:
        a, b = self.spans[i]
        return kv_nbytes(self.k[:, a:b, :], self.v[:, a:b, :])


class PagedTensor:
    """The keys, or the values, of one layer as a codec writes them: arrays (pages, Hkv, size / per,
    ...) by name, in pages of `size` tokens, and the `Bounds` of each page or None."""

    def __init__(
        self, xp: Any, codec: TensorCodec, heads: int, dim: int, pages: int, size: int, dtype: Any
    ) -> None:
        codec.check(dim)
        self.xp, self.codec, self.heads, self.dim = xp, codec, heads, dim
        self.pages, self.size = pages, size
        self.plain = type(codec) is Plain
        self.bounds: Any = None
        self.fields: dict[str, Field] = codec.fields(dim, xp, dtype)
        self.arrays: dict[str, Array] = {}
        # For `read`, of each field: its name, tokens and shape of an entry, the key of its buffer
        # (keys and values of the same shape share one), and its array's shape as a matrix with a
        # row for each page and head.
        self._kinds: list[tuple[str, int, tuple[int, ...], str, tuple[int, int]]] = []
        self._entries: list[tuple[Field, int]] = []  # and the bytes of an entry
        self._checked: set[int] = set()  # numbers of tokens for which `encode` was checked
        for name, field in self.fields.items():
            if codec.group % field.per:
                raise ValueError(
                    f"group of {codec!r} must be a multiple of the {field.per} tokens of an entry "
                    f"in its field {name!r}, got {codec.group}"
                )
            shape = (pages, heads, size // field.per, *field.shape)
            x = self.arrays[name] = new_array(xp, WHAT, shape, field.dtype)
            flat = pages * heads, x.size // max(1, pages * heads)
            kind = f"{name} {shape[1:]} {x.dtype}"
            self._kinds.append((name, field.per, field.shape, kind, flat))
            self._entries.append((field, nbytes(x) // max(1, pages * (size // field.per))))

    def payload_and_metadata(self, tokens: int) -> tuple[int, int]:
        """Bytes of so many tokens (whole groups): of numbers or codes, and of scales and zeros."""
        nbytes = [0, 0]
        for field, entry in self._entries:
            nbytes[not field.payload] += entry * -(-tokens // field.per)
        return nbytes[0], nbytes[1]

    def view(self, page: int, a: int, b: int) -> Encoded:
        """Tokens a ... b of one page, where they are stored."""
        return {
            name: self.arrays[name][page, :, a // field.per : b // field.per, ...]
            for name, field in self.fields.items()
        }

    def read(self, where: Where, buffers: Buffers | None) -> Encoded:
        """One piece. buffers: where to copy to; the next call that is given them overwrites it."""
        index, a, b = where
        if type(index) is int:
            return self.view(index, a, b)
        xp, count, encoded = self.xp, index.shape[0], {}
        for name, per, shape, kind, flat in self._kinds:
            array, entries = self.arrays[name], count // self.heads * (self.size // per)
            if buffers is None or xp is not np:
                part = xp.take(xp.reshape(array, flat), index, axis=0)
                part = xp.reshape(part, (self.heads, entries, *shape))
            else:
                buffer = buffers.get(kind)
                if buffer is None or buffer.shape[0] < count:
                    buffer = buffers[kind] = np.empty((count, flat[1]), array.dtype)
                # mode: NumPy copies straight into `out`; a page is never outside
                part = array.reshape(flat).take(index, axis=0, out=buffer[:count], mode="clip")
                part = part.reshape(self.heads, entries, *shape)
            encoded[name] = part[:, a // per : b // per, ...]
        return encoded

    def encoded(self, x: Array) -> Encoded:
        """Encode x (Hkv, n, D); the result is checked the first time for each n."""
        encoded = self.codec.encode(x)
        if x.shape[1] not in self._checked:
            self._check_encoded(encoded, x.shape[1])
            self._checked.add(x.shape[1])
        return encoded

    def write(self, pages: Sequence[int], at: int, x: Array) -> int:
        """Encode x (Hkv, n, D) as the stored tokens from `at` on; gives the bytes written."""
        return self.put(pages, at, self.encoded(x))

    def _check_encoded(self, encoded: Any, tokens: int) -> None:
        """Refuse any result but the fields of that many tokens; the error names the codec."""

        def refuse(error: type[Exception], words: str) -> NoReturn:
            raise error(f"encode of {self.codec!r} {words}")

        if not isinstance(encoded, Mapping):
            refuse(TypeError, f"must return a dict of arrays, got {describe(encoded)}")
        if encoded.keys() != self.fields.keys():
            refuse(
                ValueError,
                f"returned the fields {list(encoded)}, needed {list(self.fields)}, which its "
                "method `fields` names",
            )
        for name, field in self.fields.items():
            part, array = encoded[name], self.arrays[name]
            if not isinstance(part, type(array)):
                library = self.xp.__name__
                refuse(
                    TypeError,
                    f"must return arrays of {library}, got for {name!r}: {describe(part)}",
                )
            shape = (self.heads, tokens // field.per, *field.shape)
            if part.shape != shape:
                refuse(
                    ValueError,
                    f"returned {name!r} of shape {tuple(part.shape)}, needed {shape}: heads, "
                    f"{tokens} tokens / {field.per}, and the shape that `fields` gives",
                )
            floating = {self.xp.isdtype(x.dtype, "real floating") for x in (part, array)}
            if len(floating) > 1:
                refuse(
                    ValueError,
                    f"returned {name!r} as {part.dtype}, but `fields` says {array.dtype}; round "
                    "and convert codes in encode",
                )

    def put(self, pages: Sequence[int], at: int, encoded: Encoded) -> int:
        """Write fields of n tokens as the stored tokens from `at` on; gives the bytes written."""
        written = 0
        for name, field in self.fields.items():
            array, part, per = self.arrays[name], encoded[name], field.per
            entries, first, done = self.size // per, at // per, 0
            while done < part.shape[1]:
                page, entry = divmod(first + done, entries)
                n = min(entries - entry, part.shape[1] - done)
                array[pages[page], :, entry : entry + n, ...] = part[:, done : done + n, ...]
                done += n
                if self.bounds is not None:
                    self.bounds.fresh[pages[page]] = False
            written += nbytes(part)
        return written

    def move(self, source: "PagedTensor", origin: int, target: int, first: int, tokens: int) -> int:
        """Copy tokens from `first` on of a page of `source` to page `target`; gives bytes."""
        parts = source.view(origin, first, first + tokens)
        if self.xp is not np:  # NumPy copes with a source that its target overlaps
            parts = {name: self.xp.asarray(x, copy=True) for name, x in parts.items()}
        return self.put([target], 0, parts)

    def gather(self, pages: Sequence[int], tokens: int) -> Encoded:
        """The first `tokens` tokens of some pages, copied one after the other."""
        index = self.xp.asarray(pages, dtype=self.xp.int64)
        return self.read((page_head_index(self.xp, index, self.heads), 0, tokens), None)


def page_head_index(xp: Any, pages: Array, heads: int) -> Array:
    """Where heads' parts of pages (n,) or (Hkv, n) are among (page, head) pairs: (Hkv · n,)."""
    pages = pages * heads + xp.arange(heads, dtype=xp.int64)[:, None]
    return xp.reshape(pages, (-1,))


class Cut(NamedTuple):
    """How what is stored of a request is cut into pieces; the same for layers that store alike."""

    spans: list[tuple[int, int]]
    where: list[Where]


def cut(
    xp: Any,
    pages: Sequence[int] | None,
    table: Array,
    heads: int,
    size: int,
    decode_group: int,
    *,
    first: int,
    last: int,
    end: int,
) -> Cut:
    """Cut tokens from about `first` to `last` in pages of `size`, and those that wait until `end`.

    pages: their numbers, None if each head has its own; table: as an array, (n,) or (Hkv, n).
    decode_group: tokens decoded together; 0 for numbers that need no decoding.
    """
    length = size
    if size < VIEWED:
        length = max(1, STORED_PIECE // size) * size
    elif decode_group:
        length = min(size, max(1, STORED_PIECE // decode_group) * decode_group)
    spans: list[tuple[int, int]] = []
    where: list[Where] = []
    at = first // length * length
    while at < last:
        stop, page = min(at + length, last), at // size
        if size >= VIEWED:  # never over the end of a page that is read where it is
            stop = min(stop, (page + 1) * size)
        a, b = at - page * size, stop - page * size
        if pages is not None and b <= size:
            where.append((pages[page], a, b))
        else:
            some = table[..., page : -(-stop // size)]
            where.append((page_head_index(xp, some, heads), a, b))
        spans.append((at, stop))
        at = stop
    if end > last:
        spans.append((last, end))
        where.append((None, 0, end - last))
    return Cut(spans, where)


class StoredPieces(Pieces):
    """The pages and then the waiting tokens (Hkv, n, D) of a request, as a `Cut` divides them."""

    def __init__(
        self, cut: Cut, keys: PagedTensor, values: PagedTensor, v_dim: int, waiting: Sequence[Array]
    ) -> None:
        self.spans, self.where = cut
        self.keys, self.values, self.waiting = keys, values, waiting
        self.num_kv_heads, self.v_dim = keys.heads, v_dim
        self.buffers: Buffers = {}  # of this run alone: another thread has its own

    def scores(self, i: int, rows: Array) -> Array:
        where = self.where[i]
        if where[0] is None:
            return blas.scores(self.keys.xp, rows, self._waiting(0, where, rows.dtype))
        return self.keys.codec.scores(rows, self.keys.read(where, self.buffers))

    def weigh(self, i: int, p: Array) -> Array:
        where = self.where[i]
        if where[0] is None:
            values = self._waiting(-1, where, p.dtype)[..., : self.v_dim]
            return blas.weigh(self.keys.xp, p, values)
        return self.values.codec.weigh(p, self.values.read(where, self.buffers), self.v_dim)

    def _waiting(self, which: int, where: Where, dtype: Any) -> Array:
        """The keys (which = 0) or values (-1) that wait."""
        return as_dtype(self.keys.xp, self.waiting[which][:, where[1] : where[2], :], dtype)

    def nbytes(self, i: int) -> int:
        a, b = self.spans[i]
        if self.where[i][0] is None:
            tokens = [(x.shape[0] * x.shape[2], x.dtype) for x in self.waiting]
            return (b - a) * sum(n * itemsize(self.keys.xp, dtype) for n, dtype in tokens)
        stored = [self.keys] if self.values is self.keys else [self.keys, self.values]
        return sum(sum(tensor.payload_and_metadata(b - a)) for tensor in stored)

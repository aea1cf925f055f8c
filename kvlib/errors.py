"""The errors of kvlib's own. Everything else that is wrong raises `ValueError` or `TypeError`."""


class CacheFull(RuntimeError):
    """A cache has no row, or no room in a row, for what was asked; nothing was changed.

    >>> from kvlib import DenseCache, LayerSpec
    >>> cache = DenseCache([LayerSpec(1, 4)], max_seqs=1, max_seq_len=8)
    >>> held = cache.add("a"), cache.add("b")
    Traceback (most recent call last):
        ...
    kvlib.errors.CacheFull: ...
    """


class OutOfBlocks(RuntimeError):
    """A block pool has too few free blocks for what was asked; nothing was changed.

    >>> from kvlib import BlockPool
    >>> BlockPool(num_blocks=4, block_size=16).allocate(5)
    Traceback (most recent call last):
        ...
    kvlib.errors.OutOfBlocks: ...
    """


class CheckpointError(ValueError):
    """A checkpoint folder cannot be read: the message names the file and the key or tensor.

    without  the key of config.json that the message advises to leave out, if it advises that

    >>> from kvlib import load_model
    >>> load_model("no-such-folder")
    Traceback (most recent call last):
        ...
    kvlib.errors.CheckpointError: ...
    """

    without: str | None = None

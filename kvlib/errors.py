"""The errors of kvlib's own. Everything else that is wrong raises `ValueError` or `TypeError`."""


class CacheFull(RuntimeError):
    """A cache has no row, or no room in a row, for what was asked; nothing was changed."""


class OutOfBlocks(RuntimeError):
    """A block pool has too few free blocks for what was asked; nothing was changed."""


class CheckpointError(ValueError):
    """A checkpoint folder cannot be read: the message names the file and the key or tensor."""

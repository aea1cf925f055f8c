"""What a call on hostile input may do: return, or raise a CheckpointError at once and in words."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig


def refused(call: Callable[[], object], *expected: str) -> str:
    """The message of the CheckpointError, which comes at once, and is short and printable.

    The time is that of the processor, because other processes run beside the tests.
    """
    start = time.thread_time()
    with pytest.raises(CheckpointError) as caught:
        call()
    assert time.thread_time() - start < 1
    message = str(caught.value)
    assert all(one in message for one in expected), message
    assert message.isprintable() and len(message) < 1_200, message
    return message


def refused_without_memory(call: Callable[[], object], *expected: str) -> str:
    """The same, of a call that may take no more than 2 MB."""
    tracemalloc.start()
    try:
        message = refused(call, *expected)
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()
    return message


def read(base: dict[str, Any], **keys: Any) -> ModelConfig:
    """The config as a model that is to run."""
    return ModelConfig.from_dict({**base, **keys})


def count(base: dict[str, Any], **keys: Any) -> ModelSpec:
    """The config as a model that is to be counted."""
    return ModelSpec.from_config({**base, **keys})


class Watch:
    """Runs calls that may only return or raise CheckpointError, and notes what they took.

    seconds, most: what a call may take, of the processor's time and of memory in bytes
    """

    def __init__(self, seconds: float = 1.0, most: int = 64 * 10**6) -> None:
        self.limits = seconds, most
        self.refused = self.returned = 0
        self.seconds, self.bytes = 0.0, 0

    def __repr__(self) -> str:
        calls = f"{self.refused} refused, {self.returned} returned"
        return f"{calls}; at most {self.seconds:.2f} s, {self.bytes / 1e6:.1f} MB"

    def __enter__(self) -> Watch:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def call(self, function: Callable[[], Any], *expected: str) -> Any:
        """The result, or None if it was refused. A refusal must hold the expected words."""
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        start = time.thread_time()  # not the clock: other processes run beside this one
        found = None
        try:
            found = function()
            self.returned += 1
        except CheckpointError as error:
            self.refused += 1
            message = str(error)
            assert all(one in message for one in expected), message
            assert message.isprintable() and len(message) < 1_500, message
        took, most = time.thread_time() - start, tracemalloc.get_traced_memory()[1] - before
        self.seconds, self.bytes = max(self.seconds, took), max(self.bytes, most)
        assert took < self.limits[0] and most < self.limits[1], (took, most)
        return found

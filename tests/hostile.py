"""What a call on hostile input may do: return, or raise a CheckpointError at once and in words."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kvlib.costs import ModelSpec
from kvlib.errors import CheckpointError
from kvlib.model.config import ModelConfig


def refused(call: Callable[[], object], *expected: str) -> str:
    """The message of the CheckpointError, at once (in processor time), short and printable."""
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

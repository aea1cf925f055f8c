"""The bytes that the right answer on memory counts are those of live caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvbook.exercises.memory import DEEPSEEK, LLAMA, check_token_bytes, token_bytes
from kvlib.caches import DenseCache, LayerSpec


@pytest.mark.parametrize(
    "config, spec",
    [(LLAMA, LayerSpec(8, 128)), (DEEPSEEK, LayerSpec(1, 576, 512, v_from_k=True))],
)
def test_bytes_of_live_caches(config: dict[str, Any], spec: LayerSpec) -> None:
    cache = DenseCache([spec] * config["num_hidden_layers"], 1, 3, dtype=np.float16)
    cache.add("a")
    cache.plan(["a"], [3])
    assert cache.memory().payload == 3 * token_bytes(config, 2)
    assert check_token_bytes(lambda *args: np.int64(token_bytes(*args)))

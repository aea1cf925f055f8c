"""What `rope_parameters` and `rope_scaling` must not hold: unknown keys, types and parts."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import read
from hostile import refused_without_memory as refused
from test_config import LLAMA, QWEN2

BOTH = {"full_attention": {"rope_theta": 1e4}}
ROPES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an unknown key": (LLAMA, {"rope_theta": 1e4, "twist": 2}, "rope_parameters.twist is 2"),
    "an unknown switch": (LLAMA, {"rope_theta": 1e4, "twist": False}, "rope_parameters.twist is f"),
    "an unknown key of a layer type": (
        LLAMA, {"full_attention": {"rope_theta": 1e4, "twist": 2}},
        "rope_parameters.full_attention.twist is 2, needed: a key that llama is known to have",
    ),
    "an unknown key beside a layer type": (
        LLAMA, {**BOTH, "twist": 2},
        "rope_parameters.full_attention is {'rope_theta': 10000.0}, needed",
    ),
    "an unknown layer type": (
        LLAMA, {**BOTH, "linear_attention": {"rope_theta": 2.0}},
        "rope_parameters.linear_attention is {'rope_theta': 2.0}, needed: no such key",
    ),
    "an unknown key of another layer type": (
        {**QWEN2, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2},
        {**BOTH, "sliding_attention": {"twist": 1}}, "rope_parameters.sliding_attention.twist is 1",
    ),
    "a layer type that is missing": (
        {**QWEN2, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2}, BOTH,
        "an entry for each layer type of ['sliding_attention']",
    ),
    "two types": (
        LLAMA, {"rope_type": "linear", "type": "llama3", "factor": 2},
        "rope_parameters.type is 'llama3', needed: 'linear' or no such key (as rope_type says)",
    ),
    "a factor without a type": (LLAMA, {"factor": 4}, "rope_parameters.factor is 4, needed: 1.0"),
    "a key of another type": (
        LLAMA, {"rope_type": "linear", "factor": 2, "high_freq_factor": 4},
        "rope_parameters.high_freq_factor is 4",
    ),
    "sections": (LLAMA, {"mrope_section": [8, 12, 12]}, "mrope_section is [8, 12, 12]"),
    "an attention factor": (LLAMA, {"attention_factor": 0.5}, "rope_parameters.attention_factor"),
    "a type that is a list": (LLAMA, {"rope_type": ["linear"]}, "rope_type is ['linear']"),
    "a part that is a list": (LLAMA, {"full_attention": [1]}, "rope_parameters.full_attention is"),
    "layer types that are no strings": ({**LLAMA, "layer_types": [[1]] * 2}, BOTH, "layer_types"),
}


@pytest.mark.parametrize("case", ROPES)
def test_rope(case: str) -> None:
    base, rope, expected = ROPES[case]
    for key in ("rope_parameters", "rope_scaling"):
        expected = expected.replace("rope_parameters", key)
        refused(lambda key=key: read(base, **{key: rope}), expected)

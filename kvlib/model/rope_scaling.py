"""Frequencies of RoPE for texts longer than a model was first trained on: Llama 3 and YaRN.

base: (R/2,) radians per token, the unscaled frequencies, largest first. `RopeConfig` says what the
numbers of a config mean.
"""

from __future__ import annotations

import math

import numpy as np

from kvlib.config.rope import RopeConfig


def llama3(base: np.ndarray, config: RopeConfig) -> np.ndarray:
    """Divide slow frequencies by `factor`, keep fast ones, blend between (arXiv:2407.21783)."""
    turns = config.original_max_position_embeddings * base / (2 * math.pi)
    low, high = config.low_freq_factor, config.high_freq_factor
    fast = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return base * (fast + (1.0 - fast) / config.factor)


def yarn(base: np.ndarray, config: RopeConfig, head_dim: int) -> np.ndarray:
    """As `llama3`, but blended by the number of the pair (arXiv:2309.00071, section 3.2)."""

    def pair(turns: float) -> float:
        """The number, with a fraction, of the pair that turns so many times within that length."""
        wavelength = config.original_max_position_embeddings / (2 * math.pi * turns)
        return head_dim * math.log(wavelength) / (2 * math.log(config.theta))

    low, high = pair(config.beta_fast), pair(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    slow = (np.arange(head_dim // 2, dtype=np.float64) - low) / ((high - low) or 0.001)
    slow = np.clip(slow, 0.0, 1.0)
    return base * (1.0 - slow + slow / config.factor)

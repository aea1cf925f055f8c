"""Rotary position embedding: rotate a key once, by its absolute position, and cache it.

Every pair of numbers (i, i + R/2) is rotated by the angle position · frequency_i, so the product of
a rotated query and a rotated key depends on their distance alone (arXiv:2104.09864).
"""

import math
from typing import Any

import numpy as np

from kvlib.arrays import Array, namespace
from kvlib.caches import Step
from kvlib.config.rope import RopeConfig

Angles = tuple[Array, Array] | None  # cos and sin (T, 1, R) at a step's positions; None: no RoPE


def frequencies(config: RopeConfig, head_dim: int) -> np.ndarray:
    """Radians per token for each pair of the R rotated numbers: (R/2,) float64, largest first."""
    head_dim = config.rotated(head_dim)
    base = config.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if config.kind == "linear":
        return base / config.factor
    if config.kind == "llama3":
        return llama3(base, config)
    if config.kind == "yarn":
        return yarn(base, config, head_dim)
    return base


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


def tables(
    config: RopeConfig, head_dim: int, max_positions: int, xp: Any, dtype: Any
) -> tuple[Array, Array]:
    """cos and sin (P, R) of every position for :func:`rotate`, with its minus sign in half of sin;
    from angles in float64, because a float32 angle is off by 0.004 at position 100,000."""
    angle = np.arange(max_positions, dtype=np.float64)[:, None] * frequencies(config, head_dim)
    scale = config.attention_factor  # YaRN's: of cos and sin, so scores get its square
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    full_cos = np.concatenate([cos, cos], axis=1)
    full_sin = np.concatenate([-sin, sin], axis=1)
    return xp.asarray(full_cos, dtype=dtype), xp.asarray(full_sin, dtype=dtype)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the first R numbers of every head.   x (T, H, D)   cos, sin (T, 1, R)"""
    width = cos.shape[-1]
    if width < x.shape[-1]:
        rotated = rotate(x[..., :width], cos, sin)
        return namespace(x).concat([rotated, x[..., width:]], axis=-1)
    half = width // 2
    swapped = namespace(x).concat([x[..., half:], x[..., :half]], axis=-1)
    swapped *= sin
    swapped += x * cos
    return swapped


def turn(config: RopeConfig, k: Array, distance: int) -> Array:
    """Keys (T, H, D) as they would be `distance` positions later; `attention_factor` is in them."""
    xp, angle = namespace(k), distance * frequencies(config, k.shape[-1])
    cos, sin = np.cos(angle), np.sin(angle)
    # In float64, because a cosine rounded to float32 errs the same way at every turn by one
    # distance: after a thousand turns, a key would be off by 1e-4 of its size.
    rows = (np.concatenate([cos, cos]), np.concatenate([-sin, sin]))
    tables = (xp.asarray(x[None, None, :], dtype=xp.float64, device=k.device) for x in rows)
    return xp.astype(rotate(xp.astype(k, xp.float64), *tables), k.dtype)


class Rotation:
    """The tables of cos and sin of some layers, made when they are first needed."""

    def __init__(
        self, config: RopeConfig | None, head_dim: int, max_positions: int, xp: Any, dtype: Any
    ) -> None:
        self.config, self.head_dim, self.max_positions = config, head_dim, max_positions
        self.xp, self.dtype = xp, dtype
        self._tables: tuple[Array, Array] | None = None

    def at(self, step: Step) -> Angles:
        """cos and sin (T, 1, R) at the step's positions; None where there is no rope."""
        if self.config is None:
            return None
        longest, xp = step.longest, self.xp
        if self._tables is None or self._tables[0].shape[0] < longest:
            # Not for all positions that a model allows: 131,072 of them would take 134 MB.
            rows = min(max(512, 2 * longest), self.max_positions)
            self._tables = tables(self.config, self.head_dim, rows, xp, self.dtype)
        positions = step.positions
        cos, sin = (xp.take(table, positions, axis=0) for table in self._tables)
        return cos[:, None, :], sin[:, None, :]

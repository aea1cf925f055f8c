"""The feed-forward parts of a dense layer; `kvlib.model.experts` has the mixture.

Gated (GLU variants, arXiv:2002.05202): SwiGLU with silu, GeGLU with gelu. Plain, as in GPT-2 and
the first transformer (arXiv:1706.03762).
"""

from collections.abc import Callable

from kvlib.arrays import Array, clipped, namespace
from kvlib.model.config import ModelConfig
from kvlib.model.layers import ACTIVATIONS, by_rows, linear, sigmoid


class GatedMLP:
    """down(act(gate x) · up x), with gate and up as the rows of one matrix."""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.w, self.gate = w, gate_of(config)

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        gate_up = linear(x, self.w["gate_up.weight"], self.w.get("gate_up.bias"))
        return linear(by_rows(self.gate, gate_up), self.w["down.weight"], self.w.get("down.bias"))


class PlainMLP:
    """down(act(up x))"""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.w, self.activation = w, ACTIVATIONS[config.hidden_act]

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        h = self.activation(linear(x, self.w["up.weight"], self.w.get("up.bias")))
        return linear(h, self.w["down.weight"], self.w.get("down.bias"))


def gate_of(config: ModelConfig) -> Callable[[Array], Array]:
    """Return the function that turns the halves gate and up (T, 2 inner) into one (T, inner)."""
    if config.swiglu_limit is not None:
        limit, alpha = config.swiglu_limit, config.swiglu_alpha

        def clamped(gate_up: Array) -> Array:  # gpt-oss
            xp, inner = namespace(gate_up), gate_up.shape[1] // 2
            gate = clipped(xp, gate_up[:, :inner], None, limit)
            up = clipped(xp, gate_up[:, inner:], -limit, limit)
            return gate * sigmoid(alpha * gate) * (up + 1.0)

        return clamped
    activation = ACTIVATIONS[config.hidden_act]

    def gated(gate_up: Array) -> Array:
        inner = gate_up.shape[1] // 2
        h = activation(gate_up[:, :inner])
        h *= gate_up[:, inner:]
        return h

    return gated

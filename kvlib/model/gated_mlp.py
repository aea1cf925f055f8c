"""The gated MLP (GLU variants, arXiv:2002.05202): SwiGLU with silu, GeGLU with gelu.

Another kind of feed-forward is another file with these three parts, chosen in `kvlib.model.block`.
Config keys: `hidden_size`, `intermediate_size`, `hidden_act` and, in Llama, `mlp_bias`.
"""

from __future__ import annotations

from kvlib.arrays import Array
from kvlib.model.config import ModelConfig
from kvlib.model.layers import ACTIVATIONS, linear
from kvlib.model.weight import Weight, linear_weights


class GatedMLP:
    """down(act(gate x) · up x), with gate and up as the rows of one matrix."""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.w, self.activation = w, ACTIVATIONS[config.hidden_act]

    @staticmethod
    def weights(config: ModelConfig) -> list[Weight]:
        """gate_up (2 · inner, hidden), down (hidden, inner), and their biases."""
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        both = {"mlp.gate_proj": inner, "mlp.up_proj": inner}
        return [
            *linear_weights("gate_up", both, hidden, bias),
            *linear_weights("down", {"mlp.down_proj": hidden}, inner, bias),
        ]

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        both = linear(x, self.w["gate_up.weight"], self.w.get("gate_up.bias"))
        inner = both.shape[1] // 2
        h = self.activation(both[:, :inner])
        h *= both[:, inner:]
        return linear(h, self.w["down.weight"], self.w.get("down.bias"))

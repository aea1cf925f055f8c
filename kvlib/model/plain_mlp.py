"""The MLP of GPT-2 and of the first transformer (arXiv:1706.03762): up, activation, down.

Config keys of GPT-2: `n_embd`, `n_inner`, `activation_function`.
"""

from __future__ import annotations

from kvlib.arrays import Array
from kvlib.model.config import ModelConfig
from kvlib.model.layers import ACTIVATIONS, Weight, linear, linear_weights


class PlainMLP:
    """down(act(up x))"""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.w, self.activation = w, ACTIVATIONS[config.hidden_act]

    @staticmethod
    def weights(config: ModelConfig) -> list[Weight]:
        """up (inner, hidden), down (hidden, inner), and their biases."""
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        return [
            *linear_weights("up", {"mlp.up_proj": inner}, hidden, bias),
            *linear_weights("down", {"mlp.down_proj": hidden}, inner, bias),
        ]

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        h = self.activation(linear(x, self.w["up.weight"], self.w.get("up.bias")))
        return linear(h, self.w["down.weight"], self.w.get("down.bias"))

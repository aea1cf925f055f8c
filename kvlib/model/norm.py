"""The norms of a decoder: RMSNorm, LayerNorm, and RMSNorm with weights stored as w − 1.

Config keys: `rms_norm_eps` or `layer_norm_epsilon`; which norm a model has, its family says.
"""

from __future__ import annotations

from kvlib.arrays import Array
from kvlib.model.config import ModelConfig
from kvlib.model.layers import Weight
from kvlib.norms import layer_norm, rms_norm


class Norm:
    """The norm of that name, with the weights that it finds under it.

    x (..., D) → (..., D). ``config.norm`` says which: "rms" (arXiv:1910.07467), "rms_1p", whose
    stored weights w stand for 1 + w (Gemma), or "layer" (arXiv:1607.06450).
    """

    def __init__(self, config: ModelConfig, w: dict[str, Array], name: str) -> None:
        self.weight, self.bias = w[f"{name}.weight"], w.get(f"{name}.bias")
        self.eps = float(config.norm_eps)  # a NumPy float64 would widen every array it meets
        if config.norm == "rms_1p":
            self.weight = 1.0 + self.weight  # once: a norm of a decode step takes microseconds

    def __call__(self, x: Array) -> Array:
        if self.bias is None:
            return rms_norm(x, self.weight, self.eps)
        return layer_norm(x, self.weight, self.bias, self.eps)

    @staticmethod
    def weights(config: ModelConfig, name: str, tensor: str) -> list[Weight]:
        """The weights of a norm over the hidden size, which a checkpoint calls `tensor`."""
        size = config.hidden_size
        found = [Norm.scale(config, name, tensor, size)]
        if config.norm == "layer":
            found.append(Weight(f"{name}.bias", (size,), {tensor: size}, centre=0.0))
        return found

    @staticmethod
    def scale(config: ModelConfig, name: str, tensor: str, size: int) -> Weight:
        """The weight alone: heads' norms never have a bias."""
        centre = 0.0 if config.norm == "rms_1p" else 1.0
        return Weight(f"{name}.weight", (size,), {tensor: size}, centre)

"""BART (arXiv:1910.13461) in a page of NumPy, on two of kvlib's caches: `own` and `memory`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvlib import LayerSpec, attend

OFFSET = 2  # positions are counted from row 2 of their table
erf = np.vectorize(math.erf, otypes=[np.float32])


class Bart:
    """weights: name → float32 array. heads: query heads, each with a separate kv head."""

    def __init__(self, weights: Mapping[str, np.ndarray], heads: int) -> None:
        self.w, self.heads = weights, heads
        self.dim = weights["model.shared.weight"].shape[1]
        self.layers = sum("encoder_attn.k_proj.weight" in name for name in weights)

    @property
    def specs(self) -> list[LayerSpec]:
        """Of either cache."""
        return [LayerSpec(self.heads, self.dim // self.heads)] * self.layers

    def fill(self, memory: Any, names: Sequence[str], texts: Sequence[Sequence[int]]) -> None:
        """Open requests for the texts and store what each decoder layer will read of them."""
        for name in names:
            memory.add(name)
        states = np.concatenate([self.encode(text) for text in texts])
        step = memory.plan(names, [len(text) for text in texts])
        for layer in range(self.layers):
            part = f"model.decoder.layers.{layer}.encoder_attn"
            k, v = (self._by_head(f"{part}.{x}_proj", states) for x in "kv")
            memory.append(layer, k, v, step)

    def encode(self, text: Sequence[int]) -> np.ndarray:
        """The encoder's states (S, d): each token sees all of the text, so nothing is masked."""
        x, at = self._embed("encoder", text, range(len(text))), np.arange(len(text))
        last = np.full(len(text), len(text) - 1)
        for layer in range(self.layers):
            part = f"model.encoder.layers.{layer}"
            q, k, v = (self._by_head(f"{part}.self_attn.{y}_proj", x) for y in "qkv")
            x = self._add(x, attend(q, k, v, last, at), f"{part}.self_attn")
            x = self._mlp(part, x)
        return x

    def decode(self, tokens: Sequence[int], own: Any, step: Any, memory: Any, seeing: Any) -> Any:
        """Logits (T, V) of the tokens of a step. seeing: the `cross_step` of the same rows."""
        x = self._embed("decoder", tokens, step.positions)
        for layer in range(self.layers):
            part = f"model.decoder.layers.{layer}"
            q, k, v = (self._by_head(f"{part}.self_attn.{y}_proj", x) for y in "qkv")
            own.append(layer, k, v, step)
            x = self._add(x, own.run(layer, q, step), f"{part}.self_attn")
            q = self._by_head(f"{part}.encoder_attn.q_proj", x)
            x = self._add(x, memory.run(layer, q, seeing), f"{part}.encoder_attn")
            x = self._mlp(part, x)
        return x @ self.w["model.shared.weight"].T

    # Parts of a layer ---------------------------------------------------------------------------

    def _embed(self, side: str, tokens: Sequence[int], positions: Any) -> np.ndarray:
        table = self.w[f"model.{side}.embed_positions.weight"]
        x = self.w["model.shared.weight"][list(tokens)] + table[np.asarray(positions) + OFFSET]
        return self._norm(x, f"model.{side}.layernorm_embedding")

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def _by_head(self, name: str, x: np.ndarray) -> np.ndarray:
        return self._linear(x, name).reshape(len(x), self.heads, -1)

    def _add(self, x: np.ndarray, o: np.ndarray, name: str) -> np.ndarray:
        o = self._linear(o.reshape(len(x), -1), f"{name}.out_proj")
        return self._norm(x + o, f"{name}_layer_norm")

    def _mlp(self, part: str, x: np.ndarray) -> np.ndarray:
        h = self._linear(x, f"{part}.fc1")
        h = np.float32(0.5) * h * (1 + erf(h * np.float32(math.sqrt(0.5))))
        return self._norm(x + self._linear(h, f"{part}.fc2"), f"{part}.final_layer_norm")

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-5))
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

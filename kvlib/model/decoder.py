"""The decoder: token ids in, logits out, keys and values through whatever cache it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arrays import Array, is_numpy, namespace, nbytes
from kvlib.caches import Cache, DenseCache, LayerSpec, Step
from kvlib.caches.checks import check_step
from kvlib.model import rope
from kvlib.model.config import ModelConfig, RopeConfig
from kvlib.model.layers import ACTIVATIONS, layer_norm, linear, mlp, rms_norm
from kvlib.model.rows import taken, wanted
from kvlib.model.weights import weight_shapes


class Decoder:
    """A decoder-only transformer of the Llama or GPT-2 kind.

    config     what it is made of
    weights    name → array, as :func:`kvlib.model.weight_shapes` lists them
    tokenizer  anything with ``encode(text) -> ids`` and ``decode(ids) -> text``, or None

    Raises ValueError if a weight is missing, superfluous or of the wrong shape.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> cache = model.new_cache(max_seqs=1, max_seq_len=8)
    >>> cache.add("a")
    0
    >>> model.forward([65, 66, 67], cache, cache.plan(["a"], [3])).shape  # one row a request
    (1, 256)
    """

    def __init__(
        self, config: ModelConfig, weights: dict[str, Array], tokenizer: Any = None
    ) -> None:
        _check_weights(config, weights)
        self.config, self.weights, self.tokenizer = config, weights, tokenizer
        embed = weights["embed.weight"]
        self.xp, self.dtype = namespace(embed), embed.dtype
        self.layer_specs = tuple(
            LayerSpec(config.num_key_value_heads, config.head_dim, window=w) for w in config.windows
        )
        self._layers = [_layer(weights, i) for i in range(config.num_hidden_layers)]
        self._eps = float(config.norm_eps)  # a NumPy float64 would widen every array it meets
        self._activation = ACTIVATIONS[config.hidden_act]
        self._turns: tuple[Array, Array] | None = None  # cos and sin by position, grown on demand

    @property
    def num_parameters(self) -> int:
        """Numbers in the weights, a tied embedding counted once."""
        return sum(int(w.size) for w in self.weights.values())

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights as they lie in memory."""
        return sum(nbytes(w) for w in self.weights.values())

    def new_cache(
        self, max_seqs: int = 1, max_seq_len: int | None = None, *, dtype: Any = None
    ) -> DenseCache:
        """A dense cache for this model; max_seq_len is the model's own limit unless given."""
        return DenseCache(
            self.layer_specs,
            max_seqs,
            self.config.max_position_embeddings if max_seq_len is None else max_seq_len,
            dtype=self.dtype if dtype is None else dtype,
            xp=self.xp,
        )

    def forward(
        self,
        tokens: Sequence[int] | Array,
        cache: Cache,
        step: Step,
        rows: str | Sequence[int] = "last",
    ) -> Array:
        """One pass over the step's new tokens.

        tokens: T token ids, the requests' packed one after the other as ``step`` lists them.
        rows: which rows to return logits for: "last", the last of each request (B, V); "all"
        (T, V); or a list of R row numbers (R, V), in that order. The last layer's MLP and the
        output matrix are computed for these rows alone.

        Raises ValueError for a wrong number of tokens, an id outside the vocabulary, a row that the
        step does not have or a position past the model's limit, before anything is written.
        Whatever fails, ``cache.truncate`` takes the requests back to where they were before the
        plan.
        """
        xp, eps = self.xp, self._eps
        ids, want = self._check(tokens, step), wanted(rows, step)
        x = xp.take(self.weights["embed.weight"], ids, axis=0)
        cos = sin = None
        if self.config.rope is None:
            x = x + xp.take(self.weights["pos_embed.weight"], step.positions, axis=0)
        else:
            cos, sin = self._rotation(self.config.rope, step)
        final = len(self._layers) - 1
        for i, layer in enumerate(self._layers):
            h = self._norm(x, layer, "attn_norm", eps)
            q, k, v = self._project(h, layer, cos, sin)
            cache.append(i, k, v, step)
            if i == final and want is not None:  # no later layer asks for the other rows
                q, x, step = taken(q, want.attended), taken(x, want.rows), want.step
            o: Any = cache.run(i, q, step)
            if i == final and want is not None and want.places is not None:
                o = taken(o, want.places)
            o = xp.reshape(o, (o.shape[0], o.shape[1] * o.shape[2]))
            x = x + linear(o, layer["o.weight"], layer.get("o.bias"))
            h = self._norm(x, layer, "mlp_norm", eps)
            x += mlp(h, layer, self._activation)
        x = self._norm(x, self.weights, "norm", eps)
        head = self.weights.get("lm_head.weight")
        logits = linear(x, self.weights["embed.weight"] if head is None else head)
        return logits if self.dtype in (xp.float32, xp.float64) else xp.astype(logits, xp.float32)

    def _rotation(self, config: RopeConfig, step: Step) -> tuple[Array, Array]:
        """cos and sin (T, 1, D) at the step's positions."""
        needed = max(step.seq_lens)
        if self._turns is None or self._turns[0].shape[0] < needed:
            # A model that allows 131,072 positions would pay 134 MB for those nobody visits.
            rows = min(max(512, 2 * needed), self.config.max_position_embeddings)
            self._turns = rope.tables(config, self.config.head_dim, rows, self.xp, self.dtype)
        cos, sin = (self.xp.take(x, step.positions, axis=0) for x in self._turns)
        return cos[:, None, :], sin[:, None, :]

    def _project(
        self, h: Array, layer: dict[str, Array], cos: Array, sin: Array
    ) -> tuple[Array, Array, Array]:
        """h (T, hidden) → q (T, Hq, D), k (T, Hkv, D), v (T, Hkv, D), turned where RoPE is used."""
        config, xp = self.config, self.xp
        num_qo_heads, num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        qkv = linear(h, layer["qkv.weight"], layer.get("qkv.bias"))
        qkv = xp.reshape(qkv, (h.shape[0], num_qo_heads + 2 * num_kv_heads, config.head_dim))
        both, v = qkv[:, : num_qo_heads + num_kv_heads, :], qkv[:, num_qo_heads + num_kv_heads :, :]
        if "q_norm.weight" in layer:
            q = rms_norm(both[:, :num_qo_heads, :], layer["q_norm.weight"], self._eps)
            k = rms_norm(both[:, num_qo_heads:, :], layer["k_norm.weight"], self._eps)
            both = xp.concat([q, k], axis=1)
        if cos is not None:
            both = rope.rotate(both, cos, sin)
        return both[:, :num_qo_heads, :], both[:, num_qo_heads:, :], v

    def _norm(self, x: Array, weights: dict[str, Array], name: str, eps: float) -> Array:
        if self.config.norm == "rms":
            return rms_norm(x, weights[f"{name}.weight"], eps)
        return layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"], eps)

    def _check(self, tokens: Sequence[int] | Array, step: Step) -> Array:
        """The token ids where the model lives, after refusing what cannot be embedded."""
        check_step(step)
        limit, vocabulary = self.config.max_position_embeddings, self.config.vocab_size
        longest = max(step.seq_lens)
        if longest > limit:
            raise ValueError(f"a request of {longest} tokens is past the model's limit of {limit}")
        # Ids on a device are taken as they are: reading them back to look would stall it.
        on_device = hasattr(tokens, "dtype") and not isinstance(tokens, np.ndarray)
        ids: Any = tokens if on_device else np.asarray(tokens)
        if ids.shape != (step.num_tokens,):
            raise ValueError(
                f"the step holds {step.num_tokens} new tokens, got tokens of shape {ids.shape}"
            )
        if on_device:
            return ids
        if ids.dtype.kind not in "iu":
            raise TypeError(f"tokens must be integers, got dtype {ids.dtype}")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocabulary:
            raise ValueError(f"token ids must be 0 ... {vocabulary - 1}, got {low} ... {high}")
        return ids if is_numpy(self.xp) else self.xp.asarray(ids)

    def __repr__(self) -> str:
        c = self.config
        return (
            f"Decoder({c.model_type}, {self.num_parameters:,} parameters, "
            f"{c.num_hidden_layers} layers, {c.num_attention_heads}/{c.num_key_value_heads} heads "
            f"of {c.head_dim}, vocabulary {c.vocab_size}, {self.dtype})"
        )


def _layer(weights: dict[str, Array], i: int) -> dict[str, Array]:
    """One layer's weights without their prefix."""
    prefix = f"layers.{i}."
    return {n[len(prefix) :]: w for n, w in weights.items() if n.startswith(prefix)}


def _check_weights(config: ModelConfig, weights: dict[str, Array]) -> None:
    shapes = weight_shapes(config)
    for name in shapes.keys() ^ weights.keys():
        state = "missing" if name in shapes else "not part of this model"
        raise ValueError(f"weight {name!r} is {state}")
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise ValueError(f"weight {name!r} must be {shape}, got {tuple(weights[name].shape)}")

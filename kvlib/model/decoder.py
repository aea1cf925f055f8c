"""The decoder: token ids in, logits out, keys and values through whatever cache it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST, check_integer, check_list, describe, is_integer
from kvlib.arrays import Array, is_numpy, namespace, nbytes
from kvlib.caches import Cache, DenseCache, Step
from kvlib.caches.checks import check_step
from kvlib.model.block import Block
from kvlib.model.config import ModelConfig
from kvlib.model.embedding import Embedding
from kvlib.model.norm import Norm
from kvlib.model.rope import Rotation
from kvlib.model.rows import wanted
from kvlib.model.weights import check_weights, of_layer


class Decoder:
    """A decoder-only transformer: blocks of a token mixer and a feed-forward part.

    config     its :class:`kvlib.ModelConfig`
    weights    name → array, as :func:`kvlib.model.weight_shapes` lists them
    tokenizer  anything with ``encode(text) -> ids`` and ``decode(ids) -> text``, or None

    Raises ValueError if a weight is missing, superfluous or of the wrong shape.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> cache = model.new_cache(max_seqs=1, max_seq_len=8)
    >>> cache.add("a")
    0
    >>> model.forward([65, 66, 67], cache, cache.plan(["a"], [3])).shape  # a row per request
    (1, 256)
    """

    def __init__(
        self, config: ModelConfig, weights: dict[str, Array], tokenizer: Any = None
    ) -> None:
        check_weights(config, weights)
        self.config, self.weights, self.tokenizer = config, weights, tokenizer
        embed = weights["embed.weight"]
        self.xp, self.dtype = namespace(embed), embed.dtype
        self._embedding, self._norm = Embedding(config, weights), Norm(config, weights, "norm")
        self._blocks = [
            Block(config, i, of_layer(weights, i)) for i in range(config.num_hidden_layers)
        ]
        self.layer_specs = tuple(block.mixer.spec for block in self._blocks)
        ropes = [config.rope_of(i) for i in range(config.num_hidden_layers)]
        several = list(dict.fromkeys(ropes))
        self._rotations = [
            Rotation(rope, config.rope_dim, config.max_position_embeddings, self.xp, self.dtype)
            for rope in several
        ]
        self._rope = [several.index(rope) for rope in ropes]  # which of them a layer has

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
        room = self.config.max_position_embeddings if max_seq_len is None else max_seq_len
        dtype = self.dtype if dtype is None else dtype
        return DenseCache(self.layer_specs, max_seqs, room, dtype=dtype, xp=self.xp)

    def forward(
        self,
        tokens: Sequence[int] | Array,
        cache: Cache,
        step: Step,
        rows: str | Sequence[int] = "last",
    ) -> Array:
        """Run the model over the step's new tokens.

        tokens: T token ids, those of all requests one after the other, in the order of
        ``step.seq_ids``.
        rows: which rows get logits. "last": the last row of each request (B, V). "all": every row
        (T, V). A list of R row numbers: those rows (R, V), in the order of the list.

        The last layer's MLP and the output matrix are computed for these rows alone. Raises
        ValueError for a wrong number of tokens, an id outside the vocabulary, a row that the step
        does not have or a position past the model's limit, before anything is written. After any
        error, ``cache.truncate`` takes the requests back to where they were before the plan.
        """
        ids, want = self._check(tokens, step), wanted(rows, step)
        x = self._embedding.embed(ids, step)
        angles = [rotation.at(step) for rotation in self._rotations]
        final = len(self._blocks) - 1
        for i, block in enumerate(self._blocks):
            # After the final mixing no layer asks for the rows that are not wanted.
            rows_of = want if i == final else None
            x = block.forward(x, cache, step, angles[self._rope[i]], rows_of)
        return self._embedding.logits(self._norm(x))

    def _check(self, tokens: Sequence[int] | Array, step: Step) -> Array:
        """The token ids where the model lives, after refusing what cannot be embedded."""
        check_step(step)
        limit, vocabulary = self.config.max_position_embeddings, self.config.vocab_size
        longest = step.longest
        if longest > limit:
            raise ValueError(f"a request of {longest} tokens is past the model's limit of {limit}")
        # Ids on a device are taken as they are: reading them back to look would stall it.
        on_device = hasattr(tokens, "dtype") and not isinstance(tokens, np.ndarray)
        ids: Any = tokens if on_device or isinstance(tokens, np.ndarray) else _as_array(tokens)
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
            raise ValueError(f"tokens must be 0 ... {vocabulary - 1}, got {low} ... {high}")
        ids = ids.astype(np.int64, copy=False)
        return ids if is_numpy(self.xp) else self.xp.asarray(ids)

    def __repr__(self) -> str:
        c = self.config
        heads = f"{c.num_attention_heads}/{c.num_key_value_heads} heads of {c.head_dim}"
        if c.latent is not None:
            heads = f"{c.num_attention_heads} heads on one latent vector of {c.latent.width}"
        return (
            f"Decoder({c.model_type}, {self.num_parameters:,} parameters, "
            f"{c.num_hidden_layers} layers, {heads}, vocabulary {c.vocab_size}, {self.dtype})"
        )


def _as_array(tokens: Sequence[int]) -> np.ndarray:
    """Token ids as int64. NumPy would take True for 1, and make floats of some mixed integers."""
    ids = list(check_list("tokens", tokens, "token ids"))
    if set(map(type, ids)) != {int}:
        wrong = [t for t in ids if not is_integer(t)]
        if wrong:
            raise TypeError(f"tokens must be integers, got {describe(wrong[0])}")
    return np.asarray([check_integer("tokens", t, -LARGEST) for t in ids], dtype=np.int64)

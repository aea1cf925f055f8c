"""The decoder: token ids in, logits out, keys and values through whatever cache it is given.

A block is a token mixer, which alone knows the cache, and a feed-forward part. Another mixer or
feed-forward part is another file with the parts of `kvlib.model.grouped_query` or
`kvlib.model.mlp`, chosen in `mixer_kind` or `feed_forward_kind`.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import LARGEST, check_integer, check_list, describe, is_integer
from kvlib.arrays import Array, at_least_float32, namespace, nbytes
from kvlib.attention.partials import cap
from kvlib.caches import Cache, DenseCache, Step
from kvlib.caches.checks import check_step
from kvlib.model.config import ModelConfig
from kvlib.model.experts import MixtureOfExperts
from kvlib.model.grouped_query import GroupedQuery, Selection, take_rows
from kvlib.model.latent import LatentAttention
from kvlib.model.layers import Norm, linear, widened
from kvlib.model.mlp import GatedMLP, PlainMLP
from kvlib.model.rope import Angles, Rotation
from kvlib.model.weights import check_weights, of_layer


class Decoder:
    """A decoder-only transformer: blocks of a token mixer and a feed-forward part.

    config     its :class:`kvlib.ModelConfig`
    weights    name → array, as :func:`kvlib.model.weight_shapes` lists them; uint16 for bfloat16
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
        self.config, self.tokenizer = config, tokenizer
        # Matrices of bfloat16 are widened one at a time, when they are multiplied.
        weights = {name: widened(w) if w.ndim == 1 else w for name, w in weights.items()}
        self.weights, embed = weights, weights["embed.weight"]
        self.xp, self.dtype = namespace(embed), widened(embed[:0, ...]).dtype
        self._embedding, self._norm = Embedding(config, weights), Norm(config, weights, "norm")
        self._blocks = [
            Block(config, i, of_layer(weights, i)) for i in range(config.num_hidden_layers)
        ]
        self.layer_specs = tuple(block.mixer.spec for block in self._blocks)
        ropes = [config.rope_of(i) for i in range(config.num_hidden_layers)]
        different = list(dict.fromkeys(ropes))
        self._rotations = [
            Rotation(rope, config.rope_dim, config.max_position_embeddings, self.xp, self.dtype)
            for rope in different
        ]
        self._rope = [different.index(rope) for rope in ropes]  # which of them a layer has

    @property
    def num_parameters(self) -> int:
        """Numbers in the weights, a tied embedding counted once."""
        return sum(int(w.size) for w in self.weights.values())

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights in memory."""
        return sum(nbytes(w) for w in self.weights.values())

    def new_cache(
        self, max_seqs: int = 1, max_seq_len: int | None = None, *, dtype: Any = None
    ) -> DenseCache:
        """A dense cache for this model; max_seq_len is the model's own limit unless given."""
        if max_seq_len is None:
            max_seq_len = self.config.max_position_embeddings
        dtype = self.dtype if dtype is None else dtype
        return DenseCache(self.layer_specs, max_seqs, max_seq_len, dtype=dtype, xp=self.xp)

    def forward(
        self,
        tokens: Sequence[int] | Array,
        cache: Cache,
        step: Step,
        rows: str | Sequence[int] = "last",
    ) -> Array:
        """Run the model over the step's T new tokens, in the order of ``step.seq_ids``.

        rows: which rows get logits. "last": the last row of each request (B, V). "all": every row
        (T, V). A list of R row numbers: those rows (R, V). The last layer's MLP and the output
        matrix are computed for these rows alone.

        Raises ValueError for a wrong number of tokens, an id outside the vocabulary, a row that the
        step does not have or a position past the model's limit, before anything is written. After
        any error, ``cache.truncate`` undoes the plan.
        """
        ids, selected = self.check(tokens, step), select_rows(rows, step)
        if self.xp is not np and isinstance(ids, np.ndarray):
            ids = self.xp.asarray(ids)
        x = self._embedding.embed(ids, step)
        angles = [rotation.at(step) for rotation in self._rotations]
        final = len(self._blocks) - 1
        for i, block in enumerate(self._blocks):
            # The last layer needs the other rows for their keys and values alone.
            only = selected if i == final else None
            x = block.forward(x, cache, step, angles[self._rope[i]], only)
        return self._embedding.logits(self._norm(x))

    def check(self, tokens: Sequence[int] | Array, step: Step) -> Array:
        """Return the step's token ids as an array; raises what `forward` raises for them."""
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
        return ids.astype(np.int64, copy=False)

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
    if type(tokens) is list and set(map(type, tokens)) == {int} and max(map(abs, tokens)) < 2**63:
        return np.asarray(tokens, dtype=np.int64)
    ids = list(check_list("tokens", tokens, "token ids"))
    if set(map(type, ids)) != {int}:
        wrong = [t for t in ids if not is_integer(t)]
        if wrong:
            raise TypeError(f"tokens must be integers, got {describe(wrong[0])}")
    return np.asarray([check_integer("tokens", t, -LARGEST) for t in ids], dtype=np.int64)


def select_rows(rows: str | Sequence[int], step: Step) -> Selection | None:
    """Return the rows with logits: "last", "all" or numbers; None for all. ValueError, TypeError"""
    if isinstance(rows, str):
        if rows not in ("last", "all"):
            raise ValueError(f'rows must be "last", "all" or a list of row numbers, got {rows!r}')
        if rows == "all" or step.num_tokens == len(step.seq_ids):
            return None
        return Selection(step.last_rows, step.last(), step.last_rows, None)
    listed = check_list('rows, unless "last" or "all",', rows, "row numbers")
    numbers = [index(row) if is_integer(row) else -1 for row in listed]
    wrong = [x for x, row in zip(listed, numbers, strict=True) if not 0 <= row < step.num_tokens]
    if wrong or not numbers:
        raise ValueError(
            f"rows must be a list of at least one row number, 0 ... {step.num_tokens - 1}, "
            f"got {describe(wrong[0]) if wrong else 'none'}"
        )
    spans = list(zip(step.qo_indptr, step.qo_indptr[1:]))
    # A request without a selected row attends from its last row: a step has no empty requests.
    firsts = [min((r for r in numbers if a <= r < b), default=b - 1) for a, b in spans]
    last_step = step.last([b - first for first, (_, b) in zip(firsts, spans, strict=True)])
    attended = [row for first, (_, b) in zip(firsts, spans, strict=True) for row in range(first, b)]
    place = {row: n for n, row in enumerate(attended)}
    places = None if attended == numbers else [place[row] for row in numbers]
    return Selection(numbers, last_step, attended, places)


def mixer_kind(config: ModelConfig, layer: int) -> type[GroupedQuery] | type[LatentAttention]:
    """Return the class of a layer's token mixer."""
    return GroupedQuery if config.latent is None else LatentAttention


def feed_forward_kind(
    config: ModelConfig, layer: int
) -> type[GatedMLP] | type[PlainMLP] | type[MixtureOfExperts]:
    """Return the class of a layer's feed-forward part."""
    if config.experts is not None and layer in config.experts.layers:
        return MixtureOfExperts
    return GatedMLP if config.gated_mlp else PlainMLP


class Block:
    """Layer number `layer`, with its weights by their names without "layers.N."."""

    def __init__(self, config: ModelConfig, layer: int, w: dict[str, Array]) -> None:
        self.pre_norms = config.pre_norms
        if self.pre_norms:
            self.attn_norm = Norm(config, w, "attn_norm")
        self.mixer = mixer_kind(config, layer)(config, layer, w)
        self.feed_forward = feed_forward_kind(config, layer)(config, w)
        self.parallel, self.post_norms = config.parallel_residual, config.post_norms
        self.shared_norm, self.scale = config.shared_norm, config.residual_scale
        if self.pre_norms and not self.shared_norm:
            self.mlp_norm = Norm(config, w, "mlp_norm")
        if self.post_norms:
            self.attn_post_norm = Norm(config, w, "attn_post_norm")
            self.mlp_post_norm = Norm(config, w, "mlp_post_norm")

    def forward(
        self, x: Array, cache: Cache, step: Step, angles: Angles, selected: Selection | None = None
    ) -> Array:
        """x (T, hidden) → x plus the outputs of both parts, in place; `selected` rows alone."""
        if self.parallel:
            return self._in_parallel(x, cache, step, angles, selected)
        # No name is given to the normed x, which is large if the prompt is long.
        h = self.mixer.forward(
            self.attn_norm(x) if self.pre_norms else x, cache, step, angles, selected
        )
        if selected is not None:
            x = take_rows(x, selected.rows)
        h = self.attn_post_norm(h) if self.post_norms else h
        x += h if self.scale == 1.0 else self.scale * h
        del h  # of a long prompt it is large, and the MLP needs the room
        h = self.feed_forward.forward(self.mlp_norm(x) if self.pre_norms else x)
        h = self.mlp_post_norm(h) if self.post_norms else h
        x += h if self.scale == 1.0 else self.scale * h
        return x

    def _in_parallel(
        self, x: Array, cache: Cache, step: Step, angles: Angles, selected: Selection | None
    ) -> Array:
        normed = self.attn_norm(x)
        h = self.mixer.forward(normed, cache, step, angles, selected)
        if selected is not None:
            x, normed = take_rows(x, selected.rows), take_rows(normed, selected.rows)
        y = self.feed_forward.forward(normed if self.shared_norm else self.mlp_norm(x))
        x += self.attn_post_norm(h) if self.post_norms else h
        x += self.mlp_post_norm(y) if self.post_norms else y
        return x


class Embedding:
    """The table of embeddings, learned positions, and the output matrix."""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.table, self.xp = w["embed.weight"], namespace(w["embed.weight"])
        self.positions = w.get("pos_embed.weight")
        self.head = w.get("lm_head.weight", self.table)  # tied: the table is the matrix, too
        self.bias = w.get("lm_head.bias")
        self.scale, self.cap = config.embedding_scale, config.final_logit_softcapping
        self.logit_scale = config.logit_scale

    def embed(self, ids: Array, step: Step) -> Array:
        """Token ids (T,) at the step's positions → x (T, hidden)."""
        xp = self.xp
        x = widened(xp.take(self.table, ids, axis=0))
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + widened(xp.take(self.positions, step.positions, axis=0))
        return x

    def logits(self, x: Array) -> Array:
        """x (R, hidden) → logits (R, V), float32 at least."""
        logits = at_least_float32(self.xp, linear(x, self.head, self.bias))
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        return cap(self.xp, logits, self.cap)

"""Both ends of a decoder: token ids → x, and x → logits, often by one and the same matrix.

Config keys: `vocab_size`, `hidden_size`, `tie_word_embeddings`, `final_logit_softcapping`, and
`max_position_embeddings` where positions are learned.
"""

from __future__ import annotations

from kvlib.arrays import Array, at_least_float32, namespace
from kvlib.attention.direct import cap
from kvlib.caches import Step
from kvlib.model.config import ModelConfig
from kvlib.model.layers import Weight, linear


class Embedding:
    """The table of embeddings, learned positions, and the output matrix."""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        self.table, self.xp = w["embed.weight"], namespace(w["embed.weight"])
        self.positions = w.get("pos_embed.weight")
        self.head = w.get("lm_head.weight", self.table)  # tied: the table is the matrix, too
        self.scale, self.cap = config.embedding_scale, config.final_logit_softcapping

    @staticmethod
    def weights(config: ModelConfig) -> tuple[list[Weight], list[Weight]]:
        """The weights that a forward pass reads first, and those that it reads last."""
        vocabulary, positions = config.vocab_size, config.max_position_embeddings
        hidden = config.hidden_size
        first = [Weight("embed.weight", (vocabulary, hidden), {"embed_tokens": vocabulary})]
        if config.positions == "learned":
            tensors = {"embed_positions": positions}
            first.append(Weight("pos_embed.weight", (positions, hidden), tensors))
        head = Weight("lm_head.weight", (vocabulary, hidden), {"lm_head": vocabulary})
        return first, [] if config.tie_word_embeddings else [head]

    def embed(self, ids: Array, step: Step) -> Array:
        """Token ids (T,) at the step's positions → x (T, hidden)."""
        xp = self.xp
        x = xp.take(self.table, ids, axis=0)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + xp.take(self.positions, step.positions, axis=0)
        return x

    def logits(self, x: Array) -> Array:
        """x (R, hidden) → logits (R, V), float32 at least."""
        logits = at_least_float32(self.xp, linear(x, self.head))
        return cap(self.xp, logits, self.cap)

"""What decides how large a decoder and its cache are."""

from typing import NamedTuple


class Latent(NamedTuple):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): a cache of one vector a token.

    q_lora_rank is None where queries are projected in one step.
    """

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        """Length of a query or key as a prefill multiplies it."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def width(self) -> int:
        """Numbers cached for a token in a layer: the latent vector and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


class Experts(NamedTuple):
    """The mixture that replaces the MLP in `layers`; a token uses `per_token` of `num_experts`.

    Each has `width` inner units. All tokens pass a shared MLP of `shared_width` (0: none), with a
    separate gate if `shared_gate`.
    """

    num_experts: int
    per_token: int
    width: int
    layers: tuple[int, ...]
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False


class Shape(NamedTuple):
    """A decoder's sizes. Names are Hugging Face's keys where those exist.

    windows            one entry a layer: 0 for all tokens, or W, the query itself included
    norm               "rms"; "rms_1p", whose stored weights w mean 1 + w; or "layer", with biases
    positions          "rope", or "learned" and added to the embeddings
    post_norms         outputs of attention and MLP are normed, too: four norms a layer, not two
    parallel_residual  attention and MLP read the same x, and both are added to it
    shared_norm        in such a layer: attention and MLP read the output of one norm
    latent, experts    what replaces key and value heads, and the MLP of some layers
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    windows: tuple[int, ...]
    tie_word_embeddings: bool
    norm: str = "rms"
    positions: str = "rope"
    gated_mlp: bool = True
    post_norms: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False
    latent: Latent | None = None
    experts: Experts | None = None


class Router(NamedTuple):
    """How scores become a token's experts and their shares. The defaults are a plain softmax.

    sigmoid  each expert is scored alone, by σ; a bias counts for the choice and not for the share
             (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)
    groups   experts are in so many groups of equal size, and a token's in its `best_groups`. A
             group is as good as its best expert (DeepSeek-V2, arXiv:2405.04434, section 2.2.2),
             with `sigmoid` as its two best together
    scaling  the factor of all shares
    """

    sigmoid: bool = False
    groups: int = 1
    best_groups: int = 1
    scaling: float = 1.0

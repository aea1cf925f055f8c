"""What decides how large a decoder and its cache are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self


class Weight(NamedTuple):
    """One weight: an array of kvlib's, and the tensors of a checkpoint that it is made of.

    name     kvlib's name within its layer, such as "qkv.weight"; shape: (out, in), or (n,)
    tensors  Llama's name, without ".weight" (others: `kvlib.config.families.Names`) → its rows
    centre   the number that a vector of weights varies around: 1 for most norms, 0 for a bias
    linear   whether quantised checkpoints quantise it by default
    """

    name: str
    shape: tuple[int, ...]
    tensors: Mapping[str, int]
    centre: float = 1.0
    linear: bool = True

    def __hash__(self) -> int:
        return hash((self.name, self.shape))


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a layer keeps of a request, and the heads that attend to it.

    window          tokens that a query sees, itself included; 0 for all
    head_dim, v_dim numbers of a key and of a value; full_qk_dim, full_v_dim: in a prefill
    latent          one stored vector a token, of head_dim numbers, is the key of all heads and, in
                    its first v_dim numbers, the value (MLA)
    every           tokens that one stored entry is made of
    chosen          entries that a query reads at most; 0 for all it sees
    index           numbers stored beside each entry, by which an indexer chooses
    state           bytes of a request whatever its length; head_dim and v_dim are then 0
    shared          keys and values are those that a layer before has stored
    """

    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    v_dim: int
    full_qk_dim: int
    full_v_dim: int
    window: int = 0
    latent: bool = False
    every: int = 1
    chosen: int = 0
    index: int = 0
    state: int = 0
    shared: bool = False

    @classmethod
    def of(
        cls, heads: int, kv_heads: int, head_dim: int, v_dim: int | None = None, **more: int
    ) -> Self:
        """Return that of heads whose keys and values (head_dim numbers unless given) are stored."""
        v = head_dim if v_dim is None else v_dim
        dims: dict[str, Any] = dict(head_dim=head_dim, v_dim=v, full_qk_dim=head_dim, full_v_dim=v)
        return cls(num_qo_heads=heads, num_kv_heads=kv_heads, **{**dims, **more})

    @property
    def values(self) -> int:
        """Numbers stored for an entry in one layer."""
        if self.shared:
            return 0
        each = self.head_dim + (0 if self.latent else self.v_dim)
        return self.num_kv_heads * each + self.index

    @property
    def vectors(self) -> int:
        """How many vectors those are."""
        if not self.head_dim or self.shared:
            return 0
        return 1 if self.latent else 2 * self.num_kv_heads

    @property
    def facts(self) -> dict[str, int]:
        """Plain numbers, as `kvlib.costs.formulas` takes them."""
        names = "window values vectors num_qo_heads v_dim full_qk_dim full_v_dim every chosen"
        facts = {name: getattr(self, name) for name in f"{names} index state".split()}
        return {**facts, "qk_dim": self.head_dim}


class Layer(NamedTuple):
    """A layer whose weights and memories the uniform fields of a `Shape` don't say.

    name: what a checkpoint calls it, unless it is the layer's number among the others.
    """

    weights: tuple[Weight, ...]
    memories: tuple[Memory, ...]
    name: str = ""


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

    def memory(self, heads: int, **more: int) -> Memory:
        """Return what a layer keeps, and the heads that attend to it."""
        full = dict(full_qk_dim=self.qk_head_dim, full_v_dim=self.v_head_dim)
        return Memory.of(heads, 1, self.width, self.kv_lora_rank, latent=True, **full, **more)


class Experts(NamedTuple):
    """The mixture that replaces the MLP in `layers`; a token uses `per_token` of `num_experts`.

    Each has `width` inner units, with a gate if `gated`. All tokens pass a shared MLP of
    `shared_width` (0: none), with a separate gate if `shared_gate`. latent_width: the numbers to
    which a token is projected for the experts; 0 for no projection.
    """

    num_experts: int
    per_token: int
    width: int
    layers: tuple[int, ...]
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False
    gated: bool = True
    latent_width: int = 0


class Shape(NamedTuple):
    """A decoder's sizes. Names are Hugging Face's keys where those exist.

    windows            one entry a layer: 0 for all tokens, or W, the query itself included
    norm               "rms"; "rms_1p", whose stored weights w mean 1 + w; or "layer", with biases
    positions          "rope", "alibi", or "learned" and added to the embeddings
    pre_norms          attention and MLP read a norm of x
    post_norms         outputs of attention and MLP are normed before they are added
    qk_norm            queries and keys are normed, head by head, or all together if qk_norm_wide
    parallel_residual  attention and MLP read the same x, and both are added to it
    shared_norm        in such a layer: attention and MLP read the output of one norm
    latent, experts    what replaces key and value heads, and the MLP of some layers
    layers             every layer, where more than windows and experts tell layers apart, or ()
    others             weights beside layers, tables and last norm
    drafts             layers that guess further tokens, which count only on request
    uncounted          keys of the file whose weights aren't in the shape: a vision tower's
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
    head_bias: bool = False
    norm: str = "rms"
    positions: str = "rope"
    gated_mlp: bool = True
    pre_norms: bool = True
    post_norms: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    qk_norm_wide: bool = False
    sinks: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    layers: tuple[Layer, ...] = ()
    others: tuple[Weight, ...] = ()
    drafts: tuple[Layer, ...] = ()
    uncounted: tuple[str, ...] = ()


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

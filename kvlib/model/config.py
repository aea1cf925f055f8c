"""What a decoder is made of: sizes, switches and positions, checked when they are stated."""

from __future__ import annotations  # `_checked` reads them as text

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from kvlib.arguments import check_flag, check_index, check_integer, check_list
from kvlib.config import ranges
from kvlib.config.json_files import read_json
from kvlib.config.keys import ACTIVATIONS, Keys
from kvlib.config.parts import token_ids
from kvlib.config.ranges import EXPERTS, count, one_of
from kvlib.config.read import read_model
from kvlib.config.rope import RopeConfig
from kvlib.config.shape import Experts, Latent, Router
from kvlib.config.words import shown
from kvlib.errors import CheckpointError

__all__ = ["ModelConfig", "RopeConfig"]

_TYPES = {"str": str, **{part.__name__: part for part in (RopeConfig, Latent, Experts, Router)}}


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer. Names are Hugging Face's keys where those exist.

    windows                one entry per layer: None for all tokens, or W, the query itself included
    norm                   "rms", "rms_1p" (whose stored weights w stand for 1 + w) or "layer"
    pre_norms              attention and MLP read a norm of x
    post_norms             outputs of attention and MLP are normed before they are added
    qk_norm                queries and keys are normed, head by head; all at once if qk_norm_wide
    parallel_residual      attention and MLP read the same x; with shared_norm one norm of it
    query_pre_attn_scalar  scores are scaled by it to the power -0.5; head_dim unless given
    window_rope            the rope of layers with a window, if it differs
    unrotated              numbers of the layers that have no rope
    residual_scale         the factor of what attention and MLP add to x; logit_scale: of logits
    sinks                  whether each query head has a learned logit that has no value
    latent                 the sizes of latent attention; head_dim is then its qk_head_dim
    experts, router        the mixture that replaces the MLP of some layers, and how it chooses;
                           shares add up to 1 (times the router's scaling) if norm_topk_prob
    swiglu_limit           the MLP has the clamped gate of gpt-oss

    Raises ValueError or TypeError, naming the field, for a value that no model can have, and for a
    number outside the limits of `kvlib.config.ranges`.

    >>> from kvlib import load_reference_model
    >>> load_reference_model().config.num_hidden_layers
    5
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
    norm: str = "rms"
    norm_eps: float = 1e-6
    positions: str = "rope"
    rope: RopeConfig | None = None
    window_rope: RopeConfig | None = None
    unrotated: tuple[int, ...] = ()
    hidden_act: str = "silu"
    gated_mlp: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    qk_norm_wide: bool = False
    tie_word_embeddings: bool = False
    head_bias: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    windows: tuple[int | None, ...] = ()
    query_pre_attn_scalar: float | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    sinks: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    router: Router = Router()
    norm_topk_prob: bool = True
    swiglu_limit: float | None = None
    swiglu_alpha: float = 1.702
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    layers: ClassVar[tuple[()]] = ()  # `kvlib.config.weights` asks: all layers are as stated above
    others: ClassVar[tuple[()]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind, _, optional = str(field.type).partition(" | ")
            if not (optional and value is None):
                object.__setattr__(self, field.name, _checked(field.name, kind, value))
        for name in ("windows", "eos_token_ids"):
            object.__setattr__(self, name, tuple(check_list(name, getattr(self, name), "numbers")))
        for token in self.eos_token_ids:
            check_integer("eos_token_ids", token, 0)
        if self.latent is not None:
            _check_latent(self)
        one_of("norm", self.norm, ("rms", "rms_1p", "layer"))
        one_of("positions", self.positions, ("rope", "learned"))
        one_of("hidden_act", self.hidden_act, ACTIVATIONS)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}, needed: a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.positions == "rope":
            if self.rope is None:
                object.__setattr__(self, "rope", RopeConfig())
            if self.rope_dim % 2:
                name = "head_dim" if self.latent is None else "latent.qk_rope_head_dim"
                raise ValueError(f"{name} is {self.rope_dim}, needed: an even number for rope")
            for rope in filter(None, (self.rope, self.window_rope)):
                rotated = rope.rotated(self.rope_dim)
                if rotated % 2 or not rotated:
                    raise ValueError(
                        f"partial_rotary_factor is {rope.partial_rotary_factor}, which rotates "
                        f"{rotated} of {self.rope_dim} numbers, needed: an even number above 0"
                    )
        elif self.rope is not None:
            raise ValueError("rope is given but positions are 'learned'; leave rope out")
        if self.window_rope is not None and self.rope is None:
            raise ValueError("window_rope is given but positions are 'learned'; leave it out")
        for layer in check_list("unrotated", self.unrotated, "numbers of layers"):
            check_index("unrotated", layer, self.num_hidden_layers)
        if self.windows == ():
            object.__setattr__(self, "windows", (None,) * self.num_hidden_layers)
        if len(self.windows) != self.num_hidden_layers:
            raise ValueError(
                f"windows has {len(self.windows)} entries, needed: one for each of "
                f"{self.num_hidden_layers} layers"
            )
        if self.shared_norm and not self.parallel_residual:
            raise ValueError("shared_norm is True, needed with it: parallel_residual")
        if not self.pre_norms and (not self.post_norms or self.parallel_residual):
            raise ValueError("pre_norms is False, needed: post_norms, and no parallel_residual")
        if self.residual_scale != 1.0 and self.parallel_residual:
            raise ValueError(f"residual_scale is {self.residual_scale}, needed with parallel: 1.0")
        if self.qk_norm_wide and not self.qk_norm:
            raise ValueError("qk_norm_wide is True, needed with it: qk_norm")
        if self.experts is not None:
            _check_experts(self.experts, self.num_hidden_layers)
        check_flag("router.sigmoid", self.router.sigmoid)
        _check_router(self.router, self.experts)
        for window in self.windows:
            if window is not None:
                count("window", window, 1, ranges.POSITIONS)

    @property
    def rope_dim(self) -> int:
        """How many of a key's last numbers are rotated: all, unless there is a latent vector."""
        return self.head_dim if self.latent is None else self.latent.qk_rope_head_dim

    def rope_of(self, layer: int) -> RopeConfig | None:
        """The rope of layer number `layer`; None where it has none."""
        if layer in self.unrotated:
            return None
        windowed = self.windows[layer] is not None and self.window_rope is not None
        return self.window_rope if windowed else self.rope

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], source: str = "config.json", folder: str | None = None
    ) -> ModelConfig:
        """Read a parsed config.json. `source` names the file in errors.

        folder: where files beside config.json may say that the weights are quantised. Raises
        CheckpointError, naming the key, what it holds and which values kvlib knows, also for a
        model that kvlib can count and not run; TypeError if `data` is no mapping.
        """
        if not isinstance(data, Mapping):
            raise TypeError(
                f"config is a {type(data).__name__}, needed: a mapping of keys to values"
            )
        try:
            shape, others = read_model(data, source, folder)
            known = {field.name for field in fields(cls)}
            sizes = {name: value for name, value in shape._asdict().items() if name in known}
            sizes["windows"] = tuple(window or None for window in shape.windows)
            return cls(**sizes, **others)
        except CheckpointError:
            raise
        except ValueError as error:  # the checks above and RopeConfig's do not know the file
            raise CheckpointError(f"{source}: {error}") from None

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> ModelConfig:
        """Read config.json and generation_config.json in a folder; raises what `from_dict` does."""
        source = os.path.join(path, "config.json")
        data = read_json(source, check=False)
        config = cls.from_dict(data, source, os.fspath(path))
        generation = os.path.join(path, "generation_config.json")
        if os.path.lexists(generation):  # whatever is there has to be readable
            ends = token_ids(Keys(read_json(generation), generation), "eos_token_id")
            config = replace(config, eos_token_ids=ends) if ends else config
        return config


def _checked(name: str, kind: str, value: Any) -> Any:
    """The value, refused unless it is of the type that the field is annotated with."""
    if kind == "int":
        return count(name, value, int(name != "bos_token_id"), ranges.most(name))
    if kind == "float":
        ranges.number(name, value, name)
    elif kind == "bool":
        return check_flag(name, value)
    elif kind in _TYPES and not isinstance(value, _TYPES[kind]):
        raise TypeError(f"{name} is {shown(value)}, needed: a {_TYPES[kind].__name__}")
    return value


def _check_latent(config: ModelConfig) -> None:
    latent: Any = config.latent
    for name, size in latent._asdict().items():
        if name != "q_lora_rank" or size is not None:
            count(f"latent.{name}", size, 1, ranges.most(name))
    if config.head_dim != latent.qk_head_dim:
        raise ValueError(
            f"head_dim is {config.head_dim}, needed with latent: its qk_head_dim "
            f"({latent.qk_head_dim}, qk_nope_head_dim + qk_rope_head_dim)"
        )
    for name in ("qk_norm", "sinks"):
        if getattr(config, name):
            raise ValueError(f"{name} is True, needed with latent: False")


def _check_experts(experts: Experts, layers: int) -> None:
    sizes = experts._asdict()
    for name in ("num_experts", "per_token", "width"):
        key = "moe_intermediate_size" if name == "width" else "num_experts"
        count(f"experts.{name}", sizes[name], 1, ranges.most(key))
    check_integer("experts.shared_width", experts.shared_width, 0)
    for name in ("shared_gate", "router_bias", "bias"):
        check_flag(f"experts.{name}", sizes[name])
    for layer in check_list("experts.layers", experts.layers, "numbers of layers"):
        check_index("experts.layers", layer, layers)
    if not experts.gated or experts.latent_width:
        raise ValueError(f"experts are {experts}, needed: a gate, and no latent_width")
    if experts.per_token > experts.num_experts:
        raise ValueError(
            f"experts.per_token is {experts.per_token}, needed: at most num_experts "
            f"({experts.num_experts})"
        )
    if experts.num_experts * layers > EXPERTS:
        raise ValueError(
            f"experts.num_experts is {experts.num_experts}, needed: at most {EXPERTS:,} experts in "
            f"{layers} layers together"
        )


def _check_router(router: Router, experts: Experts | None) -> None:
    """Raise ValueError, naming the key, for a router that these experts cannot have."""
    count("router.groups", router.groups, 1, ranges.WHOLE)
    count("router.best_groups", router.best_groups, 1, ranges.WHOLE)
    ranges.number("router.scaling", router.scaling, "routed_scaling_factor")
    if experts is None:
        if router != Router():
            raise ValueError(f"router is {router}, needed: experts to route to")
        return
    total, groups, best = experts.num_experts, router.groups, router.best_groups
    size = total // groups
    if total % groups or (router.sigmoid and groups > 1 and size < 2):
        least = " of at least 2" if router.sigmoid else ""
        raise ValueError(
            f"router.groups (n_group) is {groups}, needed: a number that divides {total} experts "
            f"into groups{least}"
        )
    if best > groups or experts.per_token > best * size:
        raise ValueError(
            f"router.best_groups (topk_group) is {best}, needed: at most {groups} groups, and "
            f"enough that {experts.per_token} experts fit into groups of {size}"
        )

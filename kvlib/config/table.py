"""The one table of keys that no family reads: harmless ones, and those with one harmless value.

A key is harmless if it says how to train, initialise, generate or load; `neutral` gives the value
at which another changes nothing. All others are refused by name.
"""

from collections.abc import Collection
from typing import Any

from kvlib.config.shape import Shape

_STARTS = ("_", "initializer_", "summary_", "task_specific_", "aux_loss")
_ENDS = ("_token_id", "_token_index", "_dropout", "_dropout_prob", "_pdrop", "_dtype")

_HARMLESS = frozenset(
    (
        # loading, training
        *("architectures", "auto_map", "dtype", "name_or_path", "tokenizer_class", "ep_size"),
        *("pretraining_tp", "gradient_checkpointing", "unsloth_fixed", "cache_implementation"),
        *("model_max_length", "seq_length", "num_labels", "predict_special_tokens", "finetuned"),
        *("use_cache", "output_attentions", "output_hidden_states", "output_router_logits"),
        *("output_past", "return_dict", "problem_type", "id2label", "label2id", "is_decoder"),
        *("max_sequence_length", "is_llama_config", "transformers.js_config", "finetuning_task"),
        *("torchscript", "use_bfloat16", "tf_legacy_loss", "dropout", "tie_encoder_decoder"),
        *("attn_implementation", "use_flash_attn", "use_flash_attention_2"),
        *("init_std", "layerdrop", "init_method", "z_loss_coefficient", "num_logits_to_keep"),
        *("hidden_dropout", "for_llm_compressor"),
        # generating
        *("max_length", "do_sample", "temperature", "top_p", "top_k", "chunk_size_feed_forward"),
        *("min_length", "num_beams", "num_beam_groups", "num_return_sequences", "typical_p"),
        *("repetition_penalty", "length_penalty", "diversity_penalty", "early_stopping"),
        *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "remove_invalid_values"),
        *("output_scores", "return_dict_in_generate", "bad_words_ids", "prefix"),
        *("suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty"),
        # where a sum is rounded; n_ctx repeats n_positions, layer_types says what this counts
        *("reorder_and_upcast_attn", "n_ctx", "max_window_layers"),
        *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
        # how experts are trained
        *("seq_aux", "router_aux_loss_coef", "router_jitter_noise"),
        # `kvlib.config.quantisers` reads them, wherever they are
        *("quantization_config", "quantization", "compression_config"),
        # layers that guess further tokens: decoding works without them, so they are not counted
        *("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"),
        *("mtp_use_dedicated_embeddings", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"),
    )
)
# Keys that do not change a model's size, but that a forward pass has to read.
_COMPUTED = frozenset(
    (
        # activations, norms, scores
        *("hidden_act", "activation", "hidden_activation", "activation_function", "swiglu_limit"),
        *("swiglu_alpha", "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
        "norm_epsilon",
        *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
        *("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "attention_multiplier"),
        *("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"),
        *("clip_qkv", "is_causal", "dual_chunk_attention_config"),
        # positions
        *("original_max_position_embeddings", "initial_context_length", "partial_rotary_factor"),
        *("rotary_emb_base", "rotary_pct", "attn_rotary_emb"),
        # how experts are chosen
        *("n_group", "topk_group", "topk_method", "norm_topk_prob", "scoring_func"),
        *("routed_scaling_factor", "swiglu_limits", "swiglu_limits_shared", "norm_expert_weight"),
        *("moe_renormalize", "moe_router_activation", "moe_router_activation_func"),
        *("moe_router_scaling_factor", "num_expert_group", "use_grouped_topk", "need_fp32_gate"),
        # which positions an indexer and a layer without rope see
        *("sparse_score_type", "sparse_local_block", "indexer_rope_interleave"),
        *("index_share_for_mtp_iteration", "floor_scale", "attn_scale", "mla_use_nope"),
        *("yarn_only_types", "partial_rotary_factors", "use_rope_layers", "compress_rope_theta"),
        # states, and copies of a token
        *("mamba_chunk_size", "mamba_hidden_act", "mlp_hidden_act", "use_mamba_kernels"),
        *("time_step_floor", "time_step_limit", "time_step_max", "time_step_min"),
        *("mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor", "use_mambapy", "gate_lower_bound"),
        *("use_associative_scan", "residual_in_fp32", "rescale_prenorm_residual", "hc_eps"),
        *("moe_shared_expert_overlap", "activation_situ_beta", "activation_situ_linear_beta"),
        *("hc_sinkhorn_iters", "activation_sparsity_pattern", "altup_active_idx"),
        *("altup_coef_clip", "altup_correct_scale", "slow_but_exact", "offset_alibi"),
        *("altup_lr_multiplier", "calc_logits_for_entire_prompt"),
        *("bias_dropout_fusion", "masked_softmax_fusion", "skip_bias_add", "skip_bias_add_qkv"),
    )
)

# key → the value at which it changes nothing, and what kvlib does where no family reads the key
_NEUTRAL: dict[str, tuple[Any, str]] = {
    # Granite, Cohere, DBRX and OLMo scale or clip what flows through a model
    "embedding_multiplier": (1.0, "embeddings are not scaled"),
    "residual_multiplier": (1.0, "what a layer adds is not scaled"),
    "logits_scaling logit_scale": (1.0, "logits are not scaled"),
    "clip_qkv": (None, "queries, keys and values are not clipped"),
    "attn_logit_softcapping": (None, "scores are not capped"),
    "final_logit_softcapping": (None, "logits are not capped"),
    "attn_temperature_tuning": (False, "scores do not depend on the position"),
    "scale_attn_weights": (True, "scores are scaled by 1/sqrt(head_dim)"),
    "scale_attn_by_inverse_layer_idx": (False, "every layer scales its scores alike"),
    "attn_output_gate attention_output_gate": (False, "attention has no gate"),
    "use_parallel_residual parallel_residual": (False, "the MLP comes after attention"),
    "parallel_attn": (False, "the MLP comes after attention"),
    # who sees whom, and where a position comes from
    "is_encoder_decoder add_cross_attention": (False, "decoders only"),
    "use_sliding_window": (False, "this family has no such switch"),
    "use_bidirectional_attention": (False, "attention is causal"),
    "is_causal": (True, "attention is causal"),
    "alibi use_alibi": (False, "scores get no bias"),
    "rope_interleaved rope_interleave": (False, "dimension i is rotated with i + head_dim / 2"),
    "rotary_pct partial_rotary_factor": (1.0, "the whole head is rotated"),
    "use_mrope": (False, "a position is one number"),
    "attn_factor extrapolation_factor": (1.0, "YaRN has no such factor"),
    "num_kv_shared_layers": (0, "every layer has separate keys and values"),
    # weights that no family has
    "lm_head_bias": (False, "this family has no such bias"),
    "n_special": (0, "vocab_size counts every token"),
    # how experts are chosen
    "scoring_func": ("softmax", "all experts are scored together"),
    "topk_method": ("greedy", "the best experts are chosen"),
    "n_group topk_group": (1, "experts are in one group"),
    "routed_scaling_factor": (1.0, "the shares of experts are not scaled"),
    # Phi-4's files
    "full_attn_mod": (1, "all layers attend alike"),
    "num_reward_heads": (0, "the model has a language head"),
    "interpolate_factor": (1, "positions are not interpolated"),
}
NEUTRAL = {key: said for keys, said in _NEUTRAL.items() for key in keys.split()}

# fields of a `Shape` and of its `Experts`, and other names for what they state
_STATED = {
    "qkv_bias": "attention_bias bias qkv_bias use_qkv_bias",
    "mlp_bias": "mlp_bias use_bias",
    "qk_norm": "qk_norm use_qk_norm qk_layernorm",
    "num_experts": "num_experts num_local_experts n_routed_experts",
    "per_token": "num_experts_per_tok experts_per_token",
    "width": "moe_intermediate_size",
    "shared_width": "shared_expert_intermediate_size shared_intermediate_size n_shared_experts "
    "num_shared_experts",
}
_FIELDS = {key: field for field, keys in _STATED.items() for key in keys.split()}
_SIZES = Shape._fields[1:9]  # from vocab_size to max_position_embeddings


def neutral(key: str, shape: Shape | None, seen: Collection[str] = ()) -> tuple[Any, str] | None:
    """Return the value at which a key changes nothing and why, or None; shape None: a rope's."""
    if key in NEUTRAL:
        return NEUTRAL[key]
    if shape is None:
        return None
    experts, layers, field = shape.experts, shape.num_hidden_layers, _FIELDS.get(key, "")
    if field in ("qkv_bias", "mlp_bias", "qk_norm"):
        has = getattr(shape, field) or (key == "mlp_bias" and bool(experts and experts.bias))
        kind = "norm" if field == "qk_norm" else "bias"
        return has, f"this family has {'such a' if has else 'no such'} {kind}"
    if key in _SIZES:
        return getattr(shape, key), "other keys say it"
    if key in ("query_pre_attn_scalar", "attention_multiplier"):
        if "query_pre_attn_scalar" in seen:
            return None, "query_pre_attn_scalar says it"
        scale: Any = shape.head_dim if key == "query_pre_attn_scalar" else shape.head_dim**-0.5
        return None if shape.latent else scale, "scores are scaled by 1/sqrt(head_dim)"
    if key in ("v_head_dim", "rotary_dim") and not shape.latent:
        return shape.head_dim, "as head_dim says"
    if key == "no_rope_layers" and shape.positions == "rope":
        return [1] * layers, "every layer rotates its keys"
    if key == "layer_types" and not any(shape.windows):
        return ["full_attention"] * layers, "every layer sees all tokens"
    if field:
        size = getattr(experts, field) if experts else 0
        if size and key.endswith("shared_experts"):
            return None  # a shape has their width together, and not their number
        kind = "shared experts" if "shared" in key else "experts"
        return size, "other keys say it" if size else f"this model has no {kind}"
    if experts and experts.layers == tuple(range(layers)):
        return _MIXED.get(key)
    return None


# of models whose layers are all mixtures of experts
_MIXED: dict[str, tuple[Any, str]] = {
    "first_k_dense_replace": (0, "every layer has experts"),
    **dict.fromkeys(("decoder_sparse_step", "moe_layer_freq"), (1, "every layer has experts")),
    "norm_topk_prob": (True, "the shares of a token's experts add up to 1"),
}


def is_harmless(key: str, value: Any, to_run: bool = False) -> bool:
    """Return whether a key says neither a size of the model nor, if `to_run`, how it computes."""
    if key in _HARMLESS or key.startswith(_STARTS) or key.endswith(_ENDS):
        return True
    if key.endswith("_version"):  # of a program that wrote the file
        return isinstance(value, str)
    return not to_run and (key in _COMPUTED or key.startswith("rope_"))


def same(value: Any, allowed: Any) -> bool:
    """Return whether two values are equal; True and 1 differ, as in JSON."""
    if value is None or not isinstance(value, (bool, int, float, str, list, dict)):
        return value is allowed
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)

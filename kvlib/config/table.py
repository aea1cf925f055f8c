"""The one table of keys that no family reads: harmless ones, and those with one harmless value.

A key of a config.json is

understood   if `shape` or `forward_fields` of the family's file reads it;
harmless     if it says how to train, initialise, generate or load: any value will do;
neutral      if the table below has it: its value must be the one at which it changes nothing;
refused      otherwise, by name.
"""

from __future__ import annotations

from typing import Any

_STARTS = ("_", "initializer_", "summary_", "task_specific_", "aux_loss")
_ENDS = ("_token_id", "_token_index", "_dropout", "_dropout_prob", "_pdrop", "_dtype")

_HARMLESS = frozenset(
    (
        # loading, training
        *("architectures", "auto_map", "dtype", "name_or_path", "tokenizer_class", "ep_size"),
        *("pretraining_tp", "gradient_checkpointing", "unsloth_fixed", "cache_implementation"),
        *("use_cache", "output_attentions", "output_hidden_states", "output_router_logits"),
        *("output_past", "return_dict", "problem_type", "id2label", "label2id", "is_decoder"),
        *("max_sequence_length", "is_llama_config", "transformers.js_config", "finetuning_task"),
        *("torchscript", "use_bfloat16", "tf_legacy_loss", "dropout", "tie_encoder_decoder"),
        *("attn_implementation", "use_flash_attn", "use_flash_attention_2"),
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
        # layers that guess further tokens: decoding works without them, so they are not counted
        *("num_nextn_predict_layers", "num_mtp_layers"),
    )
)
# Keys that do not change a model's size, but that a forward pass has to read.
_COMPUTED = frozenset(
    (
        # activations, norms, scores
        *("hidden_act", "hidden_activation", "activation_function", "swiglu_limit"),
        *("swiglu_alpha", "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
        "norm_epsilon",
        *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
        *("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "attention_multiplier"),
        *("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"),
        *("clip_qkv", "is_causal"),
        # positions
        *("original_max_position_embeddings", "initial_context_length", "partial_rotary_factor"),
        # how experts are chosen
        *("n_group", "topk_group", "topk_method", "norm_topk_prob", "scoring_func"),
        "routed_scaling_factor",
    )
)

# key → the value at which it changes nothing, and what kvlib does where no family reads the key
NEUTRAL: dict[str, tuple[Any, str]] = {
    # Granite, Cohere, DBRX and OLMo scale or clip what flows through a model
    "embedding_multiplier": (1.0, "embeddings are not scaled"),
    "residual_multiplier": (1.0, "what a layer adds is not scaled"),
    "logits_scaling": (1.0, "logits are not scaled"),
    "logit_scale": (1.0, "logits are not scaled"),
    "attention_multiplier": (None, "scores are scaled by 1/sqrt(head_dim)"),
    "query_pre_attn_scalar": (None, "scores are scaled by 1/sqrt(head_dim)"),
    "clip_qkv": (None, "queries, keys and values are not clipped"),
    "attn_logit_softcapping": (None, "scores are not capped"),
    "final_logit_softcapping": (None, "logits are not capped"),
    # who sees whom, and where a position comes from
    **dict.fromkeys(("is_encoder_decoder", "add_cross_attention"), (False, "decoders only")),
    "use_sliding_window": (False, "this family has no such switch"),
    "use_bidirectional_attention": (False, "attention is causal"),
    "is_causal": (True, "attention is causal"),
    "alibi": (False, "scores get no bias"),
    "rope_interleaved": (False, "dimension i is rotated with i + head_dim / 2"),
    "num_kv_shared_layers": (0, "every layer has keys and values of its own"),
    # weights that a family has or has not
    **dict.fromkeys(
        ("attention_bias", "qkv_bias", "mlp_bias", "use_bias", "lm_head_bias"),
        (False, "this family has no such bias"),
    ),
    **dict.fromkeys(
        ("qk_norm", "use_qk_norm", "qk_layernorm"), (False, "this family has no such norm")
    ),
    # Phi-4's files
    "full_attn_mod": (1, "all layers attend alike"),
    "interpolate_factor": (1, "positions are not interpolated"),
}


def is_harmless(key: str, value: Any, to_run: bool = False) -> bool:
    """Whether a key says how to train, initialise, generate or load, not how large the model is.

    to_run: whether it must not say how a forward pass computes, either.
    """
    if key in _HARMLESS or key.startswith(_STARTS) or key.endswith(_ENDS):
        return True
    if key.endswith("_version"):  # of a program that wrote the file
        return isinstance(value, str)
    return not to_run and (key in _COMPUTED or key.startswith("rope_"))


def is_neutral(key: str, value: Any) -> bool:
    """Whether the value is the one at which the key changes nothing."""
    return key in NEUTRAL and same(value, NEUTRAL[key][0])


def same(value: Any, allowed: Any) -> bool:
    """Equal, where True and 1 differ, because JSON tells them apart."""
    if value is None or not isinstance(value, (bool, int, float, str, list, dict)):
        return value is allowed
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)

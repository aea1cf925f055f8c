"""Keys of config.json that decide nothing: for a model's size, or for a forward pass either."""

from __future__ import annotations

_STARTS = ("_", "initializer_", "summary_", "task_specific_", "aux_loss")
_ENDS = ("_token_id", "_token_index", "_dropout", "_pdrop", "_dtype", "_version")

_HARMLESS = frozenset(
    (
        # loading, training, generating
        *("architectures", "auto_map", "dtype", "name_or_path", "tokenizer_class", "ep_size"),
        *("pretraining_tp", "gradient_checkpointing", "unsloth_fixed", "cache_implementation"),
        *("use_cache", "output_attentions", "output_hidden_states", "output_router_logits"),
        *("output_past", "return_dict", "problem_type", "id2label", "label2id", "is_decoder"),
        *("max_length", "do_sample", "temperature", "top_p", "top_k", "chunk_size_feed_forward"),
        *("max_sequence_length", "is_llama_config", "transformers.js_config"),
        # where a sum is rounded; n_ctx repeats n_positions, layer_types says what this counts
        *("reorder_and_upcast_attn", "n_ctx", "max_window_layers"),
        *("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
        # how experts are trained
        *("seq_aux", "router_aux_loss_coef", "router_jitter_noise"),
        # layers that guess further tokens: decoding works without them, so they are not counted
        *("num_nextn_predict_layers", "num_mtp_layers"),
    )
)
# What decides nothing for a model's size. A forward pass has to read these.
_COMPUTED = frozenset(
    (
        # activations, norms, scores
        *("hidden_act", "hidden_activation", "activation_function", "swiglu_limit"),
        *("swiglu_alpha", "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
        "norm_epsilon",
        *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
        *("scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
        # positions
        *("original_max_position_embeddings", "initial_context_length", "partial_rotary_factor"),
        # how experts are chosen
        *("n_group", "topk_group", "topk_method", "norm_topk_prob", "scoring_func"),
        "routed_scaling_factor",
    )
)


def is_harmless(key: str, to_run: bool = False) -> bool:
    """Whether a key says how to train, initialise, generate or load, not how large the model is.

    to_run: whether it must not say how a forward pass computes, either.
    """
    if key in _HARMLESS or key.startswith(_STARTS) or key.endswith(_ENDS):
        return True
    return not to_run and (key in _COMPUTED or key.startswith("rope_"))

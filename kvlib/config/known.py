"""Keys of config.json that change neither weights nor cache."""

from __future__ import annotations

_STARTS = ("_", "rope_", "initializer_", "summary_", "task_specific_", "aux_loss")
_ENDS = ("_token_id", "_token_index", "_dropout", "_pdrop", "_dtype", "_version")

_HARMLESS = frozenset(
    (
        # loading, training, generating
        *("architectures", "auto_map", "dtype", "name_or_path", "tokenizer_class", "ep_size"),
        *("pretraining_tp", "gradient_checkpointing", "unsloth_fixed", "cache_implementation"),
        *("use_cache", "output_attentions", "output_hidden_states", "output_router_logits"),
        *("output_past", "return_dict", "problem_type", "id2label", "label2id", "is_decoder"),
        *("max_length", "do_sample", "temperature", "top_p", "top_k", "chunk_size_feed_forward"),
        # activations, norms, scores
        *("hidden_act", "hidden_activation", "activation_function", "swiglu_limit"),
        *("swiglu_alpha", "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
        *("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
        *("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"),
        # positions; n_ctx repeats n_positions
        *("original_max_position_embeddings", "initial_context_length", "n_ctx"),
        *("partial_rotary_factor", "max_window_layers"),
        # how experts are chosen and trained
        *("n_group", "topk_group", "topk_method", "norm_topk_prob", "scoring_func", "seq_aux"),
        *("routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise"),
        # layers that guess further tokens: decoding works without them, so they are not counted
        *("num_nextn_predict_layers", "num_mtp_layers"),
    )
)


def is_harmless(key: str) -> bool:
    """Whether a key says how to train, initialise, generate or load, not how large the model is."""
    return key in _HARMLESS or key.startswith(_STARTS) or key.endswith(_ENDS)

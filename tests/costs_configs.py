"""Configs of every family: tiny ones, and published files with all that decides nothing here."""

import json
from typing import Any

from repository import ROOT

from kvlib.costs.catalogue import read_data
from kvlib.costs.spec import catalogued

CATALOGUE = {key: catalogued(entry) for key, entry in read_data("models.toml").items()}
LLAMA: dict[str, Any] = dict(
    model_type="llama", vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
    num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=512,
)
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
MOE: dict[str, Any] = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
QWEN3_MOE = {**QWEN3, **MOE, "model_type": "qwen3_moe"}
QWEN2_MOE = {**LLAMA, **MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 48}
QWEN_NEXT: dict[str, Any] = dict(
    **{**QWEN2_MOE, "model_type": "qwen3_next", "head_dim": 16}, linear_num_key_heads=2,
    linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
    linear_conv_kernel_dim=4,
)
GEMMA2 = {**QWEN3, "model_type": "gemma2", "sliding_window": 32}
GEMMA3 = {**QWEN3, "model_type": "gemma3_text", "sliding_window": 32, "num_hidden_layers": 7}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
GPT_OSS = {**MIXTRAL, "model_type": "gpt_oss", "head_dim": 16, "sliding_window": 32}
GPT2 = dict(model_type="gpt2", vocab_size=100, n_embd=64, n_head=4, n_layer=3, n_positions=128)
DEEPSEEK: dict[str, Any] = dict(
    **{**LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": 8},
    q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
    n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=32,
    first_k_dense_replace=1, n_group=4, topk_group=2,
)

# config.json files as their makers publish them, with all that decides nothing here
FILES = (ROOT / "tests/golden/published").glob("*.json")
PUBLISHED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FILES)}

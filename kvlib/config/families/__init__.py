"""The families of models whose config.json kvlib reads: one file and one line below for each.

To add a family, write ``kvlib/config/families/<model_type>.py`` with a `Family` named FAMILY and
add its `model_type` to FAMILIES. The file says four things:

1. which classes a config may name in `architectures`;
2. `shape(keys)`: what decides how large the model and its cache are. `kvlib.config.parts` reads
   what families share; every key that is read is checked, and `kvlib.costs` refuses a config with
   keys that nobody has read;
3. `forward_fields(keys)`: the fields of `kvlib.ModelConfig` that say how a forward pass computes.
   `kvlib.config.options` reads what families share. A key that neither this nor `shape` reads is
   refused, unless `kvlib.config.known` says that it decides nothing. A family without
   `forward_fields` is counted and not run, and `lacks` says what is missing;
4. `names`: how tensors of the checkpoint differ from Llama's.

`gemma2` is an example of the first three, `starcoder2` of all four. Our names for weights are the
keys of ``kvlib.model.weights.weight_shapes(config)``.

The tests ask for three things more: the family's name in README.md; a line or two in VARIANTS of
``tests/peers/hf_models.py``, from which ``tools/make_golden.py <variant>`` writes a tiny checkpoint
and transformers' logits of it (that needs torch and transformers); and what a config must not say,
in REFUSED of ``tests/test_config.py``.

What none of kvlib's layers computes yet (latent attention, a mixture of experts) is a new file
beside `kvlib.model.grouped_query` or `kvlib.model.gated_mlp`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from kvlib.config.family import Family

FAMILIES = (
    "llama",
    "mistral",
    "mixtral",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt2",
    "starcoder2",
    "deepseek_v2",
    "deepseek_v3",
    "gpt_oss",
)


@cache
def family(model_type: str) -> Family:
    """The family of that name; its file is imported when it is first asked for."""
    found: Family = import_module(f"{__name__}.{model_type}").FAMILY
    return found

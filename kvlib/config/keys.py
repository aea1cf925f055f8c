"""Reading JSON: a file, and the keys of one object, whose types are checked and remembered."""

from __future__ import annotations

import json
import math
import os  # not pathlib, here and in kvlib.model: importing that takes 3 ms
from collections.abc import Callable, Mapping
from typing import Any

from kvlib.errors import CheckpointError

ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh")  # those that kvlib has
_UNSET: Any = object()


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError where there is none to read."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        shown = str(path) if len(str(path)) <= 255 else f"{str(path)[:57]}..."  # no file's name
        raise CheckpointError(f"{shown}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: holds a {type(data).__name__}, needed: a JSON object")
    return data


class Keys:
    """One object of a config.json; errors name file, key, what came and what was needed.

    source      the file, for errors
    inside      what stands before a key in errors, such as "text_config."
    model_type  the family; `kvlib.config.read.family_of` fills it in
    seen        the keys that have been read
    """

    def __init__(self, data: Mapping[str, Any], source: str, inside: str = "") -> None:
        self.data, self.source, self.inside = data, source, inside
        self.model_type = ""
        self.seen: set[str] = set()

    def error(self, key: str, needed: str) -> CheckpointError:
        came = f"is {_short(self.data[key])}" if key in self.data else "is missing"
        return CheckpointError(f"{self.source}: {self.inside}{key} {came}, needed: {needed}")

    def read(
        self,
        key: str,
        kind: type,
        needed: str,
        default: Any = _UNSET,
        valid: Callable[[Any], bool] = lambda value: True,
    ) -> Any:
        """The value; `default` where the key is absent or null, an error where there is none."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is None and default is not _UNSET:
            return default
        right = isinstance(value, (int, float) if kind is float else kind)
        if not right or (isinstance(value, bool) and kind is not bool) or not valid(value):
            raise self.error(key, needed)
        return value

    def count(self, key: str, default: Any = _UNSET, least: int = 1) -> int:
        """A whole number of at least `least`."""
        needed = f"a whole number of at least {least}"
        return self.read(key, int, needed, default, lambda value: value >= least)

    def number(self, key: str, default: Any = _UNSET) -> Any:
        """A finite number above 0, as a float; `default` as it is."""
        needed = "a number above 0"
        value = self.read(key, float, needed, default, lambda value: 0 < value < math.inf)
        return value if value is default else float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return self.read(key, bool, "true or false", default)

    def only(self, key: str, allowed: Any, why: str) -> None:
        """Raise unless the key is absent or null or holds the one value that is understood."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is not None and value != allowed:
            raise self.error(key, f"{allowed!r} or no such key ({why})")

    def refuse_others(self, to_run: bool = False) -> None:
        """Raise for the first key that says something and that no family's file has read.

        to_run: for a forward pass, in which a key may matter that no size depends on.
        """
        advice = (
            "if it does not change what a forward pass computes, delete it from the file"
            if to_run
            else "if it changes neither weights nor cache, or is not to be counted, read the "
            "config with without=[{!r}]"
        )
        for key, value in self.data.items():
            says_nothing = value is None or value is False or value in ({}, [], "", 0)
            if key in self.seen or says_nothing or is_harmless(key, to_run):
                continue
            needed = f"a key that {self.model_type} is known to have; {advice.format(key)}"
            raise self.error(key, needed)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ----------------------------------------------------------- values that a program states itself


def positive_int(name: str, value: object) -> None:
    """Refuse what is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, needed: a whole number of at least 1")


def positive_float(name: str, value: object) -> None:
    """Refuse what is no finite number above 0."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not 0 < value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}, needed: a number above 0")


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is none of the names that are known."""
    if value not in known:
        raise ValueError(f"{name} is {value!r}, needed: one of {', '.join(known)}")


# ------------------------------------------------------------------- keys that decide nothing


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

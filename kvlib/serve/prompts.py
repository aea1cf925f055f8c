"""What may be asked of a model and a cache: prompts, lengths, layers that fit each other."""

from collections.abc import Sequence, Set
from operator import index
from typing import Any

import numpy as np

from kvlib.arguments import check_flag, check_seed, describe, is_integer, listed
from kvlib.model.decoder import Decoder

FIELDS = ("num_kv_heads", "head_dim", "v_head_dim", "window", "sm_scale", "softcap", "v_from_k")


def as_ids(model: Decoder, prompts: Sequence[Any]) -> tuple[list[list[int]], bool]:
    """The prompts as token ids, and whether they were texts."""
    if isinstance(prompts, str):
        raise TypeError("prompts must be a list of prompts, got one text: write [text]")
    prompts = listed("prompts", prompts, "prompts")
    check_model(model)
    texts = [isinstance(p, str) for p in prompts]
    if any(texts):
        if not all(texts):
            raise TypeError("prompts must be all texts or all lists of token ids, got both")
        if model.tokenizer is None:
            raise TypeError("this model has no tokenizer: prompts must be lists of token ids")
        prompts = [model.tokenizer.encode(p) for p in prompts]
    return [token_ids(f"prompt {i}", p) for i, p in enumerate(prompts)], any(texts)


def check_model(model: Any) -> None:
    """Refuse what cannot compute, such as the name of a model."""
    if not hasattr(model, "layer_specs"):
        raise TypeError(f"model must be a Decoder (kvlib.load_model), got {describe(model)}")


def token_ids(name: str, tokens: Any) -> list[int]:
    """Token ids as Python integers; nothing is rounded to one."""
    ids = listed(name, tokens, "token ids")
    wrong = [t for t in ids if not is_integer(t)]
    if wrong:
        raise TypeError(f"{name} must hold integers, got {describe(wrong[0])}")
    return [index(t) for t in ids]


def seeds_of(seed: Any, count: int) -> list[int]:
    """The seed of each of `count` prompts: one integer for all of them, or one per prompt."""
    if is_integer(seed):
        return [check_seed("seed", seed)] * count
    ordered = isinstance(seed, Sequence) and not isinstance(seed, str | bytes)
    if not ordered and getattr(seed, "ndim", 0) != 1:
        raise ValueError(
            "seed must be an integer of at least 0, or a sequence with one such integer per "
            f"prompt, got {describe(seed)}"
        )
    seeds = list(seed)
    if len(seeds) != count:
        raise ValueError(
            f"seed must hold one integer per prompt, got {len(seeds)} for {count} prompts; "
            "one integer instead of a sequence is every prompt's seed"
        )
    return [check_seed(f"seed {i}", one) for i, one in enumerate(seeds)]


def check_prompt(model: Decoder, name: str, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Refuse a prompt that is empty, too long for the model or outside its vocabulary."""
    limit, vocabulary = model.config.max_position_embeddings, model.config.vocab_size
    if not prompt:
        raise ValueError(f"{name} is empty: at least one token is needed to start from")
    # The last new token is returned and never fed back, so it needs no position.
    needed = len(prompt) + max_new_tokens - 1
    if needed > limit:
        raise ValueError(
            f"{name} has {len(prompt)} tokens; with {max_new_tokens} new ones "
            f"(max_new_tokens) it needs {needed} positions, and the model has {limit}"
        )
    wrong = [t for t in prompt if not 0 <= t < vocabulary]
    if wrong:
        raise ValueError(f"{name} holds token {describe(wrong[0])}, needed: 0 ... {vocabulary - 1}")


def stop_ids(model: Decoder, stop_tokens: Any) -> frozenset[int]:
    """The tokens that end a request: the model's own unless given."""
    if stop_tokens is None:
        return frozenset(model.config.eos_token_ids)
    if isinstance(stop_tokens, Set):
        stop_tokens = list(stop_tokens)  # in any order
    ids, vocabulary = token_ids("stop_tokens", stop_tokens), model.config.vocab_size
    wrong = [t for t in ids if not 0 <= t < vocabulary]
    if wrong:
        raise ValueError(
            f"stop_tokens must be token ids of the model, 0 ... {vocabulary - 1}, got "
            f"{describe(wrong[0])}; pass () for none"
        )
    return frozenset(ids)


def check_cache(model: Decoder, cache: Any) -> None:
    """Refuse a cache whose layers are not the model's: a wrong window fails without a sound."""
    check_model(model)
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise TypeError(f"cache must be a cache of the model's layers, got {describe(cache)}")
    if len(layers) != len(model.layer_specs):
        raise ValueError(
            f"the cache was built for {len(layers)} layers, the model has {len(model.layer_specs)}"
        )
    for i, (layer, spec) in enumerate(zip(layers, model.layer_specs, strict=True)):
        for field in FIELDS:
            a, b = getattr(layer, field), getattr(spec, field)
            if a != b:
                raise ValueError(
                    f"layer {i} of the cache has {field} = {a}, the model's has {b}: build the "
                    "cache from model.layer_specs"
                )


def choose_step(model: Decoder, cache: Any, compiled: Any) -> Any:
    """The CompiledStep of a run, or None; `compiled` as in :class:`kvlib.Scheduler`."""
    if compiled is False or (compiled is None and model.xp is np):
        return None
    from kvlib.kernels.step import CompiledStep, Kernels, compile_step

    if isinstance(compiled, CompiledStep):
        if compiled.model is not model or compiled.cache is not cache:
            raise ValueError("compiled must be of this model and this cache")
        return compiled
    if compiled is not None:
        check_flag("compiled", compiled)
    elif not isinstance(cache.attention, Kernels):
        return None
    step = compile_step(model, cache)
    if compiled and (reasons := step.explain()):
        raise ValueError(f"decode steps can't be compiled: {'; '.join(reasons)}")
    return step

"""The operations of latent attention's scene against counted products, the meter and the costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scene_parts import numbers
from schedules import close

import kvlib
from kvbook.explorers import latent_explorer
from kvbook.explorers.catalogue import LATENT_MODELS, latent_sizes
from kvbook.explorers.scenes.latent import latent_forms
from kvlib.config.shape import Latent
from kvlib.costs import MODELS, formulas
from kvlib.model import Decoder, ModelConfig, random_weights

CONTEXTS = {control.name: control.values for control in latent_explorer().controls}["context"]
# T, S and the sizes: heads, latent, nope, rope, value
SMALL = [
    (3, 7, 2, 5, 3, 2, 4),
    (1, 9, 3, 8, 4, 2, 4),
    (6, 6, 4, 10, 2, 4, 5),
    (2, 5, 1, 3, 6, 2, 7),
]


class Counted:
    """Products of matrices that add up their operations, a multiplication and an addition each."""

    def __init__(self) -> None:
        self.flops = 0

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = a @ b
        self.flops += 2 * c.size * a.shape[-1]
        return c


def softmax(s: np.ndarray) -> np.ndarray:
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


def sizes_of(heads: int, latent: int, nope: int, rope: int, value: int) -> dict[str, Any]:
    sizes = {"heads": heads, "latent": latent, "nope": nope, "rope": rope, "value": value}
    return {"title": "Small", **sizes}


@pytest.mark.parametrize("given", SMALL)
def test_the_operations_are_those_of_the_products(given: tuple[int, ...]) -> None:
    """Both forms in NumPy give the same outputs, and take the operations that the scene states."""
    t, s, h, c, n, r, v = given
    rng = np.random.default_rng(1)
    latents, rotated = rng.standard_normal((s, c)), rng.standard_normal((s, r))
    key_up, value_up = rng.standard_normal((h, n, c)), rng.standard_normal((h, v, c))
    q, q_rotated = rng.standard_normal((h, t, n)), rng.standard_normal((h, t, r))

    times, expanding = Counted(), Counted()
    keys, values = (
        expanding(latents, key_up.swapaxes(1, 2)),
        expanding(latents, value_up.swapaxes(1, 2)),
    )
    keys = np.concatenate([keys, np.broadcast_to(rotated, (h, s, r))], axis=-1)
    scores = times(np.concatenate([q, q_rotated], axis=-1), keys.swapaxes(1, 2))
    expanded = times(softmax(scores), values)
    forms = latent_forms(sizes_of(h, c, n, r, v), t, s)
    assert forms["expanding"] == expanding.flops
    assert forms["expanded_attention"] == times.flops
    assert forms["expanded"] == expanding.flops + times.flops

    times, absorbing = Counted(), Counted()
    cached = np.concatenate([latents, rotated], axis=-1)  # one key for all heads
    longer = np.concatenate([absorbing(q, key_up), q_rotated], axis=-1)
    sums = times(softmax(times(longer, cached.T)), latents)
    absorbed = absorbing(sums, value_up.swapaxes(1, 2))
    close(absorbed, expanded, "outputs")
    assert forms["absorbing"] == absorbing.flops
    assert forms["absorbed_attention"] == times.flops
    assert forms["absorbed"] == absorbing.flops + times.flops


def test_a_decode_step_of_kvlib_takes_the_operations_of_the_absorbed_form() -> None:
    """By the meter, without the other products of the layer's attention."""
    sizes = Latent(12, 20, 10, 6, 14)
    config = ModelConfig(
        model_type="deepseek_v2", vocab_size=31, hidden_size=24, intermediate_size=20,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, latent=sizes,
        head_dim=sizes.qk_head_dim, max_position_embeddings=64,
    )  # fmt: skip
    model = Decoder(config, random_weights(config, 3))
    cache = model.new_cache(1, 64)
    cache.add(0)
    model.forward(list(range(30)), cache, cache.plan([0], [30]))
    mixer: Any = model._blocks[0].mixer
    step = cache.plan([0], [1])
    with kvlib.Meter() as meter:
        mixer.forward(np.ones((1, 24), np.float32), cache, step, model._rotations[0].at(step))
    others = sum(mixer.w[f"{name}.weight"].size for name in ("q_down", "q_up", "kv_down", "o"))
    forms = latent_forms(sizes_of(4, 20, 10, 6, 14), 1, 31)
    assert meter.flops - 2 * others == forms["absorbed"]
    assert meter.by_label["attention"].flops == forms["absorbed_attention"]


@pytest.mark.parametrize("model", [key for key in LATENT_MODELS if key in MODELS])
def test_the_scene_agrees_with_the_costs(model: str) -> None:
    """Sizes, the attention of a decode step, and bytes, each of one layer."""
    spec, sizes = MODELS[model], latent_sizes()[model]
    latent = spec.shape.latent
    assert latent is not None
    assert list(sizes.values())[1:] == [spec.shape.num_attention_heads, *latent[1:]]
    (group,) = spec.facts["layers"]
    layer = [{**group, "count": 1}]
    for context in CONTEXTS:
        forms = latent_forms(sizes, 1, context)
        assert forms["absorbed_attention"] == formulas.attention_flops(layer, 1, context)
        shown = numbers(latent_explorer(model=model, context=context).scene())
        each = int(spec.kv_bytes(1, context)) // spec.shape.num_hidden_layers
        assert amount(shown["Latents read"]) == pytest.approx(each, rel=0.005)
        heads = 2 * context * group["num_qo_heads"] * (group["full_qk_dim"] + group["full_v_dim"])
        assert amount(shown["The same, expanded"]) == pytest.approx(heads, rel=0.005)


def amount(text: str) -> float:
    """Bytes of a text such as '4.5 MiB'."""
    number, unit = text.replace(",", "").split()
    return float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB"].index(unit)

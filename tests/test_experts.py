"""A mixture of experts against each token's own sum in float64, and what a step of it reads."""

import math
from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest

import kvlib
from kvlib.config.shape import Experts, Router
from kvlib.model import ModelConfig, random_weights, weight_shapes
from kvlib.model.experts import MixtureOfExperts
from kvlib.model.weights import of_layer
from kvlib.testing.rounding import sum_bound

HIDDEN, WIDTH, EXPERTS = 24, 20, 6
KINDS = {
    "mixtral": dict(), "shares as they are": dict(norm_topk_prob=False),
    "gpt-oss": dict(swiglu_limit=0.5, bias=True, router_bias=True),
    "shared": dict(shared_width=12),
    "shared behind a gate": dict(shared_width=12, shared_gate=True, norm_topk_prob=False),
    "one expert a token": dict(per_token=1, hidden_act="gelu"),
    "every expert": dict(per_token=EXPERTS),
    "groups": dict(router=Router(False, 3, 2, 1.7), norm_topk_prob=False),
    "alone": dict(router=Router(True, 1, 1, 2.5), router_bias=True),
    "alone, in groups": dict(router=Router(True, 3, 1, 0.5), router_bias=True, shared_width=12),
    "alone, without a bias": dict(router=Router(True, 2, 1), norm_topk_prob=False),
}


def config_of(kind: str) -> ModelConfig:
    fields = dict(KINDS[kind])
    parts = {n: fields.pop(n) for n in Experts._fields if n in fields}
    experts = Experts(EXPERTS, **{"per_token": 2, "width": WIDTH, "layers": (1,), **parts})
    return ModelConfig(
        model_type="mixtral", vocab_size=32, hidden_size=HIDDEN, intermediate_size=40,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        max_position_embeddings=64, experts=experts, **fields,
    )


def mixture(kind: str, xp=np, dtype=None) -> tuple[ModelConfig, MixtureOfExperts, dict]:
    config = config_of(kind)
    weights = of_layer(random_weights(config, seed=3, xp=xp, dtype=dtype), 1)
    return config, MixtureOfExperts(config, weights), weights


def sigma(x):
    return 1 / (1 + np.exp(-x))


def halves(config, both):
    """The definition, one token at a time: both (2 inner,) → (inner,)."""
    gate, up = np.split(both, 2)
    if config.swiglu_limit is not None:
        gate = np.minimum(gate, config.swiglu_limit)
        up = np.clip(up, -config.swiglu_limit, config.swiglu_limit)
        return gate * sigma(config.swiglu_alpha * gate) * (up + 1)
    if config.hidden_act == "silu":
        return gate * sigma(gate) * up
    return gate * np.array([(1 + math.erf(g / math.sqrt(2))) / 2 for g in gate]) * up


def by_hand(config, weights, x):
    """x (hidden,) float64 → (hidden,): all experts computed, the chosen ones added."""
    e, w = config.experts, {name: np.asarray(v, np.float64) for name, v in weights.items()}
    scores, bias, router = w["router.weight"] @ x, w.get("router.bias", 0.0), config.router
    if router.sigmoid:
        p = sigma(scores)
        ranked = p + bias
    else:
        p = np.exp(scores + bias - (scores + bias).max())
        ranked = p = p / p.sum()
    size = e.num_experts // router.groups
    worth = []
    for group in range(router.groups):
        members = sorted(ranked[group * size : (group + 1) * size])
        worth.append(sum(members[-2:]) if router.sigmoid else members[-1])
    kept = sorted(range(router.groups), key=lambda g: -worth[g])[: router.best_groups]
    allowed = [i for i in range(e.num_experts) if i // size in kept]
    best = sorted(allowed, key=lambda i: -ranked[i])[: e.per_token]
    total = (p[best].sum() if config.norm_topk_prob else 1.0) / router.scaling
    gate_up = w["experts_gate_up.weight"].reshape(e.num_experts, 2 * e.width, -1)
    down = w["experts_down.weight"].reshape(e.num_experts, -1, e.width)
    first = w.get("experts_gate_up.bias", np.zeros(gate_up.shape[:2])).reshape(e.num_experts, -1)
    last = w.get("experts_down.bias", np.zeros(down.shape[:2])).reshape(e.num_experts, -1)
    y = sum(
        p[i] / total * (down[i] @ halves(config, gate_up[i] @ x + first[i]) + last[i]) for i in best
    )
    if e.shared_width:
        shared = w["shared_down.weight"] @ halves(config, w["shared_gate_up.weight"] @ x)
        y = y + (sigma(w["shared_gate.weight"] @ x) * shared if e.shared_gate else shared)
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("xp, tokens", [*((np, n) for n in (1, 2, 9, 40)), (strict, 7)])
def test_each_token_gets_its_own_experts(kind, xp, tokens):
    """In float32; on array_api_strict in float64, to the last bits but a few."""
    dtype = xp.float32 if xp is np else xp.float64
    config, part, weights = mixture(kind, xp, dtype)
    x = xp.asarray(np.random.default_rng(tokens).standard_normal((tokens, HIDDEN)), dtype=dtype)
    weights = {name: np.asarray(w) for name, w in weights.items()}
    expected = np.stack([by_hand(config, weights, row) for row in np.asarray(x, np.float64)])
    got = part.forward(x)
    assert got.dtype == dtype
    atol = 8 * sum_bound(HIDDEN + WIDTH, max(1.0, float(np.abs(expected).max())))
    if xp is strict:  # float64, but for the error function, which kvlib computes to 1.5e-7
        atol = 1e-5 if config.hidden_act == "gelu" else 1e-12
    np.testing.assert_allclose(np.asarray(got), expected, atol=atol)


@pytest.mark.parametrize("router, experts, message", [
    (Router(groups=4), {}, r"router.groups \(n_group\) is 4, needed: a number that divides 6"),
    (Router(True, 6, 2), {}, "divides 6 experts into groups of at least 2"),
    (Router(groups=2, best_groups=3), {}, r"\(topk_group\) is 3, needed: at most 2 groups"),
    (Router(groups=3, best_groups=1), dict(per_token=3), "3 experts fit into groups of 2"),
    (Router(groups=0), {}, "router.groups is 0, needed"),
    (Router(scaling=0.0), {}, "router.scaling is 0.0, needed"),
    (Router(best_groups=2.0), {}, "router.best_groups is 2.0, needed"),
])
def test_a_router_that_the_experts_cannot_have(router, experts, message):
    parts = {"per_token": 2, "width": WIDTH, "layers": (1,), **experts}
    with pytest.raises((TypeError, ValueError), match=message):
        replace(config_of("mixtral"), experts=Experts(EXPERTS, **parts), router=router)


def test_a_router_needs_experts():
    with pytest.raises(ValueError, match="needed: experts to route to"):
        replace(config_of("mixtral"), experts=None, router=Router(sigmoid=True))


def test_a_token_reads_its_own_experts_alone():
    """The bytes of one row: router, and per_token of the experts; of many rows: each once."""
    config, part, weights = mixture("mixtral")
    one = 4 * 3 * WIDTH * HIDDEN  # bytes of an expert's three matrices
    router = weights["router.weight"].nbytes
    x = np.random.default_rng(0).standard_normal((64, HIDDEN), dtype=np.float32)
    for rows, experts in [(1, config.experts.per_token), (64, EXPERTS)]:
        with kvlib.Meter() as meter:
            part.forward(x[:rows])
        inputs = 4 * rows * HIDDEN + 4 * rows * 2 * (HIDDEN + WIDTH)
        assert meter.read == router + experts * one + inputs


def test_layers_without_experts_keep_their_mlp():
    shapes = weight_shapes(config_of("mixtral"))
    assert "layers.0.gate_up.weight" in shapes and "layers.0.router.weight" not in shapes
    assert "layers.1.gate_up.weight" not in shapes
    assert shapes["layers.1.experts_down.weight"] == (EXPERTS * HIDDEN, WIDTH)

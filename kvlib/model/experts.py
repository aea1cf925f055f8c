"""A mixture of experts: a router sends a token to a few of many gated MLPs (arXiv:2101.03961)."""

import math
from typing import Any

import numpy as np

from kvlib.arrays import Array, at_least_float32, namespace, to_numpy
from kvlib.attention.partials import softmax_parts
from kvlib.config.shape import Router
from kvlib.model.config import ModelConfig
from kvlib.model.layers import linear, sigmoid
from kvlib.model.mlp import gate_of


class MixtureOfExperts:
    """A token's `per_token` best experts, summed with the router's shares, plus the shared MLP."""

    def __init__(self, config: ModelConfig, w: dict[str, Array]) -> None:
        assert config.experts is not None  # `feed_forward_kind` has looked
        self.w, self.experts, self.gate = w, config.experts, gate_of(config)
        self.normalised, self.router = config.norm_topk_prob, config.router
        self.xp = namespace(w["router.weight"])

    def forward(self, x: Array) -> Array:
        """x (T, hidden) → (T, hidden)"""
        chosen, share = self.route(x)
        y = self._sum(x, to_numpy(chosen), share)
        if self.experts.shared_width:  # the MLP that every token goes through
            h = self.gate(linear(x, self.w["shared_gate_up.weight"]))
            shared = linear(h, self.w["shared_down.weight"])
            if self.experts.shared_gate:
                shared *= sigmoid(linear(x, self.w["shared_gate.weight"]))
            y += shared
        return y

    def route(self, x: Array) -> tuple[Array, Array]:
        """x (T, hidden) → the numbers of each token's experts (T, k), best first; their shares."""
        xp, e, bias = self.xp, self.experts, self.w.get("router.bias")
        alone = self.router.sigmoid
        scores = linear(x, self.w["router.weight"], None if alone else bias)
        scores = at_least_float32(xp, scores)
        if alone:
            shares = sigmoid(scores)
            ranked = shares if bias is None else shares + bias
        else:
            p, _, total = softmax_parts(xp, scores)
            ranked = shares = p / total
        if self.router.groups > 1:
            ranked = _in_best_groups(xp, ranked, self.router)
        chosen = xp.argsort(-ranked, axis=1, stable=True)[:, : e.per_token]
        rows = xp.arange(x.shape[0], dtype=chosen.dtype, device=x.device)[:, None]
        places = xp.reshape(rows * e.num_experts + chosen, (-1,))
        share = xp.reshape(xp.take(xp.reshape(shares, (-1,)), places), chosen.shape)
        if self.normalised:
            share = share / (xp.sum(share, axis=1, keepdims=True) + 1e-20)  # σ may be 0 for all
        if self.router.scaling != 1.0:
            share = share * self.router.scaling
        return chosen, xp.astype(share, x.dtype, copy=False)

    def _sum(self, x: Array, chosen: np.ndarray, share: Array) -> Array:
        """Run each chosen expert once, over all its tokens: a step reads its weights once."""
        xp, (tokens, per_token) = self.xp, chosen.shape
        # The host has to know which token goes where: on a device this read waits for the router.
        order = np.argsort(chosen, axis=None, kind="stable")  # (T k,) choices, expert by expert
        used, counts = np.unique(chosen, return_counts=True)
        ends, parts = np.cumsum(counts), []
        for expert, start, end in zip(used, ends - counts, ends, strict=True):
            rows = xp.asarray(order[start:end] // per_token, device=x.device)
            parts.append(self._expert(int(expert), xp.take(x, rows, axis=0)))
        back = xp.asarray(np.argsort(order, kind="stable"), device=x.device)
        y = xp.take(xp.concat(parts), back, axis=0)  # (T k, hidden), token by token again
        y = xp.reshape(y, (tokens, per_token, x.shape[1]))
        return xp.sum(y * share[:, :, None], axis=1)

    def _expert(self, i: int, x: Array) -> Array:
        """x (t, hidden) → (t, hidden) by expert number `i`."""
        h = self.gate(linear(x, *self._rows("experts_gate_up", i, 2 * self.experts.width)))
        return linear(h, *self._rows("experts_down", i, x.shape[1]))

    def _rows(self, name: str, i: int, rows: int) -> tuple[Array, Array | None]:
        """Expert number `i`'s weight and bias: its rows of the matrix of all."""
        start, end = i * rows, (i + 1) * rows
        bias = self.w.get(f"{name}.bias")
        return self.w[f"{name}.weight"][start:end, :], None if bias is None else bias[start:end]


def _in_best_groups(xp: Any, ranked: Array, router: Router) -> Array:
    """ranked (T, E), with −inf outside each token's best groups (see `Router`)."""
    apart = xp.reshape(ranked, (ranked.shape[0], router.groups, -1))
    if router.sigmoid:
        group = xp.sum(xp.sort(apart, axis=-1)[..., -2:], axis=-1)
    else:
        group = xp.max(apart, axis=-1)
    best = xp.argsort(-group, axis=1, stable=True)[:, : router.best_groups]
    every = xp.arange(router.groups, dtype=best.dtype, device=ranked.device)
    kept = xp.any(best[:, :, None] == every, axis=1)  # (T, groups)
    return xp.reshape(xp.where(kept[:, :, None], apart, -math.inf), ranked.shape)

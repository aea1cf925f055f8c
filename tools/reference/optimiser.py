"""Muon for the matrices of the layers, AdamW for the rest.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose matrix is
replaced by its nearest orthogonal one through a quintic Newton-Schulz iteration.
"""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonalise(g: Tensor, rounds: int = 5) -> Tensor:
    """Matrices (N, rows, cols) -> about U V^T of each; bfloat16 inside."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT.contiguous()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if tall else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    """Matrices of one shape are orthogonalised together in one batched product."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for p in group["params"]:
                shapes.setdefault(tuple(p.shape), []).append(p)
            for (rows, cols), params in shapes.items():
                updates = []
                for p in params:
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(p)
                    m = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(m, group["momentum"]))
                scale = group["lr"] * max(1.0, rows / cols) ** 0.5
                for p, u in zip(params, orthogonalise(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-scale)


def optimisers(model: torch.nn.Module, lr: float, adam_lr: float) -> list[torch.optim.Optimizer]:
    """Muon over the layers' matrices; AdamW over embedding and norm weights."""
    matrices: list[Tensor] = []
    rest: list[Tensor] = []
    for name, p in model.named_parameters():
        (matrices if p.ndim == 2 and "embed" not in name else rest).append(p)
    muon = Muon(matrices, lr=lr, weight_decay=0.05)
    adam = torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0)
    return [muon, adam]

"""Write tests/golden/policies.npz: what the authors' code keeps of one prompt, by each policy.

    python tools/make_policy_golden.py FOLDER    needs torch and transformers (pip install ".[dev]")

FOLDER holds checkouts of NVIDIA/kvpress, FasterDecoding/SnapKV, FMInference/H2O, mit-han-lab/Quest
and TOVA by schwartz-lab-NLP, in folders named kvpress, SnapKV, H2O, Quest and TOVA. The classes
there are given random q and k, and positions instead of v, so they return the positions that they
keep; of Quest and of SnapKV with max pooling, their scores are taken. Seeds are tried in order
until moving q and k by about 0.0001 changes no position, so that rounding cannot either.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

TARGET = Path(__file__).resolve().parents[1] / "tests" / "golden" / "policies.npz"
PROMPT, STEPS, HEADS, GROUP, DIM = 40, 6, 2, 3, 8
BUDGETS, WINDOW, KERNEL, RECENT, PAGE, THETA = (12, 24), 6, 5, 4, 4, 10000.0
PATHS = ("SnapKV/snapkv/monkeypatch", "TOVA/src", "H2O/h2o_hf/utils_real_drop", "Quest/evaluation")
PRESSES = {
    "SnapKV": ("snapkv", WINDOW, KERNEL),
    "TOVA": ("tova",),
    "Knorm": ("knorm",),
    "ObservedAttention": ("observed_attention",),
}


def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Probabilities (1, H, T, S) that the last T of S tokens give all of them."""
    later = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(k.shape[1] - q.shape[1] + 1)
    return torch.softmax((q @ k.mT / DIM**0.5).masked_fill(later, -torch.inf), -1)[None]


def kvpress(name: str, q: torch.Tensor, k: torch.Tensor) -> dict[str, torch.Tensor]:
    """Scores (Hkv, S) and kept positions (Hkv, budget) by a press: q (Hq, T, D), k (Hkv, T, D)."""
    file, *settings = PRESSES[name]
    press = getattr(import_module(f"kvpress.presses.{file}_press"), f"{name}Press")
    heads = SimpleNamespace(num_attention_heads=HEADS * GROUP, num_key_value_heads=HEADS)
    module = SimpleNamespace(config=heads, head_dim=DIM, q_proj=lambda x: x)
    rope = (torch.ones(1, PROMPT, DIM), torch.zeros(1, PROMPT, DIM))  # turns nothing
    seen = attention(q, k.repeat_interleave(GROUP, 0)) if name == "ObservedAttention" else None
    hidden = q.transpose(0, 1).reshape(1, PROMPT, -1)
    at = torch.arange(PROMPT)[:, None].expand(1, HEADS, PROMPT, DIM)
    arguments = (module, hidden, k[None], at, seen, {"position_embeddings": rope})
    found = {"scores": press(0.0, *settings).score(*arguments)[0]}
    for budget in BUDGETS:
        kept = press(1 - budget / PROMPT, *settings).compress(*arguments)[1][0, :, :, 0]
        found[str(budget)] = kept.sort().values
    return found


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Expected Attention (Hkv, T): q (Hq, T, D) before rotation, k and v (Hkv, T, D)."""
    press = import_module("kvpress.presses.expected_attention_press").ExpectedAttentionPress(0.0)

    def rotary_emb(_: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = at[..., None] * THETA ** (-torch.arange(0, DIM, 2) / DIM)
        return torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

    heads = SimpleNamespace(num_attention_heads=HEADS * GROUP, num_key_value_heads=HEADS)
    of = {"config": heads, "head_dim": DIM, "q_proj": lambda x: x, "rotary_emb": rotary_emb}
    hidden = q.transpose(0, 1).reshape(1, PROMPT, -1)
    return press.score(SimpleNamespace(**of), hidden, k[None], v[None], None, {})[0]


def by_steps(name: str, q: torch.Tensor, k: torch.Tensor, budget: int) -> torch.Tensor:
    """Kept positions (1 + STEPS, H, budget) after the prompt and each token: k (H, S, D).

    q (Hq, S, D): where several query heads share one of k, the code sees their mean probabilities.
    """
    from modify_llama import H2OKVCache_LayerWise
    from tova_cache import TOVACache

    h2o, tova = H2OKVCache_LayerWise(budget - RECENT, RECENT), TOVACache(budget)
    held, kept, start = torch.arange(PROMPT).expand(len(k), PROMPT), [], 0
    for end in range(PROMPT, PROMPT + STEPS + 1):
        keys = k.gather(1, held[..., None].expand(-1, -1, DIM))
        p = attention(q[:, start:end], keys.repeat_interleave(len(q) // len(k), 0))
        p = p.unflatten(1, (len(k), -1)).mean(2)
        at = held[None, :, :, None]
        if name.startswith("H2O"):
            at = h2o((at, at), p)[0]
        else:
            tova.key_cache, tova.value_cache = [at], [at]
            tova.reduce(0, p)
            at = tova.key_cache[0]
        kept.append(at[0, :, :, 0])
        held, start = torch.cat([kept[-1], torch.full((len(k), 1), end)], 1), end
    return torch.stack(kept)


def largest_around(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """SnapKV's scores (Hq, T - WINDOW) with its max pooling: q (Hq, T, D), k (Hkv, T, D).

    Neighbours share a largest score, so which positions are kept would depend on how ties end.
    """
    import snapkv_utils

    heard, pool = [], snapkv_utils.F.max_pool1d

    def max_pool1d(*given: Any, **settings: Any) -> torch.Tensor:
        heard.append(pool(*given, **settings))
        return heard[-1]

    cluster = snapkv_utils.SnapKVCluster(WINDOW, BUDGETS[0], KERNEL, "maxpool")
    wide = k.repeat_interleave(GROUP, 0)[None]
    with patch.object(snapkv_utils.F, "max_pool1d", max_pool1d):
        cluster.update_kv(wide, q[None], wide, None, GROUP)
    return heard[0][0]


def page_bounds(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """What Quest's evaluation code scores pages of PAGE keys by: q (Hq, D), k (Hkv, S, D)."""
    import quest_attention

    heard, choose = [], quest_attention.local_heavy_hitter_mask

    def choosing(weights: torch.Tensor, *settings: Any) -> torch.Tensor:
        heard.append(weights)
        return choose(weights, *settings)

    part = SimpleNamespace(
        num_heads=len(q),
        num_key_value_heads=len(k),
        num_key_value_groups=GROUP,
        head_dim=DIM,
        hidden_size=q.numel(),
        layer_id=2,
        token_budget=3 * PAGE,
        chunk_size=PAGE,
        rotary_emb=lambda *_: (None, None),
        o_proj=lambda x: x,
        q_proj=lambda _: q.reshape(1, 1, -1),
        **dict.fromkeys(("k_proj", "v_proj"), lambda _: k[:, -1].reshape(1, 1, -1)),
    )
    past, at = (k[None, :, :-1],) * 2, torch.tensor([[k.shape[1] - 1]])
    with (
        patch.object(quest_attention, "local_heavy_hitter_mask", choosing),
        patch.object(quest_attention, "apply_rotary_pos_emb", lambda q, k, *_: (q, k)),
    ):
        quest_attention.forward(part, q.reshape(1, 1, -1), None, at, past)
    return heard[0][0, :, 0, ::PAGE]


def official(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, np.ndarray]:
    """What all find: q (Hq, S, D), k and v (Hkv, S, D); the last STEPS tokens come one by one."""
    from snapkv_utils import SnapKVCluster

    found = {"SnapKV max scores": largest_around(q[:, :PROMPT], k[:, :PROMPT])}
    found["Quest bounds"] = page_bounds(q[:, PROMPT], k[:, : PROMPT + 1])
    for name in PRESSES:
        for what, x in kvpress(name, q[:, :PROMPT], k[:, :PROMPT]).items():
            found[f"kvpress {name} {what}"] = x
    scores = expected(*(x[:, :PROMPT] for x in (q, k, v)))
    found["kvpress ExpectedAttention scores"] = scores
    wide = k.repeat_interleave(GROUP, 0)
    for budget in BUDGETS:
        best = scores.topk(budget, dim=-1).indices
        found[f"kvpress ExpectedAttention {budget}"] = best.sort().values
        at = torch.arange(PROMPT)[:, None].expand(1, HEADS * GROUP, PROMPT, DIM)
        prompt = (wide[None, :, :PROMPT], q[None, :, :PROMPT])
        kept = SnapKVCluster(WINDOW, budget, KERNEL).update_kv(*prompt, at, None, GROUP)[1]
        found[f"SnapKV {budget}"] = kept[0, :, :, 0].sort().values
        for name, keys in {"H2O": wide, "H2O per kv head": k, "TOVA": k}.items():
            found[f"{name} {budget}"] = by_steps(name, q, keys, budget)
    numbers = {name: x.numpy() for name, x in found.items()}
    return {n: x if x.dtype == np.float32 else x.astype(np.uint8) for n, x in numbers.items()}


def find(seed: int) -> dict[str, np.ndarray] | None:
    """Inputs and what is found in them; None where rounding could change what is kept."""
    rng = np.random.default_rng(seed)
    shapes = ((PROMPT + STEPS + 1, heads, DIM) for heads in (HEADS * GROUP, HEADS, HEADS))
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    q *= 2  # so that a few tokens get most of the attention
    moved = [x + 1e-4 * rng.standard_normal(x.shape, dtype=np.float32) for x in (q, k)]
    found, other = (
        official(*(torch.from_numpy(x).transpose(0, 1).contiguous() for x in (*pair, v)))
        for pair in ((q, k), moved)
    )
    if any((x != other[name]).any() for name, x in found.items() if x.dtype == np.uint8):
        return None
    return {"q": q, "k": k, "v": v, **found}


def main(folder: Path) -> None:
    package = ModuleType("kvpress")  # replaces the original, which imports much that no score needs
    package.__path__ = [str(folder / "kvpress" / "kvpress")]
    sys.modules["kvpress"] = package
    sys.path[:0] = [str(folder / path) for path in PATHS]
    sources = []
    for name in ("kvpress", "SnapKV", "H2O", "TOVA", "Quest"):
        commit = subprocess.check_output(["git", "-C", folder / name, "rev-parse", "HEAD"])
        sources.append(f"{name} {commit.decode().strip()}")
    found = next(found for found in map(find, range(100)) if found is not None)
    sizes = {
        "prompt": PROMPT,
        "window": WINDOW,
        "kernel": KERNEL,
        "recent": RECENT,
        "page": PAGE,
        "theta": THETA,
    }
    np.savez_compressed(TARGET, sources=np.array(sources), budgets=BUDGETS, **sizes, **found)
    print("\n".join(sources), f"{TARGET.stat().st_size:,} bytes", sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))

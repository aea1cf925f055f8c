"""Write tiny random checkpoints, and what Hugging Face transformers makes of them.

    python tools/make_golden.py            needs torch and transformers (pip install ".[dev]")

Each folder of tests/golden holds a checkpoint as transformers writes it, for every family that
runs. Beside it is expected.npz:
prompts, their float32 logits by plain attention without a cache, and 64 greedy tokens each, found
by recomputation. Seeds are tried in order until every greedy token wins by more than 0.001, and
every chosen expert by more than 0.0001, so that rounding changes neither.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "peers"))

import hf_models  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
WINDOW = 8  # the window of the variants that have one
LENGTHS = (1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 24)
NEW_TOKENS, LEAD, DISTINCT = 64, 1e-3, 12
SIZE = dict(hidden=32, layers=2, heads=4, vocab=64, limit=96)


def expected(model: object, seed: int) -> dict[str, np.ndarray] | None:
    """Prompts, logits and greedy tokens, or None where a token wins too narrowly."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, SIZE["vocab"], n).tolist() for n in LENGTHS]
    answers = []
    for prompt in reversed(prompts):
        tokens, lead = hf_models.greedy(model, prompt, NEW_TOKENS)
        lead = min(lead, 10 * hf_models.routing_lead(model, prompt + tokens).min())
        if lead < LEAD or (len(prompt) == LENGTHS[-1] and len(set(tokens)) < DISTINCT):
            return None
        answers.append(tokens)
    logits = np.concatenate([hf_models.logits_of(model, prompt) for prompt in prompts])
    return {
        "lengths": np.array(LENGTHS, dtype=np.int32),
        "prompts": np.array(sum(prompts, []), dtype=np.int32),
        "logits": logits,  # (sum of lengths, V)
        "greedy": np.array(answers[::-1], dtype=np.int32),  # (prompts, 64)
    }


def make(variant: hf_models.Variant) -> None:
    size = hf_models.sizes(variant.family, **SIZE)
    folder = GOLDEN / variant.name
    for seed in range(200):
        shutil.rmtree(folder, ignore_errors=True)
        model = hf_models.save(hf_models.random_model(variant, size, seed), variant, folder)
        found = expected(model, seed)
        if found is not None:
            np.savez_compressed(folder / "expected.npz", **found)
            scale = float(np.sqrt(np.mean(found["logits"] ** 2)))
            used = sum(file.stat().st_size for file in folder.iterdir())
            print(f"{variant.name:20} seed {seed:3}  logits rms {scale:.2f}  {used:7,} bytes")
            return
    raise SystemExit(f"{variant.name}: no seed gives clear winners")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for variant in hf_models.VARIANTS:
        if not wanted or variant.name in wanted:
            make(variant)

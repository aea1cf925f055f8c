"""Compare the two forms of latent attention: queries absorbed, and keys and values expanded.

float32, one layer of DeepSeek-V2-Lite's sizes (16 heads, latent vectors of 512 numbers), its
attention from the query projections to the output of the heads. `new` tokens follow `held` - `new`
cached ones; calls take turns.

    python benchmarks/latent.py [--threads 1] [--steps 24] [--json FILE]
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import harness

SIZES = (
    *((1, 1024), (32, 32), (128, 128), (512, 512), (1024, 1024)),
    *((64, 1024), (128, 1024), (256, 1024), (512, 1024)),
    *((64, 4096), (128, 4096), (192, 4096), (256, 4096), (512, 4096)),
)


def row(new: int, held: int, steps: int) -> dict[str, Any]:
    """Milliseconds of both forms, and which of them kvlib takes."""
    import numpy as np

    from kvlib import DenseCache
    from kvlib.config.shape import Latent
    from kvlib.model import Decoder, ModelConfig, RopeConfig, random_weights
    from kvlib.model import latent as form

    sizes = Latent(None, 512, 128, 64, 128)
    config = ModelConfig(
        model_type="deepseek_v2",
        vocab_size=16,
        hidden_size=2048,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=sizes.qk_head_dim,
        max_position_embeddings=held,
        rope=RopeConfig(theta=10_000.0),
        latent=sizes,
    )
    model = Decoder(config, random_weights(config))
    mixer: Any = model._blocks[0].mixer
    cache = DenseCache(model.layer_specs, 1, held, xp=np)
    rng = np.random.default_rng(0)
    cache.add("a")
    if held > new:
        latents = rng.standard_normal((held - new, 1, sizes.width), np.float32)
        cache.append(0, latents, None, cache.plan(["a"], [held - new]))
    h = rng.standard_normal((new, config.hidden_size), np.float32)

    def run(expands: bool) -> Any:
        step = cache.plan(["a"], [new])
        with patch.object(form, "expanding_pays", lambda sizes, step: expands):
            o = mixer.forward(h, cache, step, model._rotations[0].at(step))
        cache.truncate("a", held - new)
        return o

    np.testing.assert_allclose(run(False), run(True), atol=1e-3)
    step = cache.plan(["a"], [new])
    found: dict[str, Any] = {"new": new, "held": held, "expands": form.expanding_pays(sizes, step)}
    cache.truncate("a", held - new)
    runs = {"absorbed": lambda: run(False), "expanded": lambda: run(True)}
    found |= harness.alternate(runs, steps=steps, rounds=steps // 4)
    found["expanded_times_as_fast"] = (
        found["absorbed"]["median_ms"] / found["expanded"]["median_ms"]
    )
    return found


def main() -> None:
    args = harness.parser(__doc__, "latent", threads=1, steps=24).parse_args()
    harness.limit_threads(args.threads)
    rows = []
    for new, held in SIZES:
        rows.append(row(new, held, args.steps))
        r = rows[-1]
        print(
            f"{new:5} new of {held:5}: absorbed {r['absorbed']['median_ms']:7.1f} ms, expanded "
            f"{r['expanded']['median_ms']:7.1f} ms; expanded {r['expanded_times_as_fast']:.2f} "
            f"times as fast, kvlib {'expands' if r['expands'] else 'absorbs'}",
            flush=True,
        )
    harness.save("latent", {"threads": args.threads, "rows": rows}, args.json)


if __name__ == "__main__":
    main()

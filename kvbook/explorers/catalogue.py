"""The explorers of the book: controls, the tables they look up, and the scene behind each.

Each function takes settings by the names of its controls, and returns an `Explorer` that is set to
them: `memory_explorer(model="qwen3-8b", batch=16)`. ValueError names a setting that is not offered.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from kvbook.explorers.controls import Choice, Control, Slider
from kvbook.explorers.explorer import Explorer, SceneFunction
from kvbook.explorers.scenes.growth import growth_scene
from kvbook.explorers.scenes.latent import latent_scene
from kvbook.explorers.scenes.memory import memory_scene
from kvbook.explorers.scenes.padding import padding_scene
from kvbook.explorers.scenes.roofline import roofline_scene
from kvbook.explorers.scenes.sampling import sampling_scene
from kvbook.explorers.scenes.speculation import speculation_scene
from kvlib import reference

LOGIT_ROWS = Path(__file__).with_name("logit_rows.json")  # tools/make_logit_rows.py
REFERENCE = Path(str(reference.__file__)).with_name("config.json")
KV_CODECS = ("bfloat16", "fp8", "int8", "int4", "int2")
WEIGHTS = {
    "bfloat16": "bfloat16 (16 bits)",
    "int8": "int8 (8 bits, its few scales not counted)",
    "int4-g128": "int4, 32 bits of scale and zero for 128 (4.25 bits)",
}
HELD = {"needed": "what the next query sees", "vllm": "vLLM's blocks", "all": "every token"}
BUDGETS = {0: "all tokens", 8192: "8,192 tokens", 4096: "4,096 tokens", 1024: "1,024 tokens"}
PHASES = {"decode": "decode, one token each", "prefill": "prefill, the whole prompt"}
# the owners of models on Hugging Face, as the catalogue is ordered
MAKERS = {
    "meta-llama": "Meta",
    "mistralai": "Mistral AI",
    "Qwen": "Qwen",
    "google": "Google",
    "deepseek-ai": "DeepSeek",
    "openai": "OpenAI",
    "openai-community": "OpenAI",
    "microsoft": "Microsoft",
    "moonshotai": "Moonshot AI",
    "zai-org": "Z.ai",
    "nvidia": "NVIDIA",
}
OTHERS = "Other makers"
GROWTH_MODELS = ("reference", "llama-3.2-1b", "llama-2-7b", "llama-3.1-8b", "llama-3.1-70b")
# powers of two, and between them numbers that do not fill their last block
CONTEXTS = (
    *(512, 700, 1024, 1500, 2048, 3000, 4096, 6000, 8192, 12000, 16384, 24000, 32768, 50000),
    *(65536, 100000, 131072, 200000, 262144, 400000, 524288, 750000, 1048576),
)
LATENT_MODELS = ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3")
LATENT_SIZES = ("title", "heads", "latent", "nope", "rope", "value")
NEW = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000)


def memory_explorer(**settings: Any) -> Explorer:
    """One GPU's memory: what it holds, how the cache grows with the context, and what still fits.

    Settings: model, gpu, gpus, batch, context, weights, kv, block, `held` (what layers with a
    window hold: needed, vllm or all, see `kvlib.costs.RESERVES`), budget (tokens that eviction
    leaves in a layer without a window, 0 for all).

    >>> explorer = memory_explorer(model="llama-3.1-8b")
    >>> [explorer.scene(kv=kv)["numbers"][0]["text"] for kv in ("bfloat16", "int8")]  # a token
    ['131,072 bytes', '67,584 bytes']
    """
    gpus, texts = [1, 2, 4, 8], ["1 GPU", "2 GPUs", "4 GPUs", "8 GPUs"]
    controls = [
        _models(),
        Choice("gpu", "GPU", _titles("gpus"), "h100-sxm"),
        Slider("gpus", "GPUs sharing the heads", gpus, 1, texts=texts),
        Slider.powers("batch", "Requests", 1, 256, value=8, unit="requests", halves=True),
        Slider("context", "Context", CONTEXTS, 32768, unit="tokens"),
        Choice("weights", "Weights in", WEIGHTS),
        Choice("kv", "Keys and values in", _titles("codecs")),
        Slider("block", "Block size", [1, 16, 32, 64, 128, 256], 16, unit="tokens"),
        Choice("held", "Layers with a window hold", HELD),
        Choice("budget", "Layers without a window keep", BUDGETS),
    ]
    return _explorer("memory", "What fits into a GPU", controls, memory_scene, settings)


def roofline_explorer(**settings: Any) -> Explorer:
    """Where one step is on the roofline of a GPU, and the least time that it can take.

    Settings: model, gpu, phase, batch, context, kv, shared (percent of the context).

    >>> [roofline_explorer(phase=p).scene()["numbers"][-1]["text"] for p in ("decode", "prefill")]
    ['memory', 'arithmetic']
    """
    shared = ["none", "25 % of the context", "50 %", "75 %", "90 %"]
    controls = [
        _models(),
        Choice("gpu", "GPU", _titles("gpus"), "h100-sxm"),
        Choice("phase", "Phase", PHASES),
        Slider.powers("batch", "Requests", 1, 512, value=32, unit="requests", halves=True),
        Slider("context", "Context", CONTEXTS, 8192, unit="tokens"),
        Choice("kv", "Keys and values in", _titles("codecs")),
        Slider("shared", "Prefix that all requests share", [0, 25, 50, 75, 90], 0, texts=shared),
    ]
    return _explorer("roofline", "What bounds a step", controls, roofline_scene, settings)


def growth_explorer(**settings: Any) -> Explorer:
    """Operations to generate text with a cache and without.

    Settings: model, prompt, new.

    >>> explorer = growth_explorer(prompt=1024)
    >>> [explorer.scene(new=n)["numbers"][2]["text"] for n in (10, 100, 1000)]
    ['9.96 times', '95.5 times', '747 times']
    """
    controls = [
        Choice("model", "Model", _titles("models", GROWTH_MODELS), "llama-2-7b"),
        Slider.powers("prompt", "Prompt", 16, 16384, value=1024, unit="tokens"),
        Slider("new", "New tokens", NEW, 100, unit="tokens"),
    ]
    return _explorer("growth", "With a cache and without", controls, growth_scene, settings)


def padding_explorer(**settings: Any) -> Explorer:
    """The waste when unequal requests are stored in one rectangle.

    Settings: requests, longest, shortest, reserve. Lengths fall in equal steps from longest
    (tokens) to shortest (percent of it).

    >>> explorer = padding_explorer(requests=8, longest=1024)
    >>> [explorer.scene(shortest=s)["numbers"][1]["text"] for s in (100, 50, 10)]  # padding
    ['0 %', '25 %', '45 %']
    """
    shares = [5, 10, 25, 50, 75, 100]
    texts = [f"{share} % of the longest" for share in shares]
    texts[-1] = "as long as the longest"
    controls = [
        Slider("requests", "Requests", range(2, 17), 8, unit="requests"),
        Slider.powers("longest", "Longest", 64, 2048, value=1024, unit="tokens"),
        Slider("shortest", "Shortest", shares, 10, texts=texts),
        Slider.powers("reserve", "Reserved for each", 2048, 8192, value=2048, unit="tokens"),
    ]
    return _explorer("padding", "What padding wastes", controls, padding_scene, settings)


def sampling_explorer(**settings: Any) -> Explorer:
    """The tokens that temperature, top-k and top-p leave of a row of the reference model's logits.

    Settings: row, temperature, top_k, top_p (percent).

    >>> explorer = sampling_explorer(top_p=90)
    >>> [explorer.scene(temperature=t)["numbers"][0]["text"] for t in (0.5, 1.0, 2.0)]  # tokens
    ['5', '27', '58']
    """
    rows = _logit_rows()
    tokens = len(rows["return"]["logits"])
    few = [1, 2, 3, 5, 8, 12, 20, 40, 100]
    temperatures = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0]
    shares = [25, 50, 60, 70, 80, 90, 95, 99, 100]
    controls = [
        Choice("row", "The text so far", {key: row["title"] for key, row in rows.items()}),
        Slider("temperature", "Temperature", temperatures, 1.0),
        Slider("top_k", "top-k", [*few, tokens], tokens, texts=[*map(str, few), "all tokens"]),
        Slider("top_p", "top-p", shares, 100, texts=[f"{share / 100:g}" for share in shares]),
    ]
    title, looked_up = "From a row of logits to a draw", {"logit_rows": rows}
    return _explorer("sampling", title, controls, sampling_scene, settings, looked_up)


def speculation_explorer(**settings: Any) -> Explorer:
    """The speed-up by the number of guesses, and the batch from which guessing makes text slower.

    Settings: acceptance (chance that a guess is right, if those before it are), gamma (guesses per
    request and step), cost (time of one guess, in steps without guesses), batch (requests), gpu.
    A step takes as long as reading
    16-bit weights or multiplying with them, whichever is longer: `kvlib.speculation.checking_time`.

    >>> explorer = speculation_explorer(acceptance=0.7, cost=0.05, gamma=5)
    >>> [explorer.scene(batch=batch)["numbers"][0]["text"] for batch in (1, 64, 128, 256)]
    ['2.35 times', '1.90 times', '1.03 times', '0.54 times']
    """
    shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
    costs = [0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5]
    takes = ["nothing, as a lookup", *[f"{round(100 * cost)} % of a step" for cost in costs[1:]]]
    percent = [f"{round(100 * share)} %" for share in shares]
    controls = [
        Slider("acceptance", "Guesses accepted", shares, 0.7, texts=percent),
        Slider("gamma", "Guesses per step", range(1, 17), 5, unit="guesses"),
        Slider("cost", "One guess takes", costs, 0.05, texts=takes),
        Slider.powers("batch", "Requests", 1, 512, value=8, unit="requests", halves=True),
        Choice("gpu", "GPU", _titles("gpus"), "h100-sxm"),
    ]
    title = "What guessing gains"
    return _explorer("speculation", title, controls, speculation_scene, settings)


def latent_explorer(**settings: Any) -> Explorer:
    """The operations of latent attention with expanded latents and with absorbed matrices.

    Settings: model, new (tokens of the step), context (tokens in the cache after the step, the new
    ones included). If `new` is more than `context`, the scene is that of a prompt of `context`
    tokens from scratch.

    >>> explorer = latent_explorer(model="deepseek-v3", context=4096)
    >>> [explorer.scene(new=new)["numbers"][2]["text"] for new in (1, 128, 256)]
    ['117 times', '1.2 times', '0.743 times']
    """
    titles = {key: sizes["title"] for key, sizes in latent_sizes().items()}
    controls = [
        Choice("model", "Model", titles, "deepseek-v3"),
        Slider.powers("new", "New tokens in the step", 1, 8192, value=1, unit="tokens"),
        Slider.powers("context", "In the cache", 16, 131072, value=4096, unit="tokens"),
    ]
    title, looked_up = "Expand the latents, or absorb the matrices?", {"latents": latent_sizes()}
    return _explorer("latent", title, controls, latent_scene, settings, looked_up)


@cache
def latent_sizes() -> dict[str, dict[str, Any]]:
    """Return the sizes of a layer's attention by model, named as in `scenes.latent`."""
    from kvlib.costs import MODELS

    values: dict[str, tuple[Any, ...]] = {}
    for key in LATENT_MODELS:
        title, (g,) = MODELS[key].title, MODELS[key].layers
        rope = g.head_dim - g.v_dim
        nope = g.full_qk_dim - rope
        values[key] = (title, g.num_qo_heads, g.v_dim, nope, rope, g.full_v_dim)
    return {key: dict(zip(LATENT_SIZES, sizes, strict=True)) for key, sizes in values.items()}


@cache
def _logit_rows() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(LOGIT_ROWS.read_text(encoding="utf-8"))
    return rows


@cache
def tables() -> dict[str, dict[str, Any]]:
    """What the scenes look up, as plain data: {"models", "gpus", "codecs"}, rows by key.

    The model that comes with the book is "reference". A GPU's row lists under "unconfirmed" which
    of its numbers no public text of the vendor confirms.
    """
    from kvlib.costs import CODECS, GPUS, MODELS, ModelSpec

    models = {key: MODELS[key].facts for key in MODELS}
    models["reference"] = ModelSpec.from_config(REFERENCE).facts | {"title": "The book's model"}
    gpus = {}
    for key, gpu in GPUS.items():
        shown = ("usable", "bandwidth", "bf16")
        unconfirmed = [name for name in shown if not gpu.value(name).confirmed]
        gpus[key] = gpu.facts | {"unconfirmed": unconfirmed}
    return {"models": models, "gpus": gpus, "codecs": {k: CODECS[k].facts for k in KV_CODECS}}


def _models() -> Choice:
    """A choice among the models of the catalogue, by maker."""
    from kvlib.costs import MODELS

    owners = [model.value("model_type").source.split("/")[3] for model in MODELS.values()]
    makers = groupby(MAKERS.get(owner, OTHERS) for owner in owners)
    groups = [(maker, len(list(models))) for maker, models in makers]
    return Choice("model", "Model", _titles("models", MODELS), "llama-3.1-8b", groups)


def _titles(table: str, keys: Iterable[str] | None = None) -> dict[str, str]:
    rows = tables()[table]
    return {key: rows[key]["title"] for key in (rows if keys is None else keys)}


def _explorer(
    name: str,
    title: str,
    controls: Sequence[Control],
    scene: SceneFunction,
    settings: Mapping[str, Any],
    looked_up: Mapping[str, Any] | None = None,
) -> Explorer:
    looked_up = tables() if looked_up is None else looked_up
    made = Explorer(name, title, controls, scene, looked_up, anchor=f"{name}-explorer")
    return made.set(**settings)


ALL: Mapping[str, Callable[..., Explorer]] = {
    "memory": memory_explorer,
    "roofline": roofline_explorer,
    "growth": growth_explorer,
    "padding": padding_explorer,
    "sampling": sampling_explorer,
    "speculation": speculation_explorer,
    "latent": latent_explorer,
}

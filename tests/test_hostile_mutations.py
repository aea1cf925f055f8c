"""Mutated configs and headers: a CheckpointError or a model, at once."""

from __future__ import annotations

import copy
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_files import save_safetensors
from costs_configs import PUBLISHED
from effort import number

import kvlib
from kvlib.config.json_files import MOST_BYTES, parse
from kvlib.costs import ModelSpec, fit
from kvlib.costs.catalogue import read_data
from kvlib.costs.spec import catalogued
from kvlib.errors import CheckpointError
from kvlib.model.checkpoint import sources
from kvlib.model.config import ModelConfig
from kvlib.model.rope import frequencies
from kvlib.model.safetensors import SafetensorsFile
from kvlib.model.weights import num_parameters, random_weights

GOLDEN = Path(__file__).parent / "golden"
SMALL = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/config.json"))]
ENTRIES = read_data("models.toml").values()
REAL = list({entry["config"]["model_type"]: catalogued(entry) for entry in ENTRIES}.values())
CONFIGS = [*REAL, *SMALL, *PUBLISHED.values()]

NUMBERS: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 2**31, 2**63, 2**64, 10**9, 10**18, 10**39, 10**40, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, -1.5, float("inf"), float("-inf"), float("nan")),
]
OTHERS: list[Any] = [
    *(None, True, False, "", "x", "\ud800", "a\0b", "\x1b[2J", "x" * 5000, "1", "silu", "llama3"),
    *([], {}, [0], [None], [[]], {"a": 1}, {"__float__": "Infinity"}, [1] * 3000, ["x"] * 1000),
    *(["full_attention"], ["sliding_attention"], {"rope_type": "yarn", "factor": 4.0}),
    *({"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}},),
]
NAMES = [
    *("strange", "", "a\0b", "\ud800", "x" * 5000, "__float__", "text_config", "rope_scaling"),
    *("layer_types", "sliding_window", "num_hidden_layers", "rope_parameters", "model_type"),
    *("architectures", "quantization_config", "clip_qkv", "attn_logit_softcapping", "_note"),
    *("dtype", "shape", "data_offsets", "__metadata__", "weight_map"),
]
TEXTS = [
    *(b"9" * 5000, b"1" + b"0" * 400, b"1e999", b"-1e400", b"NaN", b"Infinity", b"-Infinity"),
    *(b"[" * 40 + b"]" * 40, b"[" * 3000, b'{"a":' * 3000, b"\xff", b"\x00", b"\xef\xbb\xbf"),
    *(b'"\\ud800"', b"\xed\xa0\x80", b",", b":", b'"', b"}", b"//", b"1.", b"01", b"\\", b"null"),
]


def parts(data: Any) -> list[tuple[Any, Any]]:
    """Every place in the object: the object or list that holds it, and its key or index."""
    found, waiting = [], [data]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(min(len(part), 20))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], (dict, list)):
                waiting.append(part[key])
    return found


def mutated(data: dict[str, Any], rng: random.Random) -> bytes:
    """The object as JSON with one to three changes to its values, its keys or its text."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = parts(data)
        if not places:
            break
        part, key = rng.choice(places)
        change = rng.randrange(7)
        if change < 3:
            part[key] = copy.deepcopy(rng.choice(NUMBERS))
        elif change == 3:
            part[key] = copy.deepcopy(rng.choice(OTHERS))
        elif change == 4:
            del part[key]
        elif change == 5 and isinstance(part, dict):
            part[rng.choice(NAMES)] = copy.deepcopy(rng.choice(NUMBERS + OTHERS))
        elif isinstance(part[key], (int, float)) and not isinstance(part[key], bool):
            factor = rng.choice((2, 10, 1000, 0.5, -1, 10**6))
            part[key] = part[key] * (factor if abs(part[key]) < 10**300 else 2)
    text = json.dumps(data).encode()
    if rng.random() < 0.25:
        text = damaged(text, rng)
    return text


def damaged(text: bytes, rng: random.Random) -> bytes:
    """The text with one piece cut out, overwritten or doubled."""
    start = rng.randrange(len(text) + 1)
    stop = min(len(text), start + rng.choice((0, 0, 1, 1, 2, 8, 40)))
    kind = rng.randrange(4)
    if kind == 0:
        return text[:start]
    if kind == 1:
        return text[:start] + rng.choice(TEXTS) + text[stop:]
    if kind == 2:
        return text[:stop] + text[start:]
    return text[:start] + bytes(rng.randrange(256) for _ in range(stop - start)) + text[stop:]


def mutations(bases, count, seed) -> Iterator[tuple[random.Random, bytes]]:
    """So many mutated texts; each has a different seed, so that a share is the first of all."""
    for i in range(count):
        rng = random.Random(f"{seed} {i}")
        yield rng, mutated(bases[i % len(bases)], rng)


class Watch:
    """Runs calls that may only return or raise CheckpointError, within limits of both."""

    def __init__(self, seconds: float = 1.0, most: int = 64 * 10**6) -> None:
        self.limits = seconds, most
        self.refused = self.returned = 0
        self.seconds, self.bytes = 0.0, 0

    def __repr__(self) -> str:
        calls = f"{self.refused} refused, {self.returned} returned"
        return f"{calls}; at most {self.seconds:.2f} s, {self.bytes / 1e6:.1f} MB"

    def __enter__(self) -> Watch:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def call(self, function: Callable[[], Any], *expected: str) -> Any:
        """The result, or None if it was refused. A refusal must hold the expected words."""
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        start = time.thread_time()  # not the clock: other processes run beside this one
        found = None
        try:
            found = function()
            self.returned += 1
        except CheckpointError as error:
            self.refused += 1
            message = str(error)
            assert all(one in message for one in expected), message
            assert message.isprintable() and len(message) < 1_500, message
        took, most = time.thread_time() - start, tracemalloc.get_traced_memory()[1] - before
        self.seconds, self.bytes = max(self.seconds, took), max(self.bytes, most)
        assert took < self.limits[0] and most < self.limits[1], (took, most)
        return found


def read(watch: Watch, path: Path) -> None:
    """Read a config as both readers do; what they accept must be of use."""
    config = watch.call(lambda: ModelConfig.from_folder(path.parent), str(path))
    if config is not None:
        watch.call(lambda: sources(config))
        if config.rope is not None:
            assert np.isfinite(frequencies(config.rope, config.head_dim)).all()
    spec = watch.call(lambda: ModelSpec.from_config(path), str(path))
    if spec is not None:
        bill = watch.call(lambda: bill_of(spec))
        assert bill is None or json.loads(json.dumps(bill))


def bill_of(spec: ModelSpec) -> dict[str, Any] | None:
    try:
        return fit(spec, "h100-sxm", 2, min(spec.max_context, 4096)).to_dict()
    except ValueError as error:
        assert "needed" in str(error), error
        return None


def test_mutated_configs(effort: Any, tmp_path: Path) -> None:
    path, whole = tmp_path / "config.json", 10_000
    count = number(quick=100, usual=300, whole=whole)
    effort.ran("mutated configs", count, whole)
    with Watch() as watch:
        for _, text in mutations(CONFIGS, count, "configs"):
            path.write_bytes(text)
            read(watch, path)
    print(watch)
    assert watch.refused > count / 2 and watch.returned > count / 10


def test_mutated_small_configs_that_are_accepted_run(effort: Any) -> None:
    """The positions, the scales and the windows of a config are used, not only read."""
    whole = 5_000
    count = number(quick=50, usual=150, whole=whole)
    effort.ran("mutated small configs", count, whole)
    ran = 0
    for _, text in mutations(SMALL, count, "small"):
        try:
            config = ModelConfig.from_dict(parse(text, "config.json"))
        except CheckpointError:
            continue
        if num_parameters(config) < 10**5 and config.max_position_embeddings >= 4:
            model = kvlib.Decoder(config, random_weights(config))
            ids = [0, config.vocab_size - 1, 0]
            with np.errstate(all="ignore"):  # eps and bases at the ends of their ranges
                (tokens,) = kvlib.generate(model, [ids], max_new_tokens=1, stop_tokens=[])
            assert len(tokens) == 1
            ran += 1
    assert ran > count / 10


def header_bases(folder: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Header and numbers of some files: of one tensor, of all dtypes, of a small model."""
    found = []
    codes = ["f8", "f4", "f2", "i8", "i1", "u2", "?"]
    sets: list[dict[str, np.ndarray]] = [
        {"a": np.arange(6, dtype=np.float32)},
        {f"t{code}": np.ones((3, 5), code) for code in codes} | {"none": np.ones((0, 4), "f4")},
        {"scalar": np.ones((), np.float32), "b": np.ones((2, 2), np.float16)},
    ]
    paths = [folder / f"{i}.safetensors" for i in range(len(sets))]
    for path, tensors in zip(paths, sets, strict=True):
        save_safetensors(path, tensors, {"format": "np"})
    for path in (*paths, GOLDEN / "llama" / "model.safetensors"):
        raw = path.read_bytes()
        stop = 8 + int.from_bytes(raw[:8], "little")
        found.append((json.loads(raw[8:stop]), raw[stop:]))
    return found


def test_mutated_headers(effort: Any, tmp_path: Path) -> None:
    path, whole = tmp_path / "mutated.safetensors", 10_000
    count = number(quick=100, usual=500, whole=whole)
    effort.ran("mutated headers", count, whole)
    bases = header_bases(tmp_path)
    opened = 0
    with Watch() as watch:
        for i, (rng, text) in enumerate(mutations([base for base, _ in bases], count, "headers")):
            data = bases[i % len(bases)][1]
            length = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 2**31, 2**64 - 1))
            cut = rng.choice((0, 0, 0, 1, len(data)))
            path.write_bytes(length.to_bytes(8, "little") + text + data[: len(data) - cut])
            file = watch.call(lambda: SafetensorsFile(path), str(path))
            for name, info in {} if file is None else file.tensors.items():
                read = partial(file.read, name)
                assert watch.call(read).shape == info.shape
                opened += 1
    print(watch)
    assert watch.refused > count / 4 and opened > 0


def test_mutated_indices(effort: Any, tmp_path: Path) -> None:
    whole = 2_000
    count = number(quick=20, usual=60, whole=whole)
    effort.ran("mutated indices", count, whole)
    for one in (GOLDEN / "llama-3-old").iterdir():
        (tmp_path / one.name).symlink_to(one)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    path.unlink()
    with Watch() as watch:
        for _, text in mutations([index], count, "indices"):
            path.write_bytes(text)
            watch.call(lambda: kvlib.load_model(tmp_path), str(tmp_path))
    assert watch.refused > count / 3


def test_mutated_files_beside_a_config(effort: Any, tmp_path: Path) -> None:
    """Of Model Optimizer's hf_quant_config.json, and of other programs' objects in its place."""
    whole = 2_000
    count = number(quick=60, usual=200, whole=whole)
    effort.ran("mutated files beside a config", count, whole)
    (tmp_path / "config.json").write_text(json.dumps(SMALL[0]))
    path = tmp_path / "hf_quant_config.json"
    one = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}
    layers = {"model.layers.0.mlp": {"quant_algo": "FP8"}}
    mixed = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    bases = [{"quantization": {**said, "kv_cache_quant_algo": "FP8"}} for said in (one, mixed)]
    weights = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 8}
    group = {"targets": ["Linear"], "weights": {**weights, "symmetric": True}}
    bases += [
        {"quant_method": "fp8", "weight_block_size": [8, 8], "modules_to_not_convert": ["gate"]},
        {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": True},
        {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"quant_method": "mlx", "bits": 4, "group_size": 8, "lm_head": False},
        {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": group}, "ignore": ["lm_head", "re:.*self_attn.*"],
        },
    ]
    with Watch() as watch:
        for _, text in mutations(bases, count, "beside"):
            path.write_bytes(text)
            spec = watch.call(lambda: ModelSpec.from_config(tmp_path), str(tmp_path))
            assert spec is None or watch.call(lambda spec=spec: bill_of(spec)) is not None
            watch.call(lambda: ModelConfig.from_folder(tmp_path), str(path))
    assert watch.refused > count / 3


def many(part: str, count: int) -> str:
    return ",".join(part.replace("#", str(i)) for i in range(count))


def listed(*parts: str) -> str:
    return '{"a":[' + ",".join(parts) + "]}"


def keyed(*parts: str) -> str:
    return "{" + ",".join(parts) + "}"


# The largest text of every kind that is not refused for its size alone.
DENSE = {
    "one string with an escape": lambda: listed('"\\ud83d\\ude00' + "x" * 3_999_970 + '"'),
    "objects with a key": lambda: listed(many('{"a":1}', 49_998)),
    "keys": lambda: keyed(many('"k#":#.5', 199_999)), "objects": lambda: listed(many("{}", 49_999)),
    "lists": lambda: listed(many("[0]", 99_999)), "numbers": lambda: listed(many("1.25", 399_999)),
    "strings": lambda: listed(many('"abcde"', 399_999)),
    "one string": lambda: listed('"' + "x" * 3_999_980 + '"'),
    "one string beyond Latin": lambda: listed('"\U0001f600' + "x" * 3_999_970 + '"'),
    "all at once": lambda: keyed(
        '"a":[' + many('{"a":1}', 49_990), many("[0]", 40_000), many('"abcde"', 200_000) + "]",
        many('"k#":0', 99_000),
    ),
    "metadata": lambda: keyed('"__metadata__":{' + many('"k#":"v"', 199_000) + "}"),
    "tensors": lambda: keyed(many('"#":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', 49_000)),
}  # fmt: skip


def test_dense_texts(effort: Any, tmp_path: Path) -> None:
    """Their time, and then their memory, because tracing memory takes several times as long."""
    path, header = tmp_path / "config.json", tmp_path / "x.safetensors"

    def read(one: Path) -> Any:
        return ModelConfig.from_folder(tmp_path) if one is path else SafetensorsFile(one)

    for case in effort.share("dense texts", list(DENSE), usual=2):
        text = DENSE[case]().encode()
        assert len(text) <= MOST_BYTES
        path.write_bytes(text)
        header.write_bytes(len(text).to_bytes(8, "little") + text)
        for one in (path, header):
            start = time.thread_time()
            with suppress(CheckpointError):
                read(one)
            assert time.thread_time() - start < 1, case
        with Watch(seconds=10) as watch:
            for one in (path, header):
                watch.call(partial(read, one), str(one))
        print(case, watch)

"""Mutated configs and headers, and drawn ones: a CheckpointError or a model, at once.

Hypothesis draws values; the mutations begin with real configs (kvlib.costs and tests/golden), and
with headers of several dtypes. `make test` takes the first few hundred, the weekly run 10,000.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_files import save_safetensors
from costs_configs import PUBLISHED
from effort import number
from hostile import Watch
from hypothesis import given, settings
from hypothesis import strategies as st
from json_mutations import OTHERS, mutations

import kvlib
from kvlib.config.door import MOST_BYTES, parse
from kvlib.config.read import read_shape
from kvlib.costs import ModelSpec, fit
from kvlib.costs.catalogue import read_data
from kvlib.errors import CheckpointError
from kvlib.model.checkpoint import sources
from kvlib.model.config import ModelConfig
from kvlib.model.rope import frequencies
from kvlib.model.safetensors import SafetensorsFile
from kvlib.model.weights import num_parameters, random_weights

GOLDEN = Path(__file__).parent / "golden"
SMALL = [json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/config.json"))]
REAL = [entry["config"] for entry in read_data("models.toml").values()]
CONFIGS = [*REAL, *SMALL, *PUBLISHED.values()]
EXAMPLES = settings(max_examples=number(quick=20, usual=100, whole=1000), deadline=None)


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
    """Of a sharded checkpoint, of which only the index is damaged."""
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
    """Of Model Optimizer's hf_quant_config.json, all of one format and mixed."""
    whole = 2_000
    count = number(quick=60, usual=200, whole=whole)
    effort.ran("mutated files beside a config", count, whole)
    (tmp_path / "config.json").write_text(json.dumps(SMALL[0]))
    path = tmp_path / "hf_quant_config.json"
    one = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}
    layers = {"model.layers.0.mlp": {"quant_algo": "FP8"}}
    mixed = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    bases = [{"quantization": {**said, "kv_cache_quant_algo": "FP8"}} for said in (one, mixed)]
    with Watch() as watch:
        for _, text in mutations(bases, count, "beside"):
            path.write_bytes(text)
            spec = watch.call(lambda: ModelSpec.from_config(tmp_path), str(tmp_path))
            assert spec is None or watch.call(lambda spec=spec: bill_of(spec)) is not None
            watch.call(lambda: ModelConfig.from_folder(tmp_path), str(path))
    assert watch.refused > count / 3


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        LEAVES
        | st.sampled_from(OTHERS)
        | st.lists(JSON, max_size=4)
        | st.dictionaries(st.text(), JSON, max_size=4)
    )
)


@EXAMPLES
@given(st.sampled_from(CONFIGS), st.data())
def test_any_value_in_the_place_of_any_other(base: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(base)) | st.text())
    value = data.draw(JSON)
    for reader in (ModelConfig.from_dict, read_shape):
        try:
            reader({**base, key: value})
        except CheckpointError as error:
            assert str(error).isprintable() and len(str(error)) < 1_500


def many(part: str, count: int) -> str:
    return ",".join(part.replace("#", str(i)) for i in range(count))


def listed(*parts: str) -> str:
    return '{"a":[' + ",".join(parts) + "]}"


def keyed(*parts: str) -> str:
    return "{" + ",".join(parts) + "}"


# The largest text of every kind that the door does not refuse by its size alone.
DENSE = {
    "one string with an escape": lambda: listed('"\\ud83d\\ude00' + "x" * 3_999_970 + '"'),
    "objects with a key": lambda: listed(many('{"a":1}', 49_998)),
    "keys": lambda: keyed(many('"k#":#.5', 199_999)),
    "objects": lambda: listed(many("{}", 49_999)),
    "lists": lambda: listed(many("[0]", 99_999)),
    "numbers": lambda: listed(many("1.25", 399_999)),
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

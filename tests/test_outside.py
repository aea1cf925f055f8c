"""What the package `outside` adds to kvlib passes the tests of kvlib's own parts."""

import ast
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import outside
import pytest
from outside.halves import attend_halves
from outside.listed import ListCache
from outside.signs import SIGNS, Signs
from outside.strided import Strided
from peers.running import alone, assert_same_logits, together

import kvlib
from kvlib import BlockPool, DenseCache, PagedCache, QuantizedCache, costs, testing
from kvlib.codecs import NAMES, Codec, codec, register_codec
from kvlib.config import Conversion, Family, register_family
from kvlib.config.families import FAMILIES
from kvlib.costs import CODECS, ModelSpec, fit
from kvlib.costs.cli import main
from kvlib.errors import CheckpointError

HOME = Path(outside.__file__).parent
GOLDEN = Path()  # checkpoints of transformers, as if of the families of the package
FOLDERS = ("stablelm", "stablelm-parallel", "gpt-neox", "gpt-neox-sequential")


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The names of the package, for this file's tests alone."""
    global GOLDEN
    GOLDEN = tmp_path_factory.mktemp("golden")
    for name in FOLDERS:
        shutil.copytree(HOME.parent / "golden" / name, GOLDEN / name)
        config = GOLDEN / name / "config.json"
        text = config.read_text().replace('"model_type": "', '"model_type": "own_')
        config.write_text(text)
    before = [dict(FAMILIES)], [(c, dict(c.entries), dict(c._names)) for c in (NAMES, CODECS)]
    outside.register()
    yield
    FAMILIES.clear()
    FAMILIES.update(before[0][0])
    for catalogue, entries, names in before[1]:
        catalogue._entries, catalogue._names = entries, names


@pytest.mark.parametrize("file", sorted(HOME.glob("*.py")), ids=lambda path: path.name)
def test_it_imports_public_names_alone(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("kvlib.") for alias in node.names)
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "kvlib":
            public = importlib.import_module(str(node.module)).__all__
            hidden = {alias.name for alias in node.names} - set(public)
            assert not hidden, f"{file.name} takes {hidden} of {node.module}"


def test_a_part_is_one_file_and_one_line() -> None:
    files = {path.stem for path in HOME.glob("*.py")} - {"__init__"}
    assert files == {"stablelm", "gpt_neox", "signs", "strided", "halves", "listed"}
    (register,) = [
        node
        for node in ast.parse((HOME / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(register.body) == 1 + 3, "a docstring, and a line for each part with a name"


def case(name: str) -> tuple:
    with np.load(GOLDEN / name / "expected.npz") as stored:
        bounds = np.cumsum(stored["lengths"])[:-1]
        prompts = [one.tolist() for one in np.split(stored["prompts"], bounds)]
        logits = np.split(stored["logits"], bounds)
        return kvlib.load_model(GOLDEN / name), prompts, logits, stored["greedy"].tolist()


@pytest.mark.parametrize("name", FOLDERS)
def test_logits_are_those_of_transformers(name: str) -> None:
    model, prompts, logits, greedy = case(name)
    for chunk in (None, 1, 7):
        for prompt, expected in zip(prompts, logits, strict=True):
            assert_same_logits(alone(model, prompt, chunk), expected, f"{chunk} a pass")
    for chunks in ([99] * 6, [5, 2, 99, 1, 3, 7]):
        for ours, expected in zip(together(model, prompts, chunks), logits, strict=True):
            assert_same_logits(ours, expected, f"chunks {chunks}")
    found = kvlib.generate(model, prompts, max_new_tokens=len(greedy[0]), stop_tokens=())
    assert found == greedy


@pytest.mark.parametrize("name", FOLDERS)
def test_wanted_rows_are_rows_of_all(name: str) -> None:
    model, prompts, logits, _ = case(name)
    prompt, expected = prompts[-1], logits[-1]
    for rows, wanted in (("last", [-1]), ([3, 0, 7], [3, 0, 7])):
        cache = model.new_cache(1, len(prompt))
        cache.add("a")
        found = model.forward(prompt, cache, cache.plan(["a"], [len(prompt)]), rows=rows)
        assert_same_logits(found, expected[wanted], str(rows))


@pytest.mark.parametrize("name", FOLDERS)
def test_the_bill_counts_its_weights(name: str) -> None:
    spec = ModelSpec.from_config(GOLDEN / name)
    assert spec.num_parameters == kvlib.load_model(GOLDEN / name).num_parameters


@pytest.mark.parametrize("name", FOLDERS)
def test_a_span_is_removed_where_a_part_of_each_key_is_rotated(name: str) -> None:
    """The first layer's keys follow from their tokens alone, so there an edit is exact."""
    model, prompts, _, _ = case(name)
    long, cut = prompts[-1], prompts[-1][:4] + prompts[-1][9:]
    caches = []
    for tokens in (long, cut):
        caches.append(model.new_cache(1, len(long)))
        caches[-1].add("a")
        model.forward(tokens, caches[-1], caches[-1].plan(["a"], [len(tokens)]))
    kvlib.remove_span(model, caches[0], "a", 4, 9)
    edited, read = (cache.read(0, "a") for cache in caches)
    np.testing.assert_allclose(edited[0], read[0], atol=2e-6)
    np.testing.assert_array_equal(edited[1], read[1])


@pytest.mark.parametrize("name, changed, words", [
    ("stablelm", {"qk_layernorm": True}, "qk_layernorm is true, needed: false"),
    ("stablelm", {"rope_theta": 0}, "rope_theta is 0, needed: a number above 0"),
    ("stablelm", {"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5, needed: a num"),
    ("stablelm", {"partial_rotary_factor": 0.5}, "0.25, needed: 0.5 or no such key"),
    ("stablelm-parallel", {"partial_rotary_factor": 0.1}, "rotates 0 of 8 numbers, needed: an"),
    ("stablelm-parallel", {"partial_rotary_factor": 0.4}, "rotates 3 of 8 numbers, needed: an"),
    ("gpt-neox", {"attention_bias": 1}, "attention_bias is 1, needed: true or false"),
    ("gpt-neox-sequential", {"rotary_pct": -1}, "rotary_pct is -1, needed: a number above 0"),
])
def test_what_it_does_not_know_is_refused(name: str, changed: dict, words: str) -> None:
    data = json.loads((GOLDEN / name / "config.json").read_text()) | changed
    with pytest.raises(CheckpointError) as caught:
        kvlib.ModelConfig.from_dict(data)
    assert words in str(caught.value)


def test_a_family_name_is_registered_once() -> None:
    outside.register()  # the same once more
    llama = Family(("LlamaForCausalLM",), outside.STABLELM.shape)
    for name in ("llama", "own_stablelm"):
        with pytest.raises(ValueError, match=f"'{name}' is registered already"):
            register_family(name, llama)
    with pytest.raises(TypeError, match="needed: a Family"):
        register_family("mine", "mine")  # type: ignore[arg-type]
    assert "mine" not in FAMILIES


def test_a_conversion_that_gives_another_shape_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Conversion("attention.query_key_value", lambda values, config: values[1:])
    names = outside.GPT_NEOX.names
    tensors = {**names.tensors, "qkv": wrong}
    family = outside.GPT_NEOX._replace(names=names._replace(tensors=tensors))
    monkeypatch.setitem(FAMILIES, "own_gpt_neox", family)
    words = r"query_key_value.weight' in own_gpt_neox gave shape \(95, 32\), needed: \(96, 32\)"
    with pytest.raises(ValueError, match=words):
        kvlib.load_model(GOLDEN / "gpt-neox")


@pytest.mark.parametrize("name", ["signs", "1bit", "Signs"])
def test_a_codec_is_known_wherever_one_is_named(name: str) -> None:
    assert codec(name) is SIGNS
    assert DenseCache([kvlib.LayerSpec(2, 8)], 1, 8, codec=name, xp=np).codec is SIGNS
    found = CODECS[name]
    assert (found.bits, found.scale_bits, found.group) == (1, 32, 0)  # and a float32 for a vector
    spec = costs.MODELS["llama-3.1-8b"]
    assert int(spec.kv_bytes_per_token(name)) == 32 * 2 * 8 * (128 // 8 + 4)
    assert fit(spec, "h100-sxm", 1, 4096, kv_dtype=name).share.kv_dtype is found


def test_its_bytes_are_those_that_a_cache_holds() -> None:
    config = json.loads((GOLDEN / "stablelm" / "config.json").read_text())
    model = kvlib.load_model(GOLDEN / "stablelm")
    cache = QuantizedCache(model.layer_specs, "signs", 1, 32, xp=np)
    cache.add("a")
    model.forward(list(range(32)), cache, cache.plan(["a"], [32]))
    held = cache.memory()
    assert held.payload + held.metadata == int(
        ModelSpec.from_config(config).kv_bytes(1, 32, "1bit")
    )


def test_keys_and_values_may_differ() -> None:
    half = Codec("signs of keys", Signs(), NAMES["plain"].values)
    register_codec(half)
    found = CODECS["signs of keys"]
    assert (found.bits, found.scale_bits, found.group) == (8.5, 16, 0)


def test_a_codec_name_is_registered_once() -> None:
    for own in (Codec("int8", Signs(), Signs()), Codec("half", Signs(), Signs())):
        with pytest.raises(ValueError, match=f"'{own.name}', needed: another name"):
            register_codec(own)
    with pytest.raises(ValueError, match="'bf16', needed: another name"):
        register_codec(Codec("own", Signs(), Signs()), aliases=("bf16",))
    with pytest.raises(TypeError, match="codec is .*, needed: a Codec"):
        register_codec("own")  # type: ignore[arg-type]
    assert "own" not in NAMES and "own" not in CODECS


def test_the_command_line_takes_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k"]
    assert main([*command, "--kv", "1bit"]) == 0
    assert "keys and values in signs" in capsys.readouterr().out


def test_an_installed_package_is_found_by_the_command_line(tmp_path: Path) -> None:
    import tomllib

    stated = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["entry-points"]
    info = tmp_path / "outside-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 0\n")
    lines = [f"{name} = {value}" for name, value in stated["kvlib"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[kvlib]", *lines, ""]))
    (tmp_path / "outside").symlink_to(HOME)
    arguments = ["fit", "--config", str(GOLDEN / "gpt-neox"), "--gpu", "l4", "--kv", "1bit"]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kvlib.costs.cli import main; "
    code += f"sys.exit(main({arguments!r}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "keys and values in signs" in found.stdout


@pytest.mark.untraced
def test_the_codec_passes_the_kit() -> None:
    assert testing.check_codec(kvlib.codecs.codec("signs"), xp=np)


@pytest.mark.untraced
def test_the_rule_passes_the_kit() -> None:
    trial = testing.check_retention(Strided(16, 3), xp=np)
    assert trial and trial.moved is not None and trial.moved <= 1, trial


@pytest.mark.untraced
@pytest.mark.parametrize("make", [
    lambda layers: DenseCache(layers, 4, 40, attention=attend_halves, xp=np),
    lambda layers: PagedCache(
        layers, BlockPool(96, 4), codec="int8", attention=attend_halves, xp=np,
    ),
    lambda layers: ListCache(layers, attention=attend_halves, xp=np),
], ids=["rows", "blocks", "lists"])
def test_the_attention_passes_the_kit(make) -> None:
    grows = "ListCache" in make.__code__.co_names
    terms = {"max_seq_len": None, "v_from_k": False} if grows else {}
    assert testing.check_cache(make, schedules=12, xp=np, **terms)


@pytest.mark.untraced
def test_the_cache_passes_the_kit() -> None:
    terms = {"max_seq_len": None, "v_from_k": False}
    assert testing.check_cache(lambda layers: ListCache(layers, xp=np), xp=np, **terms)


def test_all_parts_together_run_its_families() -> None:
    """A model of the package on its cache, with its attention, says what a dense cache says."""
    model, prompts, logits, _ = case("gpt-neox")
    cache = ListCache(model.layer_specs, attention=attend_halves, xp=np)
    cache.add("a")
    step = cache.plan(["a"], [len(prompts[-1])])
    assert_same_logits(model.forward(prompts[-1], cache, step, rows="all"), logits[-1])

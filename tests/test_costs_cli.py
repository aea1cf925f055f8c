"""``python -m kvlib``: what it prints, how it ends, and that it needs no array library."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from costs_configs import QWEN_NEXT
from repository import ROOT
from test_config import LLAMA

from kvlib.commands import run
from kvlib.costs import GPUS, MODELS, ModelSpec, cli, fit
from kvlib.costs.cli import main, tokens
from kvlib.costs.explain import explain

PLAN = ["fit", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "8", "--context", "32k"]
SEVEN = ["fit", "--model", "llama-2-7b", "--gpu", "l4"]
HUGE = "1" + "0" * 400
LONG = "9" * 5000  # more digits than Python makes an integer of


def bad(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a command that ends with 2."""
    with pytest.raises(SystemExit) as end:
        run(lambda: main(argv))
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    line = err.removesuffix("\n")
    assert line.isprintable() and len(line) < 1_500, line
    return line


def test_fit_prints_the_bill(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--kv", "int8"]) == 0
    out = capsys.readouterr().out
    assert out == repr(fit("llama-3.1-8b", "h100-sxm", 8, 32_768, "int8")) + "\n"
    assert "8 requests of 32,768 tokens, keys and values in int8" in out


def test_fit_as_json_with_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--kv", "int8", "--weights", "fp8", "--gpus", "2", "--block-size", "16", "--json"]
    assert main([*PLAN, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == fit("llama-3.1-8b", "h100-sxm", 8, 32_768, "int8", "fp8", 2, 16).to_dict()
    assert found["fits"] is True


def test_what_layers_with_a_window_hold(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["fit", "--model", "gemma-3-27b", "--gpu", "h100-sxm"]
    assert main([*argv, "--reserve", "vllm", "--step", "2k"]) == 0
    out = capsys.readouterr().out
    assert out == repr(fit("gemma-3-27b", "h100-sxm", 1, 131_072, reserve="vllm", step=2048)) + "\n"
    assert "\nThe cache: reserve vllm, blocks of 16 tokens, steps of 2,048 tokens.\n" in out
    assert "  all                  62.00 GiB  every token," in out
    assert main([*argv, "--reserve", "all"]) == 1
    out = capsys.readouterr().out
    assert "It does not fit" in out and "2 H100 SXM are enough" in out
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reserve"] == "needed" and found["step_tokens"] == 1
    assert found["kv_bytes_per_gpu_by_reserve"] == {
        "needed": 11_173_625_856, "transformers": 11_173_199_872, "vllm": 11_248_599_040,
        "all": 66_571_993_088,
    }


def test_a_budget_for_all_layers_or_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    for given, words in (
        (["1k"], "budget of 1,024 tokens"), (["8"] * 31 + ["40"], "budgets of 8 to"),
    ):
        assert main([*PLAN, "--json", "--budget", *given]) == 0
        budget = json.loads(capsys.readouterr().out)["budget_tokens"]
        assert budget == ([8] * 31 + [40] if len(given) > 1 else 1024)
        assert main([*PLAN, "--budget", *given]) == 0
        out = capsys.readouterr().out
        assert f"The cache: {words}" in out and "no limit" in out
    assert "budget has 2 numbers" in bad(capsys, *PLAN, "--budget", "8", "9")
    assert "reserve must be one of" in bad(capsys, *PLAN, "--reserve", "half")
    assert "argument --budget: expected at least one" in bad(capsys, *PLAN, "--budget")


def test_what_does_not_fit_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["fit", "--model", "Llama 3.1 70B", "--gpu", "l4", "--context", "4096"]
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert "It does not fit: the weights alone take 131.42 GiB, 22.49 GiB can be used" in out
    assert main([*argv, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fits"] is False
    # tight is not a yes either
    tight = ["--gpu", "h100-sxm", "--batch", "32"]
    assert main(["fit", "--model", "llama-2-7b", *tight, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False and found["cases"]["weights only"]["fits"] is True
    assert found["context_tokens"] == 4096  # the model's own limit where no context is named


def test_a_config_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "kvlib" / "reference" / "config.json"
    assert main(["fit", "--config", str(path), "--gpu", "l4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kv_bytes_per_token"] == 5 * 2 * 2 * 64 * 2
    assert found["context_tokens"] == 2048


@pytest.mark.parametrize("argv, words", [
    ([], "required"), (["fot"], "invalid choice: 'fot'"),
    (["fit", "--model", "llama-2-7b"], "--gpu"), (["fit", "--gpu", "l4"], "--model --config"),
    (["fit", "--model", "x", "--config", "y", "--gpu", "l4"], "not allowed with"),
    (["fit", "--model", "lama-2-7b", "--gpu", "l4"], "did you mean llama-2-7b"),
    (["fit", "--model", str(ROOT), "--gpu", "l4"], "is a path; use --config"),
    (["fit", "--model", "llama-2-7b", "--gpu", "h100"], "did you mean h100-sxm"),
    ([*SEVEN, "--kv", "int3"], "unknown dtype 'int3'"),
    ([*SEVEN, "--weights", "q"], "unknown dtype 'q'"),
    ([*SEVEN, "--context", "8k"], "8,192 tokens, needed"),
    ([*SEVEN, "--context", "-1"], "--context: got '-1'"),
    ([*SEVEN, "--context", "3.5k"], "got '3.5k'"), ([*SEVEN, "--batch", "0"], "batch is 0"),
    ([*SEVEN, "--batch", "two"], "--batch"),
    (["fit", "--config", "/no/such/config.json", "--gpu", "l4"], "/no/such/config.json: no such"),
    ([*PLAN, "--batch", HUGE], "batch is a whole number of about 401 digits"),
    ([*PLAN, "--batch", LONG], "argument --batch: got '9999"),
    ([*PLAN, "--context", LONG], "argument --context: got '9999"),
    ([*PLAN, "--context", f"{HUGE}k"], "context is a whole number"),
    ([*PLAN, "--batch", "1" + "0" * 16], "needed: at most 1,000,000,000,000,000"),
    (["fit", "--model", "a\0b", "--gpu", "l4"], r"unknown model 'a\x00b'"),
    ([*PLAN[:3], "--gpu", "x" * 5000], "unknown GPU 'xxx"),
    ([*PLAN[:3], "--gpu", "\x1b[2J"], r"unknown GPU '\x1b[2J'"),
    ([*PLAN, "\x1b[2J"], r"unrecognized arguments: \x1b[2J"),
    (["fit", "--config", "\ud800", "--gpu", "l4"], r"\ud800: not a file name"),
])
def test_bad_input_ends_with_2_and_one_line(argv, words, capsys) -> None:
    assert words in bad(capsys, *argv)


def test_keys_of_a_config_can_be_left_out(capsys, tmp_path) -> None:
    data = json.loads((ROOT / "kvlib" / "reference" / "config.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**data, "quantization_config": {"quant_method": "exl3"}}))
    line = bad(capsys, "fit", "--config", str(path), "--gpu", "l4")
    assert "; --without quantization_config counts the plain model)" in line
    assert "without=" not in line and "null or no such key" in line
    argv = ["fit", "--config", str(path), "--without", "quantization_config", "--gpu", "l4"]
    assert main(argv) == 0
    assert "It fits" in capsys.readouterr().out
    line = bad(capsys, "fit", "--model", "qwen3-8b", "--without", "rope", "--gpu", "l4")
    assert "--without: use it only together with --config" in line
    for source in (["--model", "llama-2-7b"], ["--explain", "x.json"]):
        line = bad(capsys, "fit", *source, "--drafts", "--gpu", "h100-sxm")
        assert "--drafts: use it only together with --config" in line
    path.write_text(json.dumps({**data, "odd key": 3}))
    line = bad(capsys, "fit", "--config", str(path), "--gpu", "l4")
    assert "read the config with --without 'odd key'" in line
    assert main([*argv[:3], "--without", "odd key", "--gpu", "l4"]) == 0
    capsys.readouterr()
    for key, words in (
        ("odd_key", "has no key 'odd_key' to leave out; did you mean 'odd key'?"),
        ("num_key_value_heads", "num_key_value_heads cannot be left out, because"),
    ):
        assert words in bad(capsys, *argv[:3], "--without", key, "--gpu", "l4")


def test_a_folder_of_quantised_weights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copy(ROOT / "kvlib" / "reference" / "config.json", tmp_path)
    said = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": said}))
    argv = ["fit", "--config", str(tmp_path), "--gpu", "l4"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    where = f"quantization of {tmp_path / 'hf_quant_config.json'}"
    assert f"\nWeights are FP8, as {where} says.\n" in out
    assert f"\nKeys and values are fp8, as {where} says.\n" in out
    assert main([*argv, "--weights", "fp8", "--kv", "int8"]) == 0
    assert "says." not in capsys.readouterr().out
    (tmp_path / "quantize_config.json").write_text('{"bits": 4}')
    line = bad(capsys, *argv)
    assert "quantize_config.json: group_size is missing, needed: a whole number" in line
    assert line.endswith("; --without quantization_config counts the plain model")
    assert main([*argv, "--without", "quantization_config"]) == 0
    assert "(bfloat16)" in capsys.readouterr().out


def test_tokens() -> None:
    for text, number in (("4096", 4096), ("32k", 32_768), ("32K", 32_768), ("1m", 2**20)):
        assert tokens(text) == number
    assert tokens("32,768") == tokens("32_768") == tokens(" 32768 ") == 32_768


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(MODELS) + 1]] == list(MODELS)
    (row,) = (line for line in lines if line.startswith("gemma-3-27b"))
    assert row.split()[1:4] == ["27,009,002,240", "62", "32/16"]
    assert "all + 1,024" in row and "507,904" in row and "131,072" in row
    (row,) = (line for line in lines if line.startswith("qwen3-next-80b-a3b"))
    assert row.split()[3:] == ["16/2", "all", "24,576", "77.3", "MB", "262,144"]
    assert main(["gpus"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(GPUS) + 1]] == list(GPUS)
    (h100,) = (line for line in lines if line.startswith("h100-sxm"))
    assert "3,350 GB/s" in h100 and "989 TFLOP/s" in h100 and "295" in h100 and "?" not in h100
    (nvl,) = (line for line in lines if line.startswith("h100-nvl"))
    assert nvl.count("?") == 2 and "835 TFLOP/s ?" in nvl  # two figures that nothing confirms


def test_it_says_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    main(["fit", "--model", "llama-2-7b", "--gpu", "mi300x"])
    out = capsys.readouterr().out
    assert "not confirmed by a public text: MI300X usable memory" in out


def test_help_has_examples_that_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for argv in (["--help"], ["fit", "--help"]):
        with pytest.raises(SystemExit) as end:
            main(argv)
        assert end.value.code == 0
        text = capsys.readouterr().out
        assert "32k is 32 x 1024 = 32,768" in " ".join(text.split()) or argv == ["--help"]
        examples = [line.split()[3:] for line in text.splitlines() if "  python -m kvlib" in line]
        assert len(examples) == 8
    config = str(ROOT / "kvlib" / "reference" / "config.json")
    for example in examples:
        argv = [config if word.endswith("config.json") else word for word in example]
        if "4096" in argv:
            argv[argv.index("4096")] = "2k"
        assert main(argv) == 0
        assert capsys.readouterr().out


def test_each_number_is_explained_by_the_keys_it_is_made_of(capsys, tmp_path) -> None:
    """Computed again from the words, with the file's values for its keys."""
    config = {**QWEN_NEXT, "linear_num_value_heads": 6, "head_dim": 24}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["fit", "--explain", str(tmp_path / "config.json")]) == 0
    text = capsys.readouterr().out
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines() if " of " in line]
    rows = [row for row in rows if len(row) == 4]
    total = 0
    for name, shape, numbers, words in rows:
        times = int(shape.split()[0].replace(",", ""))
        sizes = [eval(word, {}, config) for word in re.split(r" x (?![^(]*\))", words)]
        assert times * math.prod(sizes) == int(numbers.replace(",", "")), name
        total += int(numbers.replace(",", ""))
    spec = ModelSpec.from_config(config)
    assert total == spec.num_parameters and f"{total:,} numbers" in text
    kept = re.findall(r"\n    (.*), (bytes|numbers an entry) of", text)
    sizes = {unit: eval(words, {}, config) for words, unit in kept}
    assert sizes == {"bytes": spec.layers[0].state, "numbers an entry": spec.layers[1].values}


@pytest.mark.parametrize(("keys", "rows"), [
    (dict(model_type="phi", intermediate_size=96), ["lm_head.bias 1 of 50 50"]),
    (dict(model_type="opt", ffn_dim=96), [f"embed_positions 1 of {n} x 32" for n in (64, 2)]),
])  # fmt: skip
def test_tables_of_positions_and_biases_of_the_head_are_explained(
    keys: dict[str, Any], rows: list[str]
) -> None:
    sizes = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    text = " ".join(explain({**sizes, **keys, "max_position_embeddings": 64}).split())
    assert all(row in text for row in rows)


def python(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, **options
    )


@pytest.mark.parametrize("arguments", [["gpus"], ["--help"], ["fit", "--model", "no such"]])
def test_kvlib_and_its_costs_are_one_command(arguments: list[str]) -> None:
    short, long = (python("-m", module, *arguments) for module in ("kvlib", "kvlib.costs"))
    assert short.stdout == long.stdout and short.returncode == long.returncode
    assert short.stderr == long.stderr and short.stdout + short.stderr


def test_readme_shows_what_the_command_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n\$ python (-m kvlib .*?)```", readme, re.S)
    command, _, shown = block.partition("\n")
    assert python(*command.split()).stdout == shown


def test_it_runs_where_numpy_is_missing(tmp_path: Path) -> None:
    """A NumPy that raises is first on the path."""
    for name in ("numpy", "array_api_compat"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('blocked by the test')\n")
    env = dict(os.environ, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    blocked = python("-c", "import numpy", env=env)
    assert blocked.returncode == 1 and "blocked by the test" in blocked.stderr
    for argv in (["models"], ["gpus"], [*PLAN, "--json"]):
        done = python("-m", "kvlib", *argv, env=env)
        assert done.returncode == 0 and done.stdout and done.stderr == "", done.stderr
    assert json.loads(done.stdout)["kv_bytes_per_token"] == 131_072
    refused = python("-m", "kvlib", "fit", "--model", "llama-3.1-8b", "--gpu", "h200", env=env)
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("python -m kvlib fit: unknown GPU 'h200'")
    large = python("-m", "kvlib", "fit", "--model", "llama-2-70b", "--gpu", "l4", env=env)
    assert large.returncode == 1


@pytest.mark.parametrize(
    "error",
    [OverflowError("too large"), KeyError("x"), OSError(36, "File name too long"), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_nobody_foresaw_ends_with_2_in_one_line(error, monkeypatch, capsys) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(cli, "fit", broken)
    line = bad(capsys, *PLAN)
    assert line.startswith("python -m kvlib fit: ") and type(error).__name__ in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_ends_with_2(unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvlib", *PLAN], cwd=ROOT, env=env, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr


def test_the_largest_arguments_are_computed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    most = str(10**15)
    assert run(lambda: main([*PLAN, "--batch", most])) == 1
    assert run(lambda: main([*PLAN, "--block-size", most])) == 1
    assert run(lambda: main([*PLAN, "--batch", most, "--block-size", most, "--json"])) == 1
    capsys.readouterr()
    assert "gpus is 1000000000000000, needed" in bad(capsys, *PLAN, "--gpus", most)


def test_the_name_of_a_folder_is_printed_without_escape_codes(tmp_path, capsys) -> None:
    folder = tmp_path / "\x1b[2J\n"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert main(["fit", "--config", str(folder), "--gpu", "l4"]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable() and out.startswith(r"\x1b[2J\n (bfloat16) on L4")

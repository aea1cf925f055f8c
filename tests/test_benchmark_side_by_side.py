"""What benchmarks/side_by_side.py writes for other programs, and how it compares them."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvlib import load_model

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "head_dim": 8,
}


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("side_by_side")


def test_kvlib_loads_what_is_written(peers: Any, tmp_path: Path) -> None:
    written = peers.write(tmp_path, peers.SHAPE | SMALL)
    model = load_model(tmp_path)
    assert model.num_parameters == sum(x.size for x in written.values())
    np.testing.assert_array_equal(model.weights["norm.weight"], written["model.norm.weight"])
    down = written["model.layers.1.mlp.down_proj.weight"]
    np.testing.assert_array_equal(model.weights["layers.1.down.weight"], down)


def test_every_weight_has_a_name_of_its_own_in_gguf(peers: Any, tmp_path: Path) -> None:
    names = [peers.gguf_name(name) for name in peers.write(tmp_path, peers.SHAPE | SMALL)]
    assert len(set(names)) == len(names) == 2 + 9 * 2
    assert {"token_embd.weight", "blk.1.ffn_down.weight"} <= set(names)


def test_interleaved_rows_turn_as_halves_do(peers: Any) -> None:
    """RoPE of neighbours, on interleaved rows, gives the scores of RoPE of halves."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2 * 8, 5))
    found = peers.interleaved(x, 2).reshape(2, 8, 5)
    halves = x.reshape(2, 8, 5)
    np.testing.assert_array_equal(found[:, 0::2], halves[:, :4])
    np.testing.assert_array_equal(found[:, 1::2], halves[:, 4:])


def test_turns_alternate_and_ratios_are_of_medians(peers: Any) -> None:
    assert [peers.order(["a", "b"], i) for i in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
    row = {"kvlib": {"median_ms": 4.0}, "llama.cpp": {"median_ms": 6.0}}
    assert peers.ratios(row) == {"llama.cpp": 1.5}


def test_logits_that_differ_stop_the_benchmark(peers: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "kvlib.npy", np.zeros(3))
    np.save(tmp_path / "llama.cpp.npy", np.array([0.0, 5e-4, 0.0]))
    assert peers.differences(tmp_path, ["kvlib", "llama.cpp"]) == {"llama.cpp": 5e-4}
    for wrong in (2e-3, np.nan):
        np.save(tmp_path / "llama.cpp.npy", np.array([0.0, wrong, 0.0]))
        with pytest.raises(ValueError, match="logits of llama.cpp differ"):
            peers.differences(tmp_path, ["kvlib", "llama.cpp"])

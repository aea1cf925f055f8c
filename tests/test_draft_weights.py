"""The shipped draft model loads, is small, and guesses as its card says."""

import json
import struct
from importlib.resources import files

import numpy as np
import pytest
from notebook_code import smallest_margin
from reference.acceptance import acceptance, spot

import kvlib
from kvlib.reference import load_draft_model, sample_text
from kvlib.speculation import DraftModel, expected_tokens

FOLDER = files("kvlib.reference") / "draft"
CARD = (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
FIGURES = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
PROMPT = "class Stack:\n    def __init__(self):\n        self.items = []\n"
GOLDEN = "        self.items = []\n        self.ite"


@pytest.fixture(scope="module")
def small() -> kvlib.Decoder:
    return load_draft_model(xp=np)


def test_it_is_a_model_of_bytes_under_two_megabytes(small, model):
    assert small.config.vocab_size == model.config.vocab_size == 256
    assert small.config.max_position_embeddings == model.config.max_position_embeddings
    assert small.num_parameters == FIGURES["parameters"] < model.num_parameters / 8
    assert all(w.dtype == np.float32 and np.isfinite(w).all() for w in small.weights.values())
    data = (FOLDER / "model.safetensors").read_bytes()
    assert len(data) == FIGURES["file_bytes"]
    assert sum(len(path.read_bytes()) for path in FOLDER.iterdir()) < 2_000_000
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    assert {e["dtype"] for name, e in header.items() if name != "__metadata__"} == {"F16"}


def test_each_call_reads_it_anew():
    one, two = load_draft_model(xp=np), load_draft_model(dtype=np.float64, xp=np)
    name = next(iter(one.weights))
    assert one.weights[name].dtype == np.float32 and two.weights[name].dtype == np.float64
    one.weights[name][...] = 0
    assert load_draft_model(xp=np).weights[name].any()


def test_its_greedy_text_is_the_one_it_wrote_when_it_was_shipped(small):
    (found,) = kvlib.generate(small, [PROMPT], max_new_tokens=len(GOLDEN))
    assert found == GOLDEN
    assert smallest_margin(small, PROMPT, GOLDEN) > 0.05  # of a logit; float32 is off by 1e-4


def test_it_guesses_for_the_reference_model_in_one_line(model):
    prompts = [sample_text()[:300]]
    plain = kvlib.generate(model, prompts, max_new_tokens=24)
    drafter = DraftModel(load_draft_model(xp=np))
    assert kvlib.generate(model, prompts, max_new_tokens=24, drafter=drafter) == plain


def test_figures_of_the_card_come_out_again(model, small):
    """A small sample of them; ties of logits may turn a byte on another processor."""
    found, stated = spot(model, small), FIGURES["spot"]
    assert found["bits_of_1024"] == pytest.approx(stated["bits_of_1024"], abs=2e-3)
    assert found["share"] == pytest.approx(stated["share"], abs=0.03)
    assert found["measured"] == pytest.approx(stated["measured"], abs=0.3)


def test_a_model_guesses_itself_right(model):
    starts = [list(sample_text().encode()[:64])]
    found = acceptance(model, model, starts, new=20, temperature=1.0)
    assert found["share"] > 0.999 and found["measured"] == expected_tokens(1.0, 4) == 5


def test_the_card_says_what_was_measured(small):
    c = small.config
    assert f"{FIGURES['parameters']:,} parameters" in CARD
    assert f"hidden size {c.hidden_size}, {c.num_hidden_layers} layers" in " ".join(CARD.split())
    for name, figures in FIGURES["acceptance"]["settings"].items():
        share, counted = 100 * figures["share"], figures["measured"]
        row = f"| {name} | {share:.1f} % | {figures['expected']:.2f} | {counted:.2f} |"
        assert row in CARD
        assert 1 + figures["share"] < figures["measured"] < 5
    assert f"**{FIGURES['concatenated']['model']:.3f}**" in CARD

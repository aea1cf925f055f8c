"""kvlib computes what Hugging Face transformers computed: tiny checkpoints kept as files.

tools/make_golden.py writes them. In one pass, in chunks, token by token, alone and in ragged
batches a prompt must give the stored logits and, with a cache, the stored 64 tokens.
"""

from functools import cache
from pathlib import Path

import array_api_strict
import numpy as np
import pytest
from running import alone, assert_same_logits, together

import kvlib
from kvlib.config.read import runnable
from kvlib.config.rope import KINDS
from kvlib.model import ModelConfig

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.npz"))


@cache
def case(name: str) -> tuple:
    """The model, its prompts, the logits of each, the greedy tokens of each."""
    with np.load(GOLDEN / name / "expected.npz") as stored:
        bounds = np.cumsum(stored["lengths"])[:-1]
        prompts = [one.tolist() for one in np.split(stored["prompts"], bounds)]
        logits = np.split(stored["logits"], bounds)
        greedy = stored["greedy"].tolist()
    return kvlib.load_model(GOLDEN / name), prompts, logits, greedy


def test_all_families_that_run_and_both_spellings_are_here():
    configs = [ModelConfig.from_folder(GOLDEN / name) for name in FOLDERS]
    missing = set(runnable()) ^ {c.model_type for c in configs}
    assert not missing, (
        f"no tiny checkpoint in tests/golden for {missing}: add one to "
        "tests/peers/variants.json and run tools/make_golden.py"
    )
    assert {c.rope.kind for c in configs if c.rope} == set(KINDS)
    texts = [(GOLDEN / name / "config.json").read_text() for name in FOLDERS]
    assert any('"rope_scaling"' in text for text in texts)
    assert any('"rope_parameters"' in text for text in texts)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("chunk", [None, 1, 3, 7, 8, 16])
def test_prefill_in_any_chunks(name, chunk):
    model, prompts, logits, _ = case(name)
    for prompt, expected in zip(prompts, logits, strict=True):
        what = f"{len(prompt)} tokens, {chunk} a pass"
        assert_same_logits(alone(model, prompt, chunk), expected, what)


@pytest.mark.parametrize("name", FOLDERS)
def test_ragged_batches(name):
    model, prompts, logits, _ = case(name)
    schedules = [[99] * 6, [1] * 6, [5, 2, 99, 1, 3, 7], [1, 7, 1, 99, 4, 1]]
    for chunks in schedules:
        for ours, expected in zip(together(model, prompts, chunks), logits, strict=True):
            assert_same_logits(ours, expected, f"chunks {chunks}")


@pytest.mark.parametrize("name", FOLDERS)
def test_greedy_tokens(name, effort):
    """All prompts together, and alone: usually one of them, another for the next family."""
    model, prompts, _, greedy = case(name)
    settings = dict(max_new_tokens=len(greedy[0]), stop_tokens=())
    assert kvlib.generate(model, prompts, **settings) == greedy
    turn = FOLDERS.index(name) % len(prompts)
    apart = list(zip(prompts, greedy, strict=True))
    apart = apart[turn:] + apart[:turn]
    for prompt, expected in effort.share("golden prompts that run alone", apart, usual=1):
        assert kvlib.generate(model, [prompt], **settings) == [expected]


@pytest.mark.parametrize("name", FOLDERS)
def test_other_dtype_and_library(name):
    _, prompts, logits, _ = case(name)
    for model in (
        kvlib.load_model(GOLDEN / name, dtype="float64"),
        kvlib.load_model(GOLDEN / name, xp=array_api_strict),
    ):
        ours = together(model, prompts, [99, 3, 99, 3, 99, 5])
        for one, expected in zip(ours, logits, strict=True):
            assert_same_logits(one, expected, str(model.dtype))

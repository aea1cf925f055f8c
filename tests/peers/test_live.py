"""kvlib against Hugging Face transformers, live (make test-peers): larger random models.

Each must give the same logits in every chunking and batch, and the same greedy tokens.
"""

from pathlib import Path

import numpy as np
import pytest
from running import alone, assert_same_logits, errors, together

import kvlib

reason = "needs torch and transformers: make test-peers"
pytest.importorskip("torch", reason=reason)
pytest.importorskip("transformers", reason=reason)

from hf_models import (  # noqa: E402
    LIVE,
    clear_tokens,
    greedy,
    logits_of,
    random_model,
    read_back,
    save,
    sizes,
)

pytestmark = pytest.mark.peers

W = 16  # the window of the variants that have one


@pytest.fixture(scope="module", params=LIVE, ids=lambda variant: variant.name)
def pair(request, tmp_path_factory):
    """The two libraries' models of one checkpoint."""
    folder: Path = tmp_path_factory.mktemp(request.param.name)
    size = sizes(request.param.family, hidden=256, layers=6, heads=8, vocab=1000, limit=512)
    theirs = save(random_model(request.param, size, seed=7), request.param, folder)
    return request.param, kvlib.load_model(folder), theirs


def prompts_of(lengths: tuple[int, ...], vocab: int = 1000) -> list[list[int]]:
    rng = np.random.default_rng(11)
    return [rng.integers(0, vocab, n).tolist() for n in lengths]


def test_logits(pair, record_property):
    """Around the window's edge and far beyond it; alone, in chunks, and in a ragged batch."""
    variant, ours, theirs = pair
    prompts = prompts_of((1, W - 1, W, W + 1, 2 * W, 2 * W + 1, 200))
    prompts = [prompt[: max(1, clear_tokens(theirs, prompt))] for prompt in prompts]
    assert max(map(len, prompts)) > W, "no prompt is left in which the experts are clear"
    expected = [logits_of(theirs, prompt) for prompt in prompts]
    worst = (0.0, 0.0)
    for prompt, logits in zip(prompts, expected, strict=True):
        for chunk in (None, 1, 5, W, W + 1, 64):
            got = alone(ours, prompt, chunk)
            assert_same_logits(got, logits, f"{len(prompt)} tokens, {chunk} a pass")
            worst = max(worst, errors(got, logits))
    for chunks in ([999] * 7, [1, 4, 999, W, 3, 5, 64]):
        for got, logits in zip(together(ours, prompts, chunks), expected, strict=True):
            assert_same_logits(got, logits, f"batch in chunks {chunks}")
            worst = max(worst, errors(got, logits))
    print(f"\n{variant.name}: logits rms {np.std(expected[-1]):.2f}, ", end="")
    print(f"difference rms {worst[0]:.1e}, most {worst[1]:.1e}")


def test_greedy_tokens(pair):
    """64 tokens each, equal up to the first close call: a lead below 1e-4, or an expert's."""
    _, ours, theirs = pair
    prompts = prompts_of((1, W, 3 * W))
    found = kvlib.generate(ours, prompts, max_new_tokens=64, stop_tokens=())
    compared = 0
    for prompt, tokens in zip(prompts, found, strict=True):
        expected, lead = greedy(theirs, prompt, 64)
        clear = max(0, clear_tokens(theirs, prompt + expected) - len(prompt) + 1)
        if lead < 1e-4:
            rows = np.sort(logits_of(theirs, prompt + expected)[len(prompt) - 1 : -1], axis=1)
            clear = min(clear, int(np.argmax(rows[:, -1] - rows[:, -2] < 1e-4)))
        assert tokens[:clear] == expected[:clear]
        compared += min(clear, 64)
    experts = getattr(theirs.config, "num_experts_per_tok", None)
    assert compared >= (32 if experts else 128), compared


def test_reference_model():
    """The book's own model on real Python: the same logits, the same 64 tokens."""
    folder = Path(kvlib.__file__).parent / "reference"
    from kvlib.reference import sample_text

    ours, theirs = kvlib.load_reference_model(), read_back(folder)
    tokens = ours.tokenizer.encode(sample_text())[:600]
    expected = logits_of(theirs, tokens)
    scale = max(1.0, float(np.sqrt(np.mean(expected.astype(np.float64) ** 2))))
    for chunk in (None, 64, 100):
        got = alone(ours, tokens, chunk)
        assert_same_logits(got / scale, expected / scale, f"{chunk} a pass")
    found = kvlib.generate(ours, [tokens[:200]], max_new_tokens=64, stop_tokens=())
    assert found == [greedy(theirs, tokens[:200], 64)[0]]


def test_tokenizer_json(tmp_path):
    """A tokenizer.json written by the tokenizers package encodes and decodes the same here."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from kvlib.model.tokenizer import load_tokenizer

    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    theirs.train_from_iterator(["the cat sat on the mat, the cat"] * 4, trainer)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    text = "the cat – “naïve” 😀 sat"
    ids = ours.encode(text)
    assert ids == theirs.encode(text).ids and ours.decode(ids) == text
    stream = ours.stream()
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == text
    assert "\ufffd" not in "".join(pieces)

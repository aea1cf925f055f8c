"""Prompts in, tokens out."""

import sys

import numpy as np
import oracle
import pytest
from models import decoder, text
from test_decoder import new_cache

from kvlib import CacheFull, generate, stream
from kvlib.model.tokenizer import ByteTokenizer
from kvlib.serve.generation import _bar

pytestmark = pytest.mark.filterwarnings("error")


def recomputed(model, prompt, n):
    """n greedy tokens, each from the whole text so far, in float64."""
    tokens = list(prompt)
    for _ in range(n):
        logits = oracle.decoder_logits(model.config, model.weights, tokens)[-1]
        tokens.append(int(np.argmax(logits)))
    return tokens[len(prompt) :]


PROMPTS = [text(1, 9), text(2, 1), text(3, 17), text(4, 4)]


@pytest.mark.parametrize("kind", ["llama", "hybrid", "gpt2", "qwen3"])
def test_greedy_tokens_are_those_of_recomputation(kind):
    model = decoder(kind, seed=3)
    needed = [recomputed(model, p, 12) for p in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=12) == needed
    assert [generate(model, [p], max_new_tokens=12)[0] for p in PROMPTS] == needed


def test_every_form_of_prompt():
    model = decoder("llama")
    needed = generate(model, PROMPTS[:1], max_new_tokens=3)
    for prompt in (tuple(PROMPTS[0]), np.asarray(PROMPTS[0], np.uint8), iter(PROMPTS[0])):
        assert generate(model, [prompt], max_new_tokens=np.int64(3)) == needed
    assert generate(model, (p for p in PROMPTS[:1]), max_new_tokens=3) == needed
    assert generate(model, np.asarray(PROMPTS[:1]), max_new_tokens=3) == needed
    assert list(stream(model, (p for p in PROMPTS[:1]), max_new_tokens=3)) == [
        (0, t) for t in needed[0]
    ]
    assert generate(model, []) == [] and list(stream(model, [])) == []


def test_stop_tokens_end_a_request_and_are_not_returned():
    model = decoder("llama", seed=3)
    free = generate(model, PROMPTS, max_new_tokens=12, stop_tokens=())
    for stops in ([free[0][4]], {free[2][0], free[0][7]}, np.asarray([free[1][2]])):
        needed = []
        for tokens in free:
            ends = [i for i, t in enumerate(tokens) if t in {int(s) for s in stops}]
            needed.append(tokens[: ends[0]] if ends else tokens)
        assert needed != free
        assert generate(model, PROMPTS, max_new_tokens=12, stop_tokens=stops) == needed
    own = decoder("llama", seed=3, eos_token_ids=(free[0][0],))
    assert generate(own, PROMPTS, max_new_tokens=12)[0] == []
    assert generate(own, PROMPTS, max_new_tokens=12, stop_tokens=[]) == free


def test_streaming_yields_every_token_in_turn():
    model = decoder("llama", seed=3)
    whole = generate(model, PROMPTS, max_new_tokens=5)
    assert list(stream(model, PROMPTS, max_new_tokens=5)) == [
        (i, whole[i][n]) for n in range(5) for i in range(4)
    ]


def test_seeds_and_company():
    model = decoder("llama")
    settings = dict(max_new_tokens=10, temperature=1.5)
    first = generate(model, PROMPTS, **settings)
    assert generate(model, PROMPTS, seed=0, **settings) == first
    assert generate(model, PROMPTS, seed=1, **settings) != first
    # who comes after, and how long others run, does not change what a request draws
    assert generate(model, PROMPTS[:2], **settings) == first[:2]
    assert generate(model, [PROMPTS[0], text(9, 3)], **settings)[0] == first[0]
    assert generate(model, [PROMPTS[0]] * 2, **settings) == [first[0]] * 2
    assert generate(model, PROMPTS, top_k=1, **settings) == generate(
        model, PROMPTS, max_new_tokens=10
    )


def test_a_cache_given_is_used_and_left_as_it_was():
    model = decoder("llama", seed=3)
    cache = new_cache(model, 5, 30)
    cache.add("mine")
    model.forward([1, 2, 3], cache, cache.plan(["mine"], [3]))
    needed = generate(model, PROMPTS, max_new_tokens=12)
    for _ in range(3):
        assert generate(model, PROMPTS, max_new_tokens=12, cache=cache) == needed
        assert cache.seq_ids == ("mine",) and cache.seq_len("mine") == 3
    half = generate(model, PROMPTS, max_new_tokens=12, cache=new_cache(model, 4, dtype=np.float16))
    assert [len(x) for x in half] == [12] * 4


def test_two_streams_on_one_cache():
    model = decoder("llama", seed=3)
    cache = new_cache(model, 2, 30)
    a = stream(model, PROMPTS[:1], max_new_tokens=6, cache=cache)
    b = stream(model, PROMPTS[1:2], max_new_tokens=6, cache=cache)
    both = [(next(a)[1], next(b)[1]) for _ in range(6)]
    assert [list(x) for x in zip(*both)] == generate(model, PROMPTS[:2], max_new_tokens=6)


def test_the_cache_is_clean_after_an_early_end():
    model = decoder("llama")
    cache = new_cache(model, 4, 30)
    for place in (0, 3, 4, 7):
        tokens = stream(model, PROMPTS, max_new_tokens=5, cache=cache)
        for n, _ in enumerate(tokens):
            if n == place:
                break
        assert cache.seq_ids != ()
        tokens.close()
        assert cache.seq_ids == ()
    tokens = stream(model, PROMPTS, cache=cache)
    del tokens  # never started
    assert cache.seq_ids == ()


def test_the_cache_is_clean_after_an_error():
    model = decoder("llama")
    cache = new_cache(model, 3, 30)
    with pytest.raises(CacheFull, match="no row"):
        generate(model, PROMPTS, cache=cache)
    assert cache.seq_ids == ()
    cache = new_cache(model, 4, 20)
    with pytest.raises(CacheFull, match="too many for max_seq_len = 20"):
        generate(model, PROMPTS, cache=cache)
    assert cache.seq_ids == () and cache.memory().payload == 0


def test_exactly_as_long_as_the_model_allows():
    model = decoder("gpt2")  # 48 positions; the last token is never fed back
    assert len(generate(model, [text(1, 40)], max_new_tokens=9)[0]) == 9
    with pytest.raises(ValueError, match="prompt 0 has 40 tokens; with 10 new .* 49 .* 48"):
        stream(model, [text(1, 40)], max_new_tokens=10)


REFUSED = {
    "one text": ("abc", {}, TypeError, r"write \[text\]"),
    "texts without a tokenizer": (["abc"], {}, TypeError, "no tokenizer"),
    "both kinds": (["abc", [1]], {}, TypeError, "all texts or all lists of token ids, got both"),
    "an empty prompt": ([[1], []], {}, ValueError, "prompt 1 is empty"),
    "past the vocabulary": ([[1], [3, 31]], {}, ValueError, "prompt 1 .* 31, .* 30"),
    "negative": ([[-1]], {}, ValueError, "prompt 0 holds token -1"),
    "one prompt for a list": ([1, 2], {}, TypeError, "prompt 0 must be a list .*got 1"),
    "no new tokens": ([[1]], {"max_new_tokens": 0}, ValueError, "max_new_tokens .*got 0"),
    "seed None": ([[1]], {"seed": None}, ValueError, "seed .*got None"),
    "one stop token": ([[1]], {"stop_tokens": 3}, TypeError, "stop_tokens must be a list .*got 3"),
    "stop texts": ([[1]], {"stop_tokens": ["a"]}, TypeError, "stop_tokens must hold .*got 'a'"),
    "unknown": ([[1]], {"top_q": 1}, TypeError, "top_q"),
}


@pytest.mark.parametrize("prompts, settings, error, words", REFUSED.values(), ids=REFUSED)
def test_refused_before_the_first_token(prompts, settings, error, words):
    model = decoder("llama")
    for f in (stream, generate):
        with pytest.raises(error, match=words):
            f(model, prompts, **settings)


def test_texts():
    model = decoder("llama", vocab_size=256, tokenizer=ByteTokenizer())
    ids = generate(model, [list(b"def "), list("né".encode())], max_new_tokens=6)
    assert generate(model, ["def ", "né"], max_new_tokens=6) == [
        ByteTokenizer().decode(i) for i in ids
    ]
    assert list(stream(model, ["def "], max_new_tokens=2)) == [(0, t) for t in ids[0][:2]]
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        generate(model, ["a", ""])


def test_progress(capsys, monkeypatch):
    model = decoder("llama")
    generate(model, [[1], [2]], max_new_tokens=3, progress=True)
    assert "6/6" in capsys.readouterr().err
    for progress in (False, None):
        generate(model, [[1]], max_new_tokens=2, progress=progress)
        assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with _bar(None, 3) as bar:
        bar.update()
    with pytest.raises(ImportError, match="pip install tqdm"):
        generate(model, [[1]], max_new_tokens=2, progress=True)

"""The reference model's tools: corpus split, recall task, training rows, export layout."""

import json
import random
import struct
import sys
from datetime import datetime
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from kvlib.reference import recall

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from reference import corpus, rows  # noqa: E402
from train_reference import parser, seconds_until  # noqa: E402


@pytest.fixture(scope="module")
def split():
    return corpus.read_corpus()


def test_held_out_modules_are_never_trained_on(split):
    train, held = split
    assert tuple(held) == tuple(sorted(corpus.HELD_OUT))
    assert not set(train) & set(held)
    bodies = set(train.values())
    assert all(text not in bodies for text in held.values())
    joined = corpus.join(train)
    assert b"class JSONDecoder(object)" not in joined
    assert b"class JSONDecoder(object)" in held["json/decoder.py"]


def test_corpus_is_large_and_has_no_tests_or_foreign_packages(split):
    train, _ = split
    assert len(train) > 300
    assert 4e6 < sum(map(len, train.values())) < 30e6
    folders = {part for name in train for part in PurePosixPath(name).parts[:-1]}
    assert not folders & {"test", "tests", "site-packages", "encodings", "idle_test"}
    assert all(b"\0" not in text for text in train.values())


@pytest.mark.parametrize(("name", "kept"), [
    ("heapq.py", True), ("asyncio/events.py", True), ("site-packages/numpy/core.py", False),
    ("test/test_heapq.py", False),
    ("config-3.11-x86_64-linux-gnu/python-config.py", False),
    ("_sysconfigdata__linux_x86_64-linux-gnu.py", False),
    ("pydoc_data/topics.py", False), ("LICENSE.txt", False),
])
def test_what_belongs_to_the_corpus(name, kept):
    assert corpus.is_corpus_file(PurePosixPath(name)) is kept


def test_missing_held_out_module_is_named(tmp_path):
    (tmp_path / "heapq.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="bisect.py"):
        corpus.read_corpus(tmp_path)


def test_join_puts_a_separator_before_each_module():
    assert corpus.join({"a": b"x\n", "b": b"y\n"}) == b"\0x\n\0y\n"


def test_shared_lines_are_counted():
    train = {"a": b"this line stands in both of them\nonly here\n"}
    text = b"    this line stands in both of them\nthis line stands in none of them\n"
    assert corpus.shared_line_share(train, text) == 0.5


@pytest.mark.parametrize("distance", [16, 17, 64, 255, 256, 1500])
@pytest.mark.parametrize("names", [1, 4, 16])
def test_prompt_asks_for_a_value_bound_exactly_that_far_back(distance, names):
    for seed in range(20):
        prompt, answer = recall.recall_prompt(random.Random(seed), distance, names)
        question = prompt.rsplit(b"\n", 1)[1]
        assert question.endswith(b" = '")
        place = len(prompt) - distance
        assert prompt[place : place + len(answer) + 2] == answer + b"'\n"
        assert prompt[place - len(question) : place] == question
        # The name is bound once: no other line could answer.
        assert (b"\n" + prompt).count(b"\n" + question) == 2
        bound = [line for line in prompt.splitlines() if _is_binding(line)]
        assert len(bound) == names


def _is_binding(line: bytes) -> bool:
    name, _, value = line.partition(b" = '")
    return name.isalpha() and len(name) in (2, 3) and len(value) == 5 and value.endswith(b"'")


def test_prompts_depend_on_the_seed_alone():
    def prompts(seed):
        rng = random.Random(seed)
        return [recall.recall_prompt(rng, 256, 4) for _ in range(5)]

    assert prompts(1) == prompts(1)
    assert prompts(1) != prompts(2)


def test_prompt_uses_the_filler_it_is_given():
    prompt, _ = recall.recall_prompt(random.Random(0), 300, 2, filler=[b"pass\n"])
    rest = [line for line in prompt.splitlines()[:-1] if not _is_binding(line)]
    assert rest
    assert all(b"pass".startswith(line) for line in rest)


@pytest.mark.parametrize(
    ("distance", "names", "message"),
    [(15, 4, "distance must be an integer of at least 16, got 15"), (64, 0, "at least 1, got 0")],
)
def test_bad_requests_for_a_prompt(distance, names, message):
    with pytest.raises(ValueError, match=message):
        recall.recall_prompt(random.Random(0), distance, names)


def test_too_many_names_are_refused():
    with pytest.raises(ValueError, match="too many"):
        recall.fresh_names(random.Random(0), 20, (1,))


def test_row_weighs_only_what_the_context_can_tell():
    row, weights = rows.recall_row(random.Random(3), 600, names=4)
    assert len(row) == len(weights) == 600
    known: dict[bytes, bytes] = {}
    at, answers = 0, 0
    for line in row.splitlines(keepends=True)[:-1]:
        name, _, value = line[:-2].partition(b" = '")
        start = at + len(name) + 4
        here = weights[start : start + recall.VALUE_LENGTH]
        assert weights[at : at + len(name)] == [0.0] * len(name)
        if name in known:
            assert value == known[name]
            assert here == [1.0] * recall.VALUE_LENGTH
            answers += 1
        else:
            assert here == [0.0] * recall.VALUE_LENGTH
        known[name] = value
        at += len(line)
    assert len(known) == 4
    assert answers > 20


@pytest.mark.parametrize("length", [256, 513, 2049])
def test_far_row_binds_each_name_then_asks_once(length):
    filler = [b"pass\n", b"    return value + 1\n", b"x.update(y)\n"]
    for seed in range(30):
        row, weights = rows.far_row(random.Random(seed), length, names=6, filler=filler)
        assert len(row) == len(weights) == length
        seen: dict[bytes, list[tuple[int, bytes, float]]] = {}
        at = 0
        for line in row.splitlines(keepends=True):
            if line.endswith(b"'\n") and _is_binding(line[:-1]):
                name, _, value = line[:-2].partition(b" = '")
                seen.setdefault(name, []).append((at, value, weights[at + len(name) + 4]))
            at += len(line)
        assert len(seen) == min(6, length // 56)
        for (_, bound, first), (_, asked, second) in seen.values():
            assert bound == asked
            assert (first, second) == (0.0, 1.0)


def test_repeated_strings_carry_loss_only_where_a_copy_tells():
    row, weights = rows.repeat_row(random.Random(0), 400, (8, 20))
    assert len(row) == len(weights) == 400
    told = [i for i, w in enumerate(weights) if w]
    assert len(told) > 100
    # Every byte with loss has been seen before, after the same two bytes.
    assert all(row[i - 2 : i + 1] in row[: i - 1] for i in told)


def test_batches_repeat_and_mark_answers(split):
    train, _ = split
    text = corpus.join(dict(list(train.items())[:20]))
    one, two = rows.Rows(text, 5), rows.Rows(text, 5)
    for stage in range(len(rows.STAGES)):
        a = one.batch(7, stage, 16, 256)
        b = two.batch(7, stage, 16, 256)
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        tokens, weights, answers = a
        assert tokens.shape == (16, 257)
        assert weights.shape == answers.shape == (16, 256)
        assert answers.any()
        assert (weights[answers] >= 1.0).all()
        assert not np.array_equal(tokens, one.batch(8, stage, 16, 256)[0])
        code = (weights == 1.0).all(axis=1)
        share = rows.STAGES[stage].code
        assert abs(code.mean() - share) <= 0.07
        assert all(bytes(row) in text for row in tokens[code])


def test_seconds_until_a_clock_time():
    now = datetime(2024, 5, 1, 23, 30)
    assert seconds_until("23:45", now) == 900
    assert seconds_until("00:30", now) == 3600


def test_schedule_is_asked_for_once():
    options = ["train", "--out", "x", "--minutes", "5", "--steps", "7"]
    with pytest.raises(SystemExit):
        parser().parse_args(options)
    assert parser().parse_args(options[:5]).minutes == 5


def test_one_command_makes_the_draft_model_that_is_shipped():
    args = parser().parse_args(["draft", "--out", "x", "--minutes", "60"])
    folder = ROOT / "kvlib" / "reference"
    config = json.loads((folder / "draft" / "config.json").read_text())
    assert (args.folder, args.drafts_for) == (folder / "draft", folder)
    sizes = (args.hidden, args.layers, args.intermediate)
    named = ("hidden_size", "num_hidden_layers", "intermediate_size")
    assert sizes == tuple(config[name] for name in named)


def test_shipped_weights_are_llama_under_the_limit():
    folder = ROOT / "kvlib" / "reference"
    config = json.loads((folder / "config.json").read_text())
    data = (folder / "model.safetensors").read_bytes()
    assert len(data) < 10_000_000
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    assert (8 + size) % 8 == 0
    assert {entry["dtype"] for entry in header.values()} == {"F16"}
    assert (config["model_type"], config["vocab_size"], config["head_dim"]) == ("llama", 256, 64)
    assert config["max_position_embeddings"] == 2048
    assert config["tie_word_embeddings"] is True


def test_exported_folder_reads_back(tmp_path):
    torch = pytest.importorskip("torch", reason="training tools need PyTorch")
    pytest.importorskip("safetensors", reason="export needs safetensors")
    from reference.export import read_folder, write_folder
    from reference.model import Llama, Shape

    shape = Shape(hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=16)
    model = Llama(shape, seed=1).eval()
    write_folder(tmp_path, shape, model.state_dict())
    again = read_folder(tmp_path)
    assert again.shape == shape
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        assert (again(tokens) - model(tokens)).abs().max() < 0.02
    model.model.norm.weight.data[0] = 1e6
    with pytest.raises(ValueError, match="model.norm.weight: not finite in float16"):
        write_folder(tmp_path, shape, model.state_dict())


def test_heads_start_at_their_offsets():
    torch = pytest.importorskip("torch", reason="training tools need PyTorch")
    from reference.model import OFFSETS, Llama, Shape, rotate

    shape = Shape()
    model = Llama(shape, seed=0).eval()
    tokens = torch.randint(32, 127, (1, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = model.model.embed_tokens(tokens)
        layer = model.model.layers[0]
        a, x = layer.self_attn, layer.input_layernorm(x)
        cos, sin = model.cos[:200], model.sin[:200]
        q = rotate(a.q_proj(x).view(1, 200, 4, 64).transpose(1, 2), cos, sin)
        k = rotate(a.k_proj(x).view(1, 200, 2, 64).transpose(1, 2), cos, sin)
        scores = q @ k.repeat_interleave(2, dim=1).mT / 8
        scores = scores.masked_fill(~torch.ones(200, 200).tril().bool(), -torch.inf)
        p = scores.softmax(-1)[0]
    for head, offset in enumerate(OFFSETS[0]):
        assert p[head].diagonal(-offset)[20:].mean() > 0.5


def test_window_sums_agree_with_one_pass():
    """Scoring in windows gives one pass's bits where the whole text fits a window."""
    torch = pytest.importorskip("torch", reason="training tools need PyTorch")
    from reference.measure import bits
    from reference.model import Llama, Shape

    model = Llama(Shape(num_hidden_layers=2), seed=0).eval()
    text = bytes(random.Random(0).choices(range(32, 127), k=300))
    data = torch.tensor([[0, *text]])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(
            model(data[:, :-1])[0], data[0, 1:], reduction="sum"
        )
    assert bits(model, text) == pytest.approx(loss.item() / np.log(2), rel=1e-5)
    # Windows of 128 by 64: every byte is scored once, with 64 bytes or more before it.
    with torch.no_grad():
        expected, done = 0.0, 0
        while done < len(text):
            start = max(0, done - 64)
            end = min(len(text), start + 128)
            logits = model(data[:, start:end])[0, done - start :]
            part = torch.nn.functional.cross_entropy(
                logits, data[0, done + 1 : end + 1], reduction="sum"
            )
            expected, done = expected + part.item(), end
    assert bits(model, text, 128, 64) == pytest.approx(expected / np.log(2), rel=1e-5)

"""The model card of the draft model, written from the measured results."""

from __future__ import annotations

import textwrap

from .card import percent, rows
from .corpus import HELD_OUT
from .model import Shape


def draft_card(shape: Shape, r: dict) -> str:
    """Markdown text from ``kvlib/reference/draft/results.json``."""
    modules = rows(
        [
            (f"`{n}`", m["bytes"], f"{m['model']:.3f}", f"{m['xz']:.3f}")
            for n, m in r["modules"].items()
        ]
    )
    guesses = rows(
        [
            (name, percent(x["share"]), f"{x['expected']:.2f}", f"{x['measured']:.2f}")
            for name, x in r["acceptance"]["settings"].items()
        ]
    )
    times = r["reference_parameters"] / r["parameters"]
    parts = f"{r['parameters']:,} parameters ({r['file_bytes']:,} bytes as float16)"
    whole, seen = r["concatenated"], r["acceptance"]
    size = f"""
It has {parts}; the reference model has {times:.1f} times as many. Its sizes are: hidden size
{shape.hidden_size}, {shape.num_hidden_layers} layers, {shape.num_attention_heads} query heads and
{shape.num_key_value_heads} key/value heads of {shape.head_dim}, intermediate size
{shape.intermediate_size}, tied embeddings, RoPE base {shape.rope_theta:g}, context
{shape.max_position_embeddings}. It loads with `kvlib.load_draft_model()` and with
`LlamaForCausalLM` of Hugging Face transformers (largest difference of a logit between transformers
and the training code, in float32: {r["transformers_difference"]:.1e})."""
    data = f"""
The model was trained on the text that the reference model was trained on: the source of the
standard library of CPython {r["python"]} ({r["train_modules"]} modules, {r["train_bytes"]:,} bytes)
and generated rows. These modules are held out: {", ".join(f"`{n}`" for n in HELD_OUT)}. CPython's
standard library is under the PSF licence, version 2; the weights were made from it."""
    how = f"""
The reference model continues the first {seen["prompt"]} bytes of each held-out module by
{seen["new"]} bytes. The column *accepted* is the probability that a guess is accepted, averaged
over the new bytes: whether the likeliest bytes of both models agree or, at a temperature of 1, the
sum of min(p, q). From it, `expected_tokens` predicts how many bytes a step with {seen["gamma"]}
guesses gives if every guess is equally likely to be right, and `kvlib.Scheduler` counts them.
Greedy text soon repeats itself, which makes it easier to guess than other text."""
    short = f"""
On the shipped sample of Python that was written for the book (`sample.py.txt`), the model needs
{r["sample"]["model"]:.3f} bits per byte. It answers {percent(r["recall"]["256"])} of the
{r["recall_trials"]} questions of the reference model's card at 256 bytes. Picking one of the four
values in the prompt would answer 25 %."""
    return f"""# The draft model

This small model guesses what the reference model writes next. In speculative decoding, one step of
the reference model checks several of its guesses. `tools/train_reference.py draft` makes the model
and this file; every figure is measured.

## Shape

A token is a byte, and byte 0 stands before each document, as for the reference model.
{wrapped(size)}

## Data

{wrapped(data)}

## Guesses

{wrapped(how)}

| | accepted | predicted | counted |
|---|---:|---:|---:|
{guesses}

## Bits per byte

The model reads windows of 2,048 bytes that move by 1,024 bytes, and each byte is scored once.
`xz -9` is measured on the same bytes, including its container.

| module | bytes | model | `xz -9` |
|---|---:|---:|---:|
{modules}
| **all, concatenated** | {r["held_out_bytes"]} | **{whole["model"]:.3f}** | {whole["xz"]:.3f} |

{wrapped(short)}

## Training

{wrapped(trained(r))}

The following command trains a new model of these sizes, writes it to `kvlib/reference/draft`,
measures it and writes this card. A schedule in minutes depends on the speed of the machine, so the
weights differ from run to run; `--steps` in its place gives a schedule that can be repeated.

    python tools/train_reference.py draft --out build/draft --minutes 60 --threads 1

The following command only measures the model again and writes this card:

    python tools/train_reference.py evaluate --folder kvlib/reference/draft \\
        --drafts-for kvlib/reference --checkpoint build/draft/last.pt

## Use and limits

The model was made to guess for the reference model, and for nothing else: its own text is worse.
It has not learned to copy a value over a distance, so its guesses fail where the reference model
recalls. It has seen no position after byte 2,048 of a row and no language but source code.
"""


def wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 100, break_on_hyphens=False)


def trained(r: dict) -> str:
    """How the weights were made, from the checkpoint's own record of it."""
    how = "The model was trained as the reference model was (its card says how), with seed 0"
    if "training" not in r:
        return f"{how}."
    t = r["training"]
    return (
        f"{how}: {t['steps']:,} steps and {t['bytes_seen'] / 1e6:.1f} MB in {t['minutes']:.0f} "
        f"minutes. At the end it was in stage {t['log'][-1]['stage']} of the curriculum (0 is the "
        f"first). {t['note']}"
    )

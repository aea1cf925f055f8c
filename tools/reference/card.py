"""The model card, written from the measured results."""

from __future__ import annotations

import textwrap

from .corpus import HELD_OUT
from .evaluate import example_prompt
from .model import Shape

CONTINUE = """python tools/train_reference.py train --out build/reference --init kvlib/reference \\
        --stage 4 --lr 0.008 --adam-lr 0.002 --long-from 0.5 --minutes 60"""
RECALL_TARGET = 0.95  # at 256 bytes


def rows(cells: list[tuple[object, ...]]) -> str:
    return "\n".join("| " + " | ".join(str(c) for c in row) + " |" for row in cells)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def model_card(shape: Shape, r: dict) -> str:
    """Markdown text from ``kvlib/reference/results.json``."""
    modules = rows(
        [
            (
                f"`{n}`",
                m["bytes"],
                f"{m['model']:.3f}",
                f"{m['xz']:.3f}",
                percent(m["lines_also_in_training"]),
            )
            for n, m in r["modules"].items()
        ]
    )
    whole = r["concatenated"]
    recall = rows([(d, percent(a)) for d, a in r["recall"].items()])
    names = rows([(n, percent(a)) for n, a in r["recall_256_by_names"].items()])
    prompt, answer = example_prompt()
    at_256 = r["recall"]["256"]
    verdict = f"The aim was {percent(RECALL_TARGET)} at 256 bytes; it is " + (
        "reached." if at_256 >= RECALL_TARGET else f"missed, at {percent(at_256)}."
    )
    training, float32 = r.get("training"), r.get("float32")
    history, halves = "", ""
    held_out = "\n".join(textwrap.wrap(", ".join(f"`{n}`" for n in HELD_OUT), 100))
    if training:
        seen = training["bytes_seen"] / 1e6
        history = (
            f"The shipped weights saw {seen:.1f} MB (real code and recall rows together) in "
            f"{training['steps']} steps and {training['minutes']:.0f} minutes on two CPU cores "
            f"that other work shared. {training['note']}\n"
        )
    if float32:
        halves = (
            "The weights are shipped as float16. Before rounding, the same measurement gave "
            f"{float32['concatenated']:.4f} bits per byte (after: {whole['model']:.4f}) and recall "
            f"of {percent(float32['recall_256'])} at 256 bytes "
            f"(after: {percent(r['recall']['256'])}).\n"
        )
    return f"""# The reference model

A byte-level language model of Python source code, small enough to run in NumPy on a laptop and
really trained, so that what a cache throws away or rounds shows in what the model says. This file
is written by `tools/train_reference.py evaluate`; every figure is measured.

## Shape

Llama format, loads with `kvlib.load_reference_model()` and with Hugging Face transformers'
`LlamaForCausalLM` (largest difference of a logit between transformers and the training code in
float32: {r["transformers_difference"]:.1e}).

{r["parameters"]:,} parameters ({r["file_bytes"]:,} bytes as float16): hidden size
{shape.hidden_size}, {shape.num_hidden_layers} layers, {shape.num_attention_heads} query heads
and {shape.num_key_value_heads} key/value heads of {shape.head_dim},
intermediate size {shape.intermediate_size}, tied embeddings, RoPE base {shape.rope_theta:g},
context {shape.max_position_embeddings}. A token is a byte: the token id is the byte's value, the
vocabulary has 256. Byte 0 stands before each document.

The heads of the first two layers started out looking 1 to 6 bytes back (`OFFSETS` in
`tools/reference/model.py`), because learning to do so is what delays copying from the context. All
else started random.

## Data

The source of the standard library of CPython {r["python"]}: {r["train_modules"]} modules,
{r["train_bytes"]:,} bytes. Left out: tests, `site-packages`, `encodings` (tables),
`pydoc_data/topics.py`, generated build settings. Held out and never trained on:
{held_out}. Their tests are left out with all tests.
Beside the code, the model was trained on generated rows (below). CPython's standard library is
under the PSF licence, version 2; the weights were made from it.

## Bits per byte

Windows of 2,048 bytes that move by 1,024; each byte is scored once. `xz -9` is measured on the same
bytes, its container included. The last column is the share of lines of 25 characters or more that
stand word for word in a training module too.

| module | bytes | model | `xz -9` | lines also in training |
|---|---:|---:|---:|---:|
{modules}
| **all, concatenated** | {r["held_out_bytes"]} | **{whole["model"]:.3f}** | {whole["xz"]:.3f} | |

On the concatenated text the model needs {whole["below_xz_percent"]:.1f} % less than `xz -9`.
On the shipped sample of Python written for the book (`sample.py.txt`, {r["sample"]["bytes"]}
bytes) it needs {r["sample"]["model"]:.3f} bits per byte, `xz -9` {r["sample"]["xz"]:.3f}.

{halves}
## Recall

`kvlib.reference.recall.recall_prompt(rng, distance, names)` makes prompts such as

```python
{prompt}
```

which has to go on with `{answer}`. The distance is counted in bytes from the value's first byte to
the end of the prompt. An answer counts if all four bytes are the greedy continuation. Guessing one
of the four names in the prompt would give 25 %; guessing letters, 0.0002 %.
{r["recall_trials"]} prompts a row, four names:

| distance (bytes) | recall |
|---:|---:|
{recall}

{verdict}

At 256 bytes, by the number of names in the prompt (other prompts than above):

| names | recall |
|---:|---:|
{names}

## Training

PyTorch, bfloat16 autocast on CPU. Muon on the layers' matrices, AdamW on embeddings and norms;
warm-up, constant rate, linear decay over the last quarter. A curriculum leads from one-letter names
and repeated random strings to two- and three-letter names between real code; it moves on when the
running accuracy on the first byte of answers allows. Loss on bytes that nothing predicts is masked.
Rows of 256 bytes at first, then 512, and 2,048 at the end.

{history}
To train anew (development extra, PyTorch), the schedule by steps, so that it can be repeated:

    python tools/train_reference.py train --out build/reference --steps 6000 --seed 0
    python tools/train_reference.py export --checkpoint build/reference/last.pt
    python tools/train_reference.py evaluate --checkpoint build/reference/last.pt

To go on from the shipped weights (or give `--resume build/reference/stable.pt`, which keeps the
optimisers' state, where that checkpoint is at hand):

    {CONTINUE}

## Use and limits

Made to study key/value caches: what quantisation, eviction, windows and sharing do to loss and to
recall. It writes text that looks like Python and means nothing. It knows no language but source
code, has seen nothing after byte 2,048 of a row, and recalls the surface form above, not bindings
in general.
"""

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
    verdict = f"The aim was {percent(RECALL_TARGET)} at 256 bytes; the model " + (
        "reaches it." if at_256 >= RECALL_TARGET else f"misses it, with {percent(at_256)}."
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

This is a byte-level language model of Python source code. It is small enough to run in NumPy on a
laptop, and it was really trained, so whatever a cache discards or rounds shows in the text that the
model writes. `tools/train_reference.py evaluate` writes this file; every figure is measured.

## Shape

The model has the Llama format. It loads with `kvlib.load_reference_model()` and with
`LlamaForCausalLM` of Hugging Face transformers (largest difference of a logit between transformers
and the training code, in float32: {r["transformers_difference"]:.1e}).

It has {r["parameters"]:,} parameters ({r["file_bytes"]:,} bytes as float16): hidden size
{shape.hidden_size}, {shape.num_hidden_layers} layers, {shape.num_attention_heads} query heads
and {shape.num_key_value_heads} key/value heads of {shape.head_dim},
intermediate size {shape.intermediate_size}, tied embeddings, RoPE base {shape.rope_theta:g},
context {shape.max_position_embeddings}. A token is a byte: the token id is the value of the
byte, so the vocabulary has 256 entries. Byte 0 stands before each document.

Before training, the heads of the first two layers were set to look 1 to 6 bytes back (`OFFSETS` in
`tools/reference/model.py`), because a model learns to copy from the context only after it has
learned to look back. All other weights started random.

## Data

The model was trained on the source of the standard library of CPython {r["python"]}:
{r["train_modules"]} modules, {r["train_bytes"]:,} bytes. Left out are tests, `site-packages`,
`encodings` (tables), `pydoc_data/topics.py` and generated build settings. These modules are held
out, so the model never saw them:
{held_out}. It never saw their tests, because it saw no tests.
The model was also trained on generated rows, described under *Recall*. CPython's standard library
is under the PSF licence, version 2; the weights were made from it.

## Bits per byte

The model reads windows of 2,048 bytes that move by 1,024 bytes, and each byte is scored once.
`xz -9` is measured on the same bytes, including its container. The last column is the share of
lines of 25 characters or more that also stand, word for word, in a training module.

| module | bytes | model | `xz -9` | lines also in training |
|---|---:|---:|---:|---:|
{modules}
| **all, concatenated** | {r["held_out_bytes"]} | **{whole["model"]:.3f}** | {whole["xz"]:.3f} | |

On the concatenated text, the model needs {whole["below_xz_percent"]:.1f} % fewer bits than `xz -9`.
On the shipped sample of Python that was written for the book (`sample.py.txt`,
{r["sample"]["bytes"]} bytes), the model needs {r["sample"]["model"]:.3f} bits per byte, and
`xz -9` needs {r["sample"]["xz"]:.3f}.

{halves}
## Recall

`kvlib.reference.recall.recall_prompt(rng, distance, names)` makes prompts such as

```python
{prompt}
```

which has to continue with `{answer}`. The distance is the number of bytes from the first byte of
the value to the end of the prompt. An answer counts if its four bytes are the greedy continuation.
Guessing one of the four values in the prompt would give 25 %, and guessing letters 0.0002 %. With
{r["recall_trials"]} prompts per row and four names:

| distance (bytes) | recall |
|---:|---:|
{recall}

{verdict}

At 256 bytes, for different numbers of names in the prompt (with other prompts than above):

| names | recall |
|---:|---:|
{names}

## Training

The model was trained in PyTorch with bfloat16 autocast on a CPU. Muon updates the matrices of the
layers, and AdamW updates embeddings and norms. The learning rate warms up, stays constant, and
decays linearly over the last quarter. A curriculum leads from one-letter names and repeated random
strings to two- and three-letter names between real code; it moves on when the running accuracy on
the first byte of answers allows it. The loss leaves out bytes that nothing predicts. Rows have
256 bytes at first, then 512, and 2,048 at the end.

{history}
To train a new model (with the development extra and PyTorch), use a schedule in steps, which can be
repeated exactly:

    python tools/train_reference.py train --out build/reference --steps 6000 --seed 0
    python tools/train_reference.py export --checkpoint build/reference/last.pt
    python tools/train_reference.py evaluate --checkpoint build/reference/last.pt

To continue from the shipped weights, use the following command. If you have the checkpoint
`build/reference/stable.pt`, give it with `--resume` instead, because it also keeps the state of the
optimisers.

    {CONTINUE}

## Use and limits

The model was made for the study of key/value caches: what quantisation, eviction, windows and
sharing do to loss and recall. It writes text that looks like Python and means nothing. It knows no
language but source code, has seen no position after byte 2,048 of a row, and recalls the form of
binding shown above, not bindings in general.
"""

"""Every figure on the model card, computed."""

from __future__ import annotations

import platform
import random
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from kvlib import load_model
from kvlib.reference.recall import recall_prompt

from .acceptance import GAMMA, NEW, PROMPT, SETTINGS, acceptance, prompts, spot
from .corpus import join, read_corpus, shared_line_share
from .export import read_checkpoint, read_folder
from .measure import DISTANCES, bits, recall, xz_bits_per_byte


def hugging_face_difference(folder: Path, text: bytes) -> float:
    """Largest difference of a logit between transformers and this code, float32 (no unit)."""
    from transformers import LlamaForCausalLM

    peer = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.tensor([list(text)], dtype=torch.long)
    with torch.no_grad():
        return (peer(tokens).logits - read_folder(folder)(tokens)).abs().max().item()


def evaluate(
    folder: Path,
    checkpoint: Path | None = None,
    trials: int = 200,
    note: str = "",
    drafts_for: Path | None = None,
) -> dict:
    """Measure the shipped folder; with a checkpoint, also what float16 changed.

    ``note`` is a sentence on how these weights came about, for the card. ``drafts_for`` is the
    folder of the model whose next tokens this one guesses, if it is a draft model.
    """
    model = read_folder(folder)
    train, held = read_corpus()
    text = join(held)
    modules = {}
    for name, source in tqdm(held.items(), desc="held-out modules", unit="module"):
        modules[name] = {
            "bytes": len(source),
            "model": round(bits(model, source) / len(source), 4),
            "xz": round(xz_bits_per_byte(source), 4),
            "lines_also_in_training": round(shared_line_share(train, source), 4),
        }
    whole = bits(model, text) / len(text)
    xz = xz_bits_per_byte(text)
    sample = resources.files("kvlib.reference").joinpath("sample.py.txt").read_bytes()
    results = {
        "python": platform.python_version(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "file_bytes": (folder / "model.safetensors").stat().st_size,
        "train_modules": len(train),
        "train_bytes": sum(map(len, train.values())),
        "held_out_bytes": len(text),
        "modules": modules,
        "concatenated": {
            "model": round(whole, 4),
            "xz": round(xz, 4),
            "below_xz_percent": round(100 * (1 - whole / xz), 2),
        },
        "sample": {
            "bytes": len(sample),
            "model": round(bits(model, sample) / len(sample), 4),
            "xz": round(xz_bits_per_byte(sample), 4),
        },
        "recall_trials": trials,
        "recall": {
            str(d): recall(model, d, trials)
            for d in tqdm((*DISTANCES, 1536), desc="recall", unit="distance")
        },
        "recall_256_by_names": {
            str(n): recall(model, 256, trials, names=n, seed=1) for n in (1, 2, 4, 8, 16)
        },
        "transformers_difference": hugging_face_difference(folder, text[:1500]),
    }
    if drafts_for is not None:
        results |= guesses(drafts_for, folder, held)
    if checkpoint is not None:
        full, state = read_checkpoint(checkpoint)
        results["training"] = {
            "steps": state["step"],
            "minutes": round(state["used"] / 60, 1),
            "bytes_seen": state["bytes_seen"],
            "note": note,
            "log": state["log"],
        }
        results["float32"] = {
            "concatenated": round(bits(full, text) / len(text), 4),
            "recall_256": recall(full, 256, trials),
        }
    return results


def guesses(folder: Path, draft: Path, held: dict[str, bytes]) -> dict:
    """How a draft model fares with the model of a folder."""
    model, small = load_model(folder, xp=np), load_model(draft, xp=np)
    found = {
        name: acceptance(model, small, prompts(held), temperature=temperature)
        for name, temperature in tqdm(SETTINGS.items(), desc="guesses", unit="setting")
    }
    return {
        "reference_parameters": model.num_parameters,
        "acceptance": {"prompt": PROMPT, "new": NEW, "gamma": GAMMA, "settings": found},
        "spot": spot(model, small),
    }


def example_prompt() -> tuple[str, str]:
    """A prompt and answer for the card."""
    prompt, answer = recall_prompt(random.Random(4), 128, 3, lead=40)
    return prompt.decode(), answer.decode()

"""Checkpoint -> the folder that ships: configuration and float16 model.safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from .model import Llama, Shape

LIMIT = 10_000_000  # bytes; the wheel carries this file


def hf_config(shape: Shape) -> dict:
    """``config.json`` as Hugging Face's LlamaConfig reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **asdict(shape),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float16",
    }


def write_folder(folder: Path, shape: Shape, weights: Mapping[str, torch.Tensor]) -> int:
    """Write config.json, tokenizer_config.json and model.safetensors; returns the latter's size.

    Raises:
        ValueError: a weight is not finite in float16, or the file would exceed ``LIMIT`` bytes.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, value in weights.items():
        half = value.detach().to(torch.float16)
        if not torch.isfinite(half).all():
            raise ValueError(f"{name}: not finite in float16 (largest {value.abs().max():.3g})")
        arrays[name] = half.contiguous().numpy()
    size = sum(a.nbytes for a in arrays.values())
    if size >= LIMIT:
        raise ValueError(f"weights take {size} bytes in float16; the limit is {LIMIT}")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "model.safetensors.part"
    save_file(arrays, part, metadata={"format": "pt"})
    part.chmod(0o644)
    os.replace(part, folder / "model.safetensors")
    tokenizer = {"tokenizer_class": "ByteTokenizer", "bos_token_id": 0, "eos_token_id": 0}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(tokenizer, indent=2) + "\n", encoding="utf-8"
    )
    (folder / "config.json").write_text(
        json.dumps(hf_config(shape), indent=2) + "\n", encoding="utf-8"
    )
    return (folder / "model.safetensors").stat().st_size


def read_shape(folder: Path) -> Shape:
    """The sizes in a folder's config.json."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Shape(**{f.name: config[f.name] for f in fields(Shape)})


def read_folder(folder: Path) -> Llama:
    """The shipped model, its weights widened to float32."""
    model = Llama(read_shape(folder))
    arrays = load_file(folder / "model.safetensors")
    model.load_state_dict({n: torch.from_numpy(a).float() for n, a in arrays.items()})
    return model.eval()


def read_checkpoint(path: Path) -> tuple[Llama, dict]:
    """A training checkpoint's model (float32) and its other fields."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = Llama(Shape(**state["shape"]))
    model.load_state_dict(state.pop("model"))
    state.pop("opts")
    return model.eval(), state

"""Compare prefill and decode in kvlib with transformers and llama.cpp, each in its own process.

A Llama of 100 M random float32 weights is written once, as a safetensors checkpoint and as a GGUF
file, and each program reads it. Their logits are compared before anything is timed. The programs
take turns, with a second of rest between them, because threads of BLAS go on spinning for a while.

The peers may live in another environment, and one that is not installed is left out:

    python benchmarks/side_by_side.py [--peers ../peers/bin/python] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # checkpoint_files

NAMES = ("kvlib", "transformers", "llama.cpp")
PREFILL, CONTEXT = 512, 128  # tokens of the prompts before which, and after which, is timed
REST = 1.0  # seconds
TOLERANCE = 1e-3  # of logits, all of the same size as their differences
SHAPE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
# Hugging Face's name in a layer → GGUF's
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """What GGUF calls a weight of a Llama."""
    if not name.startswith("model.layers."):
        whole = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm"}
        return whole[name] + ".weight"
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[part.removesuffix('.weight')]}.weight"


def interleaved(x: Any, heads: int) -> Any:
    """Rows of q or k as llama.cpp wants them: both numbers that RoPE turns together side by side.

    x (heads · D, hidden), where row i of a head is turned with row i + D/2
    """
    return x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def write(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Draw the weights and write them as a checkpoint of Hugging Face's; returns them."""
    import numpy as np
    from checkpoint_files import save_safetensors

    from kvlib.model.checkpoint import sources
    from kvlib.model.config import ModelConfig

    rng, found = np.random.default_rng(0), {}
    for parts in sources(ModelConfig.from_dict(config)).values():
        for source in parts:
            x = rng.standard_normal(source.shape, dtype=np.float32)
            found[f"model.{source.name}"] = 0.02 * x if x.ndim == 2 else 1.0 + 0.02 * x
    save_safetensors(folder / "model.safetensors", found, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return found


def write_gguf(folder: Path) -> None:
    """Write the checkpoint in `folder` as a GGUF file of float32, with a vocabulary of no words."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    out = gguf.GGUFWriter(folder / "model.gguf", "llama")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    for name, x in load_file(folder / "model.safetensors").items():
        for part, count in heads.items():
            if f"self_attn.{part}_proj" in name:
                x = interleaved(x, count)
        out.add_tensor(gguf_name(name), x)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


# One program per process ------------------------------------------------------------------------

Prefill = Callable[[list[int]], Any]  # forget everything, run a prompt, give its last logits
Decode = Callable[[int, int], None]  # at a context of so many tokens, run one token more


def start_kvlib(folder: Path, threads: int) -> tuple[Prefill, Decode]:
    from kvlib import load_model

    model = load_model(folder)
    cache = model.new_cache(1, PREFILL + 8)
    cache.add(0)

    def prefill(ids: list[int]) -> Any:
        cache.truncate(0, 0)
        return model.forward(ids, cache, cache.plan([0], [len(ids)]))[0]

    def decode(token: int, context: int) -> None:
        cache.truncate(0, context)
        model.forward([token], cache, cache.plan([0], [1]))

    return prefill, decode


def start_transformers(folder: Path, threads: int) -> tuple[Prefill, Decode]:
    import torch
    from transformers import DynamicCache, LlamaForCausalLM

    torch.set_num_threads(threads)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    state: dict[str, Any] = {}

    def prefill(ids: list[int]) -> Any:
        state["cache"] = DynamicCache(config=model.config)
        with torch.inference_mode():
            x, cache = torch.tensor([ids]), state["cache"]
            out = model(x, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[0, -1].numpy()

    def decode(token: int, context: int) -> None:
        cache = state["cache"]
        if extra := cache.get_seq_length() - context:
            cache.crop(-extra)
        with torch.inference_mode():
            model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)

    return prefill, decode


def start_llama(folder: Path, threads: int) -> tuple[Prefill, Decode]:
    import numpy as np
    from llama_cpp import Llama

    if not (folder / "model.gguf").exists():
        write_gguf(folder)
    model = Llama(
        str(folder / "model.gguf"),
        n_ctx=PREFILL + 8,
        n_batch=PREFILL,
        n_ubatch=PREFILL,
        n_threads=threads,
        n_threads_batch=threads,
        type_k=0,  # float32, as in the others
        type_v=0,
        verbose=False,
    )

    def prefill(ids: list[int]) -> Any:
        model.reset()
        model.eval(ids)
        size = model.n_vocab()
        return np.ctypeslib.as_array(model._ctx.get_logits(), (size,)).copy()

    def decode(token: int, context: int) -> None:
        model.n_tokens = context  # `eval` removes what comes after these from the cache
        model.eval([token])

    return prefill, decode


STARTS = {"kvlib": start_kvlib, "transformers": start_transformers, "llama.cpp": start_llama}


def work(name: str, folder: Path, threads: int) -> None:
    """Answer requests on stdin, a line each, until it ends: what a process of one program does."""
    import numpy as np

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    ids = np.random.default_rng(1).integers(0, SHAPE["vocab_size"], PREFILL).tolist()
    try:
        prefill, decode = STARTS[name](folder, threads)
    except ImportError as missing:
        print(json.dumps({"missing": str(missing)}), file=answers, flush=True)
        return
    print(json.dumps({"versions": harness.machine()}), file=answers, flush=True)
    for line in sys.stdin:
        kind, count = line.split()
        reply: Any = []
        if kind == "logits":
            np.save(folder / f"{name}.npy", prefill(ids))
        if kind == "decode":
            prefill(ids[:CONTEXT])
        for _ in range(int(count)):
            start = time.perf_counter()
            prefill(ids) if kind == "prefill" else decode(ids[CONTEXT], CONTEXT)
            reply.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(reply), file=answers, flush=True)


# The process that asks --------------------------------------------------------------------------


class Worker:
    """A process of one program."""

    def __init__(self, name: str, python: str, folder: Path, threads: int) -> None:
        command = [python, __file__, "--work", name, "--folder", str(folder)]
        command += ["--threads", str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
        self.about: dict[str, Any] = self.read()

    def ask(self, kind: str, count: int = 0) -> list[float]:
        """Milliseconds of so many calls."""
        assert self.process.stdin is not None
        print(kind, count, file=self.process.stdin, flush=True)
        return self.read()

    def read(self) -> Any:
        """One answer; RuntimeError if the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with status {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def ratios(row: dict[str, Any]) -> dict[str, float]:
    """How many times as fast as each peer kvlib is, by the medians of one run."""
    own = row["kvlib"]["median_ms"]
    return {n: row[n]["median_ms"] / own for n in NAMES[1:] if n in row}


def order(names: list[str], turn: int) -> list[str]:
    """Whose turn comes first: in the opposite order every second time."""
    return names if turn % 2 == 0 else names[::-1]


def in_turns(workers: dict[str, Worker], kind: str, count: int, rounds: int, bar: Any) -> Any:
    """Medians of each program; the first quarter of each block of calls is dropped."""
    times: dict[str, list[float]] = {name: [] for name in workers}
    for turn in range(rounds):
        for name in order(list(workers), turn):
            time.sleep(REST)
            times[name] += workers[name].ask(kind, count)[-(-count // 4) :]
            bar.update()
    row = {"tokens": PREFILL if kind == "prefill" else CONTEXT}
    row |= {name: harness.summary(found) for name, found in times.items()}
    return row | {"times_as_fast_as": ratios(row)}


def differences(folder: Path, names: list[str]) -> dict[str, float]:
    """The largest difference of any logit from kvlib's; ValueError if it is no rounding."""
    import numpy as np

    own, found = np.load(folder / "kvlib.npy"), {}
    for name in names:
        if name != "kvlib":
            found[name] = float(np.abs(np.load(folder / f"{name}.npy") - own).max())
            if not found[name] <= TOLERANCE:
                raise ValueError(f"logits of {name} differ from kvlib's by {found[name]:.2g}")
    return found


def measure(python: str, threads: int, rounds: int) -> dict[str, Any]:
    """All figures of one run."""
    from tqdm import tqdm

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = write(folder, SHAPE)
        pythons = {name: sys.executable if name == "kvlib" else python for name in NAMES}
        started = {n: Worker(n, pythons[n], folder, threads) for n in NAMES}
        workers = {n: worker for n, worker in started.items() if "missing" not in worker.about}
        missing = {n: w.about["missing"] for n, w in started.items() if n not in workers}
        for name, why in missing.items():
            print(f"{name} is left out: {why}", file=sys.stderr)
        for worker in workers.values():
            worker.ask("logits")
        out: dict[str, Any] = {"parameters": sum(int(x.size) for x in weights.values())}
        out |= {"missing": missing, "logits_differ_by": differences(folder, list(workers))}
        out["programs"] = {n: w.about["versions"] for n, w in workers.items()}
        with tqdm(total=2 * rounds * len(workers), unit="block") as bar:
            for kind, count in (("prefill", 4), ("decode", 16)):
                out[kind] = in_turns(workers, kind, count, rounds, bar)
                bar.write(line(kind, out[kind]))
        for worker in started.values():
            worker.close()
        return out


def line(kind: str, row: dict[str, Any]) -> str:
    """One row for a reader."""
    text = [f"{n} {row[n]['median_ms']:.2f} ms" for n in NAMES if n in row]
    text += [f"{x:.2f} times as fast as {n}" for n, x in row["times_as_fast_as"].items()]
    return f"{kind} at {row['tokens']}: " + ", ".join(text)


def main() -> None:
    parser = harness.parser(__doc__, "side_by_side", threads=2)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each program (default: 6)")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    parser.add_argument("--work", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    harness.limit_threads(args.threads)
    if args.work:
        work(args.work, args.folder, args.threads)
        return
    results = measure(args.peers, args.threads, args.rounds)
    harness.save("side_by_side", {"threads": args.threads, **results}, args.json)


if __name__ == "__main__":
    main()

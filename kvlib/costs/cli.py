"""``python -m kvlib``: what a model costs on a GPU, from the command line. Needs no NumPy."""

import argparse
import json
import os
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Any, NoReturn

from kvlib.commands import add_version
from kvlib.config import words
from kvlib.config.words import printable, shown
from kvlib.costs.bill import fit
from kvlib.costs.catalogue import CODECS, GPUS
from kvlib.costs.explain import explain
from kvlib.costs.spec import MODELS, RESERVES, ModelSpec
from kvlib.errors import CheckpointError

EXAMPLES = """\
examples:
  python -m kvlib fit --model llama-3.1-8b --gpu h100-sxm --batch 8 --context 32k --kv int8
  python -m kvlib fit --model llama-3.1-70b --gpu h200-sxm --gpus 2 --context 128k --json
  python -m kvlib fit --config path/to/config.json --gpu l4 --context 4096 --block-size 16
  python -m kvlib fit --model gemma-3-27b --gpu h100-sxm --context 128k --reserve vllm --step 2k
  python -m kvlib fit --model llama-3.1-8b --gpu l4 --batch 16 --context 8k --budget 1024
  python -m kvlib fit --explain path/to/config.json
  python -m kvlib models
  python -m kvlib gpus

fit prints one result for each assumption about what else takes memory. It exits with 0 if the model
fits under all of them, with 1 if it does not, and with 2 if the input is wrong.
"""


MOST = 1_000  # characters of an error
DIGITS = 1_000  # of a number of tokens, as it is typed


class Parser(argparse.ArgumentParser):
    """argparse, but an error message is one printable line, and no essay."""

    def error(self, message: str) -> NoReturn:
        one_line = printable(" ".join(message[:MOST].split()))
        self.exit(2, f"{self.prog}: {one_line}{'...' * (len(message) > MOST)}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; an error exits with 2 and a line on stderr."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command != "fit":
        print(models_table() if args.command == "models" else gpus_table())
        return 0
    command: Parser = args.parser
    try:
        return _fit(args)
    except (ValueError, TypeError) as error:
        command.error(str(error))
    except (BrokenPipeError, ImportError):  # kvlib.commands.run knows what to do
        raise
    except Exception as error:
        command.error(f"{type(error).__name__}: {error}")


def whole(text: str) -> int:
    """Return a whole number. Raises argparse.ArgumentTypeError for anything else."""
    try:
        return int(text)
    except ValueError:  # also for more digits than Python reads
        raise argparse.ArgumentTypeError(f"got {shown(text)}, expected a whole number") from None


def tokens(text: str) -> int:
    """A number of tokens, such as 4096, 4_096 or 4,096; 32k is 32 x 1024 and 1m is 1024 x 1024."""
    match = re.fullmatch(r"(\d+|\d{1,3}(?:[,_]\d{3})+)([km]?)", text.strip().lower())
    if not match or len(text) > DIGITS:
        raise argparse.ArgumentTypeError(
            f"got {shown(text)}, expected a whole number of tokens, such as 4096 or 32k (32,768)"
        )
    number = int(re.sub("[,_]", "", match[1]))
    return number * {"": 1, "k": 2**10, "m": 2**20}[match[2]]


def _parser() -> Parser:
    ends: Any = dict(epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "Compute how much GPU memory a language model and its KV cache take."
    parser = Parser(prog="python -m kvlib", description=about, **ends)
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="fit | models | gpus")
    text = "say whether a model fits, how long contexts may be, and how fast it can decode"
    command = commands.add_parser("fit", help=text, **ends)
    command.set_defaults(parser=command)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="NAME", help="the model, by a name that `models` lists")
    text = "the model, by its Hugging Face config.json"
    source.add_argument("--config", metavar="PATH", help=text)
    text = "a config.json: print which of its keys lead to which number of weights and bytes"
    source.add_argument("--explain", metavar="FILE", help=text)
    names, rules = ", ".join(CODECS), "; ".join(f"{n!r} ({words})" for n, words in RESERVES.items())

    def add(flag: str, metavar: str, help: str, **more: Any) -> None:
        command.add_argument(flag, metavar=metavar, help=help, **more)

    text = "a key of the config to ignore (may be repeated): quantization_config, to count the "
    text += "weights as they were before quantisation"
    add("--without", "KEY", text, action="append", default=[])
    text = "count the layers of a --config that draft tokens, too (multi-token prediction)"
    command.add_argument("--drafts", action="store_true", help=text)
    add("--gpu", "NAME", "the GPU, by a name that `gpus` lists")
    text = "number of GPUs that share the model by tensor parallelism (default: 1)"
    add("--gpus", "N", text, type=whole, default=1)
    add("--batch", "N", "number of requests (default: 1)", type=whole, default=1)
    text = "tokens per request; 32k is 32 x 1024 = 32,768 (default: the limit of the model)"
    add("--context", "TOKENS", text, type=tokens)
    text = f"type of keys and values, one of {names} (default: what the files of a quantised model "
    add("--kv", "DTYPE", text + "say, or bfloat16)")
    text = "type of the weights, one of the same names; their scales are not counted (default: as "
    text += "the files of a quantised model say, with their scales, or bfloat16)"
    add("--weights", "DTYPE", text)
    add("--block-size", "TOKENS", "allocate the cache in blocks of this many tokens", type=tokens)
    text = f"what a layer with a window holds, one of these names: {rules} (default: needed)"
    add("--reserve", "NAME", text, default="needed")
    text = "new tokens of a step, which a layer holds beside its window or budget: 1 while "
    text += "decoding, the size of a chunk while reading prompts (default: 1)"
    add("--step", "TOKENS", text, type=tokens, default=1)
    text = "tokens that eviction leaves in each layer without a window (default: no eviction); one "
    text += "number, or one for each layer that stores keys"
    add("--budget", "TOKENS", text, type=tokens, nargs="+")
    command.add_argument("--json", action="store_true", help="print JSON; the keys name the units")
    commands.add_parser("models", help="list the models that kvlib knows")
    commands.add_parser("gpus", help="list the GPUs that kvlib knows")
    return parser


def _fit(args: argparse.Namespace) -> int:
    for plugin in entry_points(group="kvlib"):  # packages that register families and codecs
        plugin.load()()
    if args.drafts and args.config is None:
        args.parser.error("argument --drafts: use it only together with --config")
    if args.explain is not None:
        print(_advising(explain, args.explain, args.without))
        return 0
    if args.gpu is None:
        args.parser.error("the following arguments are required: --gpu")
    if args.model is not None:
        if args.without:
            args.parser.error("argument --without: use it only together with --config")
        if args.model not in MODELS and os.path.exists(args.model):
            args.parser.error(f"argument --model: {shown(args.model)} is a path; use --config")
        model = MODELS[args.model]
    else:
        read = partial(ModelSpec.from_config, drafts=args.drafts)
        model = _advising(read, args.config, args.without)
    result = fit(
        model,
        args.gpu,
        args.batch,
        model.max_context if args.context is None else args.context,
        kv_dtype=args.kv,
        weight_dtype=args.weights,
        gpus=args.gpus,
        block_size=args.block_size,
        reserve=args.reserve,
        step=args.step,
        budget=args.budget[0] if args.budget and len(args.budget) == 1 else args.budget,
    )
    print(json.dumps(result.to_dict(), indent=2) if args.json else result)
    return 0 if result.fits else 1


def _advising(read: Callable[..., Any], path: str, without: Sequence[str]) -> Any:
    """Return what `read` returns; its error advises the option instead of the argument."""
    try:
        return read(path, without=without)
    except CheckpointError as error:
        if error.without is None:
            raise
        option = f"--without {shlex.quote(error.without)}"
        raise CheckpointError(str(error).replace(words.without(error.without), option)) from None


def models_table() -> str:
    """Return one line per model."""
    names = ("model", "parameters", "layers", "q/kv heads", "window", "KV B/token", "state")
    rows = [(*names, "context")]
    for key, m in MODELS.items():
        storing = [g for g in m.layers if not g.state]
        shown = " + ".join(f"{w:,}" if w else "all" for w in sorted({g.window for g in storing}))
        first, state = storing[0], f"{m.state_bytes:.1f MB}" if m.state_bytes else ""
        heads = f"{first.num_qo_heads}/" + ("latent" if first.latent else str(first.num_kv_heads))
        layers = str(m.shape.num_hidden_layers)
        per_token, context = f"{m.kv_bytes_per_token().value:,}", f"{m.max_context:,}"
        rows.append((key, f"{m.num_parameters:,}", layers, heads, shown, per_token, state, context))
    note = "KV B/token: bytes of keys and values per token in bfloat16, while no window is full.\n"
    note += "state: bytes of a request that do not depend on its length."
    return _table(rows) + "\n\n" + note


def gpus_table() -> str:
    """Return one line per GPU; a question mark follows a figure that no public text confirms."""
    names = ("GPU", "memory", "usable", "bandwidth", "bf16", "fp8", "ridge bf16")
    rows: list[Sequence[str]] = [names]
    for key, g in GPUS.items():
        cells = {
            "memory": f"{g.memory:.0f GB}",
            "usable": f"{g.usable:.2f GiB}",
            "bandwidth": f"{g.bandwidth:,.0f GB/s}",
            "bf16": f"{g.bf16.TFLOP_per_s:,.5g} TFLOP/s",
            "fp8": f"{g.fp8.TFLOP_per_s:,.5g} TFLOP/s" if g.fp8 else "none",
        }
        marked = (text + " ?" * (not g.value(n).confirmed) for n, text in cells.items())
        rows.append((key, *marked, f"{g.ridge():.0f}"))
    note = "Rates of dense operations, by the makers' figures; ?: no public text confirms it."
    return _table(rows) + "\n\n" + note


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)

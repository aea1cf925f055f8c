"""Train, measure and export the reference model.

    python tools/train_reference.py train --out build/reference --minutes 90
    python tools/train_reference.py train --out build/reference --minutes 60 \\
        --resume build/reference/last.pt
    python tools/train_reference.py export --checkpoint build/reference/last.pt
    python tools/train_reference.py evaluate
    python tools/train_reference.py draft --out build/draft --minutes 60

``draft`` does all of this for the draft model, which guesses what the reference model writes.
Needs PyTorch, NumPy and tqdm; ``evaluate`` also checks against Hugging Face transformers.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

REFERENCE = ROOT / "kvlib" / "reference"
DRAFT_SIZES = dict(hidden=128, layers=2, intermediate=256)


def seconds_until(clock: str, now: datetime | None = None) -> float:
    """Seconds from now to the next ``HH:MM``."""
    now = datetime.now() if now is None else now
    hour, minute = (int(part) for part in clock.split(":"))
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (
        (then - now).total_seconds()
        if then > now
        else (then + timedelta(days=1) - now).total_seconds()
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sub = top.add_subparsers(dest="command", required=True)
    training_options(sub.add_parser("train", help="train, or continue from a checkpoint"))
    d = sub.add_parser("draft", help="train, export and measure the draft model")
    training_options(d)
    d.set_defaults(drafts_for=REFERENCE, **DRAFT_SIZES)
    d.add_argument("--trials", type=int, default=200, help="recall prompts per distance")
    e = sub.add_parser("export", help="write config.json and float16 weights from a checkpoint")
    e.add_argument("--checkpoint", type=Path, required=True)
    v = sub.add_parser(
        "evaluate", help="measure the model of a folder; write results.json and MODEL_CARD.md"
    )
    v.add_argument("--checkpoint", type=Path, help="also compare with these float32 weights")
    v.add_argument("--trials", type=int, default=200, help="recall prompts per distance")
    v.add_argument(
        "--drafts-for", type=Path, help="folder of the model that this draft model guesses for"
    )
    for command in (v, d):
        command.add_argument("--note", default="", help="how these weights were made, for the card")
    for command, folder in ((e, REFERENCE), (v, REFERENCE), (d, REFERENCE / "draft")):
        command.add_argument("--folder", type=Path, default=folder)
    for command in (e, v):
        command.add_argument("--threads", type=int, default=2)
    return top


def training_options(t: argparse.ArgumentParser) -> None:
    t.add_argument("--out", type=Path, required=True, help="folder for checkpoints")
    t.add_argument("--resume", type=Path, help="checkpoint to continue from")
    ends = t.add_mutually_exclusive_group(required=True)
    ends.add_argument(
        "--until", help="clock time HH:MM at which the decay of the learning rate ends"
    )
    ends.add_argument("--minutes", type=float, help="length of this session")
    ends.add_argument("--steps", type=int, help="steps of this session (exactly repeatable)")
    t.add_argument("--seed", type=int, default=0)
    t.add_argument("--hidden", type=int, default=256)
    t.add_argument("--layers", type=int, default=5)
    t.add_argument("--intermediate", type=int, default=640)
    t.add_argument("--tokens", type=int, default=4096, help="bytes per step")
    t.add_argument("--lr", type=float, default=0.02, help="peak learning rate of Muon")
    t.add_argument("--adam-lr", type=float, default=6e-3)
    t.add_argument("--stage", type=int, default=0, help="first stage of the curriculum")
    t.add_argument(
        "--long-from", type=float, default=0.82, help="share of the schedule before 2,048-byte rows"
    )
    t.add_argument("--threads", type=int, default=2)
    t.add_argument("--log-every", type=int, default=200)
    t.add_argument("--no-compile", action="store_true")
    t.add_argument("--init", type=Path, help="folder with weights to start from")


def row_lengths(stage: int, long_from: float) -> tuple[tuple[float, int], ...]:
    """``(share of the schedule at which it ends, bytes a row)``: attention is dear in long rows."""
    short = ((0.3, 256),) if stage == 0 else ()
    return (*short, (long_from, 512), (1.0, 2048))


def run_train(args: argparse.Namespace) -> None:
    from reference.model import Shape
    from reference.training import Plan, train

    seconds = seconds_until(args.until) if args.until else 60 * (args.minutes or 0)
    plan = Plan(
        out=args.out,
        steps=args.steps or 0,
        seconds=seconds,
        seed=args.seed,
        tokens=args.tokens,
        lr=args.lr,
        adam_lr=args.adam_lr,
        start_stage=args.stage,
        threads=args.threads,
        log_every=args.log_every,
        compile=not args.no_compile,
        lengths=row_lengths(args.stage, args.long_from),
    )
    shape = Shape(
        hidden_size=args.hidden, num_hidden_layers=args.layers, intermediate_size=args.intermediate
    )
    train(plan, shape, args.resume, args.init)


def run_export(args: argparse.Namespace) -> None:
    from reference.export import read_checkpoint, write_folder

    model, _ = read_checkpoint(args.checkpoint)
    size = write_folder(args.folder, model.shape, model.state_dict())
    print(f"{args.folder / 'model.safetensors'}: {size:,} bytes")


def run_evaluate(args: argparse.Namespace) -> None:
    import torch
    from reference.card import model_card
    from reference.card_draft import draft_card
    from reference.evaluate import evaluate
    from reference.export import read_shape

    torch.set_num_threads(args.threads)
    results = evaluate(args.folder, args.checkpoint, args.trials, args.note, args.drafts_for)
    card = model_card if args.drafts_for is None else draft_card
    (args.folder / "results.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )
    (args.folder / "MODEL_CARD.md").write_text(
        card(read_shape(args.folder), results), encoding="utf-8"
    )
    shown = ("concatenated", "recall" if args.drafts_for is None else "acceptance")
    print(json.dumps({k: results[k] for k in shown}, indent=1))


def run_draft(args: argparse.Namespace) -> None:
    run_train(args)
    args.checkpoint = args.out / "last.pt"
    run_export(args)
    run_evaluate(args)


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    run = {"train": run_train, "export": run_export, "evaluate": run_evaluate, "draft": run_draft}
    run[args.command](args)


if __name__ == "__main__":
    main()

"""The training loop: resumable, seeded, warm-up, then constant, then a linear decay."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from kvlib.reference.recall import VALUE_LENGTH

from .corpus import join, read_corpus
from .export import read_folder, read_shape
from .measure import DISTANCES, bits, recall
from .model import Llama, Shape
from .optimiser import optimisers
from .rows import STAGES, Rows


@dataclass(frozen=True)
class Plan:
    """One run. The schedule follows steps if ``steps`` is set, else the clock."""

    out: Path
    steps: int = 0
    seconds: float = 0.0
    seed: int = 0
    tokens: int = 4096  # bytes per step
    # (share of the schedule at which it ends, bytes per row): attention is dear in long rows.
    lengths: tuple[tuple[float, int], ...] = ((0.3, 256), (0.82, 512), (1.0, 2048))
    decay_share: float = 0.25
    warmup: int = 60
    lr: float = 0.02
    adam_lr: float = 4e-3
    threads: int = 2
    log_every: int = 200
    save_seconds: float = 180.0
    compile: bool = True
    start_stage: int = 0
    recall_only: bool = False


class Run:
    """State of a run: model, optimisers, step, stage, running accuracy, schedule used up."""

    def __init__(self, plan: Plan, shape: Shape) -> None:
        torch.manual_seed(plan.seed)
        self.plan, self.shape = plan, shape
        self.model = Llama(shape, plan.seed)
        self.opts = optimisers(self.model, plan.lr, plan.adam_lr)
        self.step, self.stage, self.accuracy = 0, plan.start_stage, 0.0
        self.used = 0.0  # seconds trained, over all sittings
        self.bytes_seen = 0
        self.by_byte = [0.0] * VALUE_LENGTH  # accuracy at an answer's first, second ... byte
        self.log: list[dict] = []

    def state(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "opts": [o.state_dict() for o in self.opts],
            "shape": asdict(self.shape),
            "step": self.step,
            "stage": self.stage,
            "accuracy": self.accuracy,
            "used": self.used,
            "bytes_seen": self.bytes_seen,
            "log": self.log,
        }

    def save(self, name: str) -> None:
        """Write a checkpoint whole or not at all."""
        path = self.plan.out / name
        torch.save(self.state(), path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        for opt, saved in zip(self.opts, state["opts"], strict=True):
            opt.load_state_dict(saved)
        self.step, self.stage = state["step"], max(state["stage"], self.plan.start_stage)
        self.accuracy, self.used = state["accuracy"], state["used"]
        self.bytes_seen, self.log = state["bytes_seen"], state["log"]


def learning_rate(plan: Plan, since: int, progress: float) -> float:
    """Factor on the peak rate: ``since`` steps into the sitting, ``progress`` in 0..1."""
    warm = min(1.0, (since + 1) / plan.warmup)
    return warm * min(1.0, max(0.0, 1.0 - progress) / plan.decay_share)


def train(plan: Plan, shape: Shape, resume: Path | None = None, init: Path | None = None) -> Run:
    """Train until the schedule ends; writes ``last.pt`` and, before the decay, ``stable.pt``."""
    torch.set_num_threads(plan.threads)
    plan.out.mkdir(parents=True, exist_ok=True)
    modules, held = read_corpus()
    rows, held_text = Rows(join(modules), plan.seed), join(held)
    if init is not None:
        shape = read_shape(init)
    run = Run(plan, shape)
    if init is not None:
        run.model.load_state_dict(read_folder(init).state_dict())
    if resume is not None:
        run.load(resume)
    forward = torch.compile(run.model, dynamic=False) if plan.compile else run.model
    first, began, saved, decaying = run.step, time.monotonic(), time.monotonic(), False
    used_before = run.used
    bar = tqdm(total=plan.steps or None, initial=0, unit="step", mininterval=5.0)
    while True:
        elapsed = time.monotonic() - began
        since = run.step - first
        progress = since / plan.steps if plan.steps else elapsed / plan.seconds
        if progress >= 1.0:
            break
        if progress >= 1 - plan.decay_share and not decaying:
            decaying = True
            run.save("stable.pt")
        factor = learning_rate(plan, since, progress)
        for opt, peak in zip(run.opts, (plan.lr, plan.adam_lr), strict=True):
            opt.param_groups[0]["lr"] = peak * factor
        length = next(size for end, size in plan.lengths if progress < end)
        loss, code_loss = one_step(run, forward, rows, length)
        run.used = used_before + time.monotonic() - began
        bar.update(1)
        bar.set_postfix(
            loss=f"{loss:.3f}",
            code=f"{code_loss / math.log(2):.2f}b",
            recall=f"{run.accuracy:.2f}",
            stage=run.stage,
            refresh=False,
        )
        if run.step % plan.log_every == 0:
            report(run, held_text, bar)
        if time.monotonic() - saved > plan.save_seconds:
            run.save("last.pt")
            saved = time.monotonic()
    bar.close()
    report(run, held_text, bar)
    run.save("last.pt")
    return run


def one_step(run: Run, forward, rows: Rows, length: int) -> tuple[float, float]:
    """One update; moves the curriculum on when the running accuracy allows it."""
    count = max(1, run.plan.tokens // length)
    tokens, weights, answers = rows.batch(run.step, run.stage, count, length)
    x = torch.from_numpy(tokens).long()
    w, marked = torch.from_numpy(weights), torch.from_numpy(answers)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = forward(x[:, :-1])
    target = x[:, 1:]
    each = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
    loss = (each * w.flatten()).sum() / w.sum()
    loss.backward()
    for opt in run.opts:
        opt.step()
    for opt in run.opts:
        opt.zero_grad(set_to_none=True)
    run.step += 1
    run.bytes_seen += count * length
    if marked.any():
        right = logits.argmax(-1) == target
        # Which byte of its answer: the number of marked bytes right before it.
        place, before = torch.zeros_like(target), marked
        for _ in range(VALUE_LENGTH - 1):
            before = F.pad(before[:, :-1], (1, 0)) & marked
            place += before
        for byte in range(VALUE_LENGTH):
            chosen = marked & (place == byte)
            if chosen.any():
                now = right[chosen].float().mean().item()
                run.by_byte[byte] += 0.05 * (now - run.by_byte[byte])
        run.accuracy = run.by_byte[0]
    if run.accuracy >= STAGES[run.stage].advance_at:
        run.stage, run.by_byte[0] = run.stage + 1, 0.0
    code = (w == 1.0).all(dim=1)
    code_loss = each.view_as(w)[code].mean().item() if code.any() else math.nan
    return loss.item(), code_loss


def report(run: Run, held_text: bytes, bar: tqdm) -> None:
    """Measure on held-out text and prompts; one JSON line on the log."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        start = len(held_text) // 3
        lines = [line for line in held_text.splitlines(True) if line.strip(b"\0\n ")]
        sample = held_text[start : start + 16_000]
        line = {
            "step": run.step,
            "minutes": round(run.used / 60, 1),
            "megabytes": round(run.bytes_seen / 1e6, 2),
            "stage": run.stage,
            "held_out_bits": round(bits(run.model, sample, 1024, 512) / len(sample), 4),
            "answer_bytes": [round(a, 2) for a in run.by_byte],
            "recall": {d: recall(run.model, d, 16, filler=lines, seed=run.step) for d in DISTANCES},
        }
    run.log.append(line)
    bar.write(json.dumps(line))

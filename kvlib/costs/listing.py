"""Models and GPUs of the catalogue as text: ``python -m kvlib models`` and ``gpus``."""

from __future__ import annotations

from collections.abc import Sequence

from kvlib.costs.catalogue import GPUS, MODELS


def models_table() -> str:
    """One line per model."""
    rows = [("model", "parameters", "layers", "q/kv heads", "window", "KV B/token", "context")]
    for key, m in MODELS.items():
        windows = sorted({g.window for g in m.layers})
        shown = " + ".join(f"{w:,}" if w else "all" for w in windows)
        first = m.layers[0]
        heads = f"{first.num_qo_heads}/" + ("latent" if first.latent else str(first.num_kv_heads))
        layers = str(sum(g.count for g in m.layers))
        per_token = f"{m.kv_bytes_per_token().value:,}"
        size = f"{m.num_parameters:,}"
        rows.append((key, size, layers, heads, shown, per_token, f"{m.max_context:,}"))
    note = "KV B/token: bytes of keys and values per token in bfloat16, while no window is full."
    return _table(rows) + "\n\n" + note


def gpus_table() -> str:
    """One line per GPU; a question mark follows a figure that no public text confirms."""
    rows = [("GPU", "memory", "usable", "bandwidth", "bf16", "fp8", "ridge bf16")]
    for key, g in GPUS.items():

        def cell(name: str, text: str, gpu: object = g) -> str:
            return text if gpu.value(name).confirmed else f"{text} ?"  # type: ignore[attr-defined]

        rows.append(
            (
                key,
                cell("memory", f"{g.memory:.0f GB}"),
                cell("usable", f"{g.usable:.2f GiB}"),
                cell("bandwidth", f"{g.bandwidth:,.0f GB/s}"),
                cell("bf16", f"{g.bf16.TFLOP_per_s:,.5g} TFLOP/s"),
                cell("fp8", f"{g.fp8.TFLOP_per_s:,.5g} TFLOP/s" if g.fp8 else "none"),
                f"{g.ridge():.0f}",
            )
        )
    note = "Rates of dense operations, by the makers' figures; ?: no public text confirms it."
    return _table(rows) + "\n\n" + note


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)

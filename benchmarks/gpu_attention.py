"""Decode and prefill attention on a graphics card, beside PyTorch on the same arrays.

8 kv heads of 128, four query heads each, bfloat16. Times of decode are of launches made beforehand
(plan, then run), so that a burst of them keeps the device busy; `share` is bytes of keys and values
over time, over the copy bandwidth measured in the same run. Results: benchmarks/results/.

    python benchmarks/gpu_attention.py [--quick]
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import on_device

HEADS, GROUPS, DIM, BLOCK = 8, 4, 128, 16
CASES = ((8, 32_768), (1, 65_536), (8, 65_536), (32, 8_192), (64, 4_096))  # as they matter
QUICK = CASES[:2]
PROMPTS = (1_024, 4_096, 16_384)


def bits(cp: Any, rng: Any, shape: tuple[int, ...]) -> Any:
    """Normal numbers as bfloat16 bits."""
    x = rng.standard_normal(shape, dtype=cp.float32).view(cp.uint32)
    return ((x + cp.uint32(0x8000)) >> cp.uint32(16)).astype(cp.uint16)


def codes(cp: Any, rng: Any, name: str, batch: int, keys: int) -> tuple[Any, Any]:
    """Keys and values of a codec in blocks, random codes: (Codes, Codes)."""
    from kvlib.codecs import PerChannel, PerToken, fp8
    from kvlib.codecs.int8 import Int8
    from kvlib.kernels.codes import Codes

    size = 32 if name == "int4" else BLOCK
    n = batch * keys // size
    shape = (n, HEADS, size, DIM // 2 if name == "int4" else DIM)
    made = [rng.integers(0, 256, shape, dtype=cp.uint8) for _ in "kv"]
    if name == "int8":
        scales = [cp.full(shape[:3], 0.01, dtype=cp.float32) for _ in "kv"]
        return tuple(Codes(Int8(), c.view(cp.int8), s) for c, s in zip(made, scales, strict=True))  # type: ignore[return-value]
    if name == "e4m3":
        codec = fp8("e4m3").keys
        return tuple(Codes(codec, c & cp.uint8(0xB7)) for c in made)  # type: ignore[return-value]
    keys_shape, values_shape = (n, HEADS, size // 32, DIM), (n, HEADS, size, DIM // 32)
    fields = [
        (cp.full(s, 0.01, dtype=cp.float16), cp.zeros(s, dtype=cp.float16))
        for s in (keys_shape, values_shape)
    ]
    return Codes(PerChannel(4, 32), made[0], *fields[0]), Codes(
        PerToken(4, 32), made[1], *fields[1]
    )


def nbytes(x: Any) -> int:
    """Bytes of an array, or of the arrays of Codes."""
    return (
        int(x.nbytes)
        if hasattr(x, "nbytes")
        else sum(int(a.nbytes) for a in x[1:] if a is not None)
    )


class Decode(on_device.Launches):
    """One way to store keys, `sets` times over, with the launches that attend to each."""

    def __init__(
        self, cp: Any, q: Any, stored: list[tuple[Any, Any, Any]], lens: Any, **choice: Any
    ) -> None:
        from kvlib.kernels.checks import check_settings
        from kvlib.kernels.decode import launches_of, piece_of

        self.bytes = sum(nbytes(x) for x in stored[0][:2])
        settings = check_settings(DIM, None, None, None)
        self.outputs, self.launches = [], []
        for k, v, table in stored:
            piece = piece_of(
                q, k, v, lens, table, settings, lens=lens.tolist(), run_on="device", **choice
            )
            o, lse = cp.empty_like(q), cp.empty(q.shape[:2], dtype=cp.float32)
            self.outputs.append(o)
            self.launches.append(launches_of(o, lse, q, [piece], settings))
        self.splits = max(piece.plan.splits)


def decode_case(cp: Any, batch: int, keys: int, bandwidth: float) -> dict[str, Any]:
    """Every way to store `keys` keys of `batch` requests."""
    rng = cp.random.default_rng(0)
    q = bits(cp, rng, (batch, HEADS * GROUPS, DIM))
    lens = cp.full(batch, keys, dtype=cp.int32)
    one = 2 * batch * keys * HEADS * DIM * 2
    sets = on_device.sets_for(cp, one)

    def table(size: int) -> Any:
        return cp.asarray(
            np.random.default_rng(1).permutation(batch * keys // size).astype(np.int32)
        ).reshape(batch, -1)

    shape, paged = (batch, HEADS, keys, DIM), (batch * keys // BLOCK, HEADS, BLOCK, DIM)
    rows = [(bits(cp, rng, shape), bits(cp, rng, shape), None) for _ in range(sets)]
    runs: dict[str, Any] = {"dense": Decode(cp, q, rows, lens)}
    runs["without tensor cores"] = Decode(cp, q, rows, lens, tensor=False)
    pages = [(bits(cp, rng, paged), bits(cp, rng, paged), table(BLOCK)) for _ in range(sets)]
    runs["paged, blocks of 16"] = Decode(cp, q, pages, lens)
    for name in ("int8", "e4m3", "int4"):
        made = [(*codes(cp, rng, name, batch, keys), table(32 if name == "int4" else BLOCK))
                for _ in range(sets)]  # fmt: skip
        runs[name] = Decode(cp, q, made, lens)
    torch = on_device.torch_or_none()
    if torch is not None:
        try:
            theirs = _torch(cp, torch, q, rows)
            theirs(0)
            runs["torch"] = theirs
        except RuntimeError as error:  # out of memory, or no kernel for these shapes
            print(f"PyTorch cannot: {str(error).splitlines()[0]}")
    _same(cp, runs)
    found = on_device.alternate(cp, runs, burst=max(4, min(50, int(1e10 // one))))
    splits = {name: run.splits for name, run in runs.items() if isinstance(run, Decode)}
    row: dict[str, Any] = {"batch": batch, "keys": keys, "splits": splits}
    for name, times in found.items():
        moved = getattr(runs[name], "bytes", one)
        times["share"] = moved / (times["median_us"] * 1e-6) / bandwidth
        times["times_dense"] = times["median_us"] / found["dense"]["median_us"]
    return row | {"runs": found}


def _torch(cp: Any, torch: Any, q: Any, rows: list[tuple[Any, Any, Any]]) -> Any:
    """scaled_dot_product_attention over the dense rows themselves."""
    query = on_device.as_torch(torch, cp, q)[:, :, None, :]
    pairs = [[on_device.as_torch(torch, cp, x) for x in (k, v)] for k, v, _ in rows]

    def run(i: int) -> Any:
        k, v = pairs[i % len(pairs)]
        return torch.nn.functional.scaled_dot_product_attention(query, k, v, enable_gqa=True)

    return run


def _same(cp: Any, runs: dict[str, Any]) -> None:
    """Both kernels' outputs are each other's and PyTorch's, to bfloat16; codes give numbers."""
    from kvlib.model.safetensors import widen_bfloat16

    outputs = {}
    for name, run in runs.items():
        out = run(0)
        if isinstance(run, Decode):
            outputs[name] = widen_bfloat16(cp.asnumpy(run.outputs[0]))
        else:
            outputs[name] = out[:, :, 0].float().cpu().numpy()
    for name, out in outputs.items():
        assert np.isfinite(out).all(), f"{name}: not all numbers are finite"
        if name in ("without tensor cores", "torch"):
            np.testing.assert_allclose(out, outputs["dense"], atol=2e-2, err_msg=name)


def prefill_case(cp: Any, tokens: int) -> dict[str, Any]:
    """One prompt, causal, on tensor cores, beside PyTorch's, each as a graph."""
    from kvlib.kernels import prefill_attention

    rng = cp.random.default_rng(2)
    q = bits(cp, rng, (tokens, HEADS * GROUPS, DIM))
    k, v = (bits(cp, rng, (1, HEADS, tokens, DIM)) for _ in "kv")
    offsets, lens = (cp.asarray(x, dtype=cp.int32) for x in ([0, tokens], [tokens]))
    ours = partial(prefill_attention, q, k, v, offsets, lens, max_new=tokens)
    runs: dict[str, Any] = {"kvlib": on_device.Graph(cp, lambda i: ours(), 4)}
    torch = on_device.torch_or_none()
    if torch is not None:
        view = [on_device.as_torch(torch, cp, x) for x in (q, k, v)]
        heads_first = view[0].transpose(0, 1)[None].contiguous()
        theirs = partial(torch.nn.functional.scaled_dot_product_attention, heads_first, *view[1:])
        theirs = partial(theirs, is_causal=True, enable_gqa=True)
        runs["torch"] = on_device.TorchGraph(torch, lambda i: theirs(), 4)
    found = on_device.alternate(cp, runs, burst=4)
    flops = 4 * HEADS * GROUPS * DIM * tokens * (tokens + 1) / 2
    for times in found.values():
        times["tflops"] = flops / times["median_us"] / 1e6
    return {"tokens": tokens, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two cases of decode, one of prefill")
    args = parser.parse_args()
    cp = on_device.device_or_exit()
    bandwidth = on_device.copy_bandwidth(cp)
    print(f"copy: {bandwidth / 1e12:.2f} TB/s, read and written")
    results: dict[str, Any] = {"copy_bytes_per_s": bandwidth, "decode": [], "prefill": []}
    on_device.save("gpu_attention", results, cp)
    for batch, keys in QUICK if args.quick else CASES:
        row = decode_case(cp, batch, keys, bandwidth)
        results["decode"].append(row)
        print(f"batch {batch:>3}, {keys:>6} keys: {on_device.line(row['runs'])}", flush=True)
        on_device.save("gpu_attention", results, cp)
        cp.get_default_memory_pool().free_all_blocks()
    for tokens in PROMPTS[:1] if args.quick else PROMPTS:
        row = prefill_case(cp, tokens)
        results["prefill"].append(row)
        figures = (f"{n} {t['tflops']:.0f} TFLOP/s" for n, t in row["runs"].items())
        print(f"prompt of {tokens:>6}: " + "; ".join(figures), flush=True)
        on_device.save("gpu_attention", results, cp)


if __name__ == "__main__":
    main()

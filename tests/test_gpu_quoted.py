"""Whether the numbers that pages quote from a GPU are the stored ones."""

from pathlib import Path

from kvlib.kernels.results import device_results


def quoted():
    """Page → what it says in words around stored numbers."""
    names = ("attention", "generate", "guesses", "sampling", "tests")
    attention, generate, guesses, sampling, tests = (device_results(f"gpu_{n}") for n in names)
    commit = tests["commit"]
    assert {x["machine"]["commit"] for x in (attention, generate, guesses, sampling)} == {commit}
    share, times = [], {}
    for case in attention["decode"][:5]:
        runs = {name.split(",")[0]: run for name, run in case["runs"].items()}
        share.append({name: f"{100 * run['share']:.0f} %" for name, run in runs.items()})
        times = times or {name: f"{1 / run['times_dense']:.2f}" for name, run in runs.items()}
    rows = [" | ".join(x[n] for n in ("dense", "paged", "int8", "e4m3", "int4", "torch"))
            for x in share]  # fmt: skip
    prompts = attention["prefill"]
    ours, theirs = (
        [f"{x['runs'][n]['tflops']:.0f}" for x in prompts] for n in ("kvlib", "torch")
    )
    weights = f"{400e9 / attention['copy_bytes_per_s']:.2f}"
    step = next(x for x in generate["decode"] if x["prompt"] == 128)
    kernels, arrays, peer = (step[n]["median_ms"] for n in ("kernels", "arrays", "transformers"))
    forms = ("one token", "chain of 5", "tree of 16")
    long, _, short = ([x["runs"][n]["median_us"] for n in forms] for x in guesses["guesses"])
    chain = guesses["guesses"][0]["runs"]["chain of 5"]
    full, _, half = sampling["candidates"][:3]  # 2,048 rows of float32 and of bfloat16
    (full_ms, torch_ms), (half_ms, _) = (
        [t["median_us"] / 1e3 for t in x["times"].values()] for x in (full, half)
    )
    full_share, half_share = (100 * x["share_of_copy_bandwidth"] for x in (full, half))
    draw_ms = {n: t["median_us"] / 1e3 for n, t in sampling["draws"][0]["times"].items()}
    return {
        "README.md": (
            f"({tests['date']}, commit {commit})",
            f"{share[0]['dense']} of the copy bandwidth, dense or paged",
            f"dense or paged; PyTorch {share[0]['torch']}",
            f"{times['int8']} times as fast as bfloat16 in int8, {times['e4m3']} times in fp8",
            f"only {times['int4']} times in int4",
            f"{kernels:.1f} ms; transformers {peer:.1f} ms",
            f"would take {weights} ms",
        ),
        "benchmarks/README.md": (
            f"on {tests['date']} at commit {commit} with CuPy {tests['cupy-cuda13x']}",
            f"is {times['int8']} times; int4 could be 3.2 times, and is {times['int4']} times",
            *rows[:2],
            f"{', '.join(ours[:2])} and {ours[2]} TFLOP/s",
            f"reaches {', '.join(theirs[:2])} and {theirs[2]}",
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at {full_share:.0f} %",
            f"is {half['times_torch']:.1f} times as fast and reads at {half_share:.0f} %",
            f"takes {half_ms / full_ms:.1f} times as long",
            f"takes {draw_ms['top_k 50']:.2f} ms with `top_k=50`",
            f"and {draw_ms['top_p 0.9'] / 1e3:.1f} s with `top_p=0.9`",
            "takes {:.0f} µs, a chain of five {:.0f} µs and a tree of 16 {:.0f} µs".format(*long),
            "they take {:.0f}, {:.0f} and {:.0f} µs".format(*short),
            f"{kernels:.1f} ms per step with kvlib's kernels",
            f"{arrays:.1f} ms with array operations and {peer:.1f} ms in transformers",
            f"{kernels / 0.4:.0f} µs per launch",
            f"All {tests['tests']['passed']} tests",
            f"{tests['parts']['kernels']['passed']} of them tests of the kernels",
        ),
        "book/gpu.ipynb": (
            f"single long request: {share[1]['torch']}",
            f"against {share[1]['dense']}",
            f"the same speed as with them, but we measured {times['without tensor cores']}",
            f"Int8 is {times['int8']} times as fast as bfloat16",
            f"and int4 only {times['int4']} times",
            f"400 MB, which an H200 copies in {weights} ms",
            f"Int8 reaches {times['int8']} of 1.94, e4m3 {times['e4m3']} of 2.00",
            f"int4 {times['int4']} of 3.20; paged equals dense, PyTorch {times['torch']}",
            f"without tensor cores {times['without tensor cores']}",
            f"about {kernels / 0.4:.0f} µs on a launch",
            f"takes {100 * (1 - peer / kernels):.0f} % less time",
        ),
        "book/sampling.ipynb": (
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at only {full_share:.0f} %",
            f"{half_ms:.3f} ms, and its share falls to {half_share:.0f} %",
        ),
        "book/speculative.ipynb": (
            f"takes {chain['times_one']:.1f} times as long for five tokens as for one",
        ),
    }


def test_the_numbers_of_a_gpu_are_the_stored_ones():
    root = Path(__file__).resolve().parent.parent
    for page, words in quoted().items():
        text = " ".join((root / page).read_text(encoding="utf-8").split())
        assert not [x for x in words if x not in text], page

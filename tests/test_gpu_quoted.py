"""Whether the numbers that pages quote from a GPU are the stored ones."""

from pathlib import Path

from kvlib.kernels.results import device_results


def quoted():
    """Page → what it says in words around stored numbers."""
    names = ("attention", "generate", "guesses", "sampling", "step", "tests")
    *found, tests = (device_results(f"gpu_{n}") for n in names)
    attention, generate, guesses, sampling, steps = found
    commit, earlier = tests["commit"], generate["machine"]["commit"]
    commits = {x["machine"]["commit"] for x in (guesses, sampling, steps)}
    assert attention["machine"]["commit"] == commit and len(commits) == 1
    share, times, rows = [], {}, []
    columns = ("dense", "paged", "int8", "e4m3", "int4", "torch")
    for case in attention["decode"][:2]:
        runs = {name.split(",")[0]: run for name, run in case["runs"].items()}
        share.append({name: f"{100 * run['share']:.0f} %" for name, run in runs.items()})
        times = times or {name: f"{1 / run['times_dense']:.2f}" for name, run in runs.items()}
        took = " | ".join(f"{runs[n]['median_us']:.0f}" for n in columns).replace(" ", " µs ", 1)
        part = " | ".join(share[-1][n] for n in columns)
        rows.append(f"of {case['keys']:,} keys | {took} | | share of the copy | {part} |")
    prompts = attention["prefill"]
    ours, theirs = ([f"{x['runs'][n]['tflops']:.0f}" for x in prompts] for n in ("kvlib", "torch"))
    copy = f"{attention['copy_bytes_per_s'] / 1e12:.2f} TB/s"
    weights = f"{400e9 / attention['copy_bytes_per_s']:.2f}"
    step = next(x for x in generate["decode"] if x["prompt"] == 128)
    kernels, arrays, peer = (step[n]["median_ms"] for n in ("kernels", "arrays", "transformers"))
    one, eight, _, small, _ = steps["steps"]
    cases = (small, "whole"), (one, "whole"), (eight, "whole"), (one, "transformers, compiled")
    graph, big, batch, rival = (
        f"{case['runs'][name]['median_us'] / 1e3:.2f}" for case, name in cases
    )
    floor = f"{one['floor_us'] / 1e3:.2f}"
    static = device_results("static_sass")["kernels"]["bfloat16"]["issue_over_memory_h200-sxm"]
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
            f"({tests['date']}, commit {commit})", f"*copy bandwidth* of that GPU is {copy}",
            f"{share[0]['dense']} of the copy bandwidth, dense or paged",
            f"dense or paged; PyTorch {share[0]['torch']}",
            f"{times['int8']} times as fast as bfloat16 in int8, {times['e4m3']} times in fp8",
            f"in fp8, {times['int4']} times in int4",
            f"{kernels:.1f} ms with kernels that Python launches one by one, {graph} ms as one",
            f"CUDA graph; transformers {peer:.1f} ms. Reading the weights takes {weights} ms",
            f"{big} ms as one CUDA graph; compiled transformers {rival} ms.",
            f"{rival} ms. Reading the weights takes {floor} ms",
        ),
        "benchmarks/README.md": (
            f"on {tests['date']} at commit {commit} with CuPy {tests['cupy-cuda13x']}",
            f"the same card, {copy}",
            f"is {times['int8']} times; int4 could be 3.2 times, and is {times['int4']} times",
            *rows, f"{', '.join(ours[:2])} and {ours[2]} TFLOP/s",
            f"reaches {', '.join(theirs[:2])} and {theirs[2]}",
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at {full_share:.0f} % of the copy's bandwidth",
            f"is {half['times_torch']:.1f} times as fast and reads at {half_share:.0f} %",
            f"takes {draw_ms['top_k 50']:.2f} ms with `top_k=50`",
            f"and {draw_ms['top_p 0.9'] / 1e3:.1f} s with `top_p=0.9`",
            "takes {:.0f} µs, a chain of five {:.0f} µs and a tree of 16 {:.0f} µs".format(*long),
            "they take {:.0f}, {:.0f} and {:.0f} µs".format(*short),
            f"{kernels:.1f} ms per step with kvlib's kernels",
            f"{arrays:.1f} ms with array operations and {peer:.1f} ms in transformers",
            f"{kernels / 0.4:.0f} µs per launch. As one CUDA graph, the step takes {graph} ms",
            f"it takes {big} ms for one request and {batch} ms for eight",
            f"compiled transformers {rival} ms for one, and a copy of the weights {floor} ms",
            f"guesses and sampling at commit {commits.pop()}, which has the same kernels",
            f"step from Python at commit {earlier}", f"All {tests['tests']['passed']} tests",
            f"{tests['parts']['kernels']['passed']} of them tests of the kernels",
        ),
        "book/gpu.ipynb": (
            f"With the single long request, PyTorch reaches {share[1]['torch']}",
            f"against {share[1]['dense']} here",
            f"With tensor cores, bfloat16 falls to {static:.1f}.",
            f"Int8 is {times['int8']} times as fast as bfloat16, e4m3 {times['e4m3']} times",
            f"and int4 {times['int4']} times",
            f"prefill reaches {ours[2]} TFLOP/s, PyTorch {theirs[2]}",
            f"400 MB, which an H200 copies in {weights} ms",
            f"the step that took {kernels:.1f} ms takes {graph} ms",
            f"Int8 reaches {times['int8']} of 1.94, e4m3 {times['e4m3']} of 2.00",
            f"int4 {times['int4']} of 3.20; paged equals dense, PyTorch {times['torch']};",
            f"PyTorch {times['torch']}; without tensor cores {times['without tensor cores']}",
            f"about {kernels / 0.4:.0f} µs on a launch",
        ),
        "book/sampling.ipynb": (
            f"is {full['times_torch']:.1f} times as fast as PyTorch's two calls",
            f"reads at {full_share:.0f} % of the bandwidth",
            f"take {half_ms:.3f} ms, and the share falls to {half_share:.0f} %",
        ),
        "book/speculative.ipynb": (
            f"kvlib's attention takes {chain['times_one']:.2f} times as long; its first",
        ),
    }


def test_the_numbers_of_a_gpu_are_the_stored_ones():
    root = Path(__file__).resolve().parent.parent
    for page, words in quoted().items():
        text = " ".join((root / page).read_text(encoding="utf-8").split())
        assert not [x for x in words if x not in text], page

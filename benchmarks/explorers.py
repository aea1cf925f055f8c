"""Measure one step of a slider on the rendered page: the scene, its drawing, the document.

Each explorer of the book is on a separate page in headless Chromium. A step sets a control to
its next value, lets the page's own listener do its work, and forces the layout that the browser
would do before it paints.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import save, summary
from tqdm.auto import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

LIMIT = 100.0  # milliseconds: what a reader feels as at once
STEPS = """([id, steps]) => {
  const root = document.getElementById(id), page = window.kvExplorers;
  const inputs = [...root.querySelectorAll('.kv-control :is(input, select)')];
  const name = JSON.parse(root.dataset.explorer).name, times = {whole: [], scene: [], draw: []};
  for (let i = 0; i < steps; i++) {
    const input = inputs[i % inputs.length];
    const many = input.options ? input.options.length : Number(input.max) + 1;
    input.value = String((Number(input.value) + 1) % many);
    let start = performance.now();
    input.dispatchEvent(new Event('input'));
    document.body.getBoundingClientRect();
    times.whole.push(performance.now() - start);
    const {settings, width} = root.kvState;
    start = performance.now();
    const scenes = page.scenes[name]; // none where all scenes were made beforehand
    const scene = scenes ? scenes(settings, page.tables) : root.kvState.scene;
    times.scene.push(performance.now() - start);
    start = performance.now();
    page.draw(scene, width);
    times.draw.push(performance.now() - start);
  }
  return times;
}"""


def measure(page: Any, anchor: str, steps: int) -> dict[str, Any]:
    """Milliseconds a step; the first quarter, in which the browser compiles, is dropped."""
    times = page.evaluate(STEPS, [anchor, steps])
    kept = {part: values[len(values) // 4 :] for part, values in times.items()}
    found: dict[str, Any] = summary(kept["whole"])
    found["slowest_ms"] = max(kept["whole"])
    found["of_that_scene_ms"] = statistics.median(kept["scene"])
    found["of_that_drawing_ms"] = statistics.median(kept["draw"])
    return {key: round(value, 3) for key, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="steps per explorer (default: 400)")
    parser.add_argument(
        "--output", help="where to write (default: benchmarks/results/explorers.json)"
    )
    given = parser.parse_args()
    if given.steps < 8:
        parser.error(f"--steps: got {given.steps}, needed at least 8")

    from chromium import launch
    from explorer_pages import fixture_explorers, write_fixture
    from playwright.sync_api import sync_playwright

    from kvbook.explorers import eviction_explorer

    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright)
        # "replay", whose scenes were made beforehand, is a test's and not the book's
        book = [made for made in fixture_explorers() if made.name != "replay"]
        book.append(eviction_explorer())  # the largest drawing of those made beforehand
        file = write_fixture(Path(folder) / "page", book)
        for made in tqdm(book, desc="explorers"):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(file.as_uri(), wait_until="load")
            results[made.name] = measure(page, made.anchor, given.steps)
            page.close()
        chromium = browser.version
        browser.close()
    save("explorers", {"chromium": chromium, "steps": results}, given.output)
    for name, row in results.items():
        print(f"{name:10} {row['median_ms']:6.2f} ms (slowest {row['slowest_ms']:.1f} ms)")
    return 0 if all(row["median_ms"] < LIMIT for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

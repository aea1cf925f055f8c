"""Take the README's picture: the top of a built chapter, as a reader's screen shows it."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from chromium import launch
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SIZE = {"width": 1200, "height": 860}
COLOURS = 256  # of the palette: text and flat figures need no more, and the file stays small


def take(page_file: Path, scroll_to: str, above: int, scheme: str) -> Image.Image:
    """A screenful of a page that begins `above` pixels over the element `scroll_to` selects."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        # without motion, a slider that plays by itself shows its last step at once
        still = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
        page = still.new_page()
        page.goto(page_file.resolve().as_uri(), wait_until="networkidle")
        page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        top = page.locator(scroll_to).first.evaluate("e => e.getBoundingClientRect().top")
        page.evaluate("y => window.scrollTo(0, y)", top - above)
        page.wait_for_timeout(500)  # the side bar follows
        data = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(data)).convert("RGB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", default="book/cached", help="which page (book/cached)")
    parser.add_argument("--at", default="h1", help="CSS selector of what to show (h1)")
    parser.add_argument(
        "--above",
        type=int,
        default=80,
        help="pixels of the page to show above that (default: 80)",
    )
    parser.add_argument("--scheme", choices=["light", "dark"], default="light", help="theme")
    shown = ROOT / "book" / "_static" / "page.png"
    parser.add_argument("--output", type=Path, default=shown, help="where to write the picture")
    given = parser.parse_args()
    page_file = ROOT / "_build" / "html" / f"{given.page}.html"
    if not page_file.exists():
        parser.error(f"{page_file.name} is not built: run `make book` first")
    picture = take(page_file, given.at, given.above, given.scheme)
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(given.output, optimize=True)
    print(f"{given.output.name}: {given.output.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

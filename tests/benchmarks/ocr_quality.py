"""How many words of rendered pages are found again by character recognition, how fast, and in how much memory.

    python tests/benchmarks/ocr_quality.py --pages 50 --turned 0 2 TEXT_FILE...

Pages of known text are drawn in two fonts at 200 dots per inch and turned by up to so many degrees.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import resource
import textwrap
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from localmcp.readers.ocr import DOTS_PER_INCH, installed_engine, read_pages

FONTS = ("DejaVuSerif.ttf", "DejaVuSans.ttf")
SIZE = (int(8.27 * DOTS_PER_INCH), int(11.69 * DOTS_PER_INCH))
MARGIN = DOTS_PER_INCH
POINTS = 11
LINES = 46


def draw_page(lines: list[str], font_name: str, degrees: float) -> bytes:
    """A page as PNG."""
    page = Image.new("L", SIZE, 255)
    font = ImageFont.truetype(font_name, round(POINTS * DOTS_PER_INCH / 72))
    ImageDraw.Draw(page).multiline_text((MARGIN, MARGIN), "\n".join(lines), font=font, fill=20, spacing=12)
    if degrees:
        page = page.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=255)
    buffer = io.BytesIO()
    page.save(buffer, "PNG")
    return buffer.getvalue()


def words_of(text: str) -> list[str]:
    """The words that a search could ask for."""
    return [word.casefold() for word in re.findall(r"\w{2,}", text)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--turned", type=float, nargs="+", default=[0, 2])
    options = parser.parse_args()
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in options.texts)
    lines = textwrap.wrap(text, 74)
    pages = [lines[at : at + LINES] for at in range(0, options.pages * LINES, LINES)]
    chance = random.Random(7)
    for most in options.turned:
        found = total = 0
        worst = 1.0
        wall, spent = time.perf_counter(), time.process_time()
        for number, page in enumerate(pages):
            picture = draw_page(page, FONTS[number % 2], chance.uniform(-most, most) if most else 0)
            [result] = read_pages("page.png", picture)
            read = set(words_of(result.text))
            asked = words_of("\n".join(page))
            hits = sum(word in read for word in asked)
            found, total, worst = found + hits, total + len(asked), min(worst, hits / max(len(asked), 1))
        wall, spent = time.perf_counter() - wall, time.process_time() - spent
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        share, seconds = found / total, spent / len(pages)
        print(f"{installed_engine()}, {len(pages)} pages turned by up to {most:g} degrees:")
        print(f"  {share:.3f} of the words, {worst:.3f} on the worst page, {memory:.0f} MB")
        print(f"  {60 * len(pages) / wall:.1f} pages a minute, {seconds:.1f} s of processor time a page")


if __name__ == "__main__":
    main()
